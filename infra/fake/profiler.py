"""The fake engine's profiler, as SGLang's behaves: a window opened while something runs leaves a trace, else nothing.

The trace is a given one, moved in time: its first GPU activity falls on the instant at which the window was opened. It
is written once a request that ran then, or came later, has ended; a window after which none ends never writes one.
"""

import gzip
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class FakeProfiler:
    """``source`` is the trace to copy; None: there is no such route. ``never``: no window is ever filled."""

    source: Path | None = None
    never: bool = False
    folder: Path | None = None  # of the window that is open
    opened_unix_ns: int = 0
    n_windows: int = 0

    def start(self, body: Any) -> tuple[int, str]:
        """Status and text of the reply to ``/start_profile``."""
        if self.source is None:
            return 404, "Not Found"
        if not isinstance(body, dict) or not body.get("output_dir") or not body.get("num_steps"):
            return 400, "num_steps and output_dir are wanted"
        if self.folder is not None:
            return 400, "Profiling is already in progress. Call /stop_profile first."
        self.folder = Path(body["output_dir"])
        self.opened_unix_ns = time.time_ns()
        return 200, "Start profiling."

    def ended(self) -> None:
        """A request has ended: an open window is full now, and its trace is written."""
        if self.folder is None or self.source is None or self.never:
            return
        trace = json.loads(gzip.decompress(self.source.read_bytes()))
        first_us = min(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "kernel")
        trace["baseTimeNanoseconds"] = self.opened_unix_ns - round(first_us * 1000)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.opened_unix_ns / 1e9:.6f}-TP-0.trace.json.gz"
        file.write_bytes(gzip.compress(json.dumps(trace).encode(), compresslevel=1))
        self.folder = None
        self.n_windows += 1
