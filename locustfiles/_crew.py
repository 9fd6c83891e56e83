"""The users of one process, and the requests they take: one level at a time, from a queue that all of them share.

Nobody is killed to end a level. When the level's requests are taken, or it is halted, each user finishes what it has
under way and then waits for the next level; so what is under way goes to nothing by itself.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Self

from gevent.event import Event
from pydantic import BaseModel, ConfigDict

from evidence.records import Request
from locustfiles._sender import Sender
from scenarios.plan import Plan, PlannedRequest

Kind = Literal["warmup", "concurrency", "context", "arrivals"]


class RunOver(Exception):
    """No request comes any more: whoever waited for one stops."""


class Order(BaseModel):
    """One level as every process that sends is told of it; ``users`` and ``max_in_flight`` are of all together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str | None  # None: the warm-up
    kind: Kind
    users: int  # closed loop: so many send; open loop: 1, the dispatcher of each process
    spawn_rate_per_s: float | None = None  # users let go a second; None: all at once
    max_in_flight: int | None = None  # open loop
    begin_at_monotonic_s: float | None = None  # by the clock of the process that is told; None: at once
    sent_since_reset: int | None = None  # before the level, where one process sends it; None: several do, or no reset


class Tally(BaseModel):
    """How far the level under way is, in one process or (added) in all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_seats: int = 0  # users there, at work or waiting
    n_let_go: int = 0  # users that have begun the level
    n_left: int = 0  # planned requests not taken
    n_under_way: int = 0  # taken, and not finished
    n_unread: int = 0  # finished, and their lines not written yet
    n_started: int = 0
    n_completed: int = 0
    n_failed: int = 0
    n_cancelled: int = 0
    n_cap_hits: int = 0
    n_lost: int = 0  # not taken, and never will be: dealt to a worker that is gone
    began_at_monotonic_s: float | None = None  # by the clock of the process that records; None: as it was ordered

    def __add__(self, other: Self) -> "Tally":
        ours, theirs = (one.model_dump(exclude={"began_at_monotonic_s"}) for one in (self, other))
        began_s = self.began_at_monotonic_s
        return Tally(
            **{name: ours[name] + theirs[name] for name in ours},
            began_at_monotonic_s=other.began_at_monotonic_s if began_s is None else began_s,
        )


class Crew:
    """The users of this process. ``plan`` is None where every level's lines come with its order."""

    def __init__(self, sender: Sender, plan: Plan | None = None) -> None:
        self.n_processes = 1
        self.began_ns = 0  # of the level under way, by this process's monotonic clock
        self.order: Order | None = None  # None: between levels
        self._sender = sender
        self._plan = plan
        self._share = range(0)  # of the level's users, those of this process by their place among all
        self._seats: list[int] = []  # in the order the users came
        self._ranks: dict[int, int] = {}  # by seat, of the level under way
        self._let_go: set[int] = set()
        self._next_seat = 0
        self._left: deque[PlannedRequest] = deque()
        self._n_under_way = 0
        self._n_started_before = 0
        self._outcomes = {"completed": 0, "failed": 0, "cancelled": 0}
        self.n_cap_hits = 0
        self.max_in_flight = 1  # open loop, of this process
        self._closed = False
        self._ordered = Event()
        self._moved = Event()

    # what the users do

    def enlist(self) -> int:
        """A user has come; its seat."""
        seat, self._next_seat = self._next_seat, self._next_seat + 1
        self._seats.append(seat)
        self._ranks[seat] = len(self._ranks)
        self._moved.set()
        return seat

    def leave(self, seat: int) -> None:
        """A user has gone; the users that came after it move up by one. A seat nobody has is left out of account."""
        if seat in self._seats:
            self._seats.remove(seat)
            self._moved.set()

    @contextmanager
    def taken(self, seat: int) -> Iterator[PlannedRequest]:
        """The next planned request, for as long as the user is busy with it. Waits for one; RunOver when all is over.

        The first of a level comes to each user at its own time: the spawn rate of the level spreads them.
        """
        planned = self._take(seat)
        try:
            yield planned
        finally:
            self.finished()

    def _take(self, seat: int) -> PlannedRequest:
        while True:
            if self._closed:
                raise RunOver
            order = self.order
            if order is None or not self._left or not self._among(order, seat):
                self._ordered.clear()
                self._ordered.wait()
            elif seat not in self._let_go and (due_ns := self._due_ns(order, seat)) > time.monotonic_ns():
                self._ordered.clear()
                self._ordered.wait((due_ns - time.monotonic_ns()) / 1e9)
            else:
                self._let_go.add(seat)
                if len(self._let_go) == len(self._share):
                    self._moved.set()
                return self.take_first()

    def awaited(self) -> Order:
        """Waits for a level with requests to take, and is its order. RunOver when all is over."""
        while self.order is None or not self._left:
            if self._closed:
                raise RunOver
            self._ordered.clear()
            self._ordered.wait()
        return self.order

    def first(self) -> PlannedRequest | None:
        """The next planned request, left where it is; None where there is none now."""
        return self._left[0] if self.order is not None and self._left else None

    def take_first(self) -> PlannedRequest:
        """Whoever takes one calls ``finished`` when it is over."""
        self._n_under_way += 1
        planned = self._left.popleft()
        if not self._left:
            self._moved.set()
        return planned

    def finished(self) -> None:
        """What was taken by ``take_first`` is over, whatever became of it; once for each that was taken."""
        self._n_under_way -= 1
        if self._n_under_way == 0:
            self._moved.set()

    def ended(self, record: Request) -> None:
        """A record was written."""
        kind = record.outcome if record.outcome in ("completed", "cancelled") else "failed"
        self._outcomes[kind] += 1
        if self._n_under_way == 0:
            self._moved.set()

    # what the conductor does

    def ready(self) -> None:
        """A level is about to begin."""
        self._sender.settle()

    def begin(
        self, order: Order, lines: Sequence[PlannedRequest] | None = None, *, place: int = 0, n_places: int = 1
    ) -> None:
        """From its instant on, the level's requests may be taken.

        ``lines`` are those dealt to this process (None: all of the level), which is number ``place`` of ``n_places``
        that take part: users and ``max_in_flight`` are dealt to these in turn.
        """
        if lines is None:
            assert self._plan is not None, "a crew without a plan is given its lines"
            lines = self._plan.warmup if order.label is None else self._plan.of_level(order.label)
        at_s = order.begin_at_monotonic_s
        self.began_ns = time.monotonic_ns() if at_s is None else int(at_s * 1e9)
        self._share = range(place, order.users, n_places)
        self.max_in_flight = max(1, len(range(place, order.max_in_flight or n_places, n_places)))
        self._ranks = {seat: rank for rank, seat in enumerate(self._seats)}
        self._let_go.clear()
        self._left = deque(lines)
        self._n_started_before = self._sender.n_started
        self._outcomes = dict.fromkeys(self._outcomes, 0)
        self.n_cap_hits = 0
        self.order = order
        self._ordered.set()

    def halt(self) -> None:
        """No request of the level is taken any more."""
        self.order = None
        self._ordered.set()
        self._moved.set()

    def over(self) -> None:
        """The level has been drained. What was frozen for it stays so: what comes next is collected sooner."""
        self.halt()

    def close(self) -> None:
        """The run ends: whoever waits for a request stops."""
        self._closed = True
        self.halt()

    def tally(self) -> Tally:
        """How far this process is with the level under way, or with the last one: counts begin anew with each level."""
        return Tally(
            n_seats=len(self._seats),
            n_let_go=len(self._let_go),
            n_left=len(self._left),
            n_under_way=self._n_under_way,
            n_unread=self._sender.n_unread,
            n_started=self._sender.n_started - self._n_started_before,
            n_completed=self._outcomes["completed"],
            n_failed=self._outcomes["failed"],
            n_cancelled=self._outcomes["cancelled"],
            n_cap_hits=self.n_cap_hits,
        )

    def wait(self, timeout_s: float) -> None:
        """Until something has moved that the conductor decides by, or the time has passed."""
        self._moved.wait(timeout_s)
        self._moved.clear()

    def _among(self, order: Order, seat: int) -> bool:
        return order.kind == "arrivals" or self._ranks[seat] < len(self._share)

    def _due_ns(self, order: Order, seat: int) -> int:
        rank = self._ranks[seat]
        place = self._share[rank] if rank < len(self._share) else rank
        after_s = place / order.spawn_rate_per_s if order.spawn_rate_per_s else 0.0
        return self.began_ns + int(after_s * 1e9)
