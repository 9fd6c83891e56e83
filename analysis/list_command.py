"""``analysis list [DIR]``."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis import inventory

GOOD = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, nargs="?", default=Path("runs"), metavar="DIR")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Every run and launch of a folder with its verdict."""
    entries = inventory.inventory(options.dir)
    return GOOD, {"dir": str(options.dir), "folders": [asdict(one) for one in entries]}, inventory.lines(entries)
