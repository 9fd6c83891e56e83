"""Quantiles by nearest rank, and the sample sizes below which a tail quantile is not printed.

The q-quantile of n sorted values is the value of rank ceil(q n), counted from one: always a value that was seen, so a
p99 never lies beyond the maximum. The floors are the smallest n at which MLPerf's early-stopping rule (LoadGen, 99 %
confidence, no tolerance) can say anything of that percentile: p90 64, p95 130, p99 662. Several percentiles of
one sample are marginal statements, each by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FLOORS: dict[int, int] = {50: 1, 90: 64, 95: 130, 99: 662}


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """The quantiles of one sample; a quantile below its floor is None and ``why`` says so by name."""

    n: int
    median: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    def why_none(self, percent: int) -> str | None:
        """Why the percentile is not given, or None where it is."""
        if self.n >= FLOORS[percent]:
            return None
        if self.n == 0:
            return "no value in this group"
        return f"p{percent} needs {FLOORS[percent]} values, there are {self.n}"


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The value of rank ceil(percent n / 100) of a sorted, non-empty sequence; percent is 1 to 100."""
    if not ordered or not 1 <= percent <= 100:
        raise ValueError(f"nearest rank needs values and 1 <= percent <= 100, got n={len(ordered)}, percent={percent}")
    rank = -(-percent * len(ordered) // 100)
    return ordered[rank - 1]


def distribution(values: Iterable[float]) -> Distribution:
    """Median, p90, p95 and p99 of the values, each None below its floor."""
    ordered = sorted(values)
    found = {
        percent: nearest_rank(ordered, percent) if len(ordered) >= floor else None for percent, floor in FLOORS.items()
    }
    return Distribution(n=len(ordered), median=found[50], p90=found[90], p95=found[95], p99=found[99])
