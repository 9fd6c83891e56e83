"""Are an arm's answers the baseline's, prompt by prompt, and does it differ more than the baseline does from itself?

A greedy answer may change with the batch, the kernel or the launch, so an arm's differences mean something only beside
those of the control: the baseline against another launch of itself. A token's place is read from the chunk marks, which
carry the server's count: the first divergence lies in a chunk, and the tokens that chunk may hold are named as
(first, last), counted from 1; None where the server sent no counts.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Literal

from analysis.outputs import Pair
from analysis.pairing import Request as AskedOnce
from evidence.records import Request

Class = Literal["identical", "as the control differs", "differs more than the control", "differs, control unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptEquality:
    """One prompt over all paired launches. First divergences are the earliest seen."""

    prompt_id: str
    domain: str
    n_compared: int
    n_equal: int
    first_divergence_char: int | None
    first_divergence_token: tuple[int, int] | None
    n_length_differs: int  # pairs with another number of completion tokens
    n_finish_reason_differs: int
    control_n_compared: int
    control_n_equal: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Equality:
    """An arm's answers beside the baseline's. ``outputs_class`` goes with every speed ratio."""

    outputs_class: Class | None  # None where nothing could be compared
    why: str
    outputs_compared: int
    outputs_equal: int
    n_length_differs: int
    control_compared: int
    control_equal: int
    prompts: tuple[PromptEquality, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def equality(pairs: Iterable[tuple[Pair, tuple[int, int] | None]], control: Iterable[Pair]) -> Equality:
    """From each launch's pairs (``analysis.outputs.compare``) with the token of their divergence, and the control's."""
    arm: dict[str, list[tuple[Pair, tuple[int, int] | None]]] = defaultdict(list)
    own: dict[str, list[Pair]] = defaultdict(list)
    for pair, token in pairs:
        arm[pair.prompt_id].append((pair, token))
    for one in control:
        own[one.prompt_id].append(one)
    prompts = tuple(_prompt(prompt_id, found, own.get(prompt_id, [])) for prompt_id, found in arm.items())
    compared, equal = sum(one.n_compared for one in prompts), sum(one.n_equal for one in prompts)
    said, why = _class(prompts)
    return Equality(
        outputs_class=said,
        why=why,
        outputs_compared=compared,
        outputs_equal=equal,
        n_length_differs=sum(one.n_length_differs for one in prompts),
        control_compared=sum(one.control_n_compared for one in prompts),
        control_equal=sum(one.control_n_equal for one in prompts),
        prompts=prompts,
    )


def token_at(request: Request, character: int) -> tuple[int, int] | None:
    """The tokens (first, last; counted from 1) of the chunk that brought this character of the visible text.

    None where the server sent no counts, and where chunks carry other than visible text.
    """
    if request.reasoning_text or request.tool_calls_text or not request.chunks:
        return None
    counts = [mark[2] for mark in request.chunks]
    ends = list(accumulate(mark[3] for mark in request.chunks))
    if ends[-1] != len(request.output_text) or any(count is None for count in counts):
        return None
    place = bisect_right(ends, character)
    if place == len(ends):  # the text ended here: the token after its last one
        last = counts[-1] or 0
        return last + 1, last + 1
    before = 0 if place == 0 else counts[place - 1] or 0
    return before + 1, max(before + 1, counts[place] or 0)


def _prompt(
    prompt_id: str, found: Sequence[tuple[Pair, tuple[int, int] | None]], control: Sequence[Pair]
) -> PromptEquality:
    compared = [(pair, token) for pair, token in found if pair.equal is not None]
    differing = [(pair, token) for pair, token in compared if pair.equal is False]
    first = min(
        (one for one in differing if one[0].first_divergence_char is not None),
        key=lambda one: one[0].first_divergence_char or 0,
        default=None,
    )
    own = [one for one in control if one.equal is not None]
    return PromptEquality(
        prompt_id=prompt_id,
        domain=found[0][0].domain,
        n_compared=len(compared),
        n_equal=len(compared) - len(differing),
        first_divergence_char=None if first is None else first[0].first_divergence_char,
        first_divergence_token=None if first is None else first[1],
        n_length_differs=sum(pair.n_completion_tokens[0] != pair.n_completion_tokens[1] for pair, _ in compared),
        n_finish_reason_differs=sum(pair.finish_reason[0] != pair.finish_reason[1] for pair, _ in compared),
        control_n_compared=len(own),
        control_n_equal=sum(one.equal is True for one in own),
    )


def _class(prompts: Sequence[PromptEquality]) -> tuple[Class | None, str]:
    """Prompt by prompt: a difference counts against the arm where the control agreed with itself on that prompt."""
    compared = [one for one in prompts if one.n_compared]
    if not compared:
        return None, "no pair of answers could be compared"
    differing = [one for one in compared if one.n_equal < one.n_compared]
    if not differing:
        return "identical", f"all pairs of {len(compared)} prompts are equal"
    unknown = [one for one in differing if not one.control_n_compared]
    stable = [one for one in differing if one.control_n_compared and one.control_n_equal == one.control_n_compared]
    said = f"{len(differing)} of {len(compared)} prompts differ"
    if stable:
        return "differs more than the control", f"{said}, {len(stable)} of them where the control agrees with itself"
    if unknown:
        return "differs, control unknown", f"{said}; the control did not answer {len(unknown)} of them twice"
    return "as the control differs", f"{said}, in each of them the control differs from itself too"


def equal_pairs(found: Mapping[int, Iterable[Pair]]) -> set[tuple[int, AskedOnce]]:
    """The pairs by launch whose answers are equal, to take a speed ratio over those only."""
    return {
        (launch, AskedOnce(one.level, one.prompt_id, one.repeat))
        for launch, pairs in found.items()
        for one in pairs
        if one.equal is True
    }
