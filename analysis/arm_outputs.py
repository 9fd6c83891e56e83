"""An arm's answers beside the baseline's, over all paired launches, and the baseline's beside its own.

What the baseline does to itself comes from the control launches; where there is none, from the baseline's launches
compared with each other (each with the one before it), which is said: these differ in the order of prompts too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from analysis import identity
from analysis.arm_runs import Sides, why_not
from analysis.equality import Equality, equality, token_at
from analysis.loading import LoadedRun
from analysis.outputs import Answer, Known, Pair, compare, judge_answers
from analysis.pairing import Request
from analysis.study_loading import CellRun

Token = tuple[int, int] | None
ControlSource = Literal["control launches", "the baseline's launches against each other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnDisagreement:
    """The baseline's answers compared with its own. ``source`` is None where there was nothing to compare."""

    pairs: tuple[Pair, ...]
    source: ControlSource | None

    def as_json(self) -> dict[str, Any]:
        compared = [one for one in self.pairs if one.equal is not None]
        return {
            "source": self.source,
            "outputs_compared": len(compared),
            "outputs_equal": sum(one.equal is True for one in compared),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """How many answers of one side, in the pairs compared, were judged, and how many of those are valid."""

    n_answers: int
    n_judged: int
    n_valid: int
    n_cut: int  # by max_tokens: neither right nor wrong

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmOutputs:
    """``equal`` and ``valid`` name the pairs of equal answers, and those of which both answers are valid."""

    equality: Equality
    base: Judged
    arm: Judged
    by_domain: Mapping[str, tuple[Judged, Judged]]
    pairs: tuple[tuple[int, Pair, Token], ...]  # with the paired launch
    equal: frozenset[tuple[int, Request]]
    valid: frozenset[tuple[int, Request]]
    why: str | None  # why nothing was compared

    def as_json(self) -> dict[str, Any]:
        return {
            **self.equality.as_json(),
            "baseline_judged": self.base.as_json(),
            "arm_judged": self.arm.as_json(),
            "judged_by_domain": {
                domain: {"baseline": base.as_json(), "arm": arm.as_json()}
                for domain, (base, arm) in self.by_domain.items()
            },
        }


def own_disagreement(base: Mapping[int, CellRun], control: Mapping[int, CellRun]) -> OwnDisagreement:
    """From the control launches paired with the baseline's, else from the baseline's launches among themselves."""
    couples = [(base[pair], one) for pair, one in control.items() if pair in base]
    source: ControlSource = "control launches"
    found = _compared(couples)
    if not found:
        ordered = [base[pair] for pair in sorted(base)]
        found = _compared(list(pairwise(ordered)))
        source = "the baseline's launches against each other"
    return OwnDisagreement(pairs=tuple(found), source=source if found else None)


def arm_outputs(found: Sides, own: OwnDisagreement, known: Known) -> ArmOutputs:
    """Compare and judge the answers of every pair whose runs may both be used for outputs."""
    pairs: list[tuple[int, Pair, Token]] = []
    judged: list[tuple[Answer, Answer]] = []
    equal: set[tuple[int, Request]] = set()
    valid: set[tuple[int, Request]] = set()
    usable = found.both("outputs")
    for pair, base, arm in usable:
        for one, token in compared_pairs(base.run, arm.run):
            pairs.append((pair, one, token))
            if one.equal is True:
                equal.add(found.request(pair, Request(one.level, one.prompt_id, one.repeat)))
        ours, theirs = _answers(base.run, known), _answers(arm.run, known)
        for asked in ours.keys() & theirs.keys():
            judged.append((ours[asked], theirs[asked]))
            if ours[asked].ok is True and theirs[asked].ok is True:
                valid.add(found.request(pair, asked))
    domains = dict.fromkeys(answer.domain for answer, _ in sorted(judged, key=lambda two: two[0].prompt_id))
    why = None
    if not usable:
        lacking = [why_not(one, "outputs") for side in (found.base, found.arm) for one in side.values()]
        why = next((one for one in lacking if one is not None), "no pair of launches was measured")
    return ArmOutputs(
        equality=equality([(one, token) for _, one, token in pairs], own.pairs),
        base=_counts([base for base, _ in judged]),
        arm=_counts([arm for _, arm in judged]),
        by_domain={
            domain: (
                _counts([base for base, _ in judged if base.domain == domain]),
                _counts([arm for base, arm in judged if base.domain == domain]),
            )
            for domain in domains
        },
        pairs=tuple(pairs),
        equal=frozenset(equal),
        valid=frozenset(valid),
        why=why,
    )


def compared_pairs(base: LoadedRun, arm: LoadedRun) -> tuple[tuple[Pair, Token], ...]:
    """Each planned request in two runs, with the token at which their visible texts part where the server counted."""
    requests = [[row.request for row in run.rows] for run in (base, arm)]
    by_key = [{(r.prompt_id, r.level, r.repeat): r for r in side if r.phase == "measured"} for side in requests]
    extras = (identity.request_extra(base.manifest), identity.request_extra(arm.manifest))
    found = []
    for one in compare(requests[0], base.plan, requests[1], arm.plan, extras):
        token: Token = None
        if one.first_divergence_char is not None and one.part == "visible text":
            for side in by_key:
                token = token or token_at(side[one.prompt_id, one.level, one.repeat], one.first_divergence_char)
        found.append((one, token))
    return tuple(found)


def _compared(couples: Sequence[tuple[CellRun, CellRun]]) -> list[Pair]:
    return [
        pair
        for one, other in couples
        if why_not(one, "outputs") is None and why_not(other, "outputs") is None
        for pair, _ in compared_pairs(one.run, other.run)
    ]


def _answers(run: LoadedRun, known: Known) -> dict[Request, Answer]:
    answers = judge_answers([row.request for row in run.rows], run.plan, known)
    return {Request(one.level, one.prompt_id, one.repeat): one for one in answers}


def _counts(answers: Sequence[Answer]) -> Judged:
    return Judged(
        n_answers=len(answers),
        n_judged=sum(one.ok is not None for one in answers),
        n_valid=sum(one.ok is True for one in answers),
        n_cut=sum(one.outcome == "completed" and one.finish_reason == "length" for one in answers),
    )
