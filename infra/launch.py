"""One launch of one arm: the engine is started, proven ready, watched and stopped, and its launch folder written.

Ready means: a streamed answer was read whole and verified, and ``/slots`` says of every slot that it speculates where
the arm asks for it, that it does not where it does not ask. An engine that merely listens is not ready.
The folder is sealed however it ends, unless this process is killed: then the engine dies with it, and the folder stays
unsealed.
"""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.launch_folder import LaunchWriter
from evidence.layout import new_id
from evidence.records import Launch, LaunchStage
from infra.child import POLL_S, Child, command
from infra.diagnose import diagnose
from infra.dial import DialError
from infra.prepared import Prepared, memory, prepare, versions
from infra.ready import NotReady, first_answer, slots, speculates
from infra.recipes import Arm

LAUNCH_ROOT = Path("runs") / "launches"
Say = Callable[[str], None]


class LaunchError(Exception):
    """A launch that failed; its folder is sealed. ``launch`` is its record, ``folder`` where it lies."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        super().__init__(
            f"{launch.arm['name']} failed after stage {launch.stage!r}: {launch.symptom}\n"
            f"evidence: {folder}\nto see it again: {launch.reproduce}"
        )
        self.launch, self.folder = launch, folder


@contextmanager
def launching(
    arm: Arm, *, port: int | None = None, launch_root: Path = LAUNCH_ROOT, say: Say = lambda _: None
) -> Iterator["Engine"]:
    """A ready engine for the length of the block; ``port`` None: the engine takes a free one. Main thread only.

    Errors: FloorError and ModelError before anything is started, EvidenceError where the folder cannot be written,
    LaunchError where the engine did not become ready.
    """
    engine = Engine(prepare(arm), port, launch_root, say)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


class Engine:
    """A launched engine: ``launch`` is its record as last written, ``folder`` its launch folder."""

    def __init__(self, prepared: Prepared, port: int | None, launch_root: Path, say: Say) -> None:
        arm = prepared.arm
        self._prepared, self._say = prepared, say
        self._child: Child | None = None
        self._command = command(prepared.models, prepared.arguments(), port or 0)
        self.launch = Launch(
            launch_id=new_id("launch"),
            arm=arm.model_dump(mode="json"),
            command=self._command,
            reproduce=shlex.join(
                ["python", "-m", "infra", "launch", arm.name, *(["--port", str(port)] if port else [])]
            ),
            resolved=dict(prepared.arguments()),
            versions=versions(),
            model=prepared.target.facts(),
            draft=prepared.draft.facts() if prepared.draft else None,
            pid=None,
            url=None,
            started_at_unix_s=time.time(),
            ready_at_unix_s=None,
            ended_at_unix_s=None,
            stage="command",
            speculation="not proven" if arm.speculative else "not asked",
            speculation_proof=None,
            outcome="starting",
            symptom=None,
            evidence_grade=None,
            memory=None,
            diagnostics=(),
            exit_code=None,
        )
        self._writer = LaunchWriter.create(launch_root, self.launch)
        self._sealed = False

    @property
    def folder(self) -> Path:
        return self._writer.path

    @property
    def url(self) -> str:
        assert self.launch.url is not None
        return self.launch.url

    @property
    def model(self) -> str:
        """The name under which the engine serves its model."""
        return str(self.launch.arm["args"]["model_alias"][0])

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
        arm = self._prepared.arm
        deadline = time.monotonic() + arm.ready_timeout_s
        self._child = Child(self._command, self._writer.log_path, arm.environment)
        self._record(pid=self._child.process.pid, stage="process")
        try:
            self._follow_log(self._child, deadline)
            self._prove(max(deadline - time.monotonic(), 0.1))
        except (NotReady, DialError) as error:
            symptom = str(error)
            if self._child.exit_code is not None and self.launch.stage == "listening":
                symptom += f"\nthe engine ended: {self._child.read_log().symptom()}"
            self._fail(symptom)

    def close(self) -> None:
        """Stop the engine, record how it ended, seal the folder. Doing so twice is harmless."""
        if self._sealed:
            return
        died = self.exit_code is not None
        code = self._child.stop() if self._child else None
        if died:
            assert self._child is not None
            symptom = f"ended by itself, exit code {code}\n" + "\n".join(self._child.read_log().tail())
            self._record(outcome="died", symptom=symptom, evidence_grade="trace held")
        else:
            self._record(outcome="stopped")
        self._seal(code)

    def _follow_log(self, child: Child, deadline: float) -> None:
        """Follow the log's stages until the engine listens."""
        seen = 0
        while True:
            ended = child.exit_code is not None  # asked before reading: what it wrote last is read then
            log = child.read_log()
            for stage in log.stages[seen:]:
                self._record(stage=stage, url=log.url)
                seen += 1
            if ended:
                raise NotReady(log.symptom())
            if log.url is not None and "listening" in log.stages:
                self._record(url=log.url, resolved=log.resolved or self.launch.resolved)
                return
            if time.monotonic() > deadline:
                limit = self._prepared.arm.ready_timeout_s
                raise NotReady(f"not ready within {limit} s; the log ends:", "\n".join(log.tail(5)) or "(nothing yet)")
            time.sleep(POLL_S)

    def _prove(self, timeout_s: float) -> None:
        facts = first_answer(self.url, self.model, timeout_s)
        self._record(stage="first_answer")
        found = slots(self.url, timeout_s)
        asked, says = self._prepared.arm.speculative, speculates(found)
        assert self._child is not None
        log = self._child.read_log()
        proof = {"slots": found, "log": log.implementations, "first_answer_tokens": facts.n_completion_tokens}
        self._record(speculation_proof=proof)
        if says is not asked:
            said = [{key: slot.get(key) for key in ("id", "speculative")} for slot in found]
            raise NotReady("\n".join([*log.errors, f"/slots: {json.dumps(said)}"]))
        if asked:
            self._record(speculation="proven")
        self._record(stage="ready", outcome="ready", ready_at_unix_s=time.time())

    def _fail(self, symptom: str) -> None:
        """Record the failure, try the arm's diagnostics, seal, and raise LaunchError."""
        assert self._child is not None
        log = self._child.read_log()
        asked_for = None if log.requested_bytes is None else {"requested_bytes": log.requested_bytes, **memory()}
        code = self._child.stop()
        self._record(outcome="failed", symptom=symptom, evidence_grade="trace held", memory=asked_for, exit_code=code)
        try:
            for number, diagnostic in enumerate(self._prepared.arm.diagnostics, start=1):
                self._say(f"diagnostic: {diagnostic.name}")
                self._record(
                    diagnostics=(
                        *self.launch.diagnostics,
                        diagnose(self._prepared, diagnostic, self.folder / f"diagnostic-{number}.log"),
                    )
                )
        finally:
            self._seal(code)
        raise LaunchError(self.launch, self.folder)

    def _record(self, **changes: Any) -> None:
        stage: LaunchStage | None = changes.get("stage")
        # Validated anew: model_copy alone would not look at the new values.
        self.launch = Launch.model_validate(self.launch.model_copy(update=changes).model_dump())
        self._writer.update(self.launch)
        if stage is not None:
            self._say(stage)

    def _seal(self, code: int | None) -> None:
        self._sealed = True
        self._record(ended_at_unix_s=time.time(), exit_code=code)
        self._writer.seal()
