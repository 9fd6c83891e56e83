"""What speculation yields and costs in one arm, over all its paired launches: acceptance, its model, the cycle cost.

Acceptance is pooled by the counters of every run's window, by the answers themselves where the server publishes none,
and by domain always by the answers; counts are summed, rates never averaged. The histogram of accepted drafts comes
from the answers, or from the counters by position where each step drafted the full window (then the two hold the same
numbers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis import identity
from analysis.acceptance_model import conditional_by_position, fit_alpha
from analysis.arm_runs import Sides, why_not
from analysis.cycle_by_counters import decoded_by_counters
from analysis.errors import AnalysisError
from analysis.pairing import Pair, Request, Table
from analysis.speculation import CycleCost, Decoded, NoCost, cycle_cost, decoded
from analysis.study_loading import CellRun
from evidence.records import Request as Record
from infra.engines import sglang_request, vllm_request
from infra.engines.acceptance import Acceptance, nowhere
from infra.engines.adapter import Adapter
from infra.engines.meaning import Counted
from infra.engines.readings import Absent, Measured, Unmeasured, value_or_none
from infra.engines.window import Window, total


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSpeculation:
    """``acceptance`` in the four states with its reasons; ``cost`` is None, with ``cost_why``, where nothing drafts."""

    acceptance: dict[str, Any]
    cost: CycleCost | NoCost | None
    cost_why: str | None
    coverage: str | None  # how many of the pairs the cost stands on
    decoded: tuple[tuple[Decoded, ...], tuple[Decoded, ...]]  # of the baseline and of the arm, what the cost stands on
    draft_limit: int | None  # g of the arm: 0 without speculation, None where it is not known

    def cost_json(self) -> dict[str, Any] | None:
        return None if self.cost is None else self.cost.as_json() | {"coverage": self.coverage}


def arm_speculation(found: Sides, table: Table) -> ArmSpeculation:
    """From the arm's runs and the table of pairs that its ratio stands on."""
    usable = [one for one in found.arm.values() if why_not(one, "acceptance") is None]
    limits = {identity.draft_limit(one.run.manifest, one.run.launch) for one in found.arm.values()}
    limit = limits.pop() if len(limits) == 1 else None
    acceptance = _acceptance(usable, list(found.arm.values()), limit)
    if limit == 0:
        return ArmSpeculation(
            acceptance=acceptance,
            cost=None,
            cost_why="the arm does not speculate",
            coverage=None,
            decoded=((), ()),
            draft_limit=0,
        )
    steps = decode_steps(found)
    told = [one for one in table.pairs if steps.get((one.arm.launch, one.arm.request)) is not None]
    coverage = f"{len(told)} of {len(table.pairs)} pairs tell their target steps"
    ours, theirs = decoded(told, steps)
    cost = cost_of(table.pairs, ours, theirs)
    if not told and table.pairs:
        ours, theirs, why = decoded_by_counters(found, table.pairs)
        n_launches = len({one.arm.launch for one in table.pairs})
        coverage = f"{coverage}; {len(theirs)} of {n_launches} launches by the counters around them"
        if theirs:
            cost = whole(cost_of(table.pairs, ours, theirs))
        else:
            cost = NoCost(why=f"no answer tells its target steps, and the counters do not stand in: {why}")
    return ArmSpeculation(
        acceptance=acceptance,
        cost=cost,
        cost_why=cost.why if isinstance(cost, NoCost) else None,
        coverage=coverage,
        decoded=(tuple(ours), tuple(theirs)),
        draft_limit=limit,
    )


def whole(cost: CycleCost | NoCost) -> CycleCost | NoCost:
    """A cost of whole launches, which has no domains."""
    return replace(cost, domains=()) if isinstance(cost, CycleCost) else cost


def cost_of(pairs: Sequence[Pair], ours: Sequence[Decoded], theirs: Sequence[Decoded]) -> CycleCost | NoCost:
    """The cycle cost of some pairs, from what of them tells its steps; why there is none, where there is none."""
    if not pairs:
        return NoCost(why="no pair was measured in both arms")
    if not theirs:
        return NoCost(why="no answer tells its target steps, counted from its second segment on")
    try:
        return cycle_cost(ours, theirs)
    except AnalysisError as error:
        return NoCost(why=str(error))


def decode_steps(found: Sides) -> dict[tuple[int, Request], int | None]:
    """Target steps of each request's decode window; None where the first segment held more than the first token."""
    steps: dict[tuple[int, Request], int | None] = {}
    for pair, one in found.arm.items():
        adapter = one.run.server.adapter
        if adapter is None or why_not(one, "acceptance") is not None:
            continue
        for row in one.run.measured:
            request = row.request
            if request.outcome == "completed" and row.measures.n_first_tokens.value == 1:
                told = adapter.request_acceptance(
                    request.server_fields, request.usage, speculative=one.run.server.speculative
                ).n_target_steps
                if isinstance(told, Measured) and told.value > 0:
                    key = found.request(pair, Request(request.level, request.prompt_id, request.repeat))
                    steps[key] = int(told.value)
    return steps


