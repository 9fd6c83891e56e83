"""How long the reader of many connections may pause between two readings, by what it read lately.

After a wake-up everything is cold: it costs as much as reading several segments does, so fast streams are cheaper read
together. A pause loses a stamp where two segments of one connection come within it. So it is at most a fifth of what
lies between them on average, and only while a sample shows that hardly any come closer than it; a tenth or so else,
and none where the kernel stamps nothing.
"""

from collections.abc import Iterable, Sequence

from infra.wire.connection import Raw, unix_ns

# Pauses, and how far apart the segments of one connection must be on average for each; the longest that may be is made.
STEADY_S = ((0.004, 0.019), (0.002, 0.0095), (0.001, 0.005))
UNSTEADY_S = ((0.002, 0.019), (0.001, 0.005))
FAST_PER_S = 1000.0  # segments a second from which on pausing saves work
NEAR = 1.25  # pauses: segments that come closer to one another than this count as close
MOST_CLOSE = 0.025  # of the segments, where they are steady: fewer than 1 % are lost in a pause then
WEIGHT = 0.0125  # of each pair that was seen, in the running mean


class Pace:
    """Judges one stretch of readings after the other; what it has not seen for a while it holds for unsteady."""

    def __init__(self) -> None:
        self._close = 1.0  # running mean of the share

    def pause_s(self, *, n_segments: int, took_s: float, n_open: int, seen: Iterable[Sequence[Raw]]) -> float:
        """Seconds from one reading to the next; 0: read at once.

        ``seen`` is a sample: of some connections the last read, or the last two where both are in the midst of a
        response.
        """
        last: Raw | None = None
        pairs: list[Sequence[Raw]] = []
        for reads in seen:
            last = reads[-1]
            if len(reads) == 2:
                pairs.append(reads)
        if last is None or last[0] is None or n_segments < FAST_PER_S * took_s:
            return 0.0
        apart_s = n_open * took_s / n_segments
        pause_s = _longest_s(STEADY_S, apart_s)
        if pairs:
            share = sum(_are_close(one, other, NEAR * pause_s) for one, other in pairs) / len(pairs)
            self._close += min(WEIGHT * len(pairs), 1.0) * (share - self._close)
        return pause_s if self._close <= MOST_CLOSE else _longest_s(UNSTEADY_S, apart_s)


def _longest_s(pauses_s: tuple[tuple[float, float], ...], apart_s: float) -> float:
    return next((pause_s for pause_s, least_s in pauses_s if apart_s >= least_s), 0.0)


def _are_close(one: Raw, other: Raw, near_s: float) -> bool:
    """Whether the other's bytes came so shortly after the one's, or were two events."""
    before_ns, at_ns = unix_ns(one[0]), unix_ns(other[0])
    if before_ns is None or at_ns is None:
        return True
    return at_ns - before_ns < near_s * 1e9 or other[2].count(b"\ndata:") > 1
