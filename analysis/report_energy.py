"""Energy a token, from the GPU's own power readings, where they cover the time in which the requests ran.

    joules a token = mean power of the GPUs x length of the window / completion tokens of the window

The window goes from the first measured request's t0 to the last one's end. Mean power is the growth of the GPU's energy
counter between the first and the last sample inside, over the time between them; without a counter, the time-weighted
mean of the power readings (trapezoids). It is the power of the boards, prompt processing and idle power included, host
and cooling left out. The GPUs are the server's own where the run names them (``own_gpus``); otherwise all that were
sampled, and those that idle beside the server, or work for another one, count too.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from analysis.gpu_coverage import coverage, in_words
from evidence.gpu_records import GpuReading, GpuSample
from evidence.records import Request

FEWEST_SAMPLES = 3
LEAST_COVERED = 0.8  # of the window's time: below it, what the GPU did in the rest would be a guess


@dataclass(frozen=True, kw_only=True, slots=True)
class Energy:
    """Energy of one run's measured window."""

    joules_per_token: float
    joules: float
    mean_power_w: float
    window_s: float
    n_tokens: int
    n_gpus: int
    by_counter: bool
    coverage: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def energy(samples: Sequence[GpuSample], requests: Sequence[Request]) -> Energy | str:
    """Of the measured requests, or why there is none."""
    if not samples:
        return "no GPU was sampled"
    both = [(r.sent_at_unix_s, r.end_after_s) for r in requests]
    spans = [(sent, sent + after) for sent, after in both if sent is not None and after is not None]
    if not spans:
        return "no measured request has both ends"
    start, end = min(begun for begun, _ in spans), max(ended for _, ended in spans)
    covered = coverage(samples, [(start, end)])
    inside = [one for one in samples if one.gpus and start <= one.at_unix_s <= end]
    if covered.missing is not None:
        return f"no GPU samples: {covered.missing}"
    if len(inside) < FEWEST_SAMPLES or (covered.covered_ratio or 0.0) < LEAST_COVERED:
        return f"the samples do not cover the window ({in_words(covered)})"
    uncounted = sum(r.n_completion_tokens is None and bool(r.chunks) for r in requests)
    n_tokens = sum(r.n_completion_tokens or 0 for r in requests)
    if uncounted or not n_tokens:
        return f"{uncounted} of {len(requests)} requests carry no token count, and {n_tokens} tokens are counted in all"
    powers = [_power(inside, index) for index in sorted({gpu.index for one in inside for gpu in one.gpus})]
    known = [found for found in powers if found is not None]
    if len(known) < len(powers) or not known:
        return "a GPU tells neither its power nor its energy"
    mean_w = sum(power for power, _ in known)
    joules = mean_w * (end - start)
    return Energy(
        joules_per_token=joules / n_tokens,
        joules=joules,
        mean_power_w=mean_w,
        window_s=end - start,
        n_tokens=n_tokens,
        n_gpus=len(known),
        by_counter=all(counted for _, counted in known),
        coverage=in_words(covered),
    )


def _power(samples: Sequence[GpuSample], index: int) -> tuple[float, bool] | None:
    """Mean power of one GPU in watts, and whether its energy counter gave it."""
    own = [(one.at_unix_s, gpu) for one in samples for gpu in one.gpus if gpu.index == index]
    counted = [(at, gpu.energy_j) for at, gpu in own if gpu.energy_j is not None]
    if len(counted) >= FEWEST_SAMPLES and counted[-1][0] > counted[0][0]:
        growth = counted[-1][1] - counted[0][1]
        if growth >= 0:
            return growth / (counted[-1][0] - counted[0][0]), True
    return _trapezoids([(at, _watts(gpu)) for at, gpu in own])


def _trapezoids(read: Sequence[tuple[float, float | None]]) -> tuple[float, bool] | None:
    known = [(at, watts) for at, watts in read if watts is not None]
    if len(known) < FEWEST_SAMPLES or known[-1][0] <= known[0][0]:
        return None
    area = sum((b - a) * (left + right) / 2 for (a, left), (b, right) in pairwise(known))
    return area / (known[-1][0] - known[0][0]), False


def _watts(gpu: GpuReading) -> float | None:
    return gpu.power_w
