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

from analysis import check_view, inventory, outputs, outputs_view, side_by_side, summary_view
from analysis.loading import LoadedRun, load_run
from analysis.summary import scope, summarise
from analysis.verdict import by_scope, overall
from evidence.errors import EvidenceError
from evidence.recover import recover

GOOD, NO, USAGE = 0, 1, 2
Answered = tuple[int, dict[str, Any], list[str]]  # exit code, the JSON object, the lines


class UsageError(Exception):
    """What was typed cannot be done."""


def check(options: argparse.Namespace) -> Answered:
    """The verdict with each reason and remedy, and what client and server counted alike."""
    run = load_run(options.run)
    report = check_view.as_json(run)
    return (NO if overall(run.reasons) == "INVALID" else GOOD), report, check_view.lines(run)


def summary(options: argparse.Namespace) -> Answered:
    """One run in numbers, or several side by side."""
    if len(options.run) > len(side_by_side.LETTERS):
        raise UsageError(f"summary compares up to {len(side_by_side.LETTERS)} runs, not {len(options.run)}")
    found = [summarise(load_run(path)) for path in options.run]
    if len(found) == 1:
        return GOOD, found[0], summary_view.one_run(found[0])
    report = {"runs": found, "ratios": side_by_side.ratios(found), "ratio": side_by_side.RATIO_LABEL}
    return GOOD, report, side_by_side.lines(found)


def answers(options: argparse.Namespace) -> Answered:
    """The outputs of one run judged, or those of two runs compared."""
    if len(options.run) > 2:
        raise UsageError(f"outputs takes one run or two, not {len(options.run)}")
    runs = [load_run(path) for path in options.run]
    first = runs[0]
    if len(runs) == 1:
        found = outputs.judge_answers([row.request for row in first.rows], first.plan)
        domains = outputs.by_domain(found)
        report = {
            "run_id": first.manifest.run_id,
            "verdict": by_scope(first.reasons)["outputs"],
            "scope": scope(first),
            "domains": outputs.as_json(domains),
            "answers": outputs.as_json(found),
        }
        return GOOD, report, [*_headed(first), "", *outputs_view.judged(found, domains)]
    second = runs[1]
    pairs = outputs.compare(
        [row.request for row in first.rows], first.plan, [row.request for row in second.rows], second.plan
    )
    names = (first.manifest.run_id, second.manifest.run_id)
    pair_report: dict[str, Any] = {
        "base": names[0],
        "against": names[1],
        "verdicts": [by_scope(run.reasons)["outputs"] for run in runs],
        "scopes": [scope(run) for run in runs],
        "outputs_compared": sum(pair.equal is not None for pair in pairs),
        "outputs_equal": sum(pair.equal is True for pair in pairs),
        "prompts": outputs.as_json(pairs),
    }
    return GOOD, pair_report, [*_headed(first), *_headed(second), "", *outputs_view.compared(pairs)]


def _headed(run: LoadedRun) -> list[str]:
    said = f"{run.manifest.run_id}  outputs {by_scope(run.reasons)['outputs']}"
    return [said, *summary_view.scope_lines(scope(run))]


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
        print(f"analysis: {error}", file=sys.stderr)
        return USAGE
    except EvidenceError as error:
        print(f"analysis: {error}", file=sys.stderr)
        return error.exit_code
    shown = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2) if options.json else "\n".join(lines)
    try:
        print(shown, flush=True)
    except BrokenPipeError:  # the reader (head, say) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


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
    several = add("summary", summary, "one run in numbers, or several side by side")
    several.add_argument("run", type=Path, nargs="+", metavar="RUN")
    texts = add("outputs", answers, "the answers of one run judged, or those of two runs compared")
    texts.add_argument("run", type=Path, nargs="+", metavar="RUN")
    found = add("list", list_folders, "what is there, with verdicts")
    found.add_argument("dir", type=Path, nargs="?", default=Path("runs"), metavar="DIR")
    killed = add("recover", close, "close a killed run's folder as what it is")
    killed.add_argument("run", type=Path, metavar="RUN")
    return parser


if __name__ == "__main__":
    sys.exit(main())
