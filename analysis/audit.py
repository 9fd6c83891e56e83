"""``analysis audit FILE...``: the case study's saved numbers rebuilt and compared, and what they can't show.

Everything is computed from the rows of the files given; what the study says of its launches and failures is cited as
reported (``analysis.audit_case``) and stands apart.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis import audit_case, audit_plots, audit_view
from analysis.audit_config import describe, observe
from analysis.audit_gather import Config, gather
from analysis.audit_logs import read
from analysis.audit_rows import Source
from analysis.comparison import compare_arms
from analysis.errors import AnalysisError

SCOPE = "prompts only, one launch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of ``audit``."""
    parser.add_argument("file", type=Path, nargs="+", metavar="FILE", help="saved observations, console logs, or CSV")
    parser.add_argument("--baseline", metavar="CONFIG", help=f"default: {audit_case.BASELINE}, else the first one read")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write the three plots (SVG) into this folder")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, the JSON object, the lines. Raises AnalysisError on input that is none of the study's forms."""
    sources = [read(path) for path in options.file]
    configs = gather(sources)
    report = audit(sources, configs, baseline=options.baseline)
    if options.plots is not None:
        report["plots"] = audit_plots.write(audit_plots.plots(configs), options.plots)
    return 0, report, audit_view.lines(report)


def audit(sources: Sequence[Source], configs: Mapping[str, Config], *, baseline: str | None = None) -> dict[str, Any]:
    """Everything ``audit --json`` prints but the plots' paths."""
    printed = {name: said for one in sources for name, said in one.printed.items()}
    base = _baseline(configs, baseline)
    notes = [f"{one.path}: {said}" for one in sources for said in one.notes]
    return {
        "scope": SCOPE,
        "source": audit_case.SOURCE,
        "hardware_reported": audit_case.HARDWARE,
        "inputs": [
            {"path": str(one.path), "sha256": one.sha256, "kind": one.kind, "n_rows": len(one.rows)} for one in sources
        ],
        "baseline": base,
        "configs": {name: describe(config, printed.get(name, {})) for name, config in configs.items()},
        "comparisons": {name: compare(configs[base], config) for name, config in configs.items() if name != base},
        "not_measured": [
            {**asdict(one), "evidence_grade": "reported only", "source": audit_case.SOURCE} for one in audit_case.FAILED
        ],
        "contradicted_labels": list(audit_case.CONTRADICTED),
        "cannot_show": list(audit_case.CANNOT_SHOW),
        "notes": notes,
        "plots": [],
    }


def compare(base: Config, arm: Config) -> dict[str, Any]:
    """One configuration against the baseline: the paired ratio, with and without the prompts that were warm-up too."""
    ours, theirs = observe(base), observe(arm)
    whole = compare_arms(ours, theirs, name=arm.name)
    kept = {
        (one.base.launch, one.base.request)
        for one in whole.all.table.pairs
        if one.base.prompt_id not in audit_case.WARMED_UP
    }
    without = compare_arms(ours, theirs, name=arm.name, only=kept, subset="without the prompts repeated from warm-up")
    logs = whole.all.table.log_ratios
    lengths = _lengths(base, arm)
    return {
        **whole.as_json(),
        "scope_said": SCOPE,
        "sd_log_ratio": _sd(logs),
        "lengths_differ": lengths,
        "n_lengths_differ": len(lengths),
        "without_warm_up_prompts": {
            "n_pairs": len(without.all.table.pairs),
            "ratio": None if without.all.found is None else without.all.found.ratio,
            "sd_log_ratio": _sd(without.all.table.log_ratios),
        },
        "confounders": confounders(base.name, arm.name),
    }


def confounders(base: str, arm: str) -> list[dict[str, str]]:
    """Reported launch settings that differ besides the one under study; nothing in the rows can tell them apart."""
    ours, theirs = audit_case.LAUNCHES.get(base, {}), audit_case.LAUNCHES.get(arm, {})
    allowed = {audit_case.VARIED.get(arm), audit_case.VARIED.get(base)}
    return [
        {"setting": name, "baseline": ours[name], "arm": theirs[name]}
        for name in ours
        if name in theirs and name not in allowed and ours[name] != theirs[name]
    ]


def _baseline(configs: Mapping[str, Config], asked: str | None) -> str:
    if asked is not None and asked not in configs:
        raise AnalysisError(
            f"no file holds the configuration {asked!r}", f"name one of {', '.join(configs)}", value=asked
        )
    return asked or (audit_case.BASELINE if audit_case.BASELINE in configs else next(iter(configs)))


def _lengths(base: Config, arm: Config) -> list[dict[str, Any]]:
    ours = {row.prompt_id or row.order: row for row in base.rows}
    return [
        {
            "prompt_id": row.prompt_id,
            "baseline_tokens": ours[row.prompt_id or row.order].completion_tokens,
            "arm_tokens": row.completion_tokens,
        }
        for row in arm.rows
        if (row.prompt_id or row.order) in ours
        and ours[row.prompt_id or row.order].completion_tokens != row.completion_tokens
    ]


def _sd(logs: Sequence[Sequence[float]]) -> float | None:
    values = [value for row in logs for value in row]
    return statistics.stdev(values) if len(values) > 1 else None
