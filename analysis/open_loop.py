"""Was the rate of an open loop held? Arrivals are fixed beforehand: a client that falls behind shows in its send lag.

The rate achieved is set against the schedule's own, over the same arrivals: a Poisson process of 90 arrivals strays
from its nominal rate by a tenth on its own, which is no fault of the client. Latencies from the schedule are those from
the send with the lag added: what a user waited who wanted to send at that instant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.measures import Row
from analysis.quantiles import distribution, nearest_rank
from analysis.run_clock import RunClock
from evidence.level_records import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoop:
    """Rates in requests a second; ``lag_p99_s`` by nearest rank whatever the number of requests, as a bound."""

    scheduled_rate_per_s: float | None
    achieved_rate_per_s: float | None
    lag_median_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    ttft_median_s: float | None
    n_cap_hits: int | None
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
            "send_lag_s": {"median": self.lag_median_s, "p99": self.lag_p99_s, "max": self.lag_max_s},
        }


def open_loop(rows: Sequence[Row], record: Level | None, clock: RunClock) -> OpenLoop:
    """From the sent requests of one level; a trace has a schedule too, and no nominal rate."""
    sent = [
        (at, at - row.request.send_lag_s, row.request.send_lag_s)
        for row in rows
        if row.request.send_lag_s is not None and (at := clock.sent_s(row.request)) is not None
    ]
    ttft_s = [row.measures.ttft_s.value for row in rows if row.request.outcome == "completed"]
    why: dict[str, str] = {}
    rates: list[float | None] = [None, None]
    if len(sent) < 2:
        why["achieved_rate_per_s"] = "fewer than two requests carry their scheduled instant"
    else:
        for place, instants in enumerate(([due for _, due, _ in sent], [at for at, _, _ in sent])):
            span_s = max(instants) - min(instants)
            rates[place] = (len(sent) - 1) / span_s if span_s > 0 else None
    lags = sorted(lag for _, _, lag in sent)
    if not lags:
        why["send_lag_s"] = "no request carries its send lag"
    return OpenLoop(
        scheduled_rate_per_s=rates[0],
        achieved_rate_per_s=rates[1],
        lag_median_s=nearest_rank(lags, 50) if lags else None,
        lag_p99_s=nearest_rank(lags, 99) if lags else None,
        lag_max_s=lags[-1] if lags else None,
        ttft_median_s=distribution(value for value in ttft_s if value is not None).median,
        n_cap_hits=None if record is None else record.n_cap_hits,
        why=why,
    )
