"""``sweep RUN|STUDY``: throughput, latencies, goodput, acceptance and capacity by level, and where an arm breaks even.

Exit codes: 0 good; 1 the evidence says no (every run is INVALID, or an arm is not comparable with the baseline); 2 what
was named cannot be read, or has no levels.
"""

import argparse
import math
from pathlib import Path
from typing import Any

from analysis import identity, sweep_view
from analysis.errors import AnalysisError
from analysis.loading import load_run
from analysis.study_check import check_study_folder
from analysis.sweep_report import sweep_json, sweep_of, sweep_run
from analysis.verdict import overall
from evidence.layout import folder_kind
from evidence.objectives import ATTAINMENT

Answered = tuple[int, dict[str, Any], list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``sweep`` takes; ``--json`` is added by whoever makes the parser."""
    parser.add_argument("run", type=Path, metavar="RUN|STUDY", help="the folder of a run or of a study")
    parser.add_argument(
        "--attainment",
        type=_share,
        default=ATTAINMENT,
        metavar="SHARE",
        help=f"a level holds where this share of its requests met the objectives (default {ATTAINMENT})",
    )


def command(options: argparse.Namespace) -> Answered:
    """Exit code, the JSON object and the lines. Raises EvidenceError and AnalysisError, each with its exit code."""
    path = Path(options.run)
    material = verdict = None
    if folder_kind(path) == "study":
        material, verdict = check_study_folder(path)
        cells = sorted(material.cells, key=lambda one: one.index)
        runs = [sweep_run(one.run, arm=one.arm, role=one.role, pair=one.pair) for one in cells]
    else:
        loaded = load_run(path)
        runs = [sweep_run(loaded, arm=identity.arm_name(loaded.manifest) or "no label")]
    found = sweep_of(runs, material, attainment=options.attainment)
    if found.kind is None:
        kinds = ", ".join(sorted({str((one.loaded.manifest.scenario or {}).get("kind")) for one in runs})) or "no run"
        raise AnalysisError(
            f"nothing here has levels ({kinds})",
            "sweep reads runs of kind concurrency, context or arrivals; use summary or compare for this one",
            path=path,
        )
    report = sweep_json(found, material, verdict)
    invalid = all(overall(one.loaded.reasons) == "INVALID" for one in runs)
    refused = any(one.refused is not None for one in found.arms)
    return (1 if invalid or refused else 0), report, sweep_view.lines(report)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share above 0 and up to 1: give one, for example 0.99")
    return value
