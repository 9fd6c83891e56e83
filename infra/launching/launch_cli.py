"""``python -m infra launch ARM``: an engine in the foreground, its URL on standard output once it is proven ready."""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from evidence.launch_folder import open_launch
from evidence.receipts import runs_not_exported
from infra.launching.launch import LAUNCH_ROOT, Engine, ExternalEngine, LaunchError, launching
from infra.launching.recipes import load_arm
from infra.launching.resolved import compare_launches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arm", metavar="ARM", help="a recipe's name (`python -m infra arms` lists them) or a recipe's file"
    )
    parser.add_argument("--port", type=_port, help="on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--launch-dir", type=Path, default=LAUNCH_ROOT, help="where the launch's folder is made (%(default)s)"
    )
    parser.add_argument(
        "--restart", action="store_true", help="of a server someone else runs: run the arm's restart command first"
    )
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="a launch folder of the baseline: compare the resolved settings"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object when ready, in place of the URL")


def command(options: argparse.Namespace) -> int:
    """Exit codes: 0 stopped as asked, 1 the engine did not become ready or died."""
    arm = load_arm(options.arm)
    against = None if options.against is None else open_launch(options.against).launch.model_dump(mode="json")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    folder: Path | None = None
    try:
        with launching(
            arm,
            port=options.port,
            launch_root=options.launch_dir,
            say=lambda stage: _say(f"{arm.name}: {stage}"),
            restart=options.restart,
        ) as engine:
            folder = engine.folder
            found = None if against is None else _compared(against, engine)
            _put(json.dumps({**_facts(engine), **(found or {})}) if options.json else engine.url)
            _say(f"evidence: {engine.folder}; SIGTERM or Ctrl-C ends it")
            engine.wait()
    except LaunchError as error:
        if options.json:
            _put(json.dumps({"url": None, "arm": arm.name, **_outcome(error)}))
        _say(f"infra: {error}")
        return 1
    except KeyboardInterrupt:
        _say(f"{arm.name}: stopped")
        if folder is not None:
            _say_not_exported(folder)
        return 0
    _say(f"infra: {arm.name} {engine.launch.symptom}\nevidence: {engine.folder}")
    _say_not_exported(engine.folder)
    return 1


def _say_not_exported(folder: Path) -> None:
    """What was measured on this server and is nowhere else yet: its machine may go away now."""
    for told in runs_not_exported(folder):
        _say(told)


def _compared(against: dict[str, Any], engine: Engine | ExternalEngine) -> dict[str, Any]:
    """Each difference that the arm does not vary on purpose, said and for the object."""
    differences, why = compare_launches(against, engine.launch.model_dump(mode="json"))
    for text in [str(difference) for difference in differences] + ([why] if why else []):
        _say(f"against the baseline: {text}")
    if why is None and not differences:
        _say("against the baseline: every resolved setting equals it but the varied one")
    return {"differences": [str(difference) for difference in differences], "why_not_compared": why}


def _facts(engine: Engine | ExternalEngine) -> dict[str, Any]:
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
        "memory": launch.memory,
        "speculation": launch.speculation,
        "reproduce": launch.reproduce,
    }


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """The first signal stops the launch; more of them must not break into its sealing."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give 1 to 65535, or leave it out for a free one")
    return port


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _put(text: str) -> None:
    """The one line of standard output, at once: who reads it waits for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
