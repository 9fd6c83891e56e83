"""A server that someone else runs: checked as an engine of ours is, restarted where asked, and watched; never stopped.

Its launch folder holds what it said. ``pid`` there is that of the process that watches, since the server's own is not
known; its log is not ours, so that a failure is "reported only". ``engine.log`` holds what the restart command printed.
"""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from evidence.records import Launch
from infra.dial import DialError
from infra.fetch import fetch
from infra.launching.arm_kinds import shell
from infra.launching.command_start import checkpoint_facts
from infra.launching.launch_book import LaunchBook, LaunchError, Say
from infra.launching.readiness import prove_command, secret_headers, with_version
from infra.launching.ready import NotReady, NotYet, first_answer, only_model
from infra.launching.recipes import ExternalArm
from infra.launching.reported import fetch_metrics
from infra.wire.stream import StreamFacts

ASK_AGAIN_S = 0.5
WATCH_EVERY_S = 5.0
GONE_AFTER = 3  # looks in a row that found nobody
_HEADER = "process-start-time-unix"


class ExternalEngine:
    """The same face as a launched engine: ``launch``, ``folder``, ``url``, ``model``, ``wait``, ``close``."""

    def __init__(self, arm: ExternalArm, launch_root: Path, say: Say, *, restart: bool = False) -> None:
        self._arm, self._restart = arm, restart
        self._model: str | None = arm.served_name
        self._gone = False
        self._book = LaunchBook(
            launch_root,
            say,
            arm=arm.model_dump(mode="json"),
            command=arm.restart if restart and arm.restart else (),
            reproduce=shell({}, ("python", "-m", "infra", "launch", arm.name, *(["--restart"] if restart else []))),
            resolved={},
            versions={},
            model=checkpoint_facts(arm.target) if arm.target else {},
            draft=checkpoint_facts(arm.draft) if arm.draft else None,
            speculation="not proven" if arm.speculative else "not asked",
        )

    @property
    def launch(self) -> Launch:
        return self._book.launch

    @property
    def folder(self) -> Path:
        return self._book.folder

    @property
    def url(self) -> str:
        return self._arm.url.rstrip("/")

    @property
    def model(self) -> str:
        return self._model or only_model(self.url, 10.0, secret_headers())

    @property
    def exit_code(self) -> int | None:
        return None

    def start(self) -> None:
        """Restart where asked, then prove it ready within the arm's ready timeout. Errors: LaunchError."""
        deadline = time.monotonic() + self._arm.ready_timeout_s
        self._book.record(pid=os.getpid(), stage="process")
        try:
            if self._restart:
                self._run_restart(deadline)
            facts = self._first_answer(deadline)
            self._book.record(stage="first_answer")
            self._prove(facts, max(deadline - time.monotonic(), 1.0))
        except (NotReady, DialError) as error:
            self._book.record(outcome="failed", symptom=str(error), evidence_grade="reported only")
            self._book.seal(None)
            raise LaunchError(self._book.launch, self.folder) from error

    def wait(self) -> int:
        """Sleep while the server answers; 1 when it has not for three looks in a row."""
        missed = 0
        while missed < GONE_AFTER:
            time.sleep(WATCH_EVERY_S)
            missed = 0 if self._healthy() is None else missed + 1
        self._gone = True
        return 1

    def close(self) -> None:
        """Seal the folder; the server is left as it is. Doing so twice is harmless."""
        if self._book.sealed:
            return
        if self._gone:
            symptom = f"it no longer answers: {self._healthy() or 'it answers again'}"
            self._book.record(outcome="died", symptom=symptom, evidence_grade="reported only")
        else:
            self._book.record(outcome="stopped")
        self._book.seal(None)

    def _run_restart(self, deadline: float) -> None:
        if self._arm.restart is None:
            raise NotReady("a restart is asked for, and the arm has no restart command: write one")
        before = self._identity()
        left_s = max(deadline - time.monotonic(), 0.1)
        try:
            with self._book.log_path.open("ab") as log:
                done = subprocess.run(
                    self._arm.restart,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=left_s,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise NotReady(f"the restart command did not end within {left_s:.0f} s") from None
        except OSError as error:
            raise NotReady(f"the restart command cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            said = self._book.log_path.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise NotReady(f"the restart command ended with {done.returncode}", said)
        self._book.say("restarted")
        while (why := self._healthy()) is not None:
            if time.monotonic() > deadline:
                raise NotReady(f"after its restart it does not answer: {why}")
            time.sleep(ASK_AGAIN_S)
        self._compare_lives(before, self._identity())

    def _compare_lives(self, before: tuple[str, float] | None, after: tuple[str, float] | None) -> None:
        if before is None or after is None or before[0] != after[0]:
            self._book.notice(
                "the restart command ran; nothing that the server says shows that its process is another one"
            )
        elif before == after:
            raise NotReady(
                f"the restart command ran, and the same process still answers: {after[0]} is {after[1]:g} as before"
            )

    def _first_answer(self, deadline: float) -> StreamFacts:
        """Ask until the answer is verified; only a server that says it is loading is asked again."""
        headers = secret_headers()
        extra: dict[str, Any] | None = None if self._arm.engine == "llama.cpp" else {}
        while True:
            left_s = max(deadline - time.monotonic(), 0.1)
            try:
                if (why := self._healthy()) is not None and self._arm.health is not None:
                    raise NotYet(f"{self._arm.health}: {why}")
                self._book.record(stage="listening", url=self.url)
                self._model = self._model or only_model(self.url, left_s, headers)
                return first_answer(self.url, self._model, left_s, extra=extra, headers=headers)
            except NotYet:
                if time.monotonic() > deadline or not self._restart:
                    raise
            time.sleep(ASK_AGAIN_S)

    def _prove(self, facts: StreamFacts, left_s: float) -> None:
        ready = prove_command(self._arm, self.url, None, facts, left_s)
        assert ready.resolved is not None
        self._book.record(
            resolved=ready.resolved.record(),
            versions=with_version({}, self._arm.engine, ready.version),
            model={**self._book.launch.model, "served": self._model},
            speculation_proof=ready.proof,
        )
        if ready.refusal is not None:
            raise NotReady(ready.refusal)
        if self._arm.speculative:
            self._book.record(speculation="proven")
        self._book.record(stage="ready", outcome="ready", ready_at_unix_s=time.time())

    def _healthy(self) -> str | None:
        """None where the server answers with 200; else what came instead."""
        got = fetch(self.url + (self._arm.health or "/v1/models"), timeout_s=5.0, headers=dict(secret_headers()))
        return got.error

    def _identity(self) -> tuple[str, float] | None:
        """What tells one life of the server from another: when its process began, by a series or a header."""
        headers = dict(secret_headers())
        metrics, _ = fetch_metrics(self.url, 5.0, headers)
        for sample in metrics.find("process_start_time_seconds") if metrics else ():
            return "process_start_time_seconds", sample.value
        got = fetch(f"{self.url}/metrics", timeout_s=5.0, headers=headers)
        said = next((value for key, value in got.headers.items() if key.lower() == _HEADER), None)
        try:
            return None if said is None else (_HEADER, float(said))
        except ValueError:
            return None
