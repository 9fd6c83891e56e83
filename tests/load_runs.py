"""Runs real headless Locust over several levels, for tests: closed loop and open loop, against the fake engine."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.locust_runs import Ran, ended, start_locust


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
    return ended(start_locust(command, how={"open_files": open_files}))


def stop_load(
    locustfile: str, host: str, scenario_file: Path, when: Callable[[Path], bool], number: signal.Signals
) -> Ran:
    """One run that gets a signal once ``when`` is true of its folder."""
    runs = scenario_file.parent / "runs"
    process = start_locust(load_command(locustfile, host, scenario_file, runs))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if any(when(folder) for folder in runs.glob("run-*")):
            break
        time.sleep(0.02)
    process.send_signal(number)
    return ended(process)
