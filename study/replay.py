"""One run as a subprocess: Locust over a scenario against a server that stands, and the folder it leaves."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """``folder`` is None where Locust made none. ``exit_code``: 0 good, 1 INVALID, 2 usage, 3 not written."""

    folder: Path | None
    exit_code: int


def command(
    *,
    locustfile: str,
    url: str,
    scenario: Path,
    arm: str,
    run_dir: Path,
    passes: int = 1,
    seed: int | None = None,
    profile: bool = False,
) -> tuple[str, ...]:
    """Locust's command line for one run of an arm; timed, unless ``profile`` leaves the scenario's window in."""
    return (
        *(sys.executable, "-m", "locust", "-f", locustfile, "--headless", "--only-summary"),
        *("--skip-log-setup", "--host", url, "--scenario", str(scenario.resolve()), "--arm", arm),
        *("--run-dir", str(run_dir.resolve()), "--passes", str(passes)),
        *(() if seed is None else ("--seed", str(seed))),
        *(() if profile else ("--no-profile",)),
    )


def replay(
    argv: tuple[str, ...], *, stderr: IO[bytes] | None = None, tick: Callable[[], None] | None = None
) -> Replayed:
    """Run Locust and wait; ``tick`` is called about twice a second meanwhile, for progress.

    ``stderr`` None: Locust's progress bar and verdict go to ours. An interrupt is passed on: Locust seals what it has.
    """
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr) as process:
        try:
            while process.poll() is None:
                if tick is not None:
                    tick()
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            process.terminate()  # a terminal has told it already; a signal to this process alone has not
            process.wait()
            raise
        assert process.stdout is not None
        lines = process.stdout.read().decode("utf-8", "replace").strip().splitlines()
    if tick is not None:
        tick()
    folder = Path(lines[-1]) if lines else None
    return Replayed(folder=folder if folder and folder.is_dir() else None, exit_code=process.returncode)
