"""Runs real headless Locust over several levels, for tests: closed loop and open loop, against the fake engine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.locust_runs import ROOT, Ran, environment


def load_scenario(folder: Path, kind: str, **changes: Any) -> Path:
    """A small scenario file of a kind that loads; sections are replaced by name."""
    parts: dict[str, Any] = {
        "mix": "domains = { code = 4, prose = 4, json = 4 }",
        "request": "max_tokens = { code = 8, prose = 8, json = 8 }",
        "warmup": "requests = 2",
        "limits": "timeout_s = 5.0",
        "telemetry": "scrape_interval_s = 0.2",
    } | changes
    text = f'name = "tiny"\nkind = "{kind}"\nseed = 3\n'
    text += "".join(f"[{name}]\n{body}\n" for name, body in parts.items() if body is not None)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load_command(locustfile: str, host: str, scenario_file: Path, runs: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "locust", "-f", f"locustfiles/{locustfile}.py", "--headless", "--host", host),
        *("--scenario", str(scenario_file), "--run-dir", str(runs), "--label", "t", *more),
    ]


def run_load(locustfile: str, host: str, scenario_file: Path, *more: str, open_files: int | None = None) -> Ran:
    """One run to its end; its folder lies beside the scenario file. ``open_files`` limits its descriptors."""
    command = load_command(locustfile, host, scenario_file, scenario_file.parent / "runs", *more)
    if open_files is not None:
        command = ["prlimit", f"--nofile={open_files}:{open_files}", *command]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    return Ran(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def stop_load(
    locustfile: str, host: str, scenario_file: Path, when: Callable[[Path], bool], number: signal.Signals
) -> Ran:
    """One run that gets a signal once ``when`` is true of its folder."""
    runs = scenario_file.parent / "runs"
    process = subprocess.Popen(
        load_command(locustfile, host, scenario_file, runs),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if any(when(folder) for folder in runs.glob("run-*")):
            break
        time.sleep(0.02)
    os.kill(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    return Ran(exit_code=process.returncode, stdout=stdout, stderr=stderr)
