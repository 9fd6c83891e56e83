"""Masters and workers as real Locust processes, for tests: each its own command, on a port of its own."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from locust_runs import ROOT, environment

from evidence.layout import REQUESTS, SEAL, WORKER_EVENTS, WORKERS

LIMIT_S = 60.0
# A worker whose imports are done and which goes on when a file appears: so that it can come at a chosen moment.
_WAITS = (
    "import pathlib, sys, time; import locust.main; import openai; import locustfiles._user; "
    "go = pathlib.Path(sys.argv.pop(1)); go.with_suffix('.ready').touch()\n"
    "while not go.exists(): time.sleep(0.02)\n"
    "locust.main.main()"
)


def scenario(folder: Path, *, users: Sequence[int], requests: int, warmup: int = 1) -> Path:
    """A small closed-loop scenario: so many requests on each level."""
    path = folder / "levels.toml"
    path.write_text(
        f"""name = "levels"
kind = "concurrency"
seed = 3
[mix]
domains = {{ code = 12, prose = 12 }}
[request]
max_tokens = {{ code = 8, prose = 8 }}
[warmup]
requests = {warmup}
[cache]
policy = "as-is"
[levels]
users = {list(users)}
requests = {requests}
[limits]
timeout_s = 5.0
[telemetry]
scrape_interval_s = 1.0
""",
        encoding="utf-8",
    )
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Processes:
    """Every process that a test starts; those still there at its end are killed, by id."""

    def __init__(self, folder: Path, host: str, scenario_file: Path) -> None:
        self.runs = folder / "runs"
        self.port = free_port()
        self._folder = folder
        self._host = host
        self._scenario = scenario_file
        self._all: list[subprocess.Popen[str]] = []

    def master(self, *more: str) -> subprocess.Popen[str]:
        return self._start(
            [
                *(sys.executable, "-m", "locust", "-f", "locustfiles/sweep.py", "--headless", "--label", "t"),
                *("--host", self._host, "--scenario", str(self._scenario), "--run-dir", str(self.runs), *more),
            ]
        )

    def worker(
        self, *more: str, waits_for: Path | None = None, before: Sequence[str] = (), runs: Path | None = None
    ) -> subprocess.Popen[str]:
        how = ["-m", "locust"] if waits_for is None else ["-c", _WAITS, str(waits_for)]
        return self._start(
            [
                *(*before, sys.executable, *how, "-f", "locustfiles/sweep.py", "--worker"),
                *("--master-port", str(self.port), "--run-dir", str(runs or self.runs), *more),
            ]
        )

    def run_folder(self) -> Path | None:
        """The one run's folder, once it is there."""
        found = [path for path in self.runs.glob("run-*") if path.is_dir() and ".shard-" not in path.name]
        return found[0] if found else None

    def wait(self, true: Callable[[], Any], what: str) -> None:
        """Until it is true; fails with what the processes said, when a limit has passed."""
        due_s = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < due_s, f"{what} did not happen in {LIMIT_S} s: {self.said()}"
            assert self._all[0].poll() is None, f"{what} did not happen before the master ended: {self.said()}"
            time.sleep(0.03)

    def said(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self._folder.glob("*.err")))

    def n_ended(self, worker: int) -> int:
        """Lines of ended requests of one worker in the master's folder, now."""
        folder = self.run_folder()
        file = (folder or self.runs) / WORKERS / str(worker) / REQUESTS
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def sealed(self) -> bool:
        folder = self.run_folder()
        return folder is not None and (folder / SEAL).exists()

    def events(self) -> list[tuple[str, int | None, str | None]]:
        """(event, worker, level) of ``workers.jsonl``."""
        file = (self.run_folder() or self.runs) / WORKER_EVENTS
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [(one["event"], one["worker"], one["level"]) for one in map(json.loads, lines)]

    def kill_all(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        errors = self._folder / f"{len(self._all)}.err"
        with errors.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._all.append(process)
        return process


@contextmanager
def processes(folder: Path, host: str, scenario_file: Path) -> Iterator[Processes]:
    started = Processes(folder, host, scenario_file)
    try:
        yield started
    finally:
        started.kill_all()
