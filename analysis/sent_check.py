"""The instant a request was sent, on both clocks, against its started line and its raw segments.

Every rate hangs on ``sent_at_monotonic_s``. A started line is written just before its request is sent. The kernel
stamps are on the wall clock and the user stamps on the monotonic one, so that the largest delay between them, which
the record tells too, holds t0 on the one clock to t0 on the other.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from evidence.frames import SegmentTuple
from evidence.reading import Run
from evidence.records import Request, Started

TOLERANCE_S = 1e-6  # t0 on the wall clock stands as a double, which resolves a quarter of that
# Wall minus monotonic, which stays as it is but for steps of the wall clock. The two clocks of a started line are read
# one after the other, by a process that may have lost its core in between.
PAIR_TOLERANCE_S = 0.1


class SentCheck:
    """Holds the started lines of a run."""

    def __init__(self, run: Run) -> None:
        self._started: Mapping[tuple[int, int], Started] = {(one.worker, one.sequence): one for one in run.started}
        apart: dict[int, set[float]] = {}
        for one in run.started:
            apart.setdefault(one.worker, set()).add(one.started_at_unix_s - one.started_at_monotonic_s)
        self._apart = {worker: sorted(found) for worker, found in apart.items()}

    def difference(self, request: Request) -> str | None:
        """How the instants differ from the started lines of the request's worker; None where they agree."""
        sent_s, wall_s = request.sent_at_monotonic_s, request.sent_at_unix_s
        if sent_s is None or wall_s is None:
            return None if sent_s is wall_s else "it was sent by one of its two clocks only"
        started = self._started.get((request.worker, request.sequence))
        if started is None:
            return None  # a problem of the folder, and said there
        if sent_s < started.started_at_monotonic_s - TOLERANCE_S:
            early_s = started.started_at_monotonic_s - sent_s
            return f"sent_at_monotonic_s is {sent_s:.6f}, {early_s:.6f} s before its started line"
        apart_s, known = wall_s - sent_s, self._apart[request.worker]
        place = bisect_left(known, apart_s)
        off_s = min(abs(apart_s - one) for one in known[max(0, place - 1) : place + 1])
        # A step of the wall clock before t0 shows in the next started line; the last request has none behind it.
        if off_s <= PAIR_TOLERANCE_S:
            return None
        return (
            f"sent_at_monotonic_s is {sent_s:.6f} and sent_at_unix_s {wall_s:.6f}: these clocks are {off_s:.6f} s"
            " further apart than in the started lines"
        )


def against_stamps(request: Request, segments: Sequence[SegmentTuple]) -> str | None:
    """How ``sent_at_monotonic_s`` differs from the segments' stamps; None where it agrees or nothing was received."""
    sent_s, wall_s = request.sent_at_monotonic_s, request.sent_at_unix_s
    if sent_s is None or wall_s is None or not segments:
        return None
    sent_ns, wall_ns = round(sent_s * 1e9), round(wall_s * 1e9)
    first_s = (min(user_ns for _, user_ns, _ in segments) - sent_ns) / 1e9
    if first_s < -TOLERANCE_S:
        return f"sent_at_monotonic_s is {sent_s:.6f}, and the first segment was read {-first_s:.6f} s before that"
    told_s = request.kernel_to_user_max_s
    if request.stamp_source != "kernel" or told_s is None:
        return None
    delays_s = [(user_ns - sent_ns - kernel_ns + wall_ns) / 1e9 for kernel_ns, user_ns, _ in segments if kernel_ns]
    most_s = max(0.0, *delays_s) if delays_s else 0.0
    if abs(most_s - told_s) <= TOLERANCE_S:
        return None
    return (
        f"kernel_to_user_max_s is {told_s:.6f}, and by sent_at_monotonic_s {sent_s:.6f} the segments give {most_s:.6f}"
    )
