"""``python -m infra``: launch an arm's engine, probe a running server, list the arms.

Exit codes: 0 good, 1 the engine did not become ready or died, 2 usage or unreadable input, 3 evidence could not be
written.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from evidence.errors import EvidenceError
from infra.floor import FloorError
from infra.launch import LAUNCH_ROOT, Engine, LaunchError, launching
from infra.models import ModelError
from infra.probe import as_json, main_lines, probe
from infra.recipes import ArmError, arm_names, load_arm
from infra.target import Target, TargetError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infra", description="Systems under test: launch, probe, list arms."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    launch = commands.add_parser(
        "launch", help="start an arm's engine; stays in the foreground until SIGTERM or Ctrl-C"
    )
    launch.add_argument("arm", metavar="ARM", help="a recipe's name; `python -m infra arms` lists them")
    launch.add_argument("--port", type=_port, help="on 127.0.0.1 (default: a free one)")
    launch.add_argument(
        "--launch-dir", type=Path, default=LAUNCH_ROOT, help="where the launch's folder is made (%(default)s)"
    )
    launch.add_argument("--json", action="store_true", help="one JSON object when ready, in place of the URL")
    ask = commands.add_parser("probe", help="what a running server is, which evidence it offers and what it lacks")
    ask.add_argument("url", metavar="URL", help="without /v1")
    ask.add_argument("--json", action="store_true", help="one JSON object")
    arms = commands.add_parser("arms", help="list the recipes")
    arms.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(argv)
    try:
        return {"launch": _launch, "probe": _probe, "arms": _arms}[options.command](options)
    except (ArmError, FloorError, ModelError, TargetError) as error:
        print(f"infra: {error}", file=sys.stderr)
        return 2
    except EvidenceError as error:
        print(f"infra: {error}", file=sys.stderr)
        return error.exit_code


def _launch(options: argparse.Namespace) -> int:
    arm = load_arm(options.arm)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with launching(
            arm,
            port=options.port,
            launch_root=options.launch_dir,
            say=lambda stage: print(f"{arm.name}: {stage}", file=sys.stderr),
        ) as engine:
            print(json.dumps(_facts(engine)) if options.json else engine.url, flush=True)
            print(f"evidence: {engine.folder}; SIGTERM or Ctrl-C stops it", file=sys.stderr)
            engine.wait()
    except LaunchError as error:
        if options.json:
            print(json.dumps({"url": None, "arm": arm.name, **_outcome(error)}), flush=True)
        print(f"infra: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{arm.name}: stopped", file=sys.stderr)
        return 0
    print(f"infra: {arm.name} {engine.launch.symptom}\nevidence: {engine.folder}", file=sys.stderr)
    return 1


def _facts(engine: Engine) -> dict[str, Any]:
    launch = engine.launch
    return {
        "url": engine.url,
        "arm": launch.arm["name"],
        "launch_dir": str(engine.folder),
        "launch_id": launch.launch_id,
        "pid": launch.pid,
        "model": engine.model,
        "speculation": launch.speculation,
        "outcome": launch.outcome,
    }


def _outcome(error: LaunchError) -> dict[str, Any]:
    launch = error.launch
    return {
        "launch_dir": str(error.folder),
        "launch_id": launch.launch_id,
        "outcome": launch.outcome,
        "stage": launch.stage,
        "symptom": launch.symptom,
        "speculation": launch.speculation,
        "reproduce": launch.reproduce,
    }


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """The first signal stops the launch; more of them must not break into its sealing."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _arms(options: argparse.Namespace) -> int:
    arms = [load_arm(name) for name in arm_names()]
    if options.json:
        print(json.dumps({"arms": [arm.model_dump(mode="json") for arm in arms]}))
        return 0
    rows = [("ARM", "BASELINE", "VARIED", "DESCRIPTION")]
    rows += [(a.name, a.baseline or "-", a.varied.setting if a.varied else "-", a.description) for a in arms]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]))
    return 0


def _probe(options: argparse.Namespace) -> int:
    Target.parse(options.url)
    report = probe(options.url)
    print(json.dumps(as_json(report)) if options.json else "\n".join(main_lines(report)))
    return 0 if report.reachable else 1


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give 1 to 65535, or leave it out for a free one")
    return port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
