"""Runs real headless Locust in a process of its own, for tests: one call, one run folder."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.__main__ import main
from evidence.reading import Run, open_run
from tests.warm_locust import WarmProcess, start_warm

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


def run_cold(command: list[str]) -> Ran:
    """A command as a person types it, every import its own."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    return Ran(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def start_locust(command: list[str], *, how: Mapping[str, Any] | None = None, **env: str) -> WarmProcess:
    """A command that begins with ``python -m locust``, started warm."""
    return start_warm(command[3:], environment(**env), **(how or {}))


def ended(process: WarmProcess, timeout_s: float = 120) -> Ran:
    """Waits for the end of a run."""
    stdout, stderr = process.communicate(timeout=timeout_s)
    return Ran(exit_code=process.wait(), stdout=stdout, stderr=stderr)


def run_locust(host: str, scenario_file: Path, runs: Path, *more: str, **how: Any) -> Ran:
    """One run to its end. ``how``: the command's ``name``, ``patience_s``, and variables of the environment."""
    names = {"name": how.pop("name")} if "name" in how else {}
    patience = {"patience_s": how.pop("patience_s")} if "patience_s" in how else {}
    return ended(start_locust(command(host, scenario_file, runs, *more, **names), how=patience, **how))


def analysis(*arguments: str) -> tuple[int, Any]:
    """Exit code and the one JSON object of ``analysis ... --json``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([*arguments, "--json"])
    return code, json.loads(printed.getvalue())
