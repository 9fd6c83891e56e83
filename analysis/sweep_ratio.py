"""A ratio of which each launch gives one number: throughput and goodput of a level, arm over baseline.

The mean is geometric; its interval is Student's over independent launches, on the logarithm. One launch gives a ratio
that holds for its prompts only, and no interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.effect import least_detectable
from analysis.paired import NO_SPREAD, Bounds, mean_interval

Verdict = Literal["higher", "lower", "not resolved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRatio:
    """``ratio`` is None where no launch has both numbers, and ``why``; without an interval ``why`` says so too."""

    ratio: float | None
    interval: Bounds | None
    n_launches: int
    scope: str | None  # "launches", or "prompts only"
    mde: float | None
    why: str | None

    @property
    def verdict(self) -> Verdict:
        if self.interval is None:
            return "not resolved"
        return "higher" if self.interval[0] > 1 else "lower" if self.interval[1] < 1 else "not resolved"

    def as_json(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio,
            "interval": None if self.interval is None else list(self.interval),
            "n_launches": self.n_launches,
            "scope": self.scope,
            "mde": self.mde,
            "verdict": self.verdict if self.ratio is not None else None,
            "why": self.why,
        }


def launch_ratio(pairs: Mapping[int, Sequence[tuple[float, float]]], why_none: str | None = None) -> LaunchRatio:
    """From (baseline, arm) by independent launch; several pairs of one launch are averaged before."""
    logs = [math.fsum(math.log(arm / base) for base, arm in found) / len(found) for found in pairs.values() if found]
    if not logs:
        none = why_none or "no launch has the number in both arms"
        return LaunchRatio(ratio=None, interval=None, n_launches=0, scope=None, mde=None, why=none)
    bounds, why = mean_interval(logs)
    if bounds is not None and bounds[1] - bounds[0] <= NO_SPREAD:
        bounds, why = None, "all launches are equal: no spread was seen to build an interval on"
    return LaunchRatio(
        ratio=math.exp(math.fsum(logs) / len(logs)),
        interval=None if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1])),
        n_launches=len(logs),
        scope="prompts only" if len(logs) == 1 else "launches",
        mde=least_detectable(logs),
        why=why,
    )
