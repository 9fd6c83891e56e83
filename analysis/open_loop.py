"""Was the rate of an open loop held? Arrivals are fixed beforehand: a client that falls behind shows in its send lag.

The schedule is the plan's, from the level's begin on; requests that could not be sent are due like all others, and do
not count as sent. The rate achieved is set against the schedule's own, over the same arrivals: a Poisson process of 90
arrivals strays from its nominal rate by a tenth on its own, which is no fault of the client. Latencies from the
schedule are those from the send with the lag added: what a user waited who wanted to send at that instant.

The lag on record must be that of plan, level and send; how often the cap was hit is at least what the requests show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.measures import Row
from analysis.run_clock import RunClock
from evidence.level_records import Level
from evidence.quantiles import FLOORS, distribution, nearest_rank
from evidence.records import Request

AGREES_S = 0.001  # between a send lag on record and that of the schedule; honest ones agree to nanoseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What a level's plan lines ask for; ``after_s`` by plan id, from the level's begin."""

    after_s: Mapping[str, float]
    max_in_flight: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoop:
    """Rates in requests a second; ``lag_p99_s`` by nearest rank whatever the number of requests, as a bound;
    it is shown where there are enough of them for one."""

    scheduled_rate_per_s: float | None
    achieved_rate_per_s: float | None
    lag_median_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    n_lags: int
    ttft_median_s: float | None
    n_cap_hits: int | None
    differs: str | None = None  # a request whose send lag is not that of the schedule
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def achieved_ratio(self) -> float | None:
        if self.scheduled_rate_per_s is None or self.achieved_rate_per_s is None:
            return None
        return self.achieved_rate_per_s / self.scheduled_rate_per_s

    def as_json(self) -> dict[str, Any]:
        return {
            "achieved_rate_per_s": self.achieved_rate_per_s,
            "scheduled_rate_per_s": self.scheduled_rate_per_s,
            "achieved_ratio": self.achieved_ratio,
            "send_lag_s": {
                "median": self.lag_median_s,
                "p99": self.lag_p99_s if self.n_lags >= FLOORS[99] else None,
                "max": self.lag_max_s,
            },
        }


def open_loop(rows: Sequence[Row], record: Level | None, clock: RunClock, schedule: Schedule) -> OpenLoop:
    """Of all planned requests of one level; a trace has a schedule too, and no nominal rate.

    Without the level's record nobody knows when it began: there is no rate then, and lags are those on record.
    """
    sent = {row.request.plan_id: row.request for row in rows if clock.sent_s(row.request) is not None}
    ttft_s = [row.measures.ttft_s.value for row in rows if row.request.outcome == "completed"]
    why: dict[str, str] = {}
    asked: float | None = None
    achieved: float | None = None
    if record is None or len(schedule.after_s) < 2:
        few = "fewer than two requests carry their scheduled instant"
        why["achieved_rate_per_s"] = few if record is not None else "levels.jsonl does not say when the level began"
    else:
        due_for_s = max(schedule.after_s.values()) - min(schedule.after_s.values())
        at_s = [at for one in sent.values() if (at := clock.sent_s(one)) is not None]
        took_s = max(due_for_s, max(at_s) - min(at_s) if at_s else 0.0)
        asked = (len(schedule.after_s) - 1) / due_for_s if due_for_s > 0 else None
        achieved = max(0, len(at_s) - 1) / took_s if took_s > 0 else None
    lags, differs = _lags(list(sent.values()), record, clock, schedule)
    if not lags:
        why["send_lag_s"] = "no request carries its send lag"
    elif len(lags) < FLOORS[99]:
        why["send_lag_s"] = f"p99 needs {FLOORS[99]} values, there are {len(lags)}"
    return OpenLoop(
        scheduled_rate_per_s=asked,
        achieved_rate_per_s=achieved,
        lag_median_s=nearest_rank(lags, 50) if lags else None,
        lag_p99_s=nearest_rank(lags, 99) if lags else None,
        lag_max_s=lags[-1] if lags else None,
        n_lags=len(lags),
        ttft_median_s=distribution(value for value in ttft_s if value is not None).median,
        n_cap_hits=None if record is None else max(record.n_cap_hits or 0, _cap_hits(sent, record, clock, schedule)),
        differs=differs,
        why=why,
    )


def _lags(
    sent: Sequence[Request], record: Level | None, clock: RunClock, schedule: Schedule
) -> tuple[list[float], str | None]:
    """The lags in order, by the schedule where they are not those on record; and the first that is not."""
    lags: list[float] = []
    strays: list[str] = []
    for request in sent:
        told_s, after_s, at_s = request.send_lag_s, schedule.after_s.get(request.plan_id), request.sent_at_monotonic_s
        began = None if record is None else clock.began_there_s(record, request.worker)
        if began is not None and after_s is not None and at_s is not None:
            lag_s = at_s - began[0] - after_s
            if told_s is None or abs(lag_s - told_s) > AGREES_S + began[1]:
                said = "no send lag" if told_s is None else f"a send lag of {told_s:.6f} s"
                strays.append(f"{request.plan_id} has {said} and was sent {lag_s:.6f} s after it was due")
                told_s = max(0.0, lag_s)
        if told_s is not None:
            lags.append(told_s)
    more = f" (and {len(strays) - 1} more)" if strays[1:] else ""
    return sorted(lags), f"{strays[0]}{more}" if strays else None


def _cap_hits(sent: Mapping[str, Request], record: Level, clock: RunClock, schedule: Schedule) -> int:
    """Requests that found ``max_in_flight`` others under way at their instant, beyond what the clocks may be off."""
    cap, off_s = schedule.max_in_flight, clock.bound_s
    spans = [
        (request.plan_id, at, at + request.took_s)
        for request in sent.values()
        if (at := clock.sent_s(request)) is not None
    ]
    if cap is None or off_s is None or len(spans) <= cap:
        return 0
    begins = np.sort([at + 2 * off_s for _, at, _ in spans])
    ends = np.sort([max(at + 2 * off_s, end - 2 * off_s) for _, at, end in spans])
    began_s = clock.level_began_s(record)
    n_hits = 0
    for plan_id, at, _ in spans:
        due_s = began_s + schedule.after_s.get(plan_id, np.inf)
        if due_s + 2 * off_s < at:  # it waited
            under_way = np.searchsorted(begins, due_s, "right") - np.searchsorted(ends, due_s, "right")
            n_hits += bool(under_way >= cap)
    return n_hits
