"""Run as a process of its own: the reader of many connections and the desk under gevent, what happened as JSON.

python -m tests.gevent_reading
"""

import locust  # noqa: F401  first: it patches the process, as in a run

# ruff: noqa: I001
import json
import time
from typing import Any

import gevent
from gevent import monkey
from gevent.event import Event

from infra.dial import dial, read_clocks
from infra.fake_engine import running_fake_engine
from infra.target import Target
from infra.wire.connection import Connection
from infra.wire.stamps import Segment
from infra.wire.stream import read_stream
from evidence.records import ConnectionFacts, Started, WireRef
from locustfiles import _desk
from locustfiles._desk import Desk, Ended
from locustfiles._exchange import Exchange
from locustfiles._loop import GEVENT_IO, converse
from locustfiles._reading import Reader, reader
from tests.gevent_transport import PLANNED
from tests.stream_bytes import chunked, delta, usage_event

SEGMENTS = [Segment(None, k, piece) for k, piece in enumerate(chunked(*[delta(content="a")] * 200, usage_event(200)))]


def ended(sequence: int) -> Ended:
    clocks = read_clocks()
    exchange = Exchange(
        transport="wire",
        framing="http",
        segments=SEGMENTS,
        ended="complete",
        t0_monotonic_ns=0,
        clocks=clocks,
        ended_monotonic_ns=10**9,
        clocks_at_end=clocks,
        connection=ConnectionFacts(reused=True, resolve_s=None, connect_s=None, tls_s=None, tls_version=None),
    )
    started = Started(
        run_id="r", worker=0, sequence=sequence, plan_id="m0000", started_at_unix_s=0.0, started_at_monotonic_s=0.0
    )
    return Ended(planned=PLANNED, started=started, exchange=exchange, since_reset=None, due_ns=None, told=None)


def none_back(_ref: Any) -> Any:
    raise AssertionError("nothing was kept")


def killed() -> dict[str, Any]:
    """Users are killed while their answers wait: every line is written, in the order of their ends."""
    log: list[str] = []

    def keep(one: Ended) -> tuple[None, str]:
        log.append(f"kept {one.started.sequence}")
        return None, "not asked for"

    desk = Desk(keep, none_back, lambda one, _record: log.append(f"written {one.started.sequence}"), lambda: 1)

    def user(k: int) -> None:
        desk.put(ended(k))
        gevent.sleep(60)

    users = [gevent.spawn(user, k) for k in range(4)]
    gevent.sleep(0)
    waiting = desk.n_waiting
    gevent.killall(users)
    desk.drain()
    return {"waiting": waiting, "left": desk.n_waiting, "log": log}


def alone() -> dict[str, Any]:
    """With nothing else under way the line is written before ``put`` returns."""
    log: list[int] = []
    desk = Desk(lambda _one: (None, "no"), none_back, lambda one, _record: log.append(one.started.sequence), lambda: 0)
    desk.put(ended(0))
    return {"log": log}


def failing() -> dict[str, Any]:
    """A full disk is told once, and refuses what comes later."""

    def write(_one: Ended, _record: Any) -> None:
        raise OSError(28, "No space left on device")

    told: list[str] = []
    desk = Desk(lambda _one: (None, "no"), none_back, write, lambda: 1)
    desk.start(lambda error: told.append(str(error)))
    desk.put(ended(0))
    desk.put(ended(1))
    desk.drain()
    refused = None
    try:
        desk.put(ended(2))
    except OSError as error:
        refused = str(error)
    return {"told": told, "refused": refused}


def spooled() -> dict[str, Any]:
    """More waits than memory is given: raw answers are read back from where they were kept, the texts are the same."""
    _desk.IN_MEMORY_BYTES = 2 * sum(len(one.data) for one in SEGMENTS)
    kept: dict[int, list[Any]] = {}
    back: list[int] = []
    texts: list[str] = []

    def keep(one: Ended) -> tuple[WireRef, None]:
        sequence = one.started.sequence
        kept[sequence] = list(one.exchange.segments)
        return WireRef(file="f", offset=sequence, n_bytes=1, n_segments=len(SEGMENTS)), None

    def read_back(ref: WireRef) -> list[Any]:
        back.append(ref.offset)
        return kept[ref.offset]

    desk = Desk(keep, read_back, lambda _one, record: texts.append(record.output_text), lambda: 1)
    for k in range(6):
        desk.put(ended(k))
    desk.drain()
    return {"back": back, "texts": len(texts), "kinds": len(set(texts)), "n_bytes": desk._n_bytes}


