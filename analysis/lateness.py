"""Was the client itself late when it read? A stamp that its own lateness may have moved is named, with by how much.

A kernel stamp survives a late reader until the next packet comes: one read then returns several packets, and only the
stamp of the last. So a request is late for latencies where its first token shares a segment with later ones while
the sentinel woke late, and for rates where that holds for its first or its last token. User stamps are moved by every
lateness. The sentinel's largest delay in the intervals that overlap the request bounds the error.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from analysis.columns import packed
from analysis.measures import Row
from evidence.quantiles import distribution
from evidence.records import Health, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """Late requests of one scope: how many, by how much at most, and the median of what that moves."""

    n_late: int
    n_requests: int
    lag_s: float
    moved: str  # what it moves, in words
    median_s: float | None  # of what it moves


def lateness(rows: Sequence[Row], health: Mapping[int, Sequence[Health]]) -> tuple[Late | None, Late | None]:
    """Lateness for (latency, rate) over the completed measured requests; None where no request was late."""
    done = [row for row in rows if row.request.phase == "measured" and row.request.outcome == "completed"]
    ttft_s = [row.measures.ttft_s.value for row in done]
    windows_s = [_decode_window_s(row.request) for row in done]
    lags = {worker: _Lags(records) for worker, records in health.items()}
    lags_s = [_lag_s(row.request, lags.get(row.request.worker)) for row in done]
    first = [lag for row, lag in zip(done, lags_s, strict=True) if lag and _moved(row.request, first_only=True)]
    either = [lag for row, lag in zip(done, lags_s, strict=True) if lag and _moved(row.request, first_only=False)]
    return (
        _late(first, len(done), "TTFT", distribution(v for v in ttft_s if v is not None).median),
        _late(either, len(done), "time from first to last token", distribution(v for v in windows_s if v).median),
    )


def _late(lags_s: Sequence[float], n_requests: int, moved: str, median_s: float | None) -> Late | None:
    if not lags_s:
        return None
    return Late(n_late=len(lags_s), n_requests=n_requests, lag_s=max(lags_s), moved=moved, median_s=median_s)


def _moved(request: Request, *, first_only: bool) -> bool:
    if request.stamp_source == "user":
        return True
    segments = packed(request.chunks).segments
    if not segments:
        return False
    ends = {segments[0]} if first_only else {segments[0], segments[-1]}
    return any(segments.count(segment) > 1 for segment in ends)


def _decode_window_s(request: Request) -> float | None:
    if request.first_token_after_s is None or request.last_token_after_s is None:
        return None
    return request.last_token_after_s - request.first_token_after_s


class _Lags:
    """The sentinel's delays of one worker, in the order of time, to be asked for a span of it."""

    def __init__(self, health: Sequence[Health]) -> None:
        known = sorted(
            (one.at_monotonic_s, one.at_monotonic_s - one.interval_s, one.lag_max_s)
            for one in health
            if one.lag_max_s is not None
        )
        self._ends = [end for end, _, _ in known]
        # The earliest beginning from each interval on: in order even where intervals overlap.
        earliest = accumulate((begin for _, begin, _ in reversed(known)), min)
        self._begins = list(earliest)[::-1]
        self._known = known

    def largest(self, begin_s: float, end_s: float) -> float | None:
        """The largest delay of the intervals that overlap [begin_s, end_s]; None where there are none."""
        first, behind = bisect_left(self._ends, begin_s), bisect_right(self._begins, end_s)
        return max((lag for _, begin, lag in self._known[first:behind] if begin <= end_s), default=None)


def _lag_s(request: Request, lags: _Lags | None) -> float | None:
    """The sentinel's largest delay in the intervals that overlap the request; None where none is on record."""
    if lags is None or request.sent_at_monotonic_s is None or request.end_after_s is None:
        return None
    return lags.largest(request.sent_at_monotonic_s, request.sent_at_monotonic_s + request.end_after_s)
