"""Does one answer meet the objectives of ``[limits]``? One rule for a search under way and for every report.

TTFT is at most ``ttft_slo_s`` and TPOT at most ``tpot_slo_s`` (DistServe, OSDI 2024, arXiv 2401.09670). An answer after
whose first segment no token came has no TPOT and is judged by its TTFT; that is no TPOT of 0. Where TPOT is an interval
(tokens of the first chunk unknown), an answer inside on both ends has met it, outside on both has not, and else it is
undecided. That interval is the caller's: a search leaves its upper end open, so such an answer may be outside and is
never inside; a report has both ends where the draft limit is on record, else no interval. So each leaves undecided some
that the other decides. A request that did not complete has met nothing: whoever asks has sorted it out.
"""

from typing import Literal

ATTAINMENT = 0.9  # share of a level's requests; the 90 % that DistServe judges by
Met = Literal["met", "not met", "undecided"]


def met(
    *,
    ttft_s: float | None,
    tpot_bounds_s: tuple[float, float] | None,
    first_is_all: bool,
    ttft_slo_s: float | None,
    tpot_slo_s: float | None,
) -> Met:
    """Of a completed request. None stands for what is not known, and for an objective that is not set.

    ``first_is_all``: every token came with the first segment.
    """
    both = {_below(ttft_s, ttft_slo_s), "met" if first_is_all else _inside(tpot_bounds_s, tpot_slo_s)}
    if "not met" in both:
        return "not met"
    return "undecided" if "undecided" in both else "met"


def _inside(bounds: tuple[float, float] | None, limit: float | None) -> Met:
    if bounds is None:
        return _below(None, limit)
    ends = {_below(end, limit) for end in bounds}
    return ends.pop() if len(ends) == 1 else "undecided"


def _below(value: float | None, limit: float | None) -> Met:
    if limit is None:
        return "met"
    if value is None:
        return "undecided"
    return "met" if value <= limit else "not met"
