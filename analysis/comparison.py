"""One arm against its baseline: the paired ratio with its interval and verdict, for all prompts and for each domain and
level, with what stands beside it. Pure: observations in, a comparison out.

Rates are decode rates, so a ratio above 1 is faster. TTFT and E2E are times: there a ratio below 1 is faster. Where the
two arms' answers differ in length, or a length is unknown, E2E compares unequal work: ``e2e_ratio`` is then null and
says so, and the ratio over the pairs of equal length stands under a name of its own. Intervals of several domains are
each marginal.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.effect import MARGIN, Judged, judge, other_ratios
from analysis.order_effects import drift, pair_points, points, warm_up
from analysis.paired import Bounds, Crossed, crossed
from analysis.pairing import Observation, Pair, Read, Request, Table, pair

Only = Collection[tuple[int, Request]]
LEVELS = "each launch went through several levels: what its load did and what its time did cannot be told apart"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What other evidence says of the arm; None where it was not looked at. Read by whoever has the folders."""

    outputs_equal: int | None = None
    outputs_compared: int | None = None
    outputs_class: str | None = None
    n_judged: int | None = None
    n_valid: int | None = None
    acceptance: Mapping[str, Any] | None = None
    cycle_cost: Mapping[str, Any] | None = None
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The ratio over some of the prompts. ``found`` and ``judged`` are None where no prompt was left, and ``why``."""

    table: Table
    found: Crossed | None
    judged: Judged | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        """The contract's fields of a ratio, and what they rest on."""
        found, judged = self.found, self.judged
        whys = {
            "ratio": self.why,
            "interval": self.why if found is None else found.why,
            "mde": self.why if judged is None else judged.mde_why,
        }
        return {
            "n_pairs": len(self.table.launches) * len(self.table.prompts),
            "n_launches": len(self.table.launches),
            "n_prompts": len(self.table.prompts),
            "n_requests": len(self.table.pairs),
            "ratio": None if found is None else found.ratio,
            "interval": _list(None if found is None else found.interval),
            "confidence": None if found is None else found.confidence,
            "df": None if found is None else found.df,
            "scope": None if found is None else found.scope,
            "fixed_suite_interval": _list(None if found is None else found.fixed_suite),
            "prompt_sampling_interval": _list(None if found is None else found.prompt_sampling),
            "mde": None if judged is None else judged.mde,
            "mde_prompts": None if judged is None else judged.mde_prompts,
            "mde_crossed": None if judged is None else judged.mde_crossed,
            "verdict": "not resolved" if judged is None else judged.verdict,
            "because": self.why if judged is None else judged.because,
            "margin": None if judged is None else judged.margin,
            "tost_p": None if judged is None else judged.tost_p,
            "within_margin": None if judged is None else judged.within_margin,
            "other_ratios": None if self.table.empty else other_ratios(self.table),
            "coverage": self.table.coverage.as_json(),
            "why": {name: said for name, said in whys.items() if said is not None},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An arm against its baseline. ``subset`` names the pairs it is taken over."""

    arm: str
    subset: str
    all: Group
    by_domain: Mapping[str, Group]
    by_level: Mapping[str, Group]
    ttft: Group
    e2e: Group  # over the pairs of equal length
    n_lengths_differ: int
    n_lengths_unknown: int
    order: Mapping[str, Any]
    beside: Beside

    def as_json(self) -> dict[str, Any]:
        """One element of ``arms`` in ``compare --json``."""
        mine = self.all.as_json()
        same_length = self.n_lengths_differ == self.n_lengths_unknown == 0
        beside = self.beside
        lengths = (
            f"of {len(self.all.table.pairs)} pairs {self.n_lengths_differ} differ in length and "
            f"{self.n_lengths_unknown} have an unknown one: E2E would compare unequal work"
        )
        whys = dict(mine.pop("why")) | dict(beside.why)
        if not same_length:
            whys["e2e_ratio"] = lengths
        for name, group in (("ttft_ratio", self.ttft), ("e2e_ratio", self.e2e)):
            if group.why is not None:
                whys.setdefault(name, group.why)
        return {
            "arm": self.arm,
            "subset": self.subset,
            **mine,
            "ttft_ratio": _ratio(self.ttft),
            "ttft_interval": _list(None if self.ttft.found is None else self.ttft.found.interval),
            "e2e_ratio": _ratio(self.e2e) if same_length else None,
            "e2e_ratio_equal_lengths": _ratio(self.e2e),
            "n_lengths_differ": self.n_lengths_differ,
            "n_lengths_unknown": self.n_lengths_unknown,
            "outputs_equal": beside.outputs_equal,
            "outputs_compared": beside.outputs_compared,
            "outputs_class": beside.outputs_class,
            "n_judged": beside.n_judged,
            "n_valid": beside.n_valid,
            "acceptance": None if beside.acceptance is None else dict(beside.acceptance),
            "cycle_cost": None if beside.cycle_cost is None else dict(beside.cycle_cost),
            "by_domain": {name: group.as_json() for name, group in self.by_domain.items()},
            "by_level": {name: group.as_json() for name, group in self.by_level.items()},
            "order": dict(self.order),
            "not_measured": None,
            "why": whys,
        }

    def meets(self, min_ratio: float) -> tuple[bool, str]:
        """A gate: the interval's lower end is at least ``min_ratio``; without an interval it is not met."""
        found = self.all.found
        if found is None or found.interval is None:
            return False, f"no interval: {self.all.why if found is None else found.why}"
        low = found.interval[0]
        return low >= min_ratio, f"the interval's lower end {low:.4f} against {min_ratio:g}"


def compare_arms(
    base: Sequence[Observation],
    arm: Sequence[Observation],
    *,
    name: str | None = None,
    margin: float = MARGIN,
    confidence: float = 0.95,
    only: Only | None = None,
    subset: str = "all pairs",
    beside: Beside | None = None,
) -> Comparison:
    """Compare two arms' observations; ``only`` limits it to the named pairs, and ``subset`` says in words to which.

    Raises AnalysisError on a request answered twice in a launch and on a value that is not a positive number.
    """
    table = pair(base, arm, only=only)
    domains = dict.fromkeys(one.domain for one in (*base, *arm))
    levels = dict.fromkeys(one.level for one in (*base, *arm) if one.level is not None)

    def group(read: Read | None = None, **kept: str) -> Group:
        ours, theirs = ([one for one in side if _is(one, kept)] for side in (base, arm))
        found = pair(ours, theirs, only=only) if read is None else pair(ours, theirs, read=read, only=only)
        return _group(found, margin, confidence)

    equal_length = _equal_lengths(table)
    same = pair(base, arm, read=lambda one: one.e2e_s, only=equal_length if only is None else equal_length & set(only))
    return Comparison(
        arm=name or (arm[0].arm if arm else "unnamed"),
        subset=subset,
        all=_group(table, margin, confidence),
        by_domain={domain: group(domain=domain) for domain in domains},
        by_level={level: group(level=level) for level in levels},
        ttft=group(lambda one: one.ttft_s),
        e2e=_group(same, margin, confidence),
        n_lengths_differ=sum(not _unknown(one) and one.base.n_tokens != one.arm.n_tokens for one in table.pairs),
        n_lengths_unknown=sum(_unknown(one) for one in table.pairs),
        order=_order(base, arm, table) if len(levels) < 2 else _order_of_levels(),
        beside=beside or Beside(),
    )


def not_measured(
    arm: str, *, stage: str, symptom: str, cause: str | None = None, folder: str | None = None
) -> dict[str, Any]:
    """The element of ``arms`` for an arm that did not run. ``cause`` only where it was shown."""
    because = f"not measured: {stage}, {symptom}"
    empty = compare_arms([], [], name=arm).as_json()
    said = {"stage": stage, "symptom": symptom, "cause": cause, "folder": folder}
    return {
        **empty,
        "verdict": None,
        "because": because,
        "not_measured": said,
        "why": dict.fromkeys(empty["why"], because),
    }


def _order(base: Sequence[Observation], arm: Sequence[Observation], table: Table) -> dict[str, Any]:
    return {
        "baseline": drift(points(base)).as_json(),
        "arm": drift(points(arm)).as_json(),
        "ratio": drift(pair_points(table.pairs)).as_json(),
        "warm_up": {"baseline": warm_up(base).as_json(), "arm": warm_up(arm).as_json()},
    }


def _order_of_levels() -> dict[str, Any]:
    """Of launches that went through several levels: nothing, as a level's load and its place cannot be told apart."""
    slope, first = replace(drift(()), why=LEVELS).as_json(), replace(warm_up(()), why=LEVELS).as_json()
    return {**dict.fromkeys(("baseline", "arm", "ratio"), slope), "warm_up": {"baseline": first, "arm": first}}


def _group(table: Table, margin: float, confidence: float) -> Group:
    if table.empty:
        left = next(iter([*table.coverage.left_out_launches.values(), *table.coverage.left_out_prompts.values()]), None)
        why = "no prompt was completed in both arms in every launch" + ("" if left is None else f" ({left})")
        return Group(table=table, found=None, judged=None, why=why)
    found = crossed(table.log_ratios, confidence=confidence)
    return Group(table=table, found=found, judged=judge(found, margin=margin), why=None)


def _is(one: Observation, kept: Mapping[str, str]) -> bool:
    return all(getattr(one, name) == value for name, value in kept.items())


def _equal_lengths(table: Table) -> set[tuple[int, Request]]:
    return {
        (one.base.launch, one.base.request)
        for one in table.pairs
        if one.base.n_tokens is not None and one.base.n_tokens == one.arm.n_tokens
    }


def _unknown(one: Pair) -> bool:
    return one.base.n_tokens is None or one.arm.n_tokens is None


def _ratio(group: Group) -> float | None:
    return None if group.found is None else group.found.ratio


def _list(bounds: Bounds | None) -> list[float] | None:
    return None if bounds is None else list(bounds)
