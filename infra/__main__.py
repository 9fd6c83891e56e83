"""``python -m infra``: launch an arm's engine, look at it before it is launched, probe a running server, list the arms.

Exit codes: 0 good, 1 the evidence says no (an engine that does not become ready, a pair that is refused, a server
that does not answer), 2 usage or unreadable input, 3 evidence could not be written.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from evidence.errors import EvidenceError
from infra import probe
from infra.launching import launch_cli
from infra.launching.floor import FloorError
from infra.launching.models import ModelError
from infra.launching.recipes import ArmError, arm_names, load_arm
from infra.offline import command as offline
from infra.preflight import command as preflight
from infra.target import TargetError
from infra.telemetry import gpu_sampler


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was typed; ``command`` is the function to call with it. Exits with 2 on bad usage, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m infra", description="Systems under test and how to talk to them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, module: Any, words: str) -> None:
        added = commands.add_parser(name, help=words, description=words)
        module.add_arguments(added)
        added.set_defaults(command=module.command, parser=added)

    add("preflight", preflight, "what would go wrong with a target and a draft, before any weights are loaded")
    add("launch", launch_cli, "start an arm's engine; stays in the foreground until SIGTERM or Ctrl-C")
    add("probe", probe, "what a running server is, which evidence it offers and what it lacks")
    add("gpu", gpu_sampler, "samples of this host's GPUs as lines of JSON")
    add("offline", offline, "what a cluster without a network needs: bundles, environments, kernels, model folders")
    arms = commands.add_parser("arms", help="list the recipes")
    arms.add_argument("--json", action="store_true", help="one JSON object")
    arms.set_defaults(command=_arms, parser=arms)
    options, unknown = parser.parse_known_args(argv)
    if unknown:  # said with the command's own usage, where argparse would show the usage of all
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    try:
        code: int = options.command(options)
    except (ArmError, FloorError, ModelError, TargetError) as error:
        return _refused(error, 2, options.json)
    except EvidenceError as error:
        return _refused(error, error.exit_code, options.json)
    except BrokenPipeError:  # the reader (head, say) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _refused(error: Exception, code: int, as_json: bool) -> int:
    print(f"infra: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": str(error), "exit_code": code}))
    return code


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