def others() -> dict[str, Any]:
    """While a long answer is read, a segment that comes for another stream is read too, before the line is written."""
    socket: Any = monkey.get_original("socket", "socketpair")
    ours, theirs = socket()
    ours.setblocking(False)
    log: list[str] = []
    conn = Connection(ours)
    conn.prepare(b"x")
    took = conn.on_readable
    conn.on_readable = lambda now: (log.append("read"), took(now))[1]  # type: ignore[method-assign]  # watched
    reading = reader()
    assert reading is not None
    reading.add(conn)
    desk = Desk(lambda _one: (None, "no"), none_back, lambda _one, _record: log.append("written"), lambda: 1)
    desk.put(ended(0))
    theirs.send(b"HTTP/1.1 200 OK\r\n")
    desk.drain()
    reading.remove(conn)
    return {"log": log}


def many() -> dict[str, Any]:
    """Streams fast enough that they are read together: nothing is lost, and slow ones are read at once again."""
    together: list[bool] = []
    read_once = Reader._read

    def watched(self: Reader) -> None:
        together.append(self._pause_s > 0)
        read_once(self)

    Reader._read = watched  # type: ignore[method-assign]  # watched
    texts: list[tuple[int | None, str, str]] = []
    with running_fake_engine(fake={"ttft_s": 0.02, "gap_s": 0.02, "cadence": True}) as engine:
        target = Target.parse(engine.url)
        body = json.dumps({"messages": [], "max_tokens": 20, "stream": True, "stream_options": {"include_usage": True}})
        request = target.request("POST", "/v1/chat/completions", [], body.encode())

        def user() -> None:
            conn = dial(target, 5.0, io=GEVENT_IO).conn
            converse(conn, request, timeout_s=20.0, stall_s=None)
            assert conn.ended is not None
            facts = read_stream(conn.segments, ended=conn.ended)
            texts.append((facts.n_completion_tokens, facts.text, facts.outcome))
            conn.close()

        gevent.joinall([gevent.spawn(user) for _ in range(96)], raise_error=True)
        was_together = any(together)
        together.clear()
        user()
    return {
        "answers": len(texts),
        "kinds": len(set(texts)),
        "last": texts[-1],
        "together": was_together,
        "then": together,
    }


def idle() -> dict[str, Any]:
    """The last connection goes while its reader pauses, and another comes later."""
    ours, theirs = monkey.get_original("socket", "socketpair")()
    conn = Connection(ours)
    reading = Reader()
    reading.add(conn)
    reading._settle(0.004)
    theirs.send(b"HTTP/1.1 200 OK\r\n")
    reading._read()
    left = [reading._n_segments]
    reading.remove(conn)
    awake = [waker.active for waker in (reading._watcher, *reading._timers.values())]
    came_ns = time.monotonic_ns()
    reading.add(conn)
    left += [reading._n_readings, reading._n_segments]
    found = {"awake": any(awake), "left": left, "anew": reading._since_ns >= came_ns, "pause_s": reading._pause_s}
    reading.remove(conn)
    return found


def unstamped() -> dict[str, Any]:
    """A socket without kernel stamps, before it is read and after."""
    ours, theirs = monkey.get_original("socket", "socketpair")()
    reading = Reader()
    found = [reading.late_s()]
    conn = Connection(ours)
    reading.add(conn)
    theirs.send(b"HTTP/1.1 200 OK\r\n")
    reading._read()
    reading.remove(conn)
    return {"read": conn.n_segments, "late_s": [*found, reading.late_s()], "delays_s": reading.take_delays_s()}


def fork() -> dict[str, Any]:
    """A process that was forked makes a reader of its own."""
    first = reader()
    assert first is not None
    first.pid = -1
    second = reader()
    return {"same": first is second, "kept": second is reader()}


def timed_out() -> dict[str, Any]:
    """A stream that stalls is given up, and its connection is no longer read."""
    done = Event()
    with running_fake_engine(fake={"ttft_s": 5.0}) as engine:
        target = Target.parse(engine.url)
        conn = dial(target, 5.0, io=GEVENT_IO).conn
        request = target.request("POST", "/v1/chat/completions", [], b'{"messages": [], "stream": true}')
        converse(conn, request, timeout_s=0.3, stall_s=None)
        done.set()
    reading = reader()
    assert reading is not None
    return {"ended": conn.ended, "still_read": len(reading._open)}


CASES = (killed, alone, failing, others, many, idle, unstamped, fork, timed_out, spooled)

if __name__ == "__main__":
    print(json.dumps({case.__name__: case() for case in CASES}))
