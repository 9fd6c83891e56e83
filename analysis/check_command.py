"""``analysis check RUN|STUDY``."""

import argparse
from pathlib import Path
from typing import Any

from analysis import check_view
from analysis.loading import load_run
from analysis.raw_check import LIMIT_BYTES
from analysis.verdict import overall
from evidence.layout import folder_kind

GOOD, NO = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN|STUDY")
    parser.add_argument("--all", action="store_true", help="read all raw segments again, not a sample of large runs")
    parser.add_argument("--brief", action="store_true", help="the verdict and its reasons alone")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """The verdict with each reason and remedy, and what client and server counted alike."""
    if folder_kind(options.run) == "study":
        from analysis import study_check_view  # what judges a study is much more to load

        return study_check_view.command(options)
    run = load_run(options.run, raw_limit_bytes=None if options.all else LIMIT_BYTES)
    report = check_view.as_json(run)
    return (NO if overall(run.reasons) == "INVALID" else GOOD), report, check_view.lines(run, brief=options.brief)
