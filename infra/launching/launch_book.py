"""The record of one launch as it goes on: rewritten whole at each stage, sealed at the end; a failed one's error."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from evidence.launch_folder import LaunchWriter
from evidence.layout import new_id
from evidence.records import Launch, LaunchStage
from evidence.redact import KnownSecrets, collect_secrets

Say = Callable[[str], None]
_ORDER: tuple[str, ...] = get_args(LaunchStage)


class LaunchError(Exception):
    """A launch that failed; its folder is sealed. ``launch`` is its record, ``folder`` where it lies."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        super().__init__(
            f"{launch.arm['name']} failed after stage {launch.stage!r}: {launch.symptom}\n"
            f"evidence: {folder}\nto see it again: {launch.reproduce}"
        )
        self.launch, self.folder = launch, folder


class LaunchBook:
    """``launch`` is the record as last written, ``folder`` the launch folder."""

    def __init__(self, launch_root: Path, say: Say, **first: Any) -> None:
        """``first`` are the fields of the record that are known before anything runs."""
        unknown = {
            **dict.fromkeys(
                ("draft", "pid", "url", "ready_at_unix_s", "ended_at_unix_s", "speculation_proof", "symptom")
            ),
            **dict.fromkeys(("evidence_grade", "memory", "exit_code")),
        }
        secrets = collect_secrets(os.environ)  # an engine inherits them, and may print them
        self._secrets = KnownSecrets(secrets)
        self.launch = Launch(
            launch_id=new_id("launch"),
            started_at_unix_s=time.time(),
            stage="command",
            outcome="starting",
            diagnostics=(),
            **{**unknown, **first},
        )
        self._say = say
        self._writer = LaunchWriter.create(launch_root, self.launch, secrets=secrets)
        self.sealed = False

    @property
    def folder(self) -> Path:
        return self._writer.path

    @property
    def log_path(self) -> Path:
        return self._writer.log_path

    def say(self, text: str) -> None:
        self._say(text)

    def notice(self, text: str) -> None:
        """What belongs to the launch and has no field: it stands in the seal."""
        self._writer.notice(text)

    def record(self, **changes: Any) -> None:
        """Write these fields. A stage is only ever a later one than the last: log lines may be read late."""
        stage = changes.get("stage")
        if stage is not None and _ORDER.index(stage) <= _ORDER.index(self.launch.stage):
            del changes["stage"]
            stage = None
        # Validated anew: model_copy alone would not look at the new values. Cleaned here too, not only on file: the
        # record is printed and copied into other records.
        changed = self.launch.model_copy(update=self._secrets.clean(changes))
        self.launch = Launch.model_validate(changed.model_dump())
        self._writer.update(self.launch)
        if stage is not None:
            self._say(stage)

    def seal(self, code: int | None) -> None:
        self.sealed = True
        self.record(ended_at_unix_s=time.time(), exit_code=code)
        self._writer.seal()
