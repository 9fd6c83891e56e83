"""Where ended requests become records: off the path of every other stream, out of the reach of every kill.

Reading an answer takes some ten microseconds a chunk, and as long as it lasts no other stream is read. So a user hands
over what it received and goes on; one greenlet of our own, which Locust does not know and cannot kill, reads the
answers one after the other and lets the loop read streams every few segments. What is received goes to the disk before
any of it is read: a killed process leaves the raw answer, and its request as one that never ended.

A request that ends while no other is under way is read at once: nobody is kept waiting by it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gevent
from gevent.event import Event

from evidence.errors import EvidenceError
from evidence.frames import SegmentTuple
from evidence.records import Request, Started, WireRef
from infra.wire.stamps import Segment
from infra.wire.stream import StreamFacts
from locustfiles._duty import Duty
from locustfiles._exchange import Exchange, facts_of, make_record
from locustfiles._reading import reader
from scenarios.plan import PlannedRequest

IN_MEMORY_BYTES = 48 * 1024 * 1024  # of raw answers that wait; beyond it they are read back from the disk
MOST_WAITING_BYTES = 256 * 1024 * 1024  # of those that are on no disk; beyond it users wait until some have been read


@dataclass(kw_only=True)
class Ended:
    """A request whose exchange is over and whose line is not written yet."""

    planned: PlannedRequest
    started: Started
    exchange: Exchange
    since_reset: int | None
    due_ns: int | None
    told: Callable[[Request], None] | None  # who is told of the record, besides the sender
    n_bytes: int = 0  # of the raw segments in memory
    kept: bool = False
    wire: WireRef | None = None
    wire_missing: str | None = None


class Desk:
    """``put`` an ended request; ``write`` is called with its record, in the order in which they were put.

    ``keep`` writes the raw segments and returns where, or why not; ``read_back`` has them again. What any of these
    raises while others wait is told to ``on_failure``, and raised by every later ``put``.
    """

    def __init__(
        self,
        keep: Callable[[Ended], tuple[WireRef | None, str | None]],
        read_back: Callable[[WireRef], Sequence[SegmentTuple]],
        write: Callable[[Ended, Request], None],
        n_under_way: Callable[[], int],
    ) -> None:
        self._keep = keep
        self._read_back = read_back
        self._write = write
        self._n_under_way = n_under_way
        self._duty = Duty(_late_s)
        self._waiting: deque[Ended] = deque()
        self._unkept: deque[Ended] = deque()  # of them, those whose raw segments are not on the disk
        self._n_bytes = 0
        self._reading = False
        self._has_some = Event()
        self._has_room = Event()
        self._has_room.set()
        self._is_empty = Event()
        self._is_empty.set()
        self._on_failure: Callable[[BaseException], None] | None = None
        self._failure: BaseException | None = None
        self._greenlet: gevent.Greenlet | None = None

    @property
    def n_waiting(self) -> int:
        """Requests that have ended and whose line is not written."""
        return len(self._waiting) + self._reading

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure

    def put(self, ended: Ended) -> None:
        """Takes an ended request, whatever becomes of the caller; then waits for room where too much is waiting."""
        if self._failure is not None:
            raise self._failure
        if not self.n_waiting and not self._n_under_way():
            self._read(ended)
            return
        ended.n_bytes = sum(len(segment[2]) for segment in ended.exchange.segments)
        self._waiting.append(ended)
        self._unkept.append(ended)
        self._n_bytes += ended.n_bytes
        self._is_empty.clear()
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._worked)
            self._greenlet.link_exception(lambda dead: self._fail(dead.exception))
        self._has_some.set()
        if self._n_bytes > MOST_WAITING_BYTES:
            self._has_room.clear()
            self._has_room.wait()

    def drain(self) -> None:
        """Waits until every line is written, or cannot be any more."""
        self._is_empty.wait()

    def _worked(self) -> None:
        """What cannot be written is told in words, without the traceback that gevent prints of a greenlet's death."""
        try:
            self._work()
        except EvidenceError as error:
            self._fail(error)

    def _work(self) -> None:
        while True:
            self._has_some.wait()
            while self._waiting:
                while self._keep_one():
                    pass
                ended = self._waiting.popleft()
                self._reading = True
                self._read(ended, self._let_others)
                self._less(ended.n_bytes)
                self._let_others()
            self._has_some.clear()
            self._is_empty.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._waiting.clear()
        self._unkept.clear()
        self._reading = False
        self._has_room.set()
        self._is_empty.set()
        if self._on_failure is not None:
            self._on_failure(error)

    def _read(self, ended: Ended, on_yield: Callable[[], None] = lambda: None) -> None:
        self._keep_raw(ended)
        if ended.wire is not None and not ended.exchange.segments:
            ended.exchange = replace(ended.exchange, segments=[Segment(*one) for one in self._read_back(ended.wire)])
        facts: StreamFacts = facts_of(ended.exchange, on_yield)
        record = make_record(
            planned=ended.planned,
            started=ended.started,
            exchange=ended.exchange,
            facts=facts,
            wire=ended.wire,
            wire_missing=ended.wire_missing,
            since_reset=ended.since_reset,
            due_ns=ended.due_ns,
        )
        self._reading = False  # whoever is told of the record may count it
        self._write(ended, record)

    def _let_others(self) -> None:
        rest_s = self._duty.rest_s() if self._n_under_way() else 0.0
        if rest_s:
            gevent.sleep(rest_s)
        else:
            _let_loop_read()
        self._keep_one()

    def _less(self, n_bytes: int) -> None:
        self._n_bytes -= n_bytes
        if self._n_bytes <= MOST_WAITING_BYTES:
            self._has_room.set()

    def _keep_one(self) -> bool:
        """Keeps the raw segments of the first request that lacks them; False where none does."""
        if not self._unkept:
            return False
        ended = self._unkept.popleft()
        self._keep_raw(ended)
        if ended.wire is not None and self._n_bytes > IN_MEMORY_BYTES:
            ended.exchange = replace(ended.exchange, segments=())
            self._less(ended.n_bytes)
            ended.n_bytes = 0
        return True

    def _keep_raw(self, ended: Ended) -> None:
        if not ended.kept:
            ended.wire, ended.wire_missing = self._keep(ended)
            ended.kept = True


def _late_s() -> float | None:
    reading = reader()
    return None if reading is None else reading.late_s()


def _let_loop_read() -> None:
    """Once round the loop: every descriptor that can be read is read. ``sleep(0)`` would come back before that."""
    hub: Any = gevent.get_hub()
    hub.wait(hub.loop.timer(0))
