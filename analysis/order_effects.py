"""Does the rate drift with the order of requests, and did the warm-up suffice?

Drift: the slope of log(rate) against the place among a launch's requests, fitted with an intercept of its own for each
launch and domain, so that a plan sent in blocks does not take the domains for a drift. With several launches, each
gives one slope and the interval is Student's over them; with one, it is that of ordinary least squares, which takes
requests as independent, and says so. Beside it Spearman's rank correlation within a launch and domain (Spearman, Am. J.
Psychol. 15, 1904), which sees any monotonous drift and no outlier. Where all launches used one order, prompt and place
cannot be told apart: an arm whose rate depends on the text then shows a slope that need not be a drift.

Warm-up: log(rate in the first pass, repeat 0) - mean log(rate in later passes), per prompt; one number a launch,
Student's interval over launches, or over prompts where there is one launch. With one pass it cannot be tested this way.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.columns import Floats
from analysis.paired import mean_interval, t_quantile
from analysis.pairing import Observation, Pair

Unit = Literal["launches", "requests", "prompts"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One request's place in its launch and the logarithm of what was measured."""

    launch: int
    domain: str
    prompt_id: str
    order: int
    log_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """``per_request`` is the relative change of the rate from one request to the next; None with its ``why``."""

    n: int
    n_launches: int
    per_request: float | None
    interval: tuple[float, float] | None
    unit: Unit | None  # what the interval takes as independent
    why: str | None
    spearman: Mapping[str, float | None]  # by launch and domain, e.g. "0 code"; None where one of the two is constant
    one_order: bool  # every launch sent its prompts in the same order

    @property
    def seen(self) -> bool:
        """The interval leaves out zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "n_launches": self.n_launches,
            "per_request": self.per_request,
            "interval": None if self.interval is None else list(self.interval),
            "unit": self.unit,
            "why": self.why,
            "seen": self.seen,
            "spearman": dict(self.spearman),
            "one_order": self.one_order,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUp:
    """``first_ratio`` is the rate of the first pass over that of later ones, 1 where warm-up sufficed."""

    n_launches: int
    n_prompts: int
    first_ratio: float | None
    interval: tuple[float, float] | None
    unit: Unit | None
    sufficed: bool | None  # the interval contains 1; None where it was not tested
    why: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "n_launches": self.n_launches,
            "n_prompts": self.n_prompts,
            "first_ratio": self.first_ratio,
            "interval": None if self.interval is None else list(self.interval),
            "unit": self.unit,
            "sufficed": self.sufficed,
            "why": self.why,
        }


def points(observations: Iterable[Observation]) -> tuple[Point, ...]:
    """The observations that have a rate, as points of one arm."""
    return tuple(_point(one, math.log(one.value)) for one in observations if one.value is not None and one.value > 0)


def pair_points(pairs: Iterable[Pair]) -> tuple[Point, ...]:
    """The paired log ratios against order: a drift that both arms share cancels here."""
    return tuple(
        _point(one.base, math.log(one.arm.value / one.base.value))
        for one in pairs
        if one.base.value is not None and one.arm.value is not None
    )


def drift(found: Sequence[Point], *, confidence: float = 0.95) -> Drift:
    """Fit the slope of one arm's points, or of the pairs' log ratios."""
    by_launch: dict[int, list[Point]] = defaultdict(list)
    for one in found:
        by_launch[one.launch].append(one)
    fits = [fit for fit in (_fit(rows) for rows in by_launch.values()) if fit is not None]
    orders = {tuple(p.prompt_id for p in sorted(rows, key=lambda p: p.order)) for rows in by_launch.values()}
    slope: float | None = None
    interval: tuple[float, float] | None = None
    unit: Unit | None = None
    why: str | None = None
    if not fits:
        why = "no launch has three requests of one domain at different places"
    elif len(fits) > 1:
        slope = math.fsum(fit[0] for fit in fits) / len(fits)
        interval, why = mean_interval([fit[0] for fit in fits], confidence=confidence)
        unit = "launches"
    else:
        slope, error, df = fits[0]
        half = t_quantile((1 + confidence) / 2, df) * error
        interval, unit = (slope - half, slope + half), "requests"
    return Drift(
        n=len(found),
        n_launches=len(by_launch),
        per_request=slope,
        interval=interval,
        unit=unit,
        why=why,
        spearman=_spearman(found),
        one_order=len(orders) == 1,
    )


def warm_up(observations: Iterable[Observation], *, confidence: float = 0.95) -> WarmUp:
    """Compare each launch's first pass with its later ones, prompt by prompt."""
    logs: dict[int, dict[str, dict[bool, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    passes = set()
    for one in observations:
        passes.add(one.repeat)
        if one.value is not None:
            logs[one.launch][one.prompt_id][one.repeat == 0].append(math.log(one.value))
    differences = {
        launch: {
            prompt_id: _mean(cell[True]) - _mean(cell[False]) for prompt_id, cell in prompts.items() if len(cell) == 2
        }
        for launch, prompts in logs.items()
    }
    differences = {launch: prompts for launch, prompts in differences.items() if prompts}
    n_prompts = len({prompt_id for prompts in differences.values() for prompt_id in prompts})
    if not differences:
        why = "one pass: there is no later one to compare it with" if len(passes) < 2 else "no prompt has both"
        return WarmUp(n_launches=0, n_prompts=0, first_ratio=None, interval=None, unit=None, sufficed=None, why=why)
    means = [_mean(list(prompts.values())) for prompts in differences.values()]
    unit: Unit = "launches" if len(means) > 1 else "prompts"
    values = means if len(means) > 1 else list(next(iter(differences.values())).values())
    bounds, why_none = mean_interval(values, confidence=confidence)
    interval = None if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1]))
    return WarmUp(
        n_launches=len(means),
        n_prompts=n_prompts,
        first_ratio=math.exp(_mean(means)),
        interval=interval,
        unit=unit,
        sufficed=None if interval is None else interval[0] <= 1 <= interval[1],
        why=why_none,
    )


def _point(one: Observation, log_value: float) -> Point:
    return Point(launch=one.launch, domain=one.domain, prompt_id=one.prompt_id, order=one.order, log_value=log_value)


def _fit(rows: Sequence[Point]) -> tuple[float, float, int] | None:
    """Slope, its standard error and degrees of freedom within one launch, each domain with its own intercept."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for one in rows:
        groups[one.domain].append(one)
    centred = []
    for group in groups.values():
        x, y = _mean([one.order for one in group]), _mean([one.log_value for one in group])
        centred += [(one.order - x, one.log_value - y) for one in group]
    df = len(centred) - len(groups) - 1
    spread = math.fsum(x * x for x, _ in centred)
    if df < 1 or spread == 0:
        return None
    slope = math.fsum(x * y for x, y in centred) / spread
    left = math.fsum((y - slope * x) ** 2 for x, y in centred)
    return slope, math.sqrt(left / df / spread), df


def _spearman(found: Sequence[Point]) -> dict[str, float | None]:
    groups: dict[str, list[Point]] = defaultdict(list)
    for one in found:
        groups[f"{one.launch} {one.domain}"].append(one)
    return {
        name: spearman([one.order for one in rows], [one.log_value for one in rows]) for name, rows in groups.items()
    }


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's rank correlation with middle ranks for ties; None below three values or where one is constant."""
    if len(left) < 3 or len(set(left)) == 1 or len(set(right)) == 1:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Sequence[float]) -> Floats:
    inorder = np.sort(values)
    return (np.searchsorted(inorder, values, "left") + np.searchsorted(inorder, values, "right") + 1) / 2


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
