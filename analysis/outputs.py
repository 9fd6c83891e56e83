"""The answers themselves: does each do what its prompt asked, and do two runs give the same ones?

Only whole answers are judged: one that was cut by ``max_tokens`` (finish reason "length") or that failed can be neither
right nor wrong. How many of how many were judged is always said.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.task_checks import Judgement, judge
from evidence.records import Json, Request

PARTS = {"output_text": "visible text", "reasoning_text": "reasoning", "tool_calls_text": "tool calls"}
Known = dict[tuple[str, str], Judgement]  # by the check, and the answer with its finish reason
SAME_REQUEST = ("endpoint", "messages", "prompt", "max_tokens", "temperature", "seed", "ignore_eos")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One measured request's answer; ``ok`` is None where it was not judged, and ``why`` says why, or what is wrong."""

    plan_id: str
    prompt_id: str
    domain: str
    level: str | None
    repeat: int
    outcome: str
    finish_reason: str | None
    n_completion_tokens: int | None
    n_chars: int
    check: str | None
    ok: bool | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainOutputs:
    """How the answers of one domain were judged: n_answers = n_judged + n_cut + n_failed + n_not_judged."""

    domain: str
    n_answers: int
    n_judged: int
    n_valid: int
    n_cut: int
    n_failed: int
    n_not_judged: int  # whole, but without a check or beyond what the check can tell


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One planned request in two runs. ``equal`` is None where the two cannot be compared, and ``why`` says why."""

    prompt_id: str
    domain: str
    level: str | None
    repeat: int
    equal: bool | None
    why: str
    part: str | None  # which of the texts differs: visible text, reasoning, tool calls
    first_divergence_char: int | None  # counts from 0
    n_chars: tuple[int | None, int | None]
    n_completion_tokens: tuple[int | None, int | None]
    finish_reason: tuple[str | None, str | None]


def judge_answers(
    requests: Iterable[Request], plan: Mapping[str, Mapping[str, Json]], known: Known | None = None
) -> tuple[Answer, ...]:
    """Judge each measured request by the check of its plan line; equal answers to one check are judged once.

    ``known`` is filled and can be handed on, so that several runs judge an answer once among them.
    """
    seen: Known = {} if known is None else known
    return tuple(_answer(request, plan, seen) for request in requests if request.phase == "measured")


def by_domain(answers: Sequence[Answer]) -> tuple[DomainOutputs, ...]:
    """Counts for each domain in order of appearance, then for all."""
    domains = list(dict.fromkeys(answer.domain for answer in answers))
    groups = [(domain, [answer for answer in answers if answer.domain == domain]) for domain in domains]
    return tuple(_counts(domain, group) for domain, group in [*groups, ("all", list(answers))])


def compare(
    base: Iterable[Request],
    base_plan: Mapping[str, Mapping[str, Json]],
    other: Iterable[Request],
    other_plan: Mapping[str, Mapping[str, Json]],
    extras: tuple[Mapping[str, Json], Mapping[str, Json]] = ({}, {}),
) -> tuple[Pair, ...]:
    """Pair the measured requests of two runs by prompt, level and repeat, and find where their answers part.

    ``extras`` are the fields that each run added to every request's body (``identity.request_extra``).
    """
    ours, theirs = _keyed(base), _keyed(other)
    added = [name for name in sorted({*extras[0], *extras[1]}) if not _same_field(name, *extras)]
    return tuple(
        _pair(key, ours.get(key), base_plan, theirs.get(key), other_plan, added)
        for key in dict.fromkeys([*ours, *theirs])
    )


def _same_field(name: str, one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    return (name in one) == (name in other) and one.get(name) == other.get(name)


def first_divergence(one: str, two: str) -> int | None:
    """Index of the first character that differs, the shorter one's length where it is a prefix, None when equal."""
    if one == two:
        return None
    for index, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return index
    return min(len(one), len(two))


def as_json(rows: Sequence[Answer | DomainOutputs | Pair]) -> list[dict[str, Any]]:
    """The rows as plain objects."""
    return [asdict(row) for row in rows]


