"""``compare STUDY``, or ``compare --base RUN... --against RUN...``: is it faster, by how much, are answers the same?

Exit codes: 0 compared; 1 the evidence says no (an arm's runs are not comparable, a gate of ``--min-ratio`` is not met,
or no arm has a ratio at all); 2 what was asked for cannot be read or makes no sense.
"""

import argparse
import math
from pathlib import Path
from typing import Any

from analysis import compare_markdown, compare_view
from analysis.compare_report import Asked, compare_all
from analysis.effect import MARGIN
from analysis.errors import AnalysisError
from analysis.study_check import check_study_folder
from analysis.study_loading import Material, load_pairs
from evidence.layout import MANIFEST, STUDY

BY_HAND = "compare --base RUN... --against RUN..., paired in the order given"
Answered = tuple[int, dict[str, Any], list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``compare`` takes; ``--json`` is added by whoever makes the parser."""
    parser.add_argument("study", type=Path, nargs="*", metavar="STUDY", help="the folder of a study")
    parser.add_argument(
        "--base", type=Path, nargs="+", metavar="RUN", help="runs of the baseline, in the order of pairs"
    )
    parser.add_argument("--against", type=Path, nargs="+", metavar="RUN", help="runs of the arm, paired in this order")
    parser.add_argument(
        "--min-ratio",
        type=_above_zero,
        metavar="X",
        help="a gate: exit code 1 unless the interval of every arm begins at or above X",
    )
    parser.add_argument(
        "--margin",
        type=_share,
        default=MARGIN,
        metavar="M",
        help=f"a difference within this part of the ratio is called none (fix it beforehand; default {MARGIN})",
    )
    parser.add_argument(
        "--only",
        choices=("equal", "valid"),
        help="take every ratio over pairs of equal answers, or of answers that are both valid, only",
    )
    parser.add_argument("--markdown", action="store_true", help="the answer alone, as a Markdown table")


def command(options: argparse.Namespace) -> Answered:
    """Exit code, the JSON object and the lines. Raises EvidenceError and AnalysisError, each with its exit code."""
    asked = Asked(margin=options.margin, only=options.only, min_ratio=options.min_ratio)
    named = [one is not None for one in (options.base, options.against)]
    if (len(options.study), named) not in ((1, [False, False]), (0, [True, True])):
        raise AnalysisError(
            f"compare takes either the folder of one study, or runs named by --base and --against{_given(options)}",
            f"give one of: compare STUDY; {BY_HAND}",
        )
    material: Material
    verdict = None
    if options.study:
        (study,) = options.study
        if (study / MANIFEST).is_file() and not (study / STUDY).exists():
            raise AnalysisError("is a run and no study", f"name the run to compare it with: {BY_HAND}", path=study)
        material, verdict = check_study_folder(study)
        if not material.arms:
            raise AnalysisError(
                f"the study {material.name} has the baseline {material.baseline} and no other arm",
                "name at least one more arm in the study file: there is nothing to compare",
                path=study,
            )
    else:
        material = load_pairs(options.base, options.against)
    report, good = compare_all(material, verdict, asked)
    shown = compare_markdown.lines(report) if options.markdown else compare_view.lines(report)
    return (0 if good else 1), report, shown


def _given(options: argparse.Namespace) -> str:
    """Two folders without a word are most likely two runs, whose order says which is the baseline."""
    if len(options.study) != 2 or options.base is not None or options.against is not None:
        return ""
    base, against = options.study
    return f"; two runs are compared by --base {base} --against {against}"


def _above_zero(text: str) -> float:
    return _number(text, above=0.0, below=math.inf)


def _share(text: str) -> float:
    return _number(text, above=0.0, below=1.0)


def _number(text: str, *, above: float, below: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not above < value < below:
        raise argparse.ArgumentTypeError(f"{text!r} is no number between {above:g} and {below:g}: give one inside")
    return value
