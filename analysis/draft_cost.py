"""What a draft token costs, from arms of several draft lengths: t_cycle(g) = A + B g.

Each point is one launch's mean cycle time at draft length g; the launches are the independent units, so least squares
over them gives A, B and Student's intervals. Where a length was launched more than once, the F test of lack of fit
(pure error from the repeats) says whether a straight line is good enough; verifying may cost in steps, not in
proportion.

B holds t_draft and the slope of verifying together: wall time alone cannot part them. It can be parted with the fit of
an arm whose drafting is nearly free (n-gram look-up): B less its B is t_draft, interval by Welch's approximation
(Biometrika 34, 1947). A / t_base - 1 is the fixed overhead of a step. The best length maximises E[A|g] t_base /
(A + B g) with E[A|g] as measured; how often each length wins over resampled launches stands beside it.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from analysis.bootstrap import best_shares
from analysis.errors import AnalysisError
from analysis.paired import Bounds, t_quantile

NOT_SEPARABLE = (
    "B holds the time of a draft token and the slope of verifying: wall time alone cannot part them; an arm whose "
    "drafting is nearly free (n-gram look-up), the server's own timers or a profiler window can"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPoint:
    """One launch at one draft length. ``tokens_per_step`` is E[A|g] there, None where it was not measured."""

    n_drafts: int
    launch: int
    t_cycle_s: float
    tokens_per_step: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CostFit:
    """A and B in seconds with their intervals; ``*_error_s`` are standard errors on ``df`` degrees of freedom."""

    n_points: int
    n_lengths: int
    df: int
    base_s: float  # A
    base_interval_s: Bounds
    base_error_s: float
    per_draft_s: float  # B
    per_draft_interval_s: Bounds
    per_draft_error_s: float
    lack_of_fit_p: float | None
    lack_of_fit_why: str | None
    overhead_ratio: float | None  # A / t_base - 1, None without t_base

    def as_json(self) -> dict[str, Any]:
        return {
            "n_launches": self.n_points,
            "n_draft_lengths": self.n_lengths,
            "base_s": self.base_s,
            "base_interval_s": list(self.base_interval_s),
            "per_draft_s": self.per_draft_s,
            "per_draft_interval_s": list(self.per_draft_interval_s),
            "lack_of_fit_p": self.lack_of_fit_p,
            "overhead_ratio": self.overhead_ratio,
            "why": {} if self.lack_of_fit_why is None else {"lack_of_fit_p": self.lack_of_fit_why},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Separation:
    """t_draft and what is left of B, or None and why they are not separable."""

    t_draft_s: float | None
    t_draft_interval_s: Bounds | None
    verify_slope_s: float | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "separable": self.t_draft_s is not None,
            "t_draft_s": self.t_draft_s,
            "t_draft_interval_s": None if self.t_draft_interval_s is None else list(self.t_draft_interval_s),
            "verify_slope_s": self.verify_slope_s,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BestLength:
    """The draft length with the highest speed-up, and the shares of resamples in which each one won."""

    n_drafts: int | None
    speedup: Mapping[int, float]
    shares: Mapping[int, float]
    why: str | None


def fit_cost(
    points: Sequence[CostPoint], *, t_base_s: float | None = None, confidence: float = 0.95
) -> CostFit | Separation:
    """Fit A + B g; a Separation that says why where the launches do not allow it (two lengths, three launches)."""
    if any(not (math.isfinite(one.t_cycle_s) and one.t_cycle_s > 0) or one.n_drafts < 1 for one in points):
        raise AnalysisError(
            "a cycle time is not positive, or a draft length below 1", "leave out what was not measured"
        )
    lengths = {one.n_drafts for one in points}
    df = len(points) - 2
    if len(lengths) < 2:
        return not_separable(f"{len(lengths)} draft length{'' if len(lengths) == 1 else 's'} was run: a line needs two")
    if df < 1:
        return not_separable(f"{len(points)} launches: the line's error is not seen")
    n = len(points)
    x_mean = math.fsum(one.n_drafts for one in points) / n
    y_mean = math.fsum(one.t_cycle_s for one in points) / n
    spread = math.fsum((one.n_drafts - x_mean) ** 2 for one in points)
    slope = math.fsum((one.n_drafts - x_mean) * (one.t_cycle_s - y_mean) for one in points) / spread
    start = y_mean - slope * x_mean
    left = math.fsum((one.t_cycle_s - start - slope * one.n_drafts) ** 2 for one in points)
    slope_error = math.sqrt(left / df / spread)
    start_error = math.sqrt(left / df * (1 / n + x_mean**2 / spread))
    reach = t_quantile((1 + confidence) / 2, df)
    p, why = _lack_of_fit(points, left)
    return CostFit(
        n_points=n,
        n_lengths=len(lengths),
        df=df,
        base_s=start,
        base_interval_s=(start - reach * start_error, start + reach * start_error),
        base_error_s=start_error,
        per_draft_s=slope,
        per_draft_interval_s=(slope - reach * slope_error, slope + reach * slope_error),
        per_draft_error_s=slope_error,
        lack_of_fit_p=p,
        lack_of_fit_why=why,
        overhead_ratio=None if t_base_s is None else start / t_base_s - 1,
    )


def not_separable(why: str) -> Separation:
    """No parts, for a reason."""
    return Separation(t_draft_s=None, t_draft_interval_s=None, verify_slope_s=None, why=f"not separable: {why}")


def separate(fit: CostFit | Separation, free_drafting: CostFit | None, *, confidence: float = 0.95) -> Separation:
    """Part B with the fit of an arm on the same target whose drafts cost nearly nothing; None: not separable."""
    if isinstance(fit, Separation):
        return fit
    if free_drafting is None:
        return not_separable(NOT_SEPARABLE)
    difference = fit.per_draft_s - free_drafting.per_draft_s
    parts = [(one.per_draft_error_s**2, one.df) for one in (fit, free_drafting)]
    variance = sum(part for part, _ in parts)
    below = sum(part**2 / df for part, df in parts)
    half = 0.0 if below == 0 else t_quantile((1 + confidence) / 2, variance**2 / below) * math.sqrt(variance)
    return Separation(
        t_draft_s=difference,
        t_draft_interval_s=(difference - half, difference + half),
        verify_slope_s=free_drafting.per_draft_s,
        why=None,
    )


def best_length(
    points: Sequence[CostPoint], *, t_base_s: float, n_draws: int = 2000, seed: int = 20261129
) -> BestLength:
    """The length that maximises E[A|g] t_base / (A + B g), with the shares over resampled launches."""
    unknown = sorted({one.n_drafts for one in points if one.tokens_per_step is None})
    if unknown:
        return BestLength(n_drafts=None, speedup={}, shares={}, why=f"E[A] was not measured at draft lengths {unknown}")
    if isinstance(fit_cost(points), Separation):
        return BestLength(n_drafts=None, speedup={}, shares={}, why="too few launches or lengths for the cost line")
    by_length: dict[int, dict[int, CostPoint]] = defaultdict(dict)
    for one in points:
        by_length[one.n_drafts][one.launch] = one
    speedup = _speedups(points, t_base_s)

    def best(drawn: Mapping[int, Sequence[int]]) -> int | None:
        again = _speedups([by_length[g][launch] for g, launches in drawn.items() for launch in launches], t_base_s)
        return max(again, key=lambda g: again[g]) if again else None

    shares = best_shares({g: sorted(found) for g, found in by_length.items()}, best, n_draws=n_draws, seed=seed)
    return BestLength(n_drafts=max(speedup, key=lambda g: speedup[g]), speedup=speedup, shares=shares, why=None)


def _speedups(points: Sequence[CostPoint], t_base_s: float) -> dict[int, float]:
    fit = fit_cost(points)
    if isinstance(fit, Separation):
        return {}
    lengths: dict[int, list[float]] = defaultdict(list)
    for one in points:
        lengths[one.n_drafts].append(one.tokens_per_step or 0.0)
    costs = {g: fit.base_s + fit.per_draft_s * g for g in lengths}
    return {g: math.fsum(found) / len(found) * t_base_s / costs[g] for g, found in lengths.items() if costs[g] > 0}


def _lack_of_fit(points: Sequence[CostPoint], left: float) -> tuple[float | None, str | None]:
    groups: dict[int, list[float]] = defaultdict(list)
    for one in points:
        groups[one.n_drafts].append(one.t_cycle_s)
    df_pure, df_lack = len(points) - len(groups), len(groups) - 2
    if df_lack < 1:
        return None, "two draft lengths: a line goes through any two"
    if df_pure < 1:
        return None, "no draft length was launched twice"
    means = {g: math.fsum(times) / len(times) for g, times in groups.items()}
    pure = math.fsum((time - means[g]) ** 2 for g, times in groups.items() for time in times)
    if pure <= 0:
        return None, "launches of one length are equal: no error to test against"
    return float(special.fdtrc(df_lack, df_pure, max(0.0, left - pure) / df_lack / (pure / df_pure))), None
