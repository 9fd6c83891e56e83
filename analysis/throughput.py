"""What a window of a level delivered: output tokens by the instant they arrived, requests by the instant they ended.

Tokens of a request that crosses an edge count where they arrived, by the server's running count in its chunks. Without
such counts nobody knows how many of them fell inside: the throughput is then two numbers, with none and with all of
those requests' tokens. Tokens of requests that failed later did arrive and are counted, as far as they are known.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.columns import packed
from analysis.in_flight import Spans
from analysis.measures import Row
from analysis.run_clock import RunClock
from evidence.records import Request, Started

# A window's edge is often the very instant of a segment, and comes out of sums of doubles that do not undo each other.
EDGE_S = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """``bounds_tok_per_s`` stands where edges cut answers without counts; ``n_uncounted`` failed ones tell none."""

    window_s: float
    n_output_tokens: int | None
    output_tok_per_s: float | None
    bounds_tok_per_s: tuple[float, float] | None
    n_started: int
    n_completed: int
    n_failed: int
    n_uncounted: int
    requests_per_s: float
    mean_in_flight: float
    why: str | None

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        if self.bounds_tok_per_s is not None:
            found["bounds_tok_per_s"] = list(self.bounds_tok_per_s)
        return found


def throughput(
    rows: Sequence[Row], spans: Spans, begin_s: float, end_s: float, clock: RunClock, unended: Sequence[Started] = ()
) -> Throughput:
    """Over [begin_s, end_s] of the run's clock, which must have a length. ``rows`` may reach beyond it.

    ``unended`` were started, and no line says how they ended: they count as started only.
    """
    window_s = end_s - begin_s
    least = most = n_completed = n_failed = n_uncounted = n_unknown = 0
    n_started = sum(begin_s <= clock.started_s(one) <= end_s for one in unended)
    for row in rows:
        request = row.request
        sent_s, ended_s = clock.begun_s(request), clock.ended_s(request)
        if sent_s is None or ended_s is None:
            continue  # it failed to connect, and no line says when it was started
        n_started += begin_s <= sent_s <= end_s
        ended_inside = begin_s < ended_s <= end_s or begin_s == sent_s == ended_s
        n_completed += ended_inside and request.outcome == "completed"
        n_failed += ended_inside and request.outcome != "completed"
        low, high = tokens_within(request, begin_s - sent_s, end_s - sent_s)
        if low is None or high is None:
            n_uncounted += request.outcome != "completed"
            n_unknown += request.outcome == "completed"
            continue
        least, most = least + low, most + high
    why = None
    if n_unknown:
        why = f"{n_unknown} completed requests carry no server's count"
    elif least != most:
        why = "an edge of the window cuts answers whose chunks carry no counts"
    known = why is None
    return Throughput(
        window_s=window_s,
        n_output_tokens=least if known else None,
        output_tok_per_s=least / window_s if known else None,
        bounds_tok_per_s=(least / window_s, most / window_s) if least != most and not n_unknown else None,
        n_started=n_started,
        n_completed=n_completed,
        n_failed=n_failed,
        n_uncounted=n_uncounted,
        requests_per_s=n_completed / window_s,
        mean_in_flight=spans.mean_within(begin_s, end_s),
        why=why,
    )


def tokens_within(request: Request, begin_s: float, end_s: float) -> tuple[int, int] | tuple[None, None]:
    """Fewest and most tokens of one request that arrived in [begin_s, end_s] from its t0; None where none are counted.

    A request that lies outside altogether has none inside, counted or not. A segment within a microsecond of an edge is
    inside.
    """
    begin_s, end_s = begin_s - EDGE_S, end_s + EDGE_S
    marks = packed(request.chunks)
    if not len(marks) or marks.after_s[0] > end_s or marks.after_s[-1] < begin_s:
        return 0, 0
    counts, n_tokens = marks.tokens, request.n_completion_tokens
    whole = marks.after_s[0] >= begin_s and marks.after_s[-1] <= end_s
    if whole and n_tokens is not None:
        return n_tokens, n_tokens
    if counts is None or isinstance(counts, tuple):
        return (None, None) if n_tokens is None else (0, n_tokens)
    first, behind = bisect_left(marks.after_s, begin_s), bisect_right(marks.after_s, end_s)
    before = counts[first - 1] if first else 0
    last = counts[behind - 1] if behind else 0
    if behind == len(marks) and n_tokens is not None:
        last = n_tokens
    inside = max(0, (last or 0) - (before or 0))
    return inside, inside
