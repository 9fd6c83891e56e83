"""Reads every connection of this process through one descriptor: an epoll of ours, watched by gevent's loop.

A wake-up of the process costs several times what reading a segment does. So while segments come in fast, the ready
connections are read together, once in some milliseconds (``_pace``). What that delays is our reading, not the stamps,
which are the kernel's. Where a sample says that more than one in forty of them could be lost, or is too small to say,
every segment is read at once. It is asked each 16 readings (64 ms at most); until then streams that have just become
faster lose stamps, visibly: their chunks are coalesced.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey
from gevent.event import Event

from infra.dial import read_clocks
from infra.wire.connection import Connection, Raw, unix_ns
from locustfiles._pace import PAUSES_S, Pace

READ, WRITE = 1, 2  # libev's event bits
JUDGED = 16  # readings after which the pause is decided anew, which costs as much as reading one or two segments
MOST_SAMPLES = 2000  # of delays, which are asked for each second: enough for a p99, and little where nobody asks


class Reader:
    """The connections with a response under way in one process; made anew after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._epoll: Any = monkey.get_original("select", "epoll")()
        self._loop: Any = gevent.get_hub().loop
        self._watcher = self._loop.io(self._epoll.fileno(), READ)
        self._timers = {pause_s: self._loop.timer(pause_s, pause_s) for pause_s in PAUSES_S}
        self._open: dict[int, tuple[Callable[[int], bool], Connection, Event]] = {}
        self._pause_s = 0.0  # between two readings; 0: each segment is read at once
        self._pace = Pace()
        self._begin_stretch()
        self._samples: list[tuple[bytes | None, int]] = []
        self._last: tuple[bytes | None, int] = (None, 0)  # stamps of what was read last
        self._wall_minus_monotonic_ns = read_clocks().wall_minus_monotonic_ns

    def add(self, conn: Connection) -> Event:
        """Reads ``conn`` until its response has ended; the event is set then."""
        fd, done = conn.fileno(), Event()
        if not self._open:
            self._pace = Pace()
            self._begin_stretch()
            self._watcher.start(self._turn)
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
        return [delay_s for sample in samples if (delay_s := self._delay_s(sample)) is not None]

    def late_s(self) -> float | None:
        """How long what was read last had lain in the kernel; None where nothing was, or the kernel stamps nothing."""
        return self._delay_s(self._last)

    def _delay_s(self, stamps: tuple[bytes | None, int]) -> float | None:
        kernel_ns = unix_ns(stamps[0])
        return None if kernel_ns is None else max(0, stamps[1] + self._wall_minus_monotonic_ns - kernel_ns) / 1e9

    def _drop(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            return
        self._epoll.unregister(fd)
        if not self._open:
            self._settle(0.0)
            self._watcher.stop()

    def _read(self) -> None:
        ready = self._epoll.poll(0)
        opened, clock = self._open, time.monotonic_ns
        for fd, _ in ready:
            on_readable, conn, done = opened[fd]
            if on_readable(clock()):
                self._drop(fd)
                done.set()
        self._n_readings += 1
        if ready:
            self._n_segments += len(ready)
            if raw := conn.raw:
                # The head, what comes with it, and the end are close to one another anywhere.
                if len(raw) > 3 and conn.ended is None:
                    self._pairs.append((raw[-2], raw[-1]))
                self._last = raw[-1][:2]
                if self._last[0] is not None and len(self._samples) < MOST_SAMPLES:
                    self._samples.append(self._last)

    def _turn(self) -> None:
        self._read()
        if self._open and self._n_readings >= JUDGED:
            took_s = (time.monotonic_ns() - self._since_ns) / 1e9
            self._settle(self._pace.pause_s(n_segments=self._n_segments, took_s=took_s, pairs=self._pairs))
            self._begin_stretch()

    def _begin_stretch(self) -> None:
        """Nothing has been read since the last judgement."""
        self._n_readings = self._n_segments = 0
        self._since_ns = time.monotonic_ns()
        self._pairs: list[tuple[Raw, Raw]] = []  # one connection's last reads, of each reading

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
            self._timers[pause_s].again(self._turn, update=True)
        else:
            self._watcher.start(self._turn)


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
