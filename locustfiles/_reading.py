"""Reads every connection of this process through one descriptor: an epoll of ours, watched by gevent's loop.

A wake-up of the process costs several times what reading a segment does. So while segments come in fast, the ready
connections are read together, once in a millisecond or two. What that delays is our reading, not the stamps, which are
the kernel's. It is done only where it can hardly lose one of them: with kernel stamps, and while the segments of one
connection come many pauses apart on average. Else every segment is read at once.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey
from gevent.event import Event

from infra.dial import read_clocks
from infra.wire.connection import Connection, unix_ns

READ, WRITE = 1, 2  # libev's event bits
# A pause, and how far apart the segments of one connection must be on average for it; the longest that may be is made.
PAUSES_S = ((0.002, 0.019), (0.001, 0.005))
FAST_PER_S = 1500.0  # segments a second from which on pausing saves work
MOST_SAMPLES = 2000
WEIGHT = 0.02  # of the latest reading in the running mean


class Reader:
    """The connections with a response under way in one process; made anew after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._epoll: Any = monkey.get_original("select", "epoll")()
        self._loop: Any = gevent.get_hub().loop
        self._watcher = self._loop.io(self._epoll.fileno(), READ)
        self._timers = {pause_s: self._loop.timer(pause_s, pause_s) for pause_s, _ in PAUSES_S}
        self._open: dict[int, tuple[Callable[[int], bool], Connection, Event]] = {}
        self._pause_s = 0.0  # between two readings; 0: each segment is read at once
        self._stamped = False  # the kernel stamped what was read last
        self._read_ns = 0
        self._last: tuple[bytes | None, int] = (None, 0)  # stamps of what was read last
        self._samples: list[tuple[bytes | None, int]] = []
        self._wall_minus_monotonic_ns = read_clocks().wall_minus_monotonic_ns
        self._mean_n = 1.0  # segments a reading
        self._mean_ns = 1e9  # from one reading to the next

    def add(self, conn: Connection) -> Event:
        """Reads ``conn`` until its response has ended; the event is set then."""
        fd, done = conn.fileno(), Event()
        if not self._open and not self._pause_s:
            self._watcher.start(self._on_ready)
        self._open[fd] = (conn.on_readable, conn, done)
        self._epoll.register(fd, READ)
        return done

    def remove(self, conn: Connection) -> None:
        """Stops reading; harmless where the response has ended."""
        self._drop(conn.fileno())

    def take_delays_s(self) -> list[float]:
        """How long what was read lay in the kernel, for a sample of the reads since the last call: each one's last."""
        samples, self._samples = self._samples, []
        self._wall_minus_monotonic_ns = read_clocks().wall_minus_monotonic_ns
        return [self._delay_s(sample) for sample in samples]

    def late_s(self) -> float:
        """How long what was read last had lain in the kernel; 0 where the kernel stamps nothing."""
        return self._delay_s(self._last)

    def _delay_s(self, stamps: tuple[bytes | None, int]) -> float:
        kernel_ns = unix_ns(stamps[0])
        return 0.0 if kernel_ns is None else max(0, stamps[1] + self._wall_minus_monotonic_ns - kernel_ns) / 1e9

    def _drop(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            return
        self._epoll.unregister(fd)
        if not self._open and not self._pause_s:
            self._watcher.stop()

    def _read(self) -> int:
        ready = self._epoll.poll(0)
        clock = time.monotonic_ns
        for fd, _ in ready:
            on_readable, conn, done = self._open[fd]
            if on_readable(clock()):
                self._drop(fd)
                done.set()
        if ready:
            self._stamped = conn.stamped
            self._last = conn.last_stamps if self._stamped else (None, 0)
            if self._stamped and len(self._samples) < MOST_SAMPLES:
                self._samples.append(self._last)
        now_ns = clock()
        self._mean_n += WEIGHT * (len(ready) - self._mean_n)
        self._mean_ns += WEIGHT * (min(now_ns - self._read_ns, 1e9) - self._mean_ns)
        self._read_ns = now_ns
        return len(ready)

    def _on_ready(self) -> None:
        self._read()
        self._settle(self._wanted_pause_s())

    def _on_timer(self) -> None:
        self._read()
        self._settle(self._wanted_pause_s() if self._open else 0.0)

    def _settle(self, pause_s: float) -> None:
        """From now on a reading each ``pause_s``, or at once."""
        if pause_s == self._pause_s:
            return
        if self._pause_s:
            self._timers[self._pause_s].stop()
        else:
            self._watcher.stop()
        self._pause_s = pause_s
        if pause_s:
            self._timers[pause_s].again(self._on_timer, update=True)
        elif self._open:
            self._watcher.start(self._on_ready)

    def _wanted_pause_s(self) -> float:
        per_s = self._mean_n / self._mean_ns * 1e9
        if not self._stamped or per_s < FAST_PER_S:
            return 0.0
        apart_s = len(self._open) / per_s
        return next((pause_s for pause_s, least_s in PAUSES_S if apart_s >= least_s), 0.0)


_reader: Reader | None = None


def reader() -> Reader | None:
    """This process's reader; None where the system has no epoll."""
    global _reader
    if _reader is None or _reader.pid != os.getpid():
        try:
            _reader = Reader()
        except AttributeError:
            return None
    return _reader
