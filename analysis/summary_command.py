"""``analysis summary RUN...``."""

import argparse
from pathlib import Path
from typing import Any

from analysis import side_by_side, summary_view
from analysis.errors import UsageError
from analysis.loading import load_run
from analysis.summary import summarise

GOOD = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="+", metavar="RUN")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """One run in numbers, or several side by side."""
    if len(options.run) > len(side_by_side.LETTERS):
        raise UsageError(f"summary compares up to {len(side_by_side.LETTERS)} runs, not {len(options.run)}")
    found = [summarise(load_run(path)) for path in options.run]
    if len(found) == 1:
        return GOOD, found[0], summary_view.one_run(found[0])
    report = {"runs": found, "ratios": side_by_side.ratios(found), "ratio": side_by_side.RATIO_LABEL}
    return GOOD, report, side_by_side.lines(found)
