"""What raw samples of a Prometheus server say of one window: how far a counter grew, what a gauge was.

A Prometheus scrapes when it likes, so the counter's value at the window's start lies between the last sample before it
and the first one after, and likewise at the end. Where the server was at rest, the sample taken during the rest is the
value. Growth is therefore an interval, and a number only where its ends meet: nothing is extrapolated, as PromQL's
``increase()`` would do.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.engines.readings import Absent, Measured, Reading, Unmeasured

Points = Sequence[tuple[float, float]]  # (unix_s, value), in order of time


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The window on the Prometheus server's clock, within ``clock_s``. Rest is None where it was not shown."""

    rest_since_s: float | None
    start_s: float
    end_s: float
    rest_until_s: float | None
    clock_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One series of an answer."""

    labels: Mapping[str, str]
    points: Points


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """All series of one name. ``why`` says why there is no answer; it is None for an answer, an empty one too."""

    name: str
    series: tuple[Series, ...]
    why: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """``reading`` is Measured where ``low`` and ``high`` meet; both are None where nothing is known."""

    reading: Reading
    low: float | None = None
    high: float | None = None


def kept(answer: Answer, once: Mapping[str, str]) -> tuple[Series, ...]:
    """The series that count: of ranks that repeat each other the one named in ``once``."""
    return tuple(s for s in answer.series if all(s.labels.get(name, value) == value for name, value in once.items()))


def growth(
    answer: Answer, bounds: Bounds, *, once: Mapping[str, str] | None = None, scraped_before: bool = False
) -> Growth:
    """How far a counter grew in the window, summed over its series.

    ``scraped_before``: the server was scraped before the window, so a series without a sample from then is new and
    counts from zero.
    """
    if answer.why is not None:
        return Growth(reading=Unmeasured(why=answer.why))
    series = [one for one in kept(answer, once or {}) if one.points]
    if not series:
        return Growth(reading=Absent(why=f"Prometheus holds no series {answer.name} of this window"))
    parts = [_one(answer.name, one.points, bounds, scraped_before=scraped_before) for one in series]
    refused = next((part.reading for part in parts if part.low is None or part.high is None), None)
    if refused is not None:
        return Growth(reading=refused)
    low = sum(part.low for part in parts if part.low is not None)
    high = sum(part.high for part in parts if part.high is not None)
    return Growth(reading=_met(low, high), low=low, high=high)


def _met(low: float, high: float) -> Reading:
    if high - low <= 1e-9 * max(1.0, abs(high)):
        return Measured(high)
    return Unmeasured(why=f"between {low:g} and {high:g}: no sample of Prometheus fell into the rest beside the window")


def _one(name: str, points: Points, bounds: Bounds, *, scraped_before: bool) -> Growth:
    before = [p for p in points if p[0] <= bounds.start_s - bounds.clock_s]
    later = [p for p in points if p[0] >= bounds.start_s + bounds.clock_s]
    earlier = [p for p in points if p[0] <= bounds.end_s - bounds.clock_s]
    after = [p for p in points if p[0] >= bounds.end_s + bounds.clock_s]
    if not before and not scraped_before:
        return _unknown(f"no sample of {name} from before the window")
    if not after:
        return _unknown(f"no sample of {name} from after the window: wait one scrape interval before asking")
    since = before[-1][0] if before else points[0][0]
    span = [p for p in points if since <= p[0] <= after[0][0]]
    if any(not math.isfinite(value) for _, value in span):
        return _unknown(f"{name} is not a finite number in the window")
    for (_, was), (_, now) in itertools.pairwise(span):
        if now < was:
            return _unknown(f"{name} went from {was:g} to {now:g}: a restart, or another server")
    start_low, start_high = (before[-1][1], later[0][1] if later else after[0][1]) if before else (0.0, 0.0)
    if before and bounds.rest_since_s is not None and before[-1][0] >= bounds.rest_since_s + bounds.clock_s:
        start_high = start_low
    end_low, end_high = earlier[-1][1] if earlier else 0.0, after[0][1]
    if bounds.rest_until_s is not None and after[0][0] <= bounds.rest_until_s - bounds.clock_s:
        end_low = end_high
    low, high = max(0.0, end_low - start_high), end_high - start_low
    return Growth(reading=_met(low, high), low=low, high=high)


def _unknown(why: str) -> Growth:
    return Growth(reading=Unmeasured(why=why))


def gauge(answer: Answer, bounds: Bounds, *, once: Mapping[str, str] | None = None, over: str) -> Reading:
    """A gauge within the window. ``over``: "mean" (over its samples, series added), "max" (over both).

    A sample from before or after the window is never a value of it, however fresh it may look.
    """
    if answer.why is not None:
        return Unmeasured(why=answer.why)
    series = kept(answer, once or {})
    if not series:
        return Absent(why=f"Prometheus holds no series {answer.name} of this window")
    inside = [[v for t, v in one.points if bounds.start_s <= t <= bounds.end_s and math.isfinite(v)] for one in series]
    filled = [values for values in inside if values]
    if not filled:
        return Unmeasured(why=f"no sample of {answer.name} within the window")
    if over == "max":
        return Measured(max(max(values) for values in filled))
    return Measured(sum(sum(values) / len(values) for values in filled))


def mean_of_means(answer: Answer, bounds: Bounds) -> Reading:
    """A gauge's mean over its samples, then over its series (one a GPU)."""
    total = gauge(answer, bounds, over="mean")
    if not isinstance(total, Measured):
        return total
    inside = [one for one in answer.series if any(bounds.start_s <= t <= bounds.end_s for t, _ in one.points)]
    return Measured(total.value / len(inside))
