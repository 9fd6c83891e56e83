"""Open loop: each request goes out at its own instant, whether or not those before it have been answered.

One dispatcher a process. Shortly before a request is due it is given a place among the ``max_in_flight``, a greenlet
and a connection that stands; it is sent at the instant itself, and its record says by how much it was late. Where no
place is free at the instant, the request waits for one, those behind it with it, and that is counted: the rate is not
held then.
"""

import time
from collections.abc import Callable

import gevent
from gevent.lock import BoundedSemaphore
from gevent.pool import Group

from locustfiles._crew import Crew
from locustfiles._transports import Transport
from scenarios.plan import LoadRequest, PlannedRequest

LEAD_NS = 150_000_000  # ahead of the instant: enough to connect, or to watch a kept connection once

Send = Callable[[PlannedRequest, Transport, int], object]


class Dispatcher:
    """``send`` sends one planned request over a transport at a monotonic instant (ns).

    ``on_failure`` is told what ``send`` raised, of a full disk for example.
    """

    def __init__(
        self,
        crew: Crew,
        new_transport: Callable[[], Transport],
        send: Send,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._crew = crew
        self._new_transport = new_transport
        self._send = send
        self._on_failure = on_failure
        self._group = Group()
        self._idle: list[Transport] = []  # the one used last is used first, while the server still keeps it

    def run_level(self) -> None:
        """Everything that is left of the level under way; returns once the last request has its greenlet."""
        places = BoundedSemaphore(self._crew.max_in_flight)
        while (planned := self._crew.first()) is not None:
            due_ns = self._crew.began_ns + due_after_ns(planned)
            left_ns = due_ns - LEAD_NS - time.monotonic_ns()
            if left_ns > 0:
                gevent.sleep(left_ns / 1e9)
                continue  # the level may have been halted meanwhile
            if not places.acquire(blocking=False):
                places.acquire()
                if time.monotonic_ns() > due_ns:
                    self._crew.n_cap_hits += 1
                if self._crew.first() is not planned:
                    places.release()
                    break
            self._crew.take_first()
            one = self._group.spawn(self._one, planned, due_ns, places)
            one.link_exception(lambda dead: self._on_failure(dead.exception))

    def stop(self) -> None:
        """Ends what is under way; each request writes its line."""
        self._group.kill(block=True)
        while self._idle:
            self._idle.pop().close()

    def _one(self, planned: PlannedRequest, due_ns: int, places: BoundedSemaphore) -> None:
        transport = self._idle.pop() if self._idle else self._new_transport()
        try:
            transport.prepare()
            self._send(planned, transport, due_ns)
        finally:
            self._idle.append(transport)
            places.release()
            self._crew.finished()


def due_after_ns(planned: PlannedRequest) -> int:
    """From the level's begin; a line of another kind is due at once."""
    after_s = planned.scheduled_after_s if isinstance(planned, LoadRequest) else None
    return 0 if after_s is None else round(after_s * 1e9)
