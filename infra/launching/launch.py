"""One launch of one arm: the engine is started, proven ready, watched and stopped, and its launch folder written.

Ready means: a streamed answer was read whole and verified, and the engine itself says that it speculates where the arm
asks for it, that it does not where it does not ask. An engine that merely listens is not ready.
The folder is sealed however it ends, unless this process is killed: then the engine dies with it, and the folder stays
unsealed.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from evidence.records import Launch
from infra.dial import DialError
from infra.launching.child import POLL_S, Child
from infra.launching.command_start import prepare_command
from infra.launching.diagnose import diagnose, misfit, not_tried
from infra.launching.engine_log import EngineLog
from infra.launching.external import ExternalEngine
from infra.launching.launch_book import LaunchBook, LaunchError, Say
from infra.launching.ports import HOST, accepts
from infra.launching.prepared import Start, prepare
from infra.launching.readiness import prove_command, prove_embedded, secret_headers, with_version
from infra.launching.ready import NotReady, NotYet, first_answer, only_model
from infra.launching.recipes import Arm, CommandArm, EmbeddedArm, ExternalArm
from infra.launching.symptoms import refusal_to_start, settings_of_a_failure, symptom_of_the_end, with_device
from infra.wire.stream import StreamFacts

__all__ = ["LAUNCH_ROOT", "Engine", "ExternalEngine", "LaunchError", "launching"]

LAUNCH_ROOT = Path("runs") / "launches"
ASK_AGAIN_S = 0.5  # a server that says it is loading


@contextmanager
def launching(
    arm: Arm,
    *,
    port: int | None = None,
    launch_root: Path = LAUNCH_ROOT,
    say: Say = lambda _: None,
    restart: bool = False,
) -> Iterator["Engine | ExternalEngine"]:
    """A ready engine for the length of the block; ``port`` None: a free one. Main thread only.

    A server someone else runs is checked, not started; ``restart`` runs the arm's restart command before.
    Errors: FloorError and ModelError before anything is started, EvidenceError where the folder cannot be written,
    LaunchError where the engine did not become ready.
    """
    with ExitStack() as stack:
        engine: Engine | ExternalEngine
        if isinstance(arm, ExternalArm):
            engine = ExternalEngine(arm, launch_root, say, restart=restart)
        else:
            start: Start = prepare(arm) if isinstance(arm, EmbeddedArm) else prepare_command(arm)
            stack.callback(start.close)
            engine = Engine(start, port, launch_root, say)
        stack.callback(engine.close)
        engine.start()
        yield engine


class Engine:
    """A launched engine: ``launch`` is its record as last written, ``folder`` its launch folder."""

    def __init__(self, start: Start, port: int | None, launch_root: Path, say: Say) -> None:
        arm = start.arm
        self._start = start
        self._child: Child | None = None
        self._port = start.port(port)
        self._n_stages = 0
        self._model: str | None = None
        self._process = start.process(self._port)
        self._book = LaunchBook(
            launch_root,
            say,
            arm=arm.model_dump(mode="json"),
            command=start.shown(self._port) if isinstance(arm, CommandArm) else self._process,
            reproduce=start.reproduce(self._port if isinstance(arm, CommandArm) else port or 0),
            resolved=start.asked(),
            versions=start.versions(),
            model=start.model_facts(),
            draft=start.draft_facts(),
            speculation="not proven" if arm.speculative else "not asked",
        )
        for notice in start.notices():
            self._book.notice(notice)

    @property
    def launch(self) -> Launch:
        return self._book.launch

    @property
    def folder(self) -> Path:
        return self._book.folder

    @property
    def url(self) -> str:
        url = self._book.launch.url
        assert url is not None
        return url

    @property
    def model(self) -> str:
        """The name under which the engine serves its model."""
        arm = self._start.arm
        if isinstance(arm, EmbeddedArm):
            return str(self._book.launch.arm["args"]["model_alias"][0])
        return self._model or arm.served_name or only_model(self.url, 10.0, secret_headers())

    @property
    def exit_code(self) -> int | None:
        """None while the engine runs."""
        return self._child.exit_code if self._child else None

    def wait(self) -> int:
        """Sleep until the engine ends by itself; returns its exit code."""
        assert self._child is not None
        return self._child.process.wait()

    def start(self) -> None:
        """Start the engine and prove it ready, all within the arm's ready timeout. Errors: LaunchError."""
        arm = self._start.arm
        deadline = time.monotonic() + arm.ready_timeout_s
        before = self._start.memory()
        if refusal := refusal_to_start(arm, self._port, os.environ):
            self._fail(refusal, before)
        self._child = Child(
            self._process,
            self._book.log_path,
            arm.environment,
            dialect=self._start.dialect,
            stop_within_s=self._start.stop_within_s,
        )
        self._book.record(pid=self._child.process.pid, stage="process")
        try:
            self._follow_log(self._child, deadline)
            self._prove(self._child, deadline)
        except (NotReady, DialError) as error:
            symptom = str(error)
            if self._child.exit_code is not None and self._book.launch.stage in ("listening", "first_answer"):
                symptom += f"\nthe engine ended: {self._child.read_log().symptom()}"
            self._fail(symptom, before)

    def close(self) -> None:
        """Stop the engine, record how it ended, seal the folder. Doing so twice is harmless."""
        if not self._book.sealed:
            died = self.exit_code is not None
            code = self._child.stop() if self._child else None
            if died:
                assert self._child is not None
                symptom = f"ended by itself, exit code {code}\n" + "\n".join(self._child.read_log().tail())
                self._book.record(outcome="died", symptom=symptom, evidence_grade="trace held")
            else:
                self._book.record(outcome="stopped")
            self._book.seal(code)

    def _follow_log(self, child: Child, deadline: float) -> None:
        """Follow the log's stages until the engine listens."""
        while True:
            ended = child.exit_code is not None  # asked before reading: what it wrote last is read then
            log = self._read_stages(child)
            if ended:
                raise NotReady(symptom_of_the_end(log, child.exit_code))
            if isinstance(self._start.arm, CommandArm):
                if accepts(self._port):
                    self._book.record(url=f"http://{HOST}:{self._port}", stage="listening")
                    return
            elif log.url is not None and "listening" in log.stages:
                self._book.record(url=log.url, resolved=log.resolved or self._book.launch.resolved)
                return
            self._give_up_after(deadline, log)
            time.sleep(POLL_S)

    def _read_stages(self, child: Child) -> EngineLog:
        log = child.read_log()
        for stage in log.stages[self._n_stages :]:
            self._book.record(stage=stage, url=self._book.launch.url or log.url)
            self._n_stages += 1
        return log

    def _give_up_after(self, deadline: float, log: EngineLog) -> None:
        if time.monotonic() > deadline:
            limit = self._start.arm.ready_timeout_s
            raise NotReady(f"not ready within {limit} s; the log ends:", "\n".join(log.tail(5)) or "(nothing yet)")

    def _prove(self, child: Child, deadline: float) -> None:
        arm = self._start.arm
        facts = self._first_answer(child, deadline)
        self._book.record(stage="first_answer")
        left_s = max(deadline - time.monotonic(), 1.0)
        log = self._read_stages(child)
        if isinstance(arm, EmbeddedArm):
            proven = prove_embedded(arm, self.url, log, facts, left_s)
        else:
            proven = prove_command(arm, self.url, log, facts, left_s)
            self._book.record(
                resolved=proven.resolved.record() if proven.resolved else self._book.launch.resolved,
                versions=with_version(self._book.launch.versions, arm.engine, proven.version),
                model={**self._book.launch.model, "served": self._model},
            )
        self._book.record(speculation_proof=proven.proof)
        if proven.refusal is not None:
            raise NotReady(proven.refusal)
        if arm.speculative:
            self._book.record(speculation="proven")
        self._book.record(stage="ready", outcome="ready", ready_at_unix_s=time.time())

    def _first_answer(self, child: Child, deadline: float) -> StreamFacts:
        """Ask until the answer is verified; again only where the server says that it is loading, or nobody listens."""
        arm = self._start.arm
        headers = [] if isinstance(arm, EmbeddedArm) else secret_headers()
        extra: dict[str, Any] | None = {} if isinstance(arm, CommandArm) and arm.engine != "llama.cpp" else None
        while True:
            log = self._read_stages(child)
            left_s = max(deadline - time.monotonic(), 0.1)
            try:
                if isinstance(arm, CommandArm) and self._model is None:
                    self._model = arm.served_name or only_model(self.url, left_s, headers)
                return first_answer(self.url, self.model, left_s, extra=extra, headers=headers)
            except NotYet:
                self._give_up_after(deadline, log)
            except DialError as error:
                if error.outcome != "connect_refused" or child.exit_code is not None or time.monotonic() > deadline:
                    raise
            time.sleep(ASK_AGAIN_S)

    def _fail(self, symptom: str, before: dict[str, Any]) -> None:
        """Record the failure, try the diagnostics that fit its stage, seal, and raise LaunchError."""
        log = self._child.read_log() if self._child else EngineLog(dialect=self._start.dialect)
        memory = log.memory
        code = self._child.stop() if self._child else None
        self._book.record(
            outcome="failed",
            symptom=symptom,
            evidence_grade="trace held",
            memory=None if memory is None else with_device(memory, before),
            exit_code=code,
            stage=log.shown_stage() or self._book.launch.stage,
            resolved=settings_of_a_failure(self._start.arm, log) or self._book.launch.resolved,
        )
        try:
            if self._child is not None:
                self._try_diagnostics(log)
        finally:
            self._book.seal(code)
        raise LaunchError(self._book.launch, self.folder)

    def _try_diagnostics(self, log: EngineLog) -> None:
        for number, diagnostic in enumerate(self._start.arm.diagnostics, start=1):
            why = misfit(diagnostic, self._book.launch.stage, loading_weights=log.loading_weights)
            if why is None:
                self._book.say(f"diagnostic: {diagnostic.name}")
                tried = diagnose(self._start, diagnostic, self.folder / f"diagnostic-{number}.log")
            else:
                tried = not_tried(diagnostic, why)
            self._book.record(diagnostics=(*self._book.launch.diagnostics, tried))
