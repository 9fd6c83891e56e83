"""Reading the embedded engine's log: the stage it reached, its address, its errors, what memory it asked for. Pure.

Lines are matched anywhere, not from their start: the engine's log thread writes a line in pieces, and other output may
stand before one.
"""

import json
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.embedded import RESOLVED_MARK

LogStage = Literal["weights", "draft", "memory_pool", "listening"]
_MARKS: tuple[tuple[LogStage, str], ...] = (
    ("weights", "load_model: loading model '"),
    ("draft", "loading draft model '"),
    ("memory_pool", "load_model: initializing, n_slots = "),
    ("listening", "listening on http://"),
)
_ADDRESS = re.compile(r"listening on (http://[0-9.]+:[0-9]+)")
_ERROR = re.compile(r"^[0-9.]+ E (.*)$")
_SPECULATIVE = re.compile(r"adding speculative implementation '([a-z0-9-]+)'")
_BUFFER = re.compile(r"failed to allocate (?:\w+ )?buffer of size ([0-9]+)")
_OURS = "embedded: "


@dataclass(kw_only=True)
class EngineLog:
    """What has been read so far; ``feed`` takes bytes as they are appended, whole lines or not."""

    stages: list[LogStage] = field(default_factory=list)
    url: str | None = None
    resolved: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)  # messages of lines of level E, and our own, verbatim
    implementations: list[str] = field(default_factory=list)  # speculative ones that the engine says it added
    requested_bytes: int | None = None  # of the first allocation that failed
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._read(line.decode("utf-8", errors="replace"))

    def tail(self, n: int = 10) -> list[str]:
        """The last lines, the unfinished one too."""
        rest = self._rest.decode("utf-8", errors="replace")
        return [line for line in [*self.lines, rest] if line.strip()][-n:]

    def symptom(self) -> str:
        """What the engine said went wrong, verbatim: its first error lines, else its last lines."""
        return "\n".join(self.errors[:6] or self.tail()) or "the engine's log is empty"

    def _read(self, line: str) -> None:
        self.lines.append(line if len(line) <= 2000 else line[:2000] + " [cut]")
        if line.startswith(RESOLVED_MARK):
            self.resolved = json.loads(line.removeprefix(RESOLVED_MARK))
            return
        for stage, mark in _MARKS:
            if mark in line and stage not in self.stages:
                self.stages.append(stage)
        if address := _ADDRESS.search(line):
            self.url = address[1]
        if implementation := _SPECULATIVE.search(line):
            self.implementations.append(implementation[1])
        if error := _ERROR.match(line):
            self.errors.append(error[1])
        elif line.startswith(_OURS):
            self.errors.append(line)
        if self.requested_bytes is None and (buffer := _BUFFER.search(line)):
            self.requested_bytes = int(buffer[1])
