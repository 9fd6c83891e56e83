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

READ, WRITE = 1, 2  # libev's event bits
_WAITERS = {"read": gevent.socket.wait_read, "write": gevent.socket.wait_write}


def _wait(fd: int, direction: Direction, timeout_s: float) -> bool:
    try:
        _WAITERS[direction](fd, timeout=max(timeout_s, 0.0))
    except TimeoutError:
        return False
    return True


GEVENT_IO = Io(socket_class=monkey.get_original("socket", "socket"), wait=_wait, getaddrinfo=gevent.socket.getaddrinfo)


class _Watch:
    """The readable (and, while a request is half sent, writable) watchers of one connection for one response."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._done = Event()
        self._loop: Any = gevent.get_hub().loop
        self._reader = self._loop.io(conn.fileno(), READ)
        self._writer = self._loop.io(conn.fileno(), WRITE) if conn.want_write else None

    def __enter__(self) -> Event:
        self._reader.start(self._on_readable)
        if self._writer is not None:
            self._writer.start(self._on_writable)
        return self._done

    def __exit__(self, *_: object) -> None:
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()

    def _on_readable(self) -> None:
        if self._conn.on_readable(time.monotonic_ns()):
            self._reader.stop()
            self._done.set()

    def _on_writable(self) -> None:
        if self._conn.on_writable() and self._writer is not None:
            self._writer.stop()


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
