"""``analysis recover FOLDER [--shard DIR]...``."""

import argparse
from pathlib import Path
from typing import Any

from analysis import check_view
from evidence.joining import join
from evidence.recover import recover

GOOD = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="FOLDER", help="a run, a launch or a study")
    parser.add_argument(
        "--shard",
        action="append",
        default=[],
        metavar="DIR",
        help="a worker's own lines to bring into the run, a folder or a URL; repeatable",
    )


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Close a folder that was left open as what it is; with shards, bring their lines into it first."""
    path: Path = options.run
    said: tuple[str, ...] = ()
    if options.shard:
        joined = join(path, options.shard)
        path, seal, said = joined.path, joined.seal, joined.said
    else:
        seal = recover(path)
    report = {"path": str(path), "joined": said, **seal.model_dump(exclude={"files"}), "n_files": len(seal.files)}
    return GOOD, report, [*said, *check_view.recovered_lines(path, seal)]
