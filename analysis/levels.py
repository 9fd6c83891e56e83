"""The levels of a load run: the whole of each, its steady window, what the server tells of it, and what limits it.

Whole level: from its first request to the end of its last, those that could not be sent among them. Steady window: by
the rule of ``analysis.in_flight``, fixed beforehand. Goodput counts the requests begun within a window, by the
scenario's objectives: those that failed, could not be sent or never ended have not met them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.cached_share import cached_share
from analysis.goodput import Goodput, goodput
from analysis.in_flight import Spans, Steady, spans_of, steady_window
from analysis.level_server import level_server
from analysis.measures import Row
from analysis.open_loop import OpenLoop, Schedule, open_loop
from analysis.run_clock import RunClock
from analysis.server import ServerSide
from analysis.throughput import Throughput, throughput
from evidence.level_records import Level
from evidence.records import Json, Started


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelView:
    """``record`` is None where ``levels.jsonl`` has no line of it; ``rows`` are its measured requests that ended.

    ``spans`` and ``full`` are None where nothing was sent, or all of it at one instant.
    """

    label: str
    kind: str
    users: int | None
    rate_per_s: float | None
    target_tokens: int | None
    record: Level | None
    rows: tuple[Row, ...]
    n_planned: int
    unended: tuple[Started, ...]  # started, and no line says how they ended
    n_not_sent: int  # plan lines left by design
    clock: RunClock
    spans: Spans | None
    full: Throughput | None
    steady: Steady
    steady_part: Throughput | None
    open_loop: OpenLoop | None  # None in closed loop

    @property
    def n_unfinished(self) -> int:
        return len(self.unended)

    def sent_within(self, begin_s: float, end_s: float) -> tuple[Row, ...]:
        """The requests sent in [begin_s, end_s] of the run's clock; those that never were, by when they were begun."""
        placed = [(self.clock.begun_s(row.request), row) for row in self.rows]
        return tuple(row for at, row in placed if at is not None and begin_s <= at <= end_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The scenario's objectives; None is none."""

    ttft_slo_s: float | None
    tpot_slo_s: float | None


def limits_of(scenario: Json) -> Limits:
    """The objectives of a manifest's scenario; one that is not set, or is no number of seconds, is None."""
    found = scenario.get("limits") if isinstance(scenario, Mapping) else None
    told = found if isinstance(found, Mapping) else {}
    return Limits(ttft_slo_s=_seconds(told.get("ttft_slo_s")), tpot_slo_s=_seconds(told.get("tpot_slo_s")))


def levels_of(
    *,
    plan: Mapping[str, Mapping[str, Json]],
    records: Sequence[Level],
    rows: Sequence[Row],
    unfinished: Sequence[Started],
    unsent: Mapping[str, str],
    scenario: Json,
    clock: RunClock,
) -> tuple[LevelView, ...]:
    """In the plan's order, then levels that only their record names; () for a kind without levels."""
    by_label: dict[str, list[Row]] = {}
    planned: dict[str, int] = {}
    lost: dict[str, list[Started]] = {}
    due: dict[str, dict[str, float]] = {}
    left: dict[str, int] = {}
    for plan_id, line in plan.items():
        label = line.get("level")
        if line.get("phase") == "measured" and isinstance(label, str):
            left[label] = left.get(label, 0) + (plan_id in unsent)
            planned[label] = planned.get(label, 0) + (plan_id not in unsent)
            after_s = line.get("scheduled_after_s")
            if plan_id not in unsent and isinstance(after_s, int | float):
                due.setdefault(label, {})[plan_id] = float(after_s)
    for row in rows:
        if row.request.phase == "measured" and row.request.level is not None:
            by_label.setdefault(row.request.level, []).append(row)
    for one in unfinished:
        label = plan.get(one.plan_id, {}).get("level")
        if isinstance(label, str):
            lost.setdefault(label, []).append(one)
    told = {one.label: one for one in records}
    kind = scenario.get("kind") if isinstance(scenario, Mapping) else None
    return tuple(
        _view(
            label,
            record=told.get(label),
            kind=str(kind or "unknown"),
            rows=tuple(by_label.get(label, ())),
            n_planned=planned.get(label, 0),
            unended=tuple(lost.get(label, ())),
            n_not_sent=left.get(label, 0),
            clock=clock,
            schedule=Schedule(after_s=due.get(label, {}), max_in_flight=_cap(scenario)),
        )
        for label in dict.fromkeys([*planned, *by_label, *told])
    )


def _view(
    label: str,
    *,
    record: Level | None,
    kind: str,
    rows: tuple[Row, ...],
    n_planned: int,
    unended: tuple[Started, ...],
    n_not_sent: int,
    clock: RunClock,
    schedule: Schedule,
) -> LevelView:
    name, _, value = label.partition("#")[0].partition("=")
    number = _number(value)
    users = record.users if record else (int(number) if name == "users" and number else None)
    users = 1 if users is None and name == "tokens" else users
    rate = record.rate_per_s if record else (number if name == "rate" else None)
    spans = spans_of([row.request for row in rows], clock, unended)
    whole = spans is not None and spans.last_s > spans.first_s
    steady = steady_window(spans, users)
    part = None
    if spans is not None and steady.begin_s is not None and steady.end_s is not None:
        part = throughput(rows, spans, steady.begin_s, steady.end_s, clock, unended)
    kind = record.kind if record else kind
    return LevelView(
        label=label,
        kind=kind,
        users=users,
        rate_per_s=rate,
        target_tokens=record.target_tokens if record else (int(number) if name == "tokens" and number else None),
        record=record,
        rows=rows,
        n_planned=n_planned,
        unended=unended,
        n_not_sent=n_not_sent,
        clock=clock,
        spans=spans,
        full=throughput(rows, spans, spans.first_s, spans.last_s, clock, unended) if spans and whole else None,
        steady=steady,
        steady_part=part,
        open_loop=open_loop(rows, record, clock, schedule) if kind == "arrivals" else None,
    )


def level_goodput(view: LevelView, limits: Limits, *, steady: bool) -> Goodput:
    """Of the requests begun within the steady window, or of all of the level; those that failed or never ended are not
    met."""
    rows, window_s = view.rows, view.full.window_s if view.full is not None else None
    n_unfinished = view.n_unfinished
    if steady and (view.steady.begin_s is not None and view.steady.end_s is not None):
        begin_s, end_s = view.steady.begin_s, view.steady.end_s
        rows, window_s = view.sent_within(begin_s, end_s), view.steady.window_s
        n_unfinished = sum(begin_s <= view.clock.started_s(one) <= end_s for one in view.unended)
    elif steady:
        rows, window_s, n_unfinished = (), None, 0
    return goodput(
        rows,
        window_s=window_s,
        ttft_slo_s=limits.ttft_slo_s,
        tpot_slo_s=limits.tpot_slo_s,
        n_unfinished=n_unfinished,
    )


def level_json(view: LevelView, side: ServerSide, limits: Limits) -> dict[str, Any]:
    """One entry of ``levels`` in ``summary --json``."""
    outcomes = [row.request.outcome for row in view.rows]
    n_completed, n_cancelled = outcomes.count("completed"), outcomes.count("cancelled")
    record = view.record
    whys: dict[str, str] = {}
    share = cached_share((row.request for row in view.rows), silent_zero=side.silent_zero)
    if share is None:
        whys["cached_share"] = "not every answer says how much of its prompt came from a cache"
    if record is None:
        whys["ended_by"] = "levels.jsonl has no line of this level"
    if view.open_loop is not None:
        whys |= view.open_loop.why
    return {
        "label": view.label,
        "kind": view.kind,
        "users": view.users,
        "rate_per_s": view.rate_per_s,
        "target_tokens": view.target_tokens,
        "n_planned": view.n_planned,
        "n_not_sent": view.n_not_sent,
        "n_started": len(view.rows) + view.n_unfinished,
        "n_completed": n_completed,
        "n_failed": len(outcomes) - n_completed - n_cancelled,
        "n_cancelled": n_cancelled,
        "n_unfinished": view.n_unfinished,
        "n_cap_hits": None if view.open_loop is None else view.open_loop.n_cap_hits,
        "ended_by": None if record is None else record.ended_by,
        "full_after_s": None if record is None else record.full_after_s,
        "drain_after_s": None if record is None else record.drain_after_s,
        "drained_after_s": None if record is None else record.drained_after_s,
        "full": _window(view.full, level_goodput(view, limits, steady=False), "nothing was sent"),
        "steady": _steady(view, limits),
        "server": level_server(side, view.label, n_completed=n_completed),
        "cached_share": share,
        "clock": {"kind": view.clock.kind, "bound_s": view.clock.bound_s, "words": view.clock.words},
        **(view.open_loop.as_json() if view.open_loop is not None else _CLOSED),
        "why": whys,
    }


_CLOSED: dict[str, Any] = {
    "achieved_rate_per_s": None,
    "scheduled_rate_per_s": None,
    "achieved_ratio": None,
    "send_lag_s": None,
}


def _steady(view: LevelView, limits: Limits) -> dict[str, Any]:
    found = _window(view.steady_part, level_goodput(view, limits, steady=True), view.steady.why or "no steady window")
    window_s, full = view.steady.window_s, view.full
    begin_s = view.steady.begin_s
    return {
        **found,
        "rule": view.steady.rule,
        "begin_after_s": None if begin_s is None or view.spans is None else begin_s - view.spans.first_s,
        "end_after_s": None
        if view.steady.end_s is None or view.spans is None
        else view.steady.end_s - view.spans.first_s,
        "share": None if window_s is None or full is None else window_s / full.window_s,
    }


def _window(found: Throughput | None, good: Goodput, why: str) -> dict[str, Any]:
    """The window's numbers, or null for each, and its goodput."""
    names = [name for name in Throughput.__slots__ if name != "why"]
    numbers = dict.fromkeys(names) | {"why": why} if found is None else found.as_json()
    return {**numbers, "goodput": good.as_json()}


def _cap(scenario: Json) -> int | None:
    part = scenario.get("arrivals") if isinstance(scenario, Mapping) else None
    found = part.get("max_in_flight") if isinstance(part, Mapping) else None
    return found if isinstance(found, int) and found > 0 else None


def _seconds(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
