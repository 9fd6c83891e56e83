"""Binds the wire's connection to gevent's loop: real sockets, one callback a readable segment, no switch per chunk."""

import time
from typing import Any

import gevent
import gevent.socket
from gevent import monkey
from gevent.event import Event
from greenlet import GreenletExit

from infra.dial import Io
from infra.tls import Direction
from infra.wire.connection import Connection
from locustfiles._reading import READ, WRITE, reader

SPIN_NS = 2_000_000
_WAITERS = {"read": gevent.socket.wait_read, "write": gevent.socket.wait_write}


def _wait(fd: int, direction: Direction, timeout_s: float) -> bool:
    try:
        _WAITERS[direction](fd, timeout=max(timeout_s, 0.0))
    except TimeoutError:
        return False
    return True


GEVENT_IO = Io(socket_class=monkey.get_original("socket", "socket"), wait=_wait, getaddrinfo=gevent.socket.getaddrinfo)


class _Watch:
    """Reads one connection for one response (and writes, while a request is half sent)."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._loop: Any = gevent.get_hub().loop
        self._writer: Any = self._loop.io(conn.fileno(), WRITE) if conn.want_write else None
        self._together = reader()
        self._alone: Any = self._loop.io(conn.fileno(), READ) if self._together is None else None

    def __enter__(self) -> Event:
        if self._writer is not None:
            self._writer.start(self._on_writable)
        if self._together is not None:
            self._done = self._together.add(self._conn)
        else:
            self._done = Event()
            self._alone.start(self._on_readable)
        return self._done

    def __exit__(self, *_: object) -> None:
        if self._together is not None:
            self._together.remove(self._conn)
        for watcher in (self._alone, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()

    def _on_readable(self) -> None:
        if self._conn.on_readable(time.monotonic_ns()):
            self._alone.stop()
            self._done.set()

    def _on_writable(self) -> None:
        if self._conn.on_writable() and self._writer is not None:
            self._writer.stop()


def wait_until(due_ns: int) -> None:
    """Returns at a monotonic instant, at once where it is past: asleep at first, then in rounds of the loop.

    The loop's timers wake up to 1.2 ms late. In the last stretch every descriptor that can be read is read each round;
    ``sleep(0)`` would come back before that and keep answers waiting.
    """
    hub: Any = gevent.get_hub()
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        if left_ns > SPIN_NS:
            gevent.sleep((left_ns - SPIN_NS) / 1e9)
        else:
            hub.wait(hub.loop.timer(0))


def converse(conn: Connection, request: bytes, *, timeout_s: float, stall_s: float | None) -> tuple[int, bool]:
    """Sends the request and reads until the response has ended; returns t0 (monotonic ns) and whether we were killed.

    ``conn.ended`` says how it ended: "timeout_headers" or "timeout_stalled" after ``timeout_s`` in all or ``stall_s``
    without a byte, "cancelled" when the greenlet was killed before the end. A killed caller goes on to die.
    """
    killed = False
    conn.prepare(request)
    t0_ns = time.monotonic_ns()
    deadline_ns = t0_ns + int(timeout_s * 1e9)
    conn.start()
    with _Watch(conn) as done:
        try:
            while not done.is_set():
                now_ns = time.monotonic_ns()
                due_ns = deadline_ns
                if stall_s is not None:
                    due_ns = min(due_ns, (conn.last_received_ns or t0_ns) + int(stall_s * 1e9))
                if now_ns >= due_ns:
                    conn.give_up("timeout_stalled" if conn.n_segments else "timeout_headers", now_ns)
                    break
                done.wait((due_ns - now_ns) / 1e9)
        except GreenletExit:
            killed = True
            conn.give_up("cancelled", time.monotonic_ns())
    return t0_ns, killed


def closed_while_idle(conn: Connection, wait_s: float) -> bool:
    """Whether the server closes a kept connection within ``wait_s``; some do so after each answer, unannounced."""
    return _wait(conn.fileno(), "read", wait_s) and conn.stale()