def _acceptance(usable: Sequence[CellRun], all_cells: Sequence[CellRun], limit: int | None) -> dict[str, Any]:
    adapter = next((one.run.server.adapter for one in usable if one.run.server.adapter is not None), None)
    if not usable or adapter is None:
        whys = [why_not(one, "acceptance") for one in all_cells]
        why = next((one for one in whys if one is not None), "no run was measured")
        if usable:
            why = usable[0].run.server.acceptance.why or "no reader of what this server tells"
        return _with_model(nowhere(Unmeasured(why=why)), {}, why, None, why)
    speculative = usable[0].run.server.speculative
    answers = [request for one in usable for request in one.run.server.completed]
    windows = [window for one in usable for window in one.run.server.windows]
    whole = all(one.run.server.no_window is None for one in usable)
    found = adapter.pooled_acceptance(_told(answers), speculative=speculative)
    if whole:
        n_requests = None if any(one.run.server.n_lost for one in usable) else len(answers)
        by_counters = adapter.acceptance(windows, speculative=speculative, n_requests=n_requests)
        untold = isinstance(by_counters.rate, Absent) and speculative is not False
        found = found if untold and found.source is not None else by_counters
    domains = {
        domain: adapter.pooled_acceptance(
            _told([one for one in answers if one.domain == domain]), speculative=speculative
        ).as_json()
        for domain in dict.fromkeys(request.domain for request in answers)
    }
    at, why_at = _by_position(adapter, windows if whole else [])
    histogram, why_bars = _histogram(answers, at, found, limit)
    return _with_model(found, domains, why_bars, histogram, why_at, at)


def _with_model(
    found: Acceptance,
    domains: Mapping[str, Any],
    why_bars: str | None,
    histogram: Sequence[int] | None,
    why_at: str | None,
    at: Sequence[float] | None = None,
) -> dict[str, Any]:
    shown = found.as_json()
    reasons = dict(shown["reasons"])
    fit = None if histogram is None else fit_alpha(histogram).as_json()
    positions = None
    steps = value_or_none(found.n_verify_steps)
    if at and steps:
        try:
            positions = {"accepted": list(at), "conditional": list(conditional_by_position(at, steps))}
        except AnalysisError as error:
            why_at = error.what
    elif at:
        why_at = "verify steps are not counted"
    for name, value, why in (("alpha", fit, why_bars), ("by_position", positions, why_at)):
        if value is None:
            reasons[name] = why or "nothing was drafted"
    return {**shown, "alpha": fit, "by_position": positions, "by_domain": dict(domains), "reasons": reasons}


def _told(requests: Sequence[Record]) -> list[tuple[Mapping[str, Any], Any]]:
    return [(request.server_fields, request.usage) for request in requests]


def _by_position(adapter: Adapter, windows: Sequence[Window]) -> tuple[list[float] | None, str | None]:
    """Accepted drafts at each position over all windows, or why that is not told."""
    where = adapter.meaning.per_position
    if not isinstance(where, Counted):
        return None, where.why
    if not windows:
        return None, "no counters were read before and after the measured requests"
    for name in where.names:
        places = {
            sample.labels.get("position", "") for window in windows for sample in window.after.exposition.find(name)
        }
        if not places or not all(place.isdigit() for place in places):
            continue
        found = []
        for place in range(max(int(one) for one in places) + 1):
            reading = total(windows, name, {"position": str(place)}, from_first=True).reading
            if not isinstance(reading, Measured):
                return None, reading.why
            found.append(reading.value)
        return found, None
    return None, f"no series {' or '.join(where.names)}"


def _histogram(
    answers: Sequence[Record], at: Sequence[float] | None, found: Acceptance, limit: int | None
) -> tuple[list[int] | None, str | None]:
    """Steps by accepted drafts: summed over the answers, or from full windows' counters; None and why."""
    bars = [sglang_request.histogram(one.server_fields) or vllm_request.histogram(one.server_fields) for one in answers]
    if bars and all(one is not None for one in bars):
        width = max(len(one) for one in bars if one is not None)
        summed = [sum(one[j] for one in bars if one is not None and j < len(one)) for j in range(width)]
        return (summed, None) if width >= 2 else (None, "no step accepted a draft, and the window's size is not told")
    drafted, steps = value_or_none(found.n_drafted), value_or_none(found.n_verify_steps)
    if not at or not steps or not drafted or limit is None:
        return None, "neither answers nor counters tell how many drafts each step accepted"
    if drafted != steps * limit:
        return None, (
            f"{drafted:g} drafts in {steps:g} steps of at most {limit}: steps drafted fewer, so the counters by "
            "position are no histogram of one window"
        )
    depth = [*at[:limit], *[0.0] * (limit - len(at))]
    edges = [steps, *depth, 0.0]
    return [int(edges[j] - edges[j + 1]) for j in range(limit + 1)], None
