"""One cell: a fresh launch of its arm, one run over it, and what to put on record of both."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence.errors import Problem
from evidence.profile_records import read_profile
from evidence.study_records import Cell
from infra.launching.launch import LaunchError, launching
from study.arms import StudyArm, profiled
from study.replay import command, replay
from study.workload import Workload

LOGS = "logs"
TAIL_BYTES = 2000
BLOCK_BYTES = 1 << 20

Progress = Callable[[int], None]  # how many requests of the cell have ended


def run_cell(
    cell: Cell, arm: StudyArm, *, study: Path, scenario: Path, workload: Workload, passes: int, progress: Progress
) -> dict[str, Any]:
    """Run it; the fields of the cell that are known then. A failure is such fields too, never an exception.

    A fresh launch is also the reset of what only a restart clears: the run proves that it is fresh.
    """
    began_s = time.monotonic()
    traces = Path(tempfile.mkdtemp(prefix="traces-")) if cell.role == "profile" else None
    launched = arm.arm if traces is None else profiled(arm.arm, traces)
    found: dict[str, Any]
    try:
        with launching(launched, launch_root=study / "launches", restart=arm.restarts) as engine:
            argv = command(
                locustfile=workload.locustfile,
                url=engine.url,
                scenario=scenario,
                arm=arm.named,
                run_dir=study / "runs",
                passes=passes,
                seed=cell.order_seed,
                profile=cell.role == "profile",
            )
            found = {"launch_dir": inside(study, engine.folder), **_measure(cell, argv, study, progress)}
    except LaunchError as error:
        found = {
            "state": "failed",
            "launch_dir": inside(study, error.folder),
            "stage": error.launch.stage,
            "symptom": error.launch.symptom,
        }
    finally:
        if traces is not None:
            shutil.rmtree(traces, ignore_errors=True)
    return {**found, "ended_at_unix_s": time.time(), "took_s": time.monotonic() - began_s}


def _measure(cell: Cell, argv: tuple[str, ...], study: Path, progress: Progress) -> dict[str, Any]:
    runs = study / "runs"
    log = study / LOGS / f"cell-{cell.index:03d}-{cell.attempt}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as stderr:
        count = Ended(runs)
        done = replay(argv, stderr=stderr, tick=lambda: progress(count.look()))
    run = None if done.folder is None else inside(study, done.folder)
    if done.folder is None or done.exit_code not in (0, 1):
        tail = log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()
        return {"state": "failed", "run_dir": run, "stage": "measure", "symptom": f"exit {done.exit_code}: {tail}"}
    if cell.role == "profile" and (symptom := _no_trace(done.folder)) is not None:
        return {"state": "failed", "run_dir": run, "stage": "profile", "symptom": symptom}
    return {"state": "done", "run_dir": run}


def _no_trace(run: Path) -> str | None:
    """Why a profiled run holds no trace; None where it does."""
    window = read_profile(run)
    if window is None:
        return "profiler_never_opened: the run ended before its window was over"
    if isinstance(window, Problem):
        return f"profile.json: {window.detail}"
    return None if window.fault is None else f"{window.fault}: {window.why}"


def inside(study: Path, folder: Path) -> str:
    """A folder's name relative to the study's."""
    return str(folder.resolve().relative_to(study.resolve()))


class Ended:
    """Counts the lines of requests of the run that comes next, reading each byte once: it looks beside the run."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._known = set(runs.iterdir())
        self._read: dict[Path, int] = {}  # bytes, by file
        self._n = 0

    def look(self) -> int:
        """How many requests have ended by now. Raises OSError where a file cannot be read."""
        for run in set(self._runs.iterdir()) - self._known:
            for path in run.glob("workers/*/requests.jsonl"):
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    while block := file.read(BLOCK_BYTES):
                        self._n += block.count(b"\n")
                    self._read[path] = file.tell()
        return self._n