def _answer(request: Request, plan: Mapping[str, Mapping[str, Json]], known: Known) -> Answer:
    check = plan.get(request.plan_id, {}).get("check")
    if request.outcome != "completed":
        judgement = Judgement(state="not judged", why=f"failed: {request.outcome}")
    else:
        key = (json.dumps(check, sort_keys=True), f"{request.finish_reason} {request.output_sha256}")
        if key not in known:
            known[key] = _judgement(check, request)
        judgement = known[key]
    return Answer(
        plan_id=request.plan_id,
        prompt_id=request.prompt_id,
        domain=request.domain,
        level=request.level,
        repeat=request.repeat,
        outcome=request.outcome,
        finish_reason=request.finish_reason,
        n_completion_tokens=request.n_completion_tokens,
        n_chars=len(request.output_text),
        check=None if check is None else str(check.get("kind")),
        ok={"valid": True, "invalid": False}.get(judgement.state),
        why=judgement.why,
    )


def _judgement(check: Mapping[str, Json] | None, request: Request) -> Judgement:
    try:
        return judge(check, request.output_text, finish_reason=request.finish_reason)
    except KeyError as lacking:
        return Judgement(state="not judged", why=f"the prompt's check lacks {lacking}")


def _counts(domain: str, answers: Sequence[Answer]) -> DomainOutputs:
    failed = sum(answer.outcome != "completed" for answer in answers)
    cut = sum(answer.outcome == "completed" and answer.finish_reason == "length" for answer in answers)
    judged = sum(answer.ok is not None for answer in answers)
    return DomainOutputs(
        domain=domain,
        n_answers=len(answers),
        n_judged=judged,
        n_valid=sum(answer.ok is True for answer in answers),
        n_cut=cut,
        n_failed=failed,
        n_not_judged=len(answers) - judged - cut - failed,
    )


Key = tuple[str, str | None, int]


def _keyed(requests: Iterable[Request]) -> dict[Key, Request]:
    return {
        (request.prompt_id, request.level, request.repeat): request
        for request in requests
        if request.phase == "measured"
    }


def _pair(
    key: Key,
    one: Request | None,
    one_plan: Mapping[str, Mapping[str, Json]],
    two: Request | None,
    two_plan: Mapping[str, Mapping[str, Json]],
    added: Sequence[str],
) -> Pair:
    prompt_id, level, repeat = key
    equal, part, where = None, None, None
    why = _incomparable(one, one_plan, two, two_plan, added)
    if why is None and one is not None and two is not None:
        equal, part, where = _difference(one, two)
        why = "identical" if equal else f"{part} differs from character {where}"
    either = one or two
    return Pair(
        prompt_id=prompt_id,
        domain=either.domain if either else "",
        level=level,
        repeat=repeat,
        equal=equal,
        why=why or "",
        part=part,
        first_divergence_char=where,
        n_chars=(len(one.output_text) if one else None, len(two.output_text) if two else None),
        n_completion_tokens=(one.n_completion_tokens if one else None, two.n_completion_tokens if two else None),
        finish_reason=(one.finish_reason if one else None, two.finish_reason if two else None),
    )


def _incomparable(
    one: Request | None,
    one_plan: Mapping[str, Mapping[str, Json]],
    two: Request | None,
    two_plan: Mapping[str, Mapping[str, Json]],
    added: Sequence[str],
) -> str | None:
    if one is None or two is None:
        return f"not answered in the {'first' if one is None else 'second'} run"
    for place, request in (("first", one), ("second", two)):
        if request.outcome != "completed":
            return f"failed in the {place} run: {request.outcome}"
    ours, theirs = one_plan.get(one.plan_id, {}), two_plan.get(two.plan_id, {})
    differing = [name for name in SAME_REQUEST if ours.get(name) != theirs.get(name)]
    differing += added
    return f"not the same request: {', '.join(differing)} differ" if differing else None


def _difference(one: Request, two: Request) -> tuple[bool, str | None, int | None]:
    for name, said in PARTS.items():
        where = first_divergence(getattr(one, name) or "", getattr(two, name) or "")
        if where is not None:
            return False, said, where
    return True, None, None
