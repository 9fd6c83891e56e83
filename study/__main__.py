"""``python -m study``: what drives scenarios and studies.

Exit codes: 0 good, 1 the evidence says no, 2 usage or unreadable input, 3 evidence could not be written. With
``--json`` one object and nothing else goes to standard output, for a refused file too; messages go to standard error.
"""

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.launching.recipes import ArmError
from scenarios.stock import plan_from_file
from scenarios.strict_toml import ScenarioError, read_toml
from scenarios.study_file import is_study, load_study
from study import calibrate
from study.check import ASSUMED_TOK_PER_S, report_of_error, report_on, table_of
from study.check_study import study_report, study_table
from study.demo import demo
from study.run import Asked, run_command
from study.workload import workload_of

GOOD, EVIDENCE_SAYS_NO, USAGE, NOT_WRITTEN = 0, 1, 2, 3


def parser() -> argparse.ArgumentParser:
    """One sub-command a verb; each sets ``command``, a function from the parsed arguments to an exit code."""
    root = argparse.ArgumentParser(prog="python -m study", description="Check and run scenarios and studies.")
    verbs = root.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = verbs.add_parser("check", help="validate a scenario file and say what it would do; nothing is sent")
    check.add_argument("file", metavar="FILE", type=Path, help="a scenario, for example scenarios/smoke.toml")
    check.add_argument("--json", action="store_true", help="one JSON object on standard output")
    check.add_argument(
        "--assume-tok-per-s",
        metavar="RATE",
        type=_rate,
        default=ASSUMED_TOK_PER_S,
        help="decode rate the estimate of the duration assumes (default: %(default)g)",
    )
    check.set_defaults(command=check_command, parser=check)

    run = verbs.add_parser("run", help="run a study: arms x paired launches in the planned order")
    run.add_argument("file", metavar="FILE", type=Path, help="a study, for example scenarios/demo-study.toml")
    run.add_argument("--resume", action="store_true", help="take up the newest unfinished study of this file")
    run.add_argument(
        "--budget", metavar="MINUTES", type=_minutes, help="drop what the file says may be dropped, in its order"
    )
    run.add_argument("--run-dir", metavar="DIR", type=Path, default=Path("runs"), help="where the study's folder lands")
    run.add_argument(
        "--models", metavar="DIR", type=Path, help="where models lie by the names arms use; for preflight and launches"
    )
    run.add_argument(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set for every engine and run, and put on record; repeatable (CUDA_VISIBLE_DEVICES=0,1)",
    )
    run.add_argument("--json", action="store_true", help="one JSON object on standard output")
    run.set_defaults(command=study_command, parser=run)

    calibrate.add_parser(verbs)

    shown = verbs.add_parser("demo", help="a small study of the embedded engine, compared and reported")
    shown.add_argument("--run-dir", metavar="DIR", type=Path, default=Path("runs"), help="where the folders land")
    shown.set_defaults(command=lambda args: demo(args.run_dir), parser=shown)
    return root


def check_command(args: argparse.Namespace) -> int:
    """Exit 0 with the plan's size, order, digest and estimate; exit 2 with every problem of a file that is refused."""
    try:
        if is_study(read_toml(args.file)):
            return _study_check(args)
        plan = plan_from_file(args.file, outline=True)
    except ScenarioError as error:
        print(error, file=sys.stderr)
        if args.json:
            print(json.dumps(report_of_error(error, args.file)))
        return USAGE
    report = report_on(plan, args.file, args.assume_tok_per_s)
    print(json.dumps(report) if args.json else table_of(report))
    return GOOD


def _study_check(args: argparse.Namespace) -> int:
    study = load_study(args.file)
    scenario = args.file.parent / study.scenario
    workload = workload_of(scenario, passes=study.passes, tok_per_s=args.assume_tok_per_s)
    report = study_report(study, workload, args.file, args.assume_tok_per_s)
    print(json.dumps(report) if args.json else study_table(report))
    return GOOD if report["ok"] else USAGE


def study_command(args: argparse.Namespace) -> int:
    """Exit 0 when every cell is done, 1 when one is not; the study's folder is the last line on standard output."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        code, folder = run_command(
            Asked(
                file=args.file,
                run_dir=args.run_dir,
                resume=args.resume,
                budget_minutes=args.budget,
                models=args.models,
                environment=tuple(args.env),
            )
        )
    except (ArmError, ScenarioError) as error:
        print(error, file=sys.stderr)
        if args.json:
            print(json.dumps({"ok": False, "error": str(error)}))
        return USAGE
    if args.json:
        print(json.dumps({"ok": code == GOOD, "study_dir": None if folder is None else str(folder)}))
    elif folder is not None:
        print(folder)
    return code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was typed. Exits with 2 on bad usage, as argparse does."""
    args, unknown = parser().parse_known_args(argv)
    if unknown:  # said with the command's own usage, where argparse would show the usage of all
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run one command; returns its exit code (argparse itself exits with 2 on bad usage)."""
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        code: int = args.command(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, say) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    return code


def _as_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """A study that is told to end keeps what is done, as with Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _rate(text: str) -> float:
    return _above_zero(text, "a rate", "give tokens per second, for example 20")


def _minutes(text: str) -> float:
    return _above_zero(text, "a number of minutes", "give for example 30")


def _above_zero(text: str, what: str, remedy: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} above 0; {remedy}")
    return number


if __name__ == "__main__":
    sys.exit(main())
