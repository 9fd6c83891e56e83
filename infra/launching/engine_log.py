"""Reading an engine's log: the stage it reached, its address, its errors, what memory it asked for. Pure.

Lines are matched anywhere, not from their start: an engine's log thread writes a line in pieces, and other output may
stand before one. An error is a line that is one by its form, or the exception that ends a Python traceback.
"""

import json
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from infra.launching.embedded import RESOLVED_MARK
from infra.launching.log_dialects import EMBEDDED, PREFIX, SHOWN_STAGES, Dialect, LogStage
from infra.launching.memory_messages import read_memory

_SPECULATIVE = re.compile(r"adding speculative implementation '([a-z0-9-]+)'")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK = "Traceback (most recent call last):"
_OURS = ("embedded: ", "warden: ")
_OF_MEMORY = ("memory", "avail mem", "alloc", "Memory", "MiB free")
_OF_SETTINGS = ("llama_context: ", "llama_kv_cache: size", "load_tensors: ", "print_info: file type", "system_info: ")
_KEPT_ERRORS = 50
_KEPT_SETTING_LINES = 500
_KEPT_MEMORY_LINES = 5000


@dataclass(kw_only=True)
class EngineLog:
    """What has been read so far; ``feed`` takes bytes as they are appended, whole lines or not."""

    dialect: Dialect = EMBEDDED
    stages: list[LogStage] = field(default_factory=list)
    url: str | None = None
    resolved: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)  # error lines and exceptions, each once, ours too; verbatim
    implementations: list[str] = field(default_factory=list)  # speculative ones that llama.cpp says it added
    config_lines: list[str] = field(default_factory=list)  # in which SGLang or vLLM prints its resolved arguments
    setting_lines: list[str] = field(default_factory=list)  # in which llama.cpp prints what it settled on
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    _seen: dict[str, int] = field(default_factory=dict)
    _n_loading: int = 0
    _in_traceback: bool = False
    _exception: list[str] = field(default_factory=list)  # the lines of one that is being read
    _memory_lines: list[str] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._read(_COLOUR.sub("", line.decode("utf-8", errors="replace")))

    def tail(self, n: int = 10) -> list[str]:
        """The last lines, the unfinished one too."""
        rest = self._rest.decode("utf-8", errors="replace")
        return [line for line in [*self.lines, rest] if line.strip()][-n:]

    def symptom(self) -> str:
        """What the engine said went wrong, verbatim: its first errors, else its last lines."""
        open_one = ["\n".join(self._exception)] if self._exception else []
        return "\n".join([*self.errors, *open_one][:6] or self.tail()) or "the engine's log is empty"

    @property
    def memory(self) -> dict[str, Any] | None:
        """Total, in use and requested bytes as far as an out-of-memory message says them; None without one."""
        return read_memory(self._memory_lines)

    @property
    def requested_bytes(self) -> int | None:
        """Of the first allocation that failed; None where none did or it was not said."""
        memory = self.memory
        return None if memory is None else memory["requested_bytes"]

    @property
    def loading_weights(self) -> bool:
        """Whether weights had still to be loaded, of the target or the draft, when the log ended."""
        if self.dialect.loaded is not None and "weights" in self.stages:
            return self._n_loading > 0
        return not any(stage in self.stages for stage in ("memory_pool", "graph_capture", "listening"))

    def shown_stage(self) -> LogStage | None:
        """The stage that the symptom itself names; None where it names none."""
        symptom = self.symptom()
        return next((stage for words, stage in SHOWN_STAGES if words in symptom), None)

    def _read(self, line: str) -> None:
        self.lines.append(line if len(line) <= 2000 else line[:2000] + " [cut]")
        if line.startswith(RESOLVED_MARK):
            self.resolved = json.loads(line.removeprefix(RESOLVED_MARK))
            return
        if "server_args=ServerArgs(" in line or "LLM engine (v" in line or "non-default args: {" in line:
            self.config_lines.append(line)
            return
        self._read_stage(line)
        if address := self.dialect.address.search(line):
            self.url = address[1]
        if implementation := _SPECULATIVE.search(line):
            self.implementations.append(implementation[1])
        if len(self.setting_lines) < _KEPT_SETTING_LINES and any(word in line for word in _OF_SETTINGS):
            self.setting_lines.append(line)
        if len(self._memory_lines) < _KEPT_MEMORY_LINES and any(word in line for word in _OF_MEMORY):
            self._memory_lines.append(line)
        self._read_error(line)

    def _read_stage(self, line: str) -> None:
        for mark in self.dialect.marks:
            if not mark.line.search(line):
                continue
            self._seen[mark.stage] = self._seen.get(mark.stage, 0) + 1
            if self._seen[mark.stage] == mark.nth:
                self.stages.append(mark.stage)
        if self.dialect.loading and self.dialect.loading.search(line):
            self._n_loading += 1
        elif self.dialect.loaded and self.dialect.loaded.search(line):
            self._n_loading = 0 if self.dialect.name == "vllm" else self._n_loading - 1  # vLLM says it once for both

    def _read_error(self, line: str) -> None:
        text = PREFIX.sub("", line, count=1)
        if self._exception:  # an exception's message may run over lines, until an empty one or another log line
            if (
                text.strip()
                and not text.startswith(("[", "  File"))
                and text == line.rstrip()
                and len(self._exception) < 4
            ):
                self._exception.append(text)
                return
            self._keep("\n".join(self._exception))
            self._exception = []
        if text.endswith(_TRACEBACK):
            self._in_traceback = True
        elif self._in_traceback and text.strip() and not text[0].isspace():
            self._in_traceback = False
            self._exception = [text]
        elif not self._in_traceback and self.dialect.error and (error := self.dialect.error.match(line)):
            self._keep(error[1])
        elif line.startswith(_OURS):
            self._keep(line)

    def _keep(self, error: str) -> None:
        if error not in self.errors and len(self.errors) < _KEPT_ERRORS:
            self.errors.append(error)
