"""``study demo``: three arms of the embedded engine over the smoke scenario, one launch each, then side by side.

Launches are this process's; Locust and the analysis run as subprocesses. An arm that fails is shown as "not measured"
with its folder, and the others go on.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from evidence.errors import EvidenceError
from infra.launching.floor import FloorError
from infra.launching.launch import LaunchError, launching
from infra.launching.models import ModelError
from infra.launching.recipes import load_arm

ARMS = ("cpu-f32", "cpu-f32-ngram", "cpu-f32-draft")
SCENARIO = Path("scenarios") / "smoke.toml"
ROOT = Path(__file__).resolve().parent.parent
GOOD, EVIDENCE_SAYS_NO, USAGE, NOT_WRITTEN = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    arm: str
    launch: Path
    run: Path | None  # None: Locust made no folder
    exit_code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NotMeasured:
    arm: str
    launch: Path
    why: str


def demo(run_dir: Path) -> int:
    """Runs it all; returns the exit code: 0 when every arm was measured and no run is INVALID."""
    results: list[Measured | NotMeasured] = []
    try:
        for number, arm in enumerate(ARMS, start=1):
            _say(f"\n[{number}/{len(ARMS)}] {arm}: {load_arm(arm).description}")
            results.append(_one(arm, run_dir))
    except (FloorError, ModelError) as error:
        _say(str(error))
        return USAGE
    except EvidenceError as error:
        _say(str(error))
        return NOT_WRITTEN
    runs = [str(result.run) for result in results if isinstance(result, Measured) and result.run is not None]
    table = (
        subprocess.run([sys.executable, "-m", "analysis", "summary", *runs], cwd=ROOT, check=False).returncode
        if runs
        else 0
    )
    print()
    for result in results:
        if isinstance(result, NotMeasured):
            print(f"{result.arm}: not measured: {result.why}\n  launch {result.launch}")
        else:
            print(f"{result.arm}\n  run    {result.run or '- (Locust made no folder)'}\n  launch {result.launch}")
    bad = [r for r in results if isinstance(r, NotMeasured) or r.exit_code != GOOD]
    return EVIDENCE_SAYS_NO if bad or table != GOOD else GOOD


def _one(name: str, run_dir: Path) -> Measured | NotMeasured:
    try:
        with launching(
            load_arm(name), launch_root=run_dir / "launches", say=lambda stage: _say(f"  {stage}")
        ) as engine:
            run, code = _replay(name, engine.url, run_dir)
            return Measured(arm=name, launch=engine.folder, run=run, exit_code=code)
    except LaunchError as error:
        return NotMeasured(arm=name, launch=error.folder, why=f"stage {error.launch.stage}: {error.launch.symptom}")


def _replay(arm: str, url: str, run_dir: Path) -> tuple[Path | None, int]:
    """Locust over the scenario; its progress bar and verdict go to standard error, its last line is the folder."""
    command = [
        *(sys.executable, "-m", "locust", "-f", "locustfiles/sequential.py", "--headless", "--only-summary"),
        *("--skip-log-setup", "--host", url, "--scenario", str(SCENARIO), "--arm", arm, "--run-dir", str(run_dir)),
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    return (Path(last[0]) if last else None), done.returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
