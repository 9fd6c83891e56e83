"""How much of this process the desk may take while streams are being read: what the reading leaves over.

A process that never rests is stopped by somebody else: another process's turn, or the kernel's limit on real-time
threads (50 ms in each second). Streams are read late then, and stamps are lost. So the desk rests between its slices
once the process is nearly always busy, or what was read last had waited for long. It never rests so much that it
stands still, and not at all where no request is under way.
"""

import time
from collections.abc import Callable

WINDOW_S = 0.05
MOST_BUSY = 0.85  # of one core
LATE_S = 0.008  # in the kernel; pauses of the reader are up to 4 ms
LEAST_REST_S = 0.0005  # the loop's timers make a millisecond of it
MOST_REST_S = 0.004


class Duty:
    """``late_s`` says how long the segment that was read last had lain in the kernel, or None: then CPU alone tells."""

    def __init__(
        self,
        late_s: Callable[[], float | None],
        clock_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._late_s = late_s
        self._clock_s = clock_s
        self._cpu_s = cpu_s
        self._since_s, self._cpu_since_s = clock_s(), cpu_s()
        self._rest_s = 0.0

    def rest_s(self) -> float:
        """How long to rest now; 0: not at all. Asked after each slice."""
        now_s = self._clock_s()
        took_s = now_s - self._since_s
        if took_s >= WINDOW_S:
            cpu_s = self._cpu_s()
            busy = (cpu_s - self._cpu_since_s) / took_s
            self._since_s, self._cpu_since_s = now_s, cpu_s
            late_s = self._late_s()
            if busy > MOST_BUSY or (late_s is not None and late_s > LATE_S):
                self._rest_s = min(max(2 * self._rest_s, LEAST_REST_S), MOST_REST_S)
            else:
                self._rest_s = self._rest_s / 2 if self._rest_s > LEAST_REST_S else 0.0
        return self._rest_s
