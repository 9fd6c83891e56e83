"""One run's recorder, in the one process that keeps its folder: from the first probe to the seal.

The order of a cell: warm-up, drain, idle check, scrape, measure, drain, scrape. Every failure of the recorder itself is
kept in ``failure`` and decides the exit code: 3 where evidence could not be written, 1 for a fault of ours.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import gevent

from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.layout import new_id
from evidence.level_records import Level
from evidence.lines import canonical
from evidence.records import Manifest
from evidence.redact import collect_secrets
from evidence.worker import WorkerWriter
from infra.engines.identify import request_extras
from infra.openai_client import OpenAIClient
from infra.probe import probe
from locustfiles._cache_state import CacheState
from locustfiles._conformance import conformance
from locustfiles._manifest import chosen_model, cite, make_manifest
from locustfiles._options import Options, UsageError
from locustfiles._profiling import Profiling
from locustfiles._sender import Briefing, Keys, ResetAge, keys_of
from locustfiles._telemetry import Telemetry
from scenarios.plan import Plan

EVIDENCE_SAYS_NO = 1


class Recorder:
    """Made once a run, before its first request. Raises UsageError or EvidenceError when the run cannot begin."""

    def __init__(self, options: Options, plan: Plan, *, n_workers: int | None = None) -> None:
        """``n_workers`` processes send, None: this one does."""
        self.options = options
        self.plan = plan = _timed(plan) if options.no_profile else plan
        self.failure: str | None = None
        self.exit_code: int | None = None  # set by the recorder's own failures only
        self.age = ResetAge()
        self.keys: Keys = keys_of(options.headers)
        cited = cite(options)
        probed = probe(options.host, headers=self.keys.headers, metrics_url=options.metrics_urls[0])
        if not probed.reachable:
            reason = next((got.error for got in probed.fetched.values() if got.error), "no answer")
            raise UsageError(f"nothing answers at {options.host} ({reason}): start the server, or check --host")
        limits = plan.scenario.limits
        client = OpenAIClient(
            options.host,
            api_key=self.keys.api_key,
            timeout_s=limits.timeout_s,
            stall_s=limits.stall_s,
            headers=options.headers,
        )
        try:
            self._model = chosen_model(options, client)
        finally:
            client.close()
        self.cache = CacheState(plan.scenario.cache, probed, options.host, self.keys.headers, self.age, cited.launch)
        if self.cache.by_call_per_request and any(level.users != 1 for level in plan.levels):
            raise UsageError(
                'cache.per = "request" resets before each request, while others are under way: set per = "cell", or '
                "send one at a time"
            )
        if self.cache.by_call_per_request and n_workers is not None:
            raise UsageError(
                'cache.per = "request" resets before each request, which workers do not: set per = "cell", or leave '
                "--master, --worker and --processes out"
            )
        profile = plan.scenario.telemetry.profile
        self.profiling = None
        if profile is not None:
            self.profiling = Profiling(
                profile,
                engine=probed.facts.engine,
                url=options.host,
                headers=self.keys.headers,
                settings=cited.launch.resolved if cited.launch else {},
                timeout_s=limits.timeout_s,
            )
        engine_extra = request_extras(
            probed.facts.engine, cold_per_request=self.cache.by_request_field, version=probed.facts.version
        )
        self._extra = {**engine_extra, **options.extra_body}
        self.run_id = new_id("run")
        manifest = make_manifest(
            run_id=self.run_id,
            options=options,
            plan=plan,
            probed=probed,
            cited=cited,
            model=self._model,
            request_extra=self._extra,
            n_workers=n_workers or 1,
        )
        secrets = collect_secrets(dict(os.environ), self.keys.headers)
        self._briefing(0, manifest)  # what no worker could be told is refused before there is a folder
        self.writer = RunWriter.create(options.run_dir, self.run_id, manifest, plan.requests, secrets=secrets)
        with self.undone_where_it_fails():
            for name, body in probed.bodies().items():
                self.writer.server_body(name, body)
            self._telemetry = Telemetry(
                self.writer,
                options,
                engine=probed.facts.adapter,
                version=probed.facts.version,
                interval_s=plan.scenario.telemetry.scrape_interval_s,
                headers=self.keys.headers,
                on_failure=self.beside_failed,
            )
        self._give_up: Callable[[], None] | None = None
        self._window_open = False
        self._sealed = False
        self.waits_for = ""  # of the steps that close the run, the one under way, in words
        self.judged: subprocess.CompletedProcess[str] | None = None  # None until ``verdict`` was asked for

    @property
    def path(self) -> Path:
        return self.writer.path

    @property
    def over(self) -> bool:
        """Whether the closing of the folder has begun: nothing is noticed any more."""
        return self._sealed

    @contextmanager
    def undone_where_it_fails(self) -> Iterator[None]:
        """What raises within leaves no half-open run: its folder's files are closed, and it stays unsealed."""
        with ExitStack() as undo:
            undo.callback(self.writer.close)
            yield
            undo.pop_all()

    def briefing(self, worker: int) -> Briefing:
        """What the process that is worker ``worker`` must know to send its part."""
        return self._briefing(worker, self.writer.manifest)

    def _briefing(self, worker: int, manifest: Manifest) -> Briefing:
        limits = self.plan.scenario.limits
        return Briefing(
            run_id=self.run_id,
            worker=worker,
            manifest_json=manifest.model_dump_json(),
            host=self.options.host,
            transport=self.options.transport,
            model=self._model,
            request_extra=self._extra,
            timeout_s=limits.timeout_s,
            stall_s=limits.stall_s,
            wire_limit_bytes=manifest.wire_limit_bytes,
            first_line=next((canonical(line).decode() for line in self.plan.requests), None),
        )

    def sink(self, worker: int) -> WorkerWriter:
        """The writer of a worker whose files are written by this process."""
        return self.writer.worker(worker)

    def begin(self, give_up: Callable[[], None]) -> None:
        """Starts what runs beside the requests.

        ``give_up`` ends the run early: it is called when something beside the requests cannot write any more.
        """
        self._give_up = give_up
        self._telemetry.begin()

    def beside_failed(self, error: BaseException) -> None:
        """What runs beside the requests died: remembered, and the run is given up."""
        self.failed(error)
        if self._give_up is not None:
            gevent.spawn(self._give_up)  # this is called from the hub, which must not wait

    def reset_cache(self) -> None:
        """What was asked of the cache before a window."""
        self.cache.before_window()

    def open_window(self, level: str | None = None) -> None:
        """At rest, scraped, and scraped each interval from now on. What was cold must have been reset before."""
        self._window_open = True
        self._telemetry.open_window(level)

    def close_window(self) -> None:
        """Ends the window opened before; does nothing where none is open."""
        if not self._window_open:
            return
        self._telemetry.close_window()
        self._window_open = False

    def level(self, record: Level) -> None:
        """One level is over, or was cut short."""
        self.writer.level(record)

    def notice(self, text: str) -> None:
        self.writer.notice(text)

    def failed(self, error: BaseException) -> None:
        """The recorder's own failure: remembered once, and said."""
        if self.failure is not None:
            return
        self.exit_code = error.exit_code if isinstance(error, EvidenceError) else EVIDENCE_SAYS_NO
        self.failure = f"{type(error).__name__}: {error}"
        print(f"the run stops: {self.failure}", file=sys.stderr)

    def seal(self, stop_sending: Callable[[], None]) -> None:
        """Closes the window where one is open, then the folder; ``stop_sending`` comes between. Twice is harmless."""
        if self._sealed:
            return
        self._sealed = True
        try:
            if self.failure is not None:
                self.writer.notice(f"the recorder failed: {self.failure}")
            self.waits_for = "the server to be at rest, and its last scrape"
            self.close_window()
            self.waits_for = "what was received to be read and written"
            stop_sending()
            self.waits_for = "the last samples of the GPUs"
            self._telemetry.stop()
            if self.profiling is not None:
                self.waits_for = "the profiler's traces"
                self.profiling.finish(self.writer)
            self.waits_for = "the folder's files to be hashed and sealed"
            resets = self.cache.record()
            if resets is not None:
                self.writer.server_body("resets.json", resets)
            self.writer.server_body("conformance.json", conformance(self.path, self.run_id, self.plan))
            self.writer.seal()
        except EvidenceError as error:
            self.failed(error)
        finally:
            self.writer.close()

    def verdict(self) -> int:
        """Prints what ``analysis check`` says of the folder, once; the exit code of the run."""
        if self.judged is None:
            self.waits_for = "the folder to be checked"
            command = [sys.executable, "-m", "analysis", "check", "--brief", str(self.path)]
            self.judged = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            print(self.judged.stdout, end="", file=sys.stderr, flush=True)
        return self.exit_code if self.exit_code is not None else self.judged.returncode


def _timed(plan: Plan) -> Plan:
    """The same plan without its profiler window."""
    telemetry = plan.scenario.telemetry.model_copy(update={"profile": None})
    return replace(plan, scenario=plan.scenario.model_copy(update={"telemetry": telemetry}))
