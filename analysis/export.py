"""``analysis export RUN|STUDY --to openmetrics|parquet|csv|bundle``: results for other programs and other places.

    openmetrics   one text file to backfill a Prometheus with (analysis/openmetrics.py)
    csv, parquet  a folder of tables for data frames (analysis/export_tables.py)
    bundle        one archive with its hashes, to carry evidence off a machine (analysis/bundle.py); a name that ends in
                  .xz makes it a third of the size, in several times the time

Nothing is written into a folder of evidence. Exit codes: 0 good, 1 what was written does not read back, 2 usage or
unreadable evidence, 3 the export could not be written.
"""

import argparse
from pathlib import Path
from typing import Any

from analysis import bundle, export_tables, openmetrics

FORMS = ("openmetrics", "parquet", "csv", "bundle")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of ``export``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run, or a study with its runs and launches")
    parser.add_argument("--to", choices=FORMS, required=True, help="the form")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="file or folder to write (default: named after RUN); a bundle that ends in .xz is packed more tightly",
    )


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, the JSON object and the lines; raises what the form's own module raises."""
    if options.to == "openmetrics":
        return openmetrics.command(options)
    if options.to == "bundle":
        return bundle.export_command(options)
    return export_tables.command(options, options.to)
