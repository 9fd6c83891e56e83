"""``outputs RUN``, ``outputs RUN RUN`` or ``outputs STUDY``: answers judged, compared, or compared arm by arm."""

import argparse
from pathlib import Path
from typing import Any

from analysis import outputs, outputs_view, study_outputs, summary_view
from analysis.arm_outputs import compared_pairs
from analysis.errors import AnalysisError
from analysis.loading import LoadedRun, load_run
from analysis.summary import scope
from analysis.verdict import by_scope
from evidence.layout import folder_kind

Answered = tuple[int, dict[str, Any], list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``outputs`` takes; ``--json`` is added by whoever makes the parser."""
    parser.add_argument("run", type=Path, nargs="+", metavar="RUN|STUDY")


def command(options: argparse.Namespace) -> Answered:
    """Exit code (1 where a study's answers cannot be compared at all), the JSON object and the lines."""
    paths: list[Path] = options.run
    if len(paths) > 2:
        raise AnalysisError(f"outputs takes one run, two, or a study, not {len(paths)}", "name one or two folders")
    if any(folder_kind(path) == "study" for path in paths):
        if len(paths) > 1:
            raise AnalysisError("outputs takes one study at a time", "name the study's folder alone")
        report, compared = study_outputs.study_outputs(paths[0])
        return (0 if compared else 1), report, study_outputs.lines(report)
    runs = [load_run(path) for path in paths]
    return _one(runs[0]) if len(runs) == 1 else _two(*runs)


def _one(run: LoadedRun) -> Answered:
    found = outputs.judge_answers([row.request for row in run.rows], run.plan)
    domains = outputs.by_domain(found)
    report = {
        "run_id": run.manifest.run_id,
        "verdict": by_scope(run.reasons)["outputs"],
        "scope": scope(run),
        "domains": outputs.as_json(domains),
        "answers": outputs.as_json(found),
    }
    return 0, report, [*_headed(run), "", *outputs_view.judged(found, domains)]


def _two(first: LoadedRun, second: LoadedRun) -> Answered:
    ours, theirs = (
        {(r.prompt_id, r.level, r.repeat) for r in (row.request for row in run.rows) if r.phase == "measured"}
        for run in (first, second)
    )
    if not ours & theirs:
        what = f"nothing to compare: {first.manifest.run_id} and {second.manifest.run_id} have no request in common"
        raise AnalysisError(what, "name two runs that measured the same prompts at the same levels")
    found = compared_pairs(first, second)
    pairs = [pair for pair, _ in found]
    shown = outputs.as_json(pairs)
    for one, (_, token) in zip(shown, found, strict=True):
        one["first_divergence_token"] = None if token is None else list(token)
    report: dict[str, Any] = {
        "base": first.manifest.run_id,
        "against": second.manifest.run_id,
        "verdicts": [by_scope(run.reasons)["outputs"] for run in (first, second)],
        "scopes": [scope(run) for run in (first, second)],
        "outputs_compared": sum(pair.equal is not None for pair in pairs),
        "outputs_equal": sum(pair.equal is True for pair in pairs),
        "prompts": shown,
    }
    tokens = [token for _, token in found]
    return 0, report, [*_headed(first), *_headed(second), "", *outputs_view.compared(pairs, tokens)]


def _headed(run: LoadedRun) -> list[str]:
    said = f"{run.manifest.run_id}  outputs {by_scope(run.reasons)['outputs']}"
    return [said, *summary_view.scope_lines(scope(run))]
