"""The engine's child process: started in a session of its own, followed through its log, stopped within bounds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from infra.launching.engine_log import EngineLog
from infra.launching.log_dialects import EMBEDDED, Dialect

ROOT = Path(__file__).parents[2]
STOP_WITHIN_S = 5.0
POLL_S = 0.02  # how often a starting engine's log is read


def command(models: Path, arguments: Mapping[str, Any], port: int) -> tuple[str, ...]:
    """The command line of the embedded engine; it names this process as the parent to die with."""
    return (
        *(sys.executable, "-m", "infra.launching.embedded", "--models", str(models), "--port", str(port)),
        *("--parent", str(os.getpid()), "--arguments", json.dumps(arguments)),
    )


def guarded(argv: tuple[str, ...], scratch: Path, stop_within_s: float) -> tuple[str, ...]:
    """The same command under ``warden.py``, in a scratch folder: nothing of it outlives this process."""
    warden = str(Path(__file__).with_name("warden.py"))
    bound = ("--parent", str(os.getpid()), "--scratch", str(scratch), "--stop-within-s", str(stop_within_s))
    return (sys.executable, "-P", warden, *bound, "--", *argv)


class Child:
    """A running engine whose output goes to ``log_path``. Its session is its own, so that Ctrl-C reaches us alone.

    The kernel stops it when the thread that made this object ends: keep to the main thread.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        log_path: Path,
        environment: Mapping[str, str],
        *,
        dialect: Dialect = EMBEDDED,
        stop_within_s: float = STOP_WITHIN_S,
    ) -> None:
        self.log = EngineLog(dialect=dialect)
        self._stop_within_s = stop_within_s
        self._log_file = log_path.open("ab+")
        self._log_file.seek(0, os.SEEK_END)
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._read_file = log_path.open("rb")
        self._read_file.seek(self._log_file.tell())

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self.process.poll()

    def read_log(self) -> EngineLog:
        """The log as far as it is written; an ended engine has written all of it."""
        if not self._read_file.closed:
            self.log.feed(self._read_file.read())
        return self.log

    def stop(self) -> int:
        """SIGTERM, after the bound SIGKILL to all of its group; returns the exit code. Doing so twice is harmless."""
        if self.process.poll() is None:
            self.process.terminate()
            deadline = time.monotonic() + self._stop_within_s
            while self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
        if self.process.poll() is None:
            self._kill_group()
        code = self.process.wait()
        self.read_log()
        self._log_file.close()
        self._read_file.close()
        return code

    def _kill_group(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended in between
