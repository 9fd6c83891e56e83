"""A run whose recorder and sender live in one process, as worker 0: what a Locust user of that process talks to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evidence.records import Request
from locustfiles._conductor import Conductor
from locustfiles._crew import Crew
from locustfiles._options import Options
from locustfiles._progress import Progress
from locustfiles._recorder import Recorder
from locustfiles._recording import Recording
from locustfiles._sender import Sender
from locustfiles._transports import Transport
from scenarios.plan import Plan, PlannedRequest


class Session(Recording):
    """Made once a run, before its first request. Raises UsageError or EvidenceError when the run cannot begin."""

    def __init__(self, options: Options, plan: Plan) -> None:
        self.recorder = Recorder(options, plan)
        self.plan = plan = self.recorder.plan
        with self.recorder.undone_where_it_fails():
            self.sender = Sender(
                self.recorder.briefing(0), self.recorder.sink(0), self.recorder.keys, age=self.recorder.age
            )
        self.sender.on_ended = self._ended
        self.progress = Progress(
            options.arm or options.label or "", len(plan.requests), self._n_under_way, at_most=plan.scenario.searches
        )
        self.crew = Crew(self.sender, plan)
        self.conductor: Conductor | None = None  # None: a plan without levels
        if plan.levels:
            self.conductor = Conductor(self.recorder, self.crew, self.progress, on_window=self._profile)

    def transport(self) -> Transport:
        return self.sender.transport()

    def begin(self, give_up: Callable[[], None]) -> None:
        """Starts what runs beside the requests, and primes the openai client.

        ``give_up`` ends the run early: it is called when something beside the requests cannot write any more.
        """
        self.recorder.begin(give_up)
        self.sender.start(self.recorder.beside_failed)
        self.progress.begin()
        said = self.sender.prime()
        if said is not None:
            self.recorder.notice(said)

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

    def stop_taking(self) -> None:
        """Users that wait for a next request stop by themselves."""
        self.crew.close()

    def seal(self) -> None:
        """Closes the window where one is open, and the folder. Doing so twice is harmless."""
        self._stop_conducting()
        self.recorder.waits_for = "the answers that were received to be read"
        self.sender.drain()
        self._cut()
        self.sender.unsettle()
        self.recorder.seal(self.sender.stop)
        self.sender.close()
        self.progress.close()

    def _n_under_way(self) -> int:
        return self.sender.in_flight

    def _ended(self, record: Request) -> None:
        self.crew.ended(record)
        super()._ended(record)
