"""The interval of a paired ratio: prompts and launches both vary, and both are samples.

Model (crossed random effects; p a prompt, r a paired launch): y_pr = log arm_pr - log base_pr = delta + g_p + u_r +
e_pr, so that the mean over P prompts and R launches has the variance s_g^2/P + s_u^2/R + s_e^2/(P R). From the table:

    v  = s_R^2/R + s_P^2/P - s_E^2/(P R)          s_R^2, s_P^2 variances of the launch and the prompt means,
                                                  s_E^2 the residual mean square; never below max(s_R^2/R, s_P^2/P)
    df = v^2 / [(s_R^2/R)^2/(R-1) + (s_P^2/P)^2/(P-1)]
    interval = exp(mean -+ t(df) sqrt(v))

The mean squares are those of the two-way random model (Cornfield & Tukey, Ann. Math. Statist. 27, 1956), the degrees of
freedom Satterthwaite's (Biometrics Bulletin 2, 1946). Prompts are taken as one population although they come in
domains: with a fixed mix that is on the wide side. Two other intervals are named for what they are:

    fixed suite      exp(mean -+ t(R-1) s_R/sqrt(R))     a claim about these very prompts
    prompt sampling  exp(mean -+ t(P-1) s_P/sqrt(P))     the launches at hand taken as all there are: with one launch it
                                                         says nothing about the system

A bootstrap of few launches is no substitute: where launches differ more than prompts, at 3 launches it covers about
75 % where it says 95 %, and requests taken as independent 12 % (simulated in the tests).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.errors import AnalysisError

Scope = Literal["launches", "prompts only"]
Bounds = tuple[float, float]
LARGEST_LOG = 20.0  # half-widths beyond exp(20) say nothing and are not printed
NO_SPREAD = 1e-12  # standard errors below this are rounding: clocks tell a ninth digit at best


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossed:
    """The paired ratio with its intervals; ``*_why`` says why an interval is None. Variances are of log ratios."""

    n_launches: int
    n_prompts: int
    confidence: float
    mean_log: float
    launch_means: tuple[float, ...]
    prompt_means: tuple[float, ...]
    var_launch_means: float | None  # None with one launch
    var_prompt_means: float | None  # None with one prompt
    residual_ms: float | None  # None unless there are two of both
    variance: float | None  # of mean_log, v above
    guarded: bool  # v was raised to the larger of its parts
    df: float | None
    interval: Bounds | None
    why: str | None
    fixed_suite: Bounds | None
    fixed_suite_why: str | None
    prompt_sampling: Bounds | None
    prompt_sampling_why: str | None

    @property
    def ratio(self) -> float:
        """Geometric mean over prompts and launches of arm / baseline."""
        return math.exp(self.mean_log)

    @property
    def scope(self) -> Scope:
        return "prompts only" if self.n_launches == 1 else "launches"


def crossed(log_ratios: Sequence[Sequence[float]], *, confidence: float = 0.95) -> Crossed:
    """From a complete table, ``log_ratios[r][p]``. Raises AnalysisError where it is empty, ragged or not finite."""
    table = _table(log_ratios)
    if not 0 < confidence < 1:
        raise AnalysisError(f"confidence {confidence} is no share", "give one between 0 and 1", value=confidence)
    n_launches, n_prompts = table.shape
    mean = float(table.mean())
    launch_means, prompt_means = table.mean(axis=1), table.mean(axis=0)
    var_r = float(launch_means.var(ddof=1)) if n_launches > 1 else None
    var_p = float(prompt_means.var(ddof=1)) if n_prompts > 1 else None
    residual, variance, df, guarded, interval = None, None, None, False, None
    why: str | None = "one launch: no interval over launches exists, and nothing is said about the system"
    if var_r is not None and var_p is not None:
        left = table - launch_means[:, None] - prompt_means[None, :] + mean
        residual = float((left**2).sum() / ((n_launches - 1) * (n_prompts - 1)))
        variance, guarded = _variance(var_r / n_launches, var_p / n_prompts, residual / table.size)
        df = _satterthwaite(variance, var_r / n_launches, n_launches - 1, var_p / n_prompts, n_prompts - 1)
        interval, why = _interval(mean, variance, df, confidence)
    elif var_r is not None:
        why = "one prompt: how prompts differ is not seen; the interval for this one is that of the fixed suite"
    fixed, fixed_why = _sampled(mean, var_r, n_launches, confidence, "one launch: its like was not seen")
    sampling, sampling_why = _sampled(mean, var_p, n_prompts, confidence, "one prompt")
    return Crossed(
        n_launches=n_launches,
        n_prompts=n_prompts,
        confidence=confidence,
        mean_log=mean,
        launch_means=tuple(float(one) for one in launch_means),
        prompt_means=tuple(float(one) for one in prompt_means),
        var_launch_means=var_r,
        var_prompt_means=var_p,
        residual_ms=residual,
        variance=variance,
        guarded=guarded,
        df=df,
        interval=interval,
        why=why,
        fixed_suite=fixed,
        fixed_suite_why=fixed_why,
        prompt_sampling=sampling,
        prompt_sampling_why=sampling_why,
    )


def t_quantile(share: float, df: float) -> float:
    """The quantile of Student's t; df need not be whole."""
    from scipy import special  # a run ends with a check, which seldom needs it and would wait for it

    return float(special.stdtrit(df, share))


def t_upper(value: float, df: float) -> float:
    """The chance of a larger t than ``value``."""
    from scipy import special

    return float(special.stdtr(df, -value))


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> tuple[Bounds | None, str | None]:
    """Student's interval of a mean, or None and why: for numbers of which each launch gives one."""
    if len(values) < 2:
        return None, f"{len(values)} launch{'' if len(values) == 1 else 'es'}: how launches differ is not seen"
    spread = float(np.var(values, ddof=1))
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * math.sqrt(spread / len(values))
    middle = math.fsum(values) / len(values)
    return (middle - half, middle + half), None


def _table(log_ratios: Sequence[Sequence[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    widths = {len(row) for row in log_ratios}
    if len(widths) != 1 or widths == {0}:
        raise AnalysisError(
            f"a table of {len(log_ratios)} launches with {sorted(widths)} prompts is not complete",
            "give every launch the same prompts, at least one",
            value=sorted(widths),
        )
    table = np.array(log_ratios, dtype=np.float64)
    if not np.isfinite(table).all():
        raise AnalysisError("a log ratio is not a finite number", "leave out what was not measured, and say so")
    return table


def _variance(launches: float, prompts: float, residual: float) -> tuple[float, bool]:
    plain, floor = launches + prompts - residual, max(launches, prompts)
    return max(plain, floor), plain < floor


def _satterthwaite(variance: float, launches: float, df_launches: int, prompts: float, df_prompts: int) -> float | None:
    below = launches**2 / df_launches + prompts**2 / df_prompts
    return None if below == 0 else variance**2 / below


def _sampled(
    mean: float, variance: float | None, n: int, confidence: float, alone: str
) -> tuple[Bounds | None, str | None]:
    return (None, alone) if variance is None else _interval(mean, variance / n, n - 1, confidence)


def _interval(mean: float, variance: float, df: float | None, confidence: float) -> tuple[Bounds | None, str | None]:
    if df is None or variance <= NO_SPREAD**2:
        return None, "all values are equal: no spread was seen to build an interval on"
    half = t_quantile((1 + confidence) / 2, df) * math.sqrt(variance)
    if half > LARGEST_LOG:
        return None, f"the interval would reach beyond a factor of e^{LARGEST_LOG:.0f}: too few launches or prompts"
    return (math.exp(mean - half), math.exp(mean + half)), None
