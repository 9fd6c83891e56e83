"""How long the reader of many connections may pause between two readings, by what it read lately.

After a wake-up everything is cold: it costs as much as reading three or four segments does, so fast streams are cheaper
read together. A pause loses a stamp where two segments of one connection come within it. So there is none unless a
sample of such neighbours says that they are far apart, and none where the kernel stamps nothing.
"""

from collections import deque
from collections.abc import Sequence

from infra.wire.connection import Raw, unix_ns

PAUSES_S = (0.004, 0.002, 0.001)  # the longest that may be is made; a user's next request is later by as much
APART = 4  # pauses that lie between neighbours: a reading that comes three pauses late loses nothing yet
TOGETHER = 4  # segments a pause on average, or it saves no work: a wake-up costs as much as reading these
# The last so many pairs, of which so few may be closer: one in 40, for the chunks at the end of an answer often are. It
# takes a fraction of a second to see that many, and six close ones to be read at once again.
SAMPLE, MOST_CLOSE = 200, 5


class Pace:
    """Judges one stretch of readings after the other; one without any pair, and it knows nothing of the streams."""

    def __init__(self) -> None:
        self._apart_s: deque[float] = deque(maxlen=SAMPLE)

    def pause_s(self, *, n_segments: int, took_s: float, pairs: Sequence[tuple[Raw, Raw]]) -> float:
        """Seconds from one reading to the next; 0: read at once.

        ``pairs`` is a sample of the stretch: two reads, one after the other, in the midst of a connection's response.
        """
        if not pairs:
            self._apart_s.clear()
        self._apart_s.extend(_apart_s(one, other) for one, other in pairs)
        if len(self._apart_s) < SAMPLE:
            return 0.0
        longest_s = sorted(self._apart_s)[MOST_CLOSE] / APART
        pause_s = next((pause_s for pause_s in PAUSES_S if pause_s <= longest_s), 0.0)
        return pause_s if n_segments * pause_s >= TOGETHER * took_s else 0.0


def _apart_s(one: Raw, other: Raw) -> float:
    """Between their stamps; 0 where one is missing, or hides that of an event before it in the same read."""
    before_ns, at_ns = unix_ns(one[0]), unix_ns(other[0])
    if before_ns is None or at_ns is None or (b"\n" + other[2]).count(b"\ndata:") > 1:
        return 0.0
    return (at_ns - before_ns) / 1e9
