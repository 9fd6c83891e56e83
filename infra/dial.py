"""The edge where the wire meets sockets: a target to talk to, a connection dialled to it, an exchange on a selector.

Nothing here knows a loop but the one in ``converse``. A caller with a loop of its own (gevent) hands in ``Io``: its
real, unpatched socket class and its way to wait and to resolve names; everything else is the same code.
Proxies from the environment are not used: what is measured is the server, over the connection that was asked for.
"""

import errno
import os
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from infra.target import Target as Target
from infra.target import TargetError as TargetError
from infra.tls import Direction, MemoryTls, Wait, tls_context
from infra.wire.connection import SCM_TIMESTAMPNS, Connection
from infra.wire.stamps import Ended, Segment, StampSource
from infra.wire.stream import StreamFacts, read_stream

DialOutcome = Literal["connect_refused", "connect_failed", "tls_failed"]


class DialError(Exception):
    """No connection came about. ``outcome`` is the name for the record; the message ends with what to do."""

    def __init__(self, target: Target, outcome: DialOutcome, detail: str, advice: str) -> None:
        super().__init__(f"{target.url('')}: {detail}. {advice}")
        self.target = target
        self.outcome: DialOutcome = outcome
        self.detail = detail


def wait_on_selector(fd: int, direction: Direction, timeout_s: float) -> bool:
    """True when the descriptor is ready, False when the time has passed."""
    events = selectors.EVENT_READ if direction == "read" else selectors.EVENT_WRITE
    with selectors.DefaultSelector() as selector:
        selector.register(fd, events)
        return bool(selector.select(max(timeout_s, 0.0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Io:
    """What a loop brings: a class of real sockets, a wait for one descriptor, and name resolution."""

    socket_class: Callable[..., Any] = socket.socket
    wait: Wait = wait_on_selector
    getaddrinfo: Callable[..., Any] = socket.getaddrinfo


PLAIN = Io()


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialed:
    """A connection and what it took to make. Connecting is no part of any latency: t0 comes after it."""

    conn: Connection
    resolve_s: float
    connect_s: float
    tls_s: float | None  # None when plain
    tls_version: str | None
    stamp_source: StampSource  # what was asked of the kernel; ``stamps.stamp_source`` says what came
    address: str  # numeric


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockPair:
    """Both clocks at one instant: wall minus monotonic, and how far apart the two readings may be."""

    monotonic_ns: int
    wall_minus_monotonic_ns: int
    uncertainty_ns: int


def read_clocks(n_tries: int = 3) -> ClockPair:
    """Reads the wall clock between two readings of the monotonic one; the tightest of a few tries counts."""
    best: ClockPair | None = None
    for _ in range(n_tries):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best.uncertainty_ns:
            middle = (before + after) // 2
            best = ClockPair(monotonic_ns=middle, wall_minus_monotonic_ns=wall - middle, uncertainty_ns=after - before)
    if best is None:
        raise ValueError(f"n_tries is {n_tries}: ask for at least one")
    return best


def dial(target: Target, timeout_s: float, *, io: Io = PLAIN, context: ssl.SSLContext | None = None) -> Dialed:
    """Resolves, connects, and for https shakes hands; all within ``timeout_s`` but the resolver's own waiting.

    Raises DialError. The addresses are tried in the resolver's order.
    """
    deadline_s = time.monotonic() + timeout_s
    begun = time.monotonic()
    try:
        found = io.getaddrinfo(target.host, target.port, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DialError(target, "connect_failed", f"the name does not resolve: {error}", "Check the host name")
    resolved = time.monotonic()
    sock, address = _connect(target, found, io, deadline_s)
    connected = time.monotonic()
    stamp_source = _ask_for_stamps(sock)
    tls: MemoryTls | None = None
    if target.scheme == "https":
        try:
            tls = MemoryTls(context or tls_context(), target.host)
            tls.handshake(sock, io.wait, deadline_s)
        except (OSError, ValueError) as error:
            sock.close()
            advice = "Check that the port speaks TLS; for a CA of your own set SSL_CERT_FILE to its certificate"
            raise DialError(target, "tls_failed", f"TLS failed: {error}", advice)
    return Dialed(
        conn=Connection(sock, tls=tls),
        resolve_s=resolved - begun,
        connect_s=connected - resolved,
        tls_s=None if tls is None else time.monotonic() - connected,
        tls_version=None if tls is None else tls.version,
        stamp_source=stamp_source,
        address=address,
    )


def _connect(target: Target, found: Any, io: Io, deadline_s: float) -> tuple[Any, str]:
    errors: list[OSError] = []
    for family, kind, protocol, _, address in found:
        try:
            sock = io.socket_class(family, kind, protocol)
        except OSError as error:
            errors.append(error)
            continue
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(address)
            if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                if not io.wait(sock.fileno(), "write", deadline_s - time.monotonic()):
                    raise TimeoutError(errno.ETIMEDOUT, "connecting timed out")
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))  # Python makes it the class that fits the number
        except OSError as error:
            sock.close()
            errors.append(error)
            continue
        return sock, str(address[0])
    detail = "; ".join(dict.fromkeys(str(error) for error in errors)) or "the name has no address"
    if errors and all(isinstance(error, ConnectionRefusedError) for error in errors):
        raise DialError(target, "connect_refused", f"nobody listens ({detail})", "Start the server, or check the port")
    raise DialError(target, "connect_failed", f"cannot connect ({detail})", "Check the address and the network")


def _ask_for_stamps(sock: Any) -> StampSource:
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return "user"
    try:
        sock.setsockopt(socket.SOL_SOCKET, SCM_TIMESTAMPNS, 1)
        _keep_stamping()
    except OSError:
        return "user"
    return "kernel"


_stamping: list[socket.socket] = []


def _keep_stamping() -> None:
    """Holds one socket that asks for stamps as long as this process lives.

    The kernel stamps packets while any socket asks for it, and turns that on and off a moment late: without this the
    first packets of a connection made after the last one was closed come without a stamp (5 to 8 of 300 here).
    """
    if not _stamping:
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        held.setsockopt(socket.SOL_SOCKET, SCM_TIMESTAMPNS, 1)
        _stamping.append(held)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One request and its response, with the instants a record needs."""

    t0_monotonic_ns: int  # just before the first byte was sent
    wall_minus_monotonic_ns: int  # read just before t0
    clock_step_ns: int  # how that difference had changed at the end
    segments: tuple[Segment, ...]
    ended: Ended
    ended_at_monotonic_ns: int
    fault: str | None  # the system's words where the connection broke
    facts: StreamFacts


def converse(conn: Connection, request: bytes, timeout_s: float, *, method: str = "POST") -> Exchange:
    """One request over a connection that stands, on a plain selector; the connection stays open."""
    with selectors.DefaultSelector() as selector:
        wanted = selectors.EVENT_READ
        selector.register(conn.fileno(), wanted)
        clocks = read_clocks()
        t0 = time.monotonic_ns()
        deadline = t0 + int(timeout_s * 1e9)
        conn.start(request, method)
        while True:
            want = selectors.EVENT_READ | (selectors.EVENT_WRITE if conn.want_write else 0)
            if want != wanted:
                selector.modify(conn.fileno(), want)
                wanted = want
            ready = selector.select((deadline - time.monotonic_ns()) / 1e9)
            now = time.monotonic_ns()
            events = ready[0][1] if ready else 0
            if events & selectors.EVENT_WRITE:
                conn.on_writable()
            if events & selectors.EVENT_READ and conn.on_readable(now):
                break
            if now >= deadline:
                conn.give_up("timeout_stalled", now)
                break
    segments = tuple(conn.segments)
    ended, ended_at = conn.ended, conn.ended_at_ns
    if ended is None or ended_at is None:
        raise AssertionError("the loop above ends with the response")
    return Exchange(
        t0_monotonic_ns=t0,
        wall_minus_monotonic_ns=clocks.wall_minus_monotonic_ns,
        clock_step_ns=read_clocks().wall_minus_monotonic_ns - clocks.wall_minus_monotonic_ns,
        segments=segments,
        ended=ended,
        ended_at_monotonic_ns=ended_at,
        fault=conn.fault,
        facts=read_stream(segments, ended=ended),
    )


def exchange(
    target: Target,
    request: bytes,
    timeout_s: float,
    *,
    io: Io = PLAIN,
    context: ssl.SSLContext | None = None,
    method: str = "POST",
) -> tuple[tuple[Segment, ...], Ended, StreamFacts]:
    """Dials, converses, closes. Raises DialError; whatever happens later is in the facts."""
    dialed = dial(target, timeout_s, io=io, context=context)
    try:
        whole = converse(dialed.conn, request, timeout_s, method=method)
    finally:
        dialed.conn.close()
    return whole.segments, whole.ended, whole.facts
