"""Runs real headless Locust in a subprocess, for tests: one call, one run folder."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.reading import Run, open_run

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def folder(self) -> Path:
        """The run's folder: the last line on standard output."""
        return Path(self.stdout.strip().splitlines()[-1])

    @property
    def run(self) -> Run:
        return open_run(self.folder)


def scenario(folder: Path, **changes: Any) -> Path:
    """A small sequential scenario file; sections are replaced by name."""
    parts: dict[str, Any] = {
        "mix": "domains = { code = 1, prose = 1, json = 1 }",
        "request": "max_tokens = { code = 8, prose = 8, json = 8 }",
        "warmup": "requests = 1",
        "cache": 'policy = "as-is"',
        "limits": "timeout_s = 2.0",
        "telemetry": "scrape_interval_s = 0.2",
    } | changes
    text = 'name = "tiny"\nkind = "sequential"\nseed = 3\n'
    text += "".join(f"[{name}]\n{body}\n" for name, body in parts.items() if body is not None)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def command(
    host: str, scenario_file: Path, runs: Path, *more: str, name: tuple[str, str] = ("--label", "t")
) -> list[str]:
    return [
        *(sys.executable, "-m", "locust", "-f", "locustfiles/sequential.py", "--headless", "--only-summary"),
        *("--host", host, "--scenario", str(scenario_file), "--run-dir", str(runs), *name, *more),
    ]


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY",)}
    return kept | extra


def run_locust(host: str, scenario_file: Path, runs: Path, *more: str, timeout_s: float = 120, **env: str) -> Ran:
    done = subprocess.run(
        command(host, scenario_file, runs, *more),
        cwd=ROOT,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ran(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def analysis(*arguments: str) -> tuple[int, Any]:
    """Exit code and the one JSON object of ``python -m analysis ... --json``."""
    done = subprocess.run(
        [sys.executable, "-m", "analysis", *arguments, "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)
