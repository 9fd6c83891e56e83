"""A run whose recorder and sender live in one process, as worker 0: what a Locust user of that process talks to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from evidence.errors import EvidenceError
from evidence.records import Request
from locustfiles._conductor import Conductor
from locustfiles._crew import Crew
from locustfiles._options import Options
from locustfiles._progress import Progress
from locustfiles._recorder import Recorder
from locustfiles._sender import Sender
from locustfiles._transports import Transport
from scenarios.plan import Plan, PlannedRequest


class Session:
    """Made once a run, before its first request. Raises UsageError or EvidenceError when the run cannot begin."""

    def __init__(self, options: Options, plan: Plan) -> None:
        self.recorder = Recorder(options, plan)
        self.plan = plan = self.recorder.plan
        with self.recorder.undone_where_it_fails():
            self.sender = Sender(
                self.recorder.briefing(0), self.recorder.sink(0), self.recorder.keys, age=self.recorder.age
            )
        self.sender.on_ended = self._ended
        self.progress = Progress(options.arm or options.label or "", len(plan.requests), lambda: self.sender.in_flight)
        self.crew = Crew(self.sender, plan)
        self.conductor: Conductor | None = None  # None: a plan without levels
        if plan.levels:
            self.conductor = Conductor(self.recorder, self.crew, self.progress, on_window=self._profile)
        self._conducting: gevent.Greenlet | None = None
        self._profiled = False

    @property
    def path(self) -> Path:
        return self.recorder.path

    def transport(self) -> Transport:
        return self.sender.transport()

    def begin(self, give_up: Callable[[], None]) -> None:
        """Starts what runs beside the requests, and primes the openai client.

        ``give_up`` ends the run early: it is called when something beside the requests cannot write any more.
        """
        self.recorder.begin(give_up)
        self.sender.start(self.recorder.beside_failed)
        self.progress.begin()
        if self.plan.requests:
            said = self.sender.prime(self.plan.requests[0])
            if said is not None:
                self.recorder.notice(said)

    @property
    def conducting(self) -> bool:
        return self._conducting is not None

    def conduct(self) -> Conductor:
        """Begins with the plan's levels, in a greenlet of their own; the conductor says when they are over."""
        assert self.conductor is not None, "a plan without levels is replayed by its one user"
        if self._conducting is None:
            self._conducting = gevent.spawn(self.conductor.run)
            self._conducting.link(self._conducted)
        return self.conductor

    @contextmanager
    def window(self) -> Iterator[None]:
        """The measured part of a plan without levels: the cache as asked, at rest and scraped on both sides."""
        self.recorder.reset_cache()
        self.sender.settle()
        self.recorder.open_window()
        self._profile()
        yield
        self.sender.unsettle()
        self.recorder.close_window()

    def send(
        self,
        planned: PlannedRequest,
        transport: Transport,
        *,
        due_ns: int | None = None,
        told: Callable[[Request], None] | None = None,
    ) -> None:
        """As ``Sender.send``, after the reset of a single measured request where that was asked for."""
        if planned.phase == "measured":
            self.recorder.cache.before_request()
        self.sender.send(planned, transport, due_ns=due_ns, told=told)

    def failed(self, error: BaseException) -> None:
        self.recorder.failed(error)

    def beside_failed(self, error: BaseException) -> None:
        self.recorder.beside_failed(error)

    def stop_taking(self) -> None:
        """Users that wait for a next request stop by themselves."""
        self.crew.close()

    def seal(self) -> None:
        """Closes the window where one is open, and the folder. Doing so twice is harmless."""
        if self._conducting is not None:
            self._conducting.kill()
        self.sender.drain()
        if self.conductor is not None:
            try:
                self.conductor.cut()
            except EvidenceError as error:
                self.failed(error)
        self.sender.unsettle()
        self.recorder.seal(self.sender.stop)
        self.sender.close()
        self.progress.close()

    def verdict(self) -> int:
        """Prints what ``analysis check`` says of the folder; the exit code of the run."""
        return self.recorder.verdict()

    def _conducted(self, over: gevent.Greenlet) -> None:
        if over.exception is not None:
            self.failed(over.exception)
        if self.conductor is not None:
            self.conductor.finish()

    def _profile(self) -> None:
        """The first window is open: the profiler waits for its requests."""
        if self.recorder.profiling is not None and not self._profiled:
            self._profiled = True
            self.recorder.profiling.begin(self.path, lambda: self.sender.in_flight)

    def _ended(self, record: Request) -> None:
        self.progress.ended(record.outcome)
        self.crew.ended(record)
        if self.conductor is not None:
            self.conductor.ended(record)
        if self.recorder.profiling is not None:
            self.recorder.profiling.ended(record)
