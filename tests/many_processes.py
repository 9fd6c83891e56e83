"""Masters and workers as real Locust processes, for tests: each its own command, on a port of its own."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.layout import REQUESTS, SEAL, WORKER_EVENTS, WORKERS
from tests.locust_runs import environment
from tests.warm_locust import WarmProcess, start_warm

LIMIT_S = 60.0


def scenario(
    folder: Path, *, users: Sequence[int], requests: int, warmup: int = 1, cache: str = 'policy = "as-is"'
) -> Path:
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
{cache}
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
        self._all: list[WarmProcess] = []

    def master(self, *more: str) -> WarmProcess:
        return self._start(
            [
                *("-f", "locustfiles/sweep.py", "--headless", "--label", "t"),
                *("--host", self._host, "--scenario", str(self._scenario), "--run-dir", str(self.runs), *more),
            ]
        )

    def worker(self, *more: str, network: str | None = None, runs: Path | None = None) -> WarmProcess:
        """``network`` is the name of the network namespace that it runs in."""
        arguments = [
            *("-f", "locustfiles/sweep.py", "--worker", "--master-port", str(self.port)),
            *("--run-dir", str(runs or self.runs), *more),
        ]
        return self._start(arguments, **({} if network is None else {"network": network}))

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
            process.kill()
            process.wait()

    def _start(self, arguments: list[str], **how: str) -> WarmProcess:
        process = start_warm(arguments, environment(), stderr=str(self._folder / f"{len(self._all)}.err"), **how)
        self._all.append(process)
        return process


@contextmanager
def processes(folder: Path, host: str, scenario_file: Path) -> Iterator[Processes]:
    started = Processes(folder, host, scenario_file)
    try:
        yield started
    finally:
        started.kill_all()
