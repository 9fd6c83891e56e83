"""``python -m analysis COMMAND``: reads sealed folders, judges them, and says what they can show.

Exit codes: 0 good, 1 the evidence says no, 2 usage or unreadable input, 3 evidence could not be written.
With ``--json`` standard output carries one JSON object and nothing else; messages go to standard error.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis import (
    audit,
    bundle,
    check_view,
    compare,
    export,
    inventory,
    outputs_command,
    report,
    side_by_side,
    study_check_view,
    summary_view,
    trace,
)
from analysis.errors import AnalysisError
from analysis.loading import load_run
from analysis.summary import summarise
from analysis.verdict import overall
from evidence.errors import EvidenceError
from evidence.layout import folder_kind
from evidence.recover import recover

GOOD, NO, USAGE = 0, 1, 2
Answered = tuple[int, dict[str, Any], list[str]]  # exit code, the JSON object, the lines


class UsageError(Exception):
    """What was typed cannot be done."""


def check(options: argparse.Namespace) -> Answered:
    """The verdict with each reason and remedy, and what client and server counted alike."""
    if folder_kind(options.run) == "study":
        return study_check_view.command(options)
    run = load_run(options.run)
    report = check_view.as_json(run)
    return (NO if overall(run.reasons) == "INVALID" else GOOD), report, check_view.lines(run, brief=options.brief)


def summary(options: argparse.Namespace) -> Answered:
    """One run in numbers, or several side by side."""
    if len(options.run) > len(side_by_side.LETTERS):
        raise UsageError(f"summary compares up to {len(side_by_side.LETTERS)} runs, not {len(options.run)}")
    found = [summarise(load_run(path)) for path in options.run]
    if len(found) == 1:
        return GOOD, found[0], summary_view.one_run(found[0])
    report = {"runs": found, "ratios": side_by_side.ratios(found), "ratio": side_by_side.RATIO_LABEL}
    return GOOD, report, side_by_side.lines(found)


def list_folders(options: argparse.Namespace) -> Answered:
    """Every run and launch of a folder with its verdict."""
    entries = inventory.inventory(options.dir)
    return GOOD, {"dir": str(options.dir), "folders": [asdict(one) for one in entries]}, inventory.lines(entries)


def close(options: argparse.Namespace) -> Answered:
    """Close a killed run's folder as what it is."""
    seal = recover(options.run)
    report = {"path": str(options.run), **seal.model_dump(exclude={"files"}), "n_files": len(seal.files)}
    return GOOD, report, check_view.recovered_lines(options.run, seal)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(argv)
    try:
        code, report, lines = options.command(options)
    except UsageError as error:
        return _refused(error, USAGE, options.json)
    except (AnalysisError, EvidenceError) as error:
        return _refused(error, error.exit_code, options.json)
    shown = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2) if options.json else "\n".join(lines)
    try:
        print(shown, flush=True)
    except BrokenPipeError:  # the reader (head, say) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


def _refused(error: Exception, code: int, as_json: bool) -> int:
    print(f"analysis: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": str(error), "exit_code": code}))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Judge and summarise run folders.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Any, words: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, description=words)
        added.add_argument("--json", action="store_true", help="print one JSON object")
        added.set_defaults(command=command)
        return added

    one = add("check", check, "the verdict with each reason and remedy; exit code 1 when INVALID")
    one.add_argument("run", type=Path, metavar="RUN")
    one.add_argument("--brief", action="store_true", help="the verdict and its reasons alone")
    several = add("summary", summary, "one run in numbers, or several side by side")
    several.add_argument("run", type=Path, nargs="+", metavar="RUN")
    texts = add("outputs", outputs_command.command, "answers judged, of two runs compared, or of a study arm by arm")
    outputs_command.add_arguments(texts)
    paired = add("compare", compare.command, "a study's arms against its baseline, or runs paired in the order given")
    compare.add_arguments(paired)
    found = add("list", list_folders, "what is there, with verdicts")
    found.add_argument("dir", type=Path, nargs="?", default=Path("runs"), metavar="DIR")
    saved = add("audit", audit.command, "the case study's saved files: its tables rebuilt, and what they can't show")
    audit.add_arguments(saved)
    export.add_arguments(add("export", export.command, "a run or study for other programs, or one verified archive"))
    bundle.add_unpack_arguments(add("unpack", bundle.unpack_command, "an exported bundle, every hash verified"))
    trace.add_arguments(add("trace", trace.command, "where the GPU's time went in profiler windows"))
    page = add("report", report.command, "one self-contained report.html of a run or a study")
    report.add_arguments(page)
    killed = add("recover", close, "close a killed run's folder as what it is")
    killed.add_argument("run", type=Path, metavar="RUN")
    return parser


if __name__ == "__main__":
    sys.exit(main())
