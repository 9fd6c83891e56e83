"""Latency histograms of a window: a mean from ``_sum`` and ``_count``, quantiles as the intervals their buckets allow.

A quantile from buckets is never a number: it lies between two edges. Below the first edge that is (0, edge); above the
last finite one it is (edge, unknown), and a histogram with nothing but ``+Inf`` has no quantile at all. A mean that its
own buckets exclude is refused, as are counts that fall from one bucket to the next.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.engines.meaning import Latencies, Nowhere, Observes
from infra.engines.readings import Absent, Measured, Reading, Unmeasured, value_or_none, why_none
from infra.engines.window import Window, total

Bucket = tuple[float, float]  # upper edge in seconds (the last is infinite), cumulative count
PERCENTILES = (50, 90, 95, 99)
_ROOM = 1e-6  # relative: sums are floating point


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """``mean_s`` weights each observation alike; ``observes`` says what one is."""

    series: str | None
    observes: Observes | None
    n: Reading
    sum_s: Reading
    mean_s: Reading
    buckets: tuple[Bucket, ...] = ()
    note: str = ""

    def interval_s(self, percent: int) -> tuple[float, float | None] | str:
        """The edges between which a percentile lies (None: beyond the last finite edge), or why there is none."""
        if not isinstance(self.mean_s, Measured):
            return self.mean_s.why
        return quantile_interval(self.buckets, percent)

    def as_json(self) -> dict[str, Any]:
        """Numbers, or null beside a reason; an interval is [low, high], high null beyond the last finite edge."""
        found: dict[str, Any] = {
            "series": self.series,
            "unit_of_observation": self.observes,
            "n": None if value_or_none(self.n) is None else int(value_or_none(self.n) or 0),
            "mean": value_or_none(self.mean_s),
            "why": why_none(self.mean_s),
            "note": self.note or None,
        }
        if not isinstance(self.mean_s, Measured):
            return {**found, "quantile_intervals": None}
        intervals = {f"p{percent}": self.interval_s(percent) for percent in PERCENTILES}
        shown = {name: one if isinstance(one, str) else list(one) for name, one in intervals.items()}
        return {**found, "quantile_intervals": shown}


def latency(where: Latencies, windows: Sequence[Window]) -> Latency:
    """The histogram's growth over the windows (several servers are added)."""
    if isinstance(where, Nowhere):
        return without(Absent(why=where.why))
    name = next((name for name in where.names if _is_there(windows, name)), None)
    if name is None:
        return without(Absent(why=f"no series {' or '.join(where.names)}"))
    count, total_s = (total(windows, name + end, from_first=True).reading for end in ("_count", "_sum"))
    buckets = _buckets(windows, name)
    return Latency(
        series=name,
        observes=where.observes,
        n=count,
        sum_s=total_s,
        mean_s=_mean(name, count, total_s, buckets),
        buckets=buckets,
        note=where.note,
    )


def without(why: Absent | Unmeasured) -> Latency:
    """No histogram, for one reason."""
    return Latency(series=None, observes=None, n=why, sum_s=why, mean_s=why)


def quantile_interval(buckets: Sequence[Bucket], percent: int) -> tuple[float, float | None] | str:
    """Between which edges the value of rank ceil(percent n / 100) lies, or why that cannot be said."""
    if not buckets or buckets[-1][1] <= 0:
        return "no observation"
    if len(buckets) == 1:
        return "its only bucket is +Inf"
    rank = -(-percent * buckets[-1][1] // 100)
    below = 0.0
    for edge, cumulative in buckets:
        if cumulative >= rank:
            return (below, None if math.isinf(edge) else edge)
        below = edge
    return "its buckets do not reach its count"


def _is_there(windows: Sequence[Window], name: str) -> bool:
    return any(window.after.exposition.find(name + "_count") for window in windows)


def _buckets(windows: Sequence[Window], name: str) -> tuple[Bucket, ...]:
    edges = {s.labels.get("le", "") for window in windows for s in window.after.exposition.find(name + "_bucket")}
    found: list[Bucket] = []
    for edge in edges:
        reading = total(windows, name + "_bucket", {"le": edge}, from_first=True).reading
        try:
            upper = float(edge)
        except ValueError:
            return ()
        if isinstance(reading, Measured):
            found.append((upper, reading.value))
    return tuple(sorted(found))


def _mean(name: str, count: Reading, total_s: Reading, buckets: Sequence[Bucket]) -> Reading:
    if not isinstance(count, Measured):
        return count
    if not isinstance(total_s, Measured):
        return total_s
    if count.value <= 0:
        return Unmeasured(why=f"{name} observed nothing in the window")
    why = _impossible(count.value, total_s.value, buckets)
    return Unmeasured(why=f"{name}: {why}") if why else Measured(total_s.value / count.value)


def _impossible(count: float, total_s: float, buckets: Sequence[Bucket]) -> str | None:
    """Why the sum cannot belong to these buckets; None where it can."""
    if total_s < 0:
        return f"{count:g} observations sum to {total_s:g} s: no time is negative"
    if not buckets:
        return None
    if buckets[-1][1] != count:
        return f"its last bucket holds {buckets[-1][1]:g} and its count says {count:g}"
    low = high = below = before = 0.0
    for edge, cumulative in buckets:
        inside = cumulative - before
        if inside < 0:
            return f"its buckets fall from {before:g} to {cumulative:g}"
        low += inside * below
        high += inside * edge if inside else 0.0
        below, before = edge, cumulative
    if total_s < low * (1 - _ROOM) or total_s > high * (1 + _ROOM):
        return f"{count:g} observations sum to {total_s:g} s, and its buckets allow {low:g} to {high:g} s"
    return None
