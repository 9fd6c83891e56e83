"""How much of a run's windows the GPU samples cover, and what the samples inside say.

A sampler that ran beside a study without being bound to its windows gave 9, 19 and 54 % of its samples inside them; so
the share is printed, with the largest stretch of a window that no sample falls into.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evidence.gpu_records import GpuReading, GpuSample

Window = tuple[float, float]  # from, to on the wall clock of the sampled host


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """``inside_ratio``: samples inside a window / all samples, None without samples.

    ``covered_ratio`` is the part of the windows' time that lies within half an interval (at least the median distance
    of samples) of a sample. ``largest_gap_s`` is the longest stretch of a window without a sample.
    """

    n_samples: int
    n_inside: int
    inside_ratio: float | None
    covered_ratio: float | None
    largest_gap_s: float | None
    n_windows: int
    n_windows_without: int
    missing: str | None  # why there are no readings at all
    not_told: dict[str, str]  # fields that no reading inside has, with the reason given


def coverage(samples: Sequence[GpuSample], windows: Iterable[Window]) -> Coverage:
    """Coverage of the windows, which may overlap; a sample inside two of them counts once."""
    joined = _joined(windows)
    read = sorted((one for one in samples if one.gpus), key=lambda one: one.at_unix_s)
    inside = [one for one in read if any(a <= one.at_unix_s <= b for a, b in joined)]
    times = [one.at_unix_s for one in inside]
    reach_s = _reach([one.at_unix_s for one in read], [one.interval_s for one in read if one.interval_s is not None])
    length_s = sum(b - a for a, b in joined)
    gaps = [gap for window in joined for gap in _gaps(times, window)]
    covered_s = _length([(max(a, t - reach_s), min(b, t + reach_s)) for a, b in joined for t in times if a <= t <= b])
    return Coverage(
        n_samples=len(read),
        n_inside=len(inside),
        inside_ratio=len(inside) / len(read) if read else None,
        covered_ratio=covered_s / length_s if length_s > 0 and read else None,
        largest_gap_s=max(gaps, default=None),
        n_windows=len(joined),
        n_windows_without=sum(not any(a <= t <= b for t in times) for a, b in joined),
        missing=None if read else _why(samples),
        not_told=_not_told([gpu for one in inside for gpu in one.gpus]),
    )


def in_words(found: Coverage) -> str:
    """One line for a report."""
    if found.missing is not None:
        return f"GPU: no samples: {found.missing}"
    if not found.n_windows:
        return f"GPU: {found.n_samples} samples, and no window to lay them against"
    covered = "-" if found.covered_ratio is None else f"{found.covered_ratio:.0%}"
    gap = "-" if found.largest_gap_s is None else f"{found.largest_gap_s:.1f} s"
    words = (
        f"GPU: {found.n_inside} of {found.n_samples} samples lie inside the run's windows ({found.inside_ratio:.0%})"
    )
    words += f", which they cover to {covered}; longest stretch without one {gap}"
    if found.not_told:
        words += f"; not told: {', '.join(sorted(found.not_told))}"
    return words


def _why(samples: Sequence[GpuSample]) -> str:
    return next((one.missing for one in samples if one.missing), "no sample was taken")


def _joined(windows: Iterable[Window]) -> list[Window]:
    joined: list[Window] = []
    for a, b in sorted(one for one in windows if one[1] >= one[0]):
        if joined and a <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
        else:
            joined.append((a, b))
    return joined


def _reach(times: Sequence[float], intervals: Sequence[float]) -> float:
    steps = [b - a for a, b in itertools.pairwise(times)]
    asked = statistics.median(intervals) if intervals else 0.0
    return max(asked, statistics.median(steps) if steps else 0.0) / 2


def _gaps(times: Sequence[float], window: Window) -> list[float]:
    points = [window[0], *(t for t in times if window[0] <= t <= window[1]), window[1]]
    return [b - a for a, b in itertools.pairwise(points)]


def _length(spans: Iterable[Window]) -> float:
    return sum(b - a for a, b in _joined(spans))


def _not_told(readings: Sequence[GpuReading]) -> dict[str, str]:
    """Fields that are missing in every reading."""
    if not readings:
        return {}
    names = set.intersection(*(set(one.missing) for one in readings))
    return {name: readings[-1].missing[name] for name in sorted(names)}
