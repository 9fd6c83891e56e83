"""The ways to receive a stream that are compared: ours on two loops (the openai client's: ``openai_transports``).

Each takes a ``Load`` and gives back one ``Seen`` a stream: what the client could know of it (stamps) beside what the
fake engine says of itself inside the chunks (truth). The truth is read afterwards, by the judge only.
"""

import heapq
import json
import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from infra.dial import dial, read_clocks
from infra.target import Target
from infra.wire.connection import Connection
from infra.wire.stamps import Segment
from infra.wire.stream import events

TIME_LIMIT_S = 60.0


class Token(NamedTuple):
    """One token chunk: our stamp and the server's, on the monotonic clock, and the segment that brought it."""

    stamp_ns: int
    due_ns: int
    written_ns: int
    received_ns: int
    segment: int | None  # None where the transport does not show segments


@dataclass(frozen=True, kw_only=True)
class Seen:
    t0_ns: int
    tokens: tuple[Token, ...]


@dataclass(frozen=True, kw_only=True)
class Load:
    """``n_streams`` users, each making ``n_requests`` one after another; their starts are spread over ``spread_s``."""

    base_url: str
    n_streams: int
    n_requests: int
    n_tokens: int
    spread_s: float
    fake: dict[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        return {"model": "fake", "messages": [{"role": "user", "content": "count"}], "max_tokens": self.n_tokens}

    def request(self) -> bytes:
        body = json.dumps(self.fields | {"stream": True, "fake": self.fake}).encode()
        headers = [("Content-Type", "application/json")]
        return Target.parse(self.base_url).request("POST", "/v1/chat/completions", headers, body)

    def start_after_s(self, stream: int) -> float:
        return self.spread_s * stream / self.n_streams


def _token(stamp_ns: int, chunk: dict[str, Any], segment: int | None) -> Token | None:
    choices = chunk.get("choices") or [{}]
    if not (choices[0].get("delta") or {}).get("content"):
        return None
    return Token(stamp_ns, chunk["due_ns"], chunk["written_ns"], chunk["received_ns"], segment)


def seen(t0_ns: int, stamped: Iterable[tuple[int, dict[str, Any], int | None]]) -> Seen:
    tokens = (_token(*row) for row in stamped)
    return Seen(t0_ns=t0_ns, tokens=tuple(token for token in tokens if token is not None))


class _WireLog:
    """Raw segments of ended exchanges, read once the clock no longer matters."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, list[Segment]]] = []

    def keep(self, conn: Connection, t0_ns: int, wall_minus_monotonic_ns: int) -> None:
        if conn.ended != "complete":
            raise RuntimeError(f"a stream of the fake engine ended {conn.ended!r} ({conn.fault}); is it still alive?")
        self._rows.append((t0_ns, wall_minus_monotonic_ns, list(conn.segments)))

    def read(self) -> list[Seen]:
        return [seen(t0, self._stamped(segments, offset)) for t0, offset, segments in self._rows]

    def _stamped(self, segments: list[Segment], offset_ns: int) -> Iterator[tuple[int, dict[str, Any], int]]:
        for index, data in events(segments):
            kernel = segments[index].kernel_unix_ns
            stamp = segments[index].user_monotonic_ns if kernel is None else kernel - offset_ns
            yield stamp, json.loads(data), index


def wire_on_selector(load: Load) -> Callable[[], list[Seen]]:
    """All streams on one plain selector in this thread."""
    request, log = load.request(), _WireLog()
    conns = [dial(Target.parse(load.base_url), 10.0).conn for _ in range(load.n_streams)]
    left = [load.n_requests] * load.n_streams
    begun: list[tuple[int, int]] = [(0, 0)] * load.n_streams
    now = time.monotonic()
    starts = [(now + load.start_after_s(k), k) for k in range(load.n_streams)]
    with selectors.DefaultSelector() as selector:
        for k, conn in enumerate(conns):
            selector.register(conn.fileno(), selectors.EVENT_READ, k)
        while any(left):
            while starts and starts[0][0] <= time.monotonic():
                _, k = heapq.heappop(starts)
                begun[k] = (read_clocks().wall_minus_monotonic_ns, time.monotonic_ns())
                conns[k].start(request)
            timeout_s = max(starts[0][0] - time.monotonic(), 0.0) if starts else TIME_LIMIT_S
            for key, _ in selector.select(timeout_s):
                k = key.data
                if conns[k].on_readable(time.monotonic_ns()):
                    log.keep(conns[k], begun[k][1], begun[k][0])
                    conns[k].reset()
                    left[k] -= 1
                    if left[k]:
                        heapq.heappush(starts, (0.0, k))
    for conn in conns:
        conn.close()
    return log.read


def wire_on_gevent(load: Load) -> Callable[[], list[Seen]]:
    """One greenlet a stream, on gevent's loop exactly as the load generator binds it."""
    import gevent

    from locustfiles._loop import GEVENT_IO, converse

    request, log = load.request(), _WireLog()

    def user(k: int) -> None:
        conn = dial(Target.parse(load.base_url), 10.0, io=GEVENT_IO).conn
        gevent.sleep(load.start_after_s(k))
        for index in range(load.n_requests):
            if index:
                conn.reset()
            offset_ns = read_clocks().wall_minus_monotonic_ns
            t0_ns, _ = converse(conn, request, timeout_s=TIME_LIMIT_S, stall_s=None)
            log.keep(conn, t0_ns, offset_ns)
        conn.close()

    gevent.joinall([gevent.spawn(user, k) for k in range(load.n_streams)], raise_error=True)
    return log.read
