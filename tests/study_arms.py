"""Arms of the fake engine as recipe files beside a study file: studies run whole without a model."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.locust_runs import ROOT, scenario

OWN: dict[str, dict[str, Any]] = {
    "llama.cpp": {"n-gpu-layers": 0, "ctx-size": 8192, "parallel": 64},
    "sglang": {"max-running-requests": 8, "mem-fraction-static": 0.5, "owner": "sglang", "metrics": "missing"},
}
SPECULATES = {"fake": '{"drafted": 3, "accepted": [3, 0]}', "spec-type": "ngram-simple"}


def write_arm(
    folder: Path,
    name: str,
    *,
    baseline: str | None = None,
    engine: str = "llama.cpp",
    changes: dict[str, Any] | None = None,
) -> str:
    """A command arm that starts the fake engine as ``engine``; returns what a study file calls it.

    ``changes`` are of its arguments; with a baseline they are what it varies.
    """
    args = {"model": "{target}", "ttft-s": 0.05, "gap-s": 0.01, **OWN[engine], **(changes or {})}
    lines = [
        'kind = "command"',
        f'engine = "{engine}"',
        f'name = "{name}"',
        f'description = "the fake engine, {name}"',
        f"program = {json.dumps([sys.executable, str(Path(__file__).with_name('fake_as_engine.py'))])}",
        'target = { path = "fake", quantisation = "F32" }',
        'backend = "cpu"',
        f"speculative = {str('spec-type' in args).lower()}",
        "ready_timeout_s = 30.0",
        f"environment = {{ PYTHONPATH = {json.dumps(str(ROOT))} }}",
    ]
    if baseline is not None:
        keys = json.dumps(sorted(changes or {}))
        lines += [f'baseline = "{baseline}"', f'varied = {{ setting = "what it plays", keys = {keys} }}']
    lines += ["[args]", *(f'"{key}" = {json.dumps(value)}' for key, value in args.items())]
    (folder / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{name}.toml"


def write_study(folder: Path, arms: list[str], **changes: Any) -> Path:
    """A study file over a scenario of four short requests; ``changes`` are its keys, and sections of the scenario."""
    parts = ("mix", "request", "warmup", "cache", "limits", "telemetry")
    sections = {key: changes.pop(key) for key in parts if key in changes}
    defaults = {
        "mix": "domains = { code = 2, json = 2 }",
        "request": "max_tokens = { code = 12, json = 12 }",
        "limits": "timeout_s = 30.0",
    }
    scenario(folder, **(defaults | sections))
    keys: dict[str, Any] = {
        "name": "tiny",
        "scenario": "tiny.toml",
        "baseline": arms[0],
        "arms": arms,
        "launches": 1,
        "order": "randomised",
        "preflight": "note",
    } | changes
    file = folder / "study.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()), encoding="utf-8")
    return file
