"""The sessions of a run with many processes: the master's, which records and sends nothing, and each worker's.

They stand where ``Session`` stands in a run of one process, and Locust's users and listeners know no difference.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence.records import Request
from evidence.redact import collect_secrets
from locustfiles._conductor import Conductor
from locustfiles._crew import Crew
from locustfiles._options import Options, UsageError
from locustfiles._post import LocustPost, LocustWorkers, Message
from locustfiles._progress import Progress
from locustfiles._recorder import Recorder
from locustfiles._recording import Recording
from locustfiles._sender import Keys
from locustfiles._session import Session
from locustfiles._transports import Transport
from locustfiles._worker_process import WorkerProcess
from locustfiles._workers import Workers
from scenarios.plan import Plan, PlannedRequest

DEFAULT_PORT = 5557
GATHER_S = 60.0


class MasterSession(Recording):
    """Raises UsageError or EvidenceError when the run cannot begin."""

    def __init__(self, options: Options, plan: Plan, runner: Any, *, n_workers: int) -> None:
        if not plan.levels:
            raise UsageError("a sequential replay is one user's: leave --master, --worker and --processes out")
        self._refuse_blind_search(options, plan)
        # Workers may have come already: whoever says hello before there is a run says it again.
        post = LocustPost(runner, self._take, lambda error: self.recorder.beside_failed(error))
        self._ready = False
        self.recorder = Recorder(options, plan, n_workers=n_workers)
        self.plan = plan = self.recorder.plan
        self.progress = Progress(
            options.arm or options.label or "", len(plan.requests), self._n_under_way, at_most=plan.scenario.searches
        )
        with self.recorder.undone_where_it_fails():
            self.crew = Workers(
                self.recorder,
                n_expected=n_workers,
                shards=options.shards,
                locust=LocustWorkers(runner),
                on_ended=self._ended if options.shards == "ship" else None,
            )
        self.crew.post = post
        self._ready = True
        self.conductor = Conductor(self.recorder, self.crew, self.progress, on_window=self._profile)
        if runner.master_bind_port == DEFAULT_PORT:
            self.recorder.notice(
                f"port {DEFAULT_PORT} is every run's default: a worker left over from another run would come here "
                "(and be refused); a port of its own (--master-bind-port, --master-port) keeps it away"
            )

    def _take(self, client: str, message: Message) -> None:
        if self._ready:
            self.crew.take(client, message)

    def begin(self, give_up: Callable[[], None]) -> None:
        """Starts what runs beside the requests."""
        self.recorder.begin(give_up)
        self.progress.begin()

    def stop_taking(self) -> None:
        """The run ends: every worker stops, and sends what it owes before Locust tells it to leave."""
        self.crew.close()

    def seal(self) -> None:
        """Every worker has ended; then the folder is closed. Doing so twice is harmless."""
        self.recorder.waits_for = "the workers' last lines"
        self.crew.close()
        self._stop_conducting()
        self._cut()
        self.recorder.seal(self.crew.close)
        self.progress.close()

    def _n_under_way(self) -> int:
        return self.crew.tally().n_under_way

    def _run(self) -> None:
        """The levels begin once every worker is there."""
        self.crew.gather(GATHER_S)
        super()._run()

    def _refuse_blind_search(self, options: Options, plan: Plan) -> None:
        if plan.scenario.searches and options.shards != "ship":
            raise UsageError(
                f"--shards {options.shards}: a search is led by the records, which only --shards ship brings"
            )


class WorkerSession:
    """A worker's: it has a sender and a crew as soon as its master has briefed it."""

    path = None  # a worker prints no folder: its lines are in the master's
    conductor = None
    conducting = False

    def __init__(self, keys: Keys, run_dir: Path, runner: Any) -> None:
        self._process = WorkerProcess(
            keys,
            run_dir,
            secrets=collect_secrets(dict(os.environ), keys.headers),
            stop_users=runner.stop,
            leave=runner.quit,
        )
        self._process.start(LocustPost(runner, self._process.take, self._process.failed))

    @property
    def crew(self) -> Crew:
        """Waits for the briefing."""
        self._process.ready.wait()
        assert self._process.crew is not None
        return self._process.crew

    def transport(self) -> Transport:
        """Waits for the briefing."""
        self._process.ready.wait()
        assert self._process.sender is not None
        return self._process.sender.transport()

    def send(
        self,
        planned: PlannedRequest,
        transport: Transport,
        *,
        due_ns: int | None = None,
        told: Callable[[Request], None] | None = None,
    ) -> None:
        """As ``Sender.send``."""
        assert self._process.sender is not None
        self._process.sender.send(planned, transport, due_ns=due_ns, told=told)

    def begin(self, give_up: Callable[[], None]) -> None:
        """A worker begins when its master says so."""

    def failed(self, error: BaseException) -> None:
        self._process.failed(error)

    def beside_failed(self, error: BaseException) -> None:
        self._process.failed(error)

    def stop_taking(self) -> None:
        """Users that wait for a next request stop by themselves."""
        if self._process.crew is not None:
            self._process.crew.close()

    def seal(self) -> None:
        """What is left goes to the master; the shard goes or stays."""
        self._process.close()

    def verdict(self) -> int:
        """The worker's own part only: what the run is worth, its master says."""
        return self._process.exit_code or 0


AnySession = Session | MasterSession | WorkerSession
