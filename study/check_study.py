"""``study check`` of a study file: its arms, the order of its cells and its size, before anything is started."""

from pathlib import Path
from typing import Any

from infra.launching.recipes import ArmError, load_arm
from scenarios.study_file import StudyFile, arm_name
from study.order import cells_of
from study.workload import Workload


def study_report(study: StudyFile, workload: Workload, file: Path, assumed_tok_per_s: float) -> dict[str, Any]:
    """Arms, cells in order, and an estimate; ``ok`` is false where an arm cannot be loaded, and ``problems`` says why.

    ``estimate_s``: cells x what one takes by the workload's assumption; starts and prefill are not in it.
    """
    seed = workload.scenario.seed if study.seed is None else study.seed
    cells = cells_of(study, seed)
    problems, arms = [], []
    for word in study.arms:
        name = arm_name(word)
        try:
            arm = load_arm(str(file.parent / word) if word.endswith(".toml") else word)
        except ArmError as error:
            problems.append(str(error))
            continue
        varied = arm.varied.setting if arm.varied else None
        arms.append({"arm": name, "varied": varied, "description": arm.description})
    return {
        "ok": not problems,
        "file": str(file),
        "name": study.name,
        "status": study.status,
        "scenario": study.scenario,
        "kind": workload.scenario.kind,
        "plan_sha256": workload.plan_sha256,
        "baseline": arm_name(study.baseline),
        "arms": arms,
        "problems": problems,
        "n_cells": len(cells),
        "n_requests_per_cell": workload.n_requests,
        "order": study.order,
        "seed": seed,
        "cells": [{"index": c.index, "pair": c.pair, "arm": c.arm, "role": c.role} for c in cells],
        "assumed_tok_per_s": assumed_tok_per_s,
        "assumption": workload.assumption,
        "estimate_s": len(cells) * workload.assumed_s,
    }


def study_table(report: dict[str, Any]) -> str:
    """The report as a short plain table."""
    pairs: dict[int, list[str]] = {}
    for cell in report["cells"]:
        shown = f"{cell['arm']} ({cell['role']})" if cell["role"] in ("control", "profile") else cell["arm"]
        pairs.setdefault(cell["pair"], []).append(shown)
    lines = [
        f"{report['file']}: {'good' if report['ok'] else 'refused'}",
        "",
        f"  {'study':<10}{report['name']} ({report['status']}), scenario {report['scenario']}",
        f"  {'cells':<10}{report['n_cells']} launches of {report['n_requests_per_cell']} requests, {report['order']}",
        f"  {'duration':<10}about {report['estimate_s'] / 60:.0f} min if {report['assumption']}; "
        "starts and prefill not counted",
        "",
        "  arms",
    ]
    width = max((len(arm["arm"]) for arm in report["arms"]), default=0) + 2
    for arm in report["arms"]:
        varied = f", varies {arm['varied']}" if arm["varied"] else ""
        lines.append(f"    {arm['arm']:<{width}}{arm['description']}{varied}")
    lines += [f"    {problem}" for problem in report["problems"]]
    lines += ["", "  order of launches"]
    lines += [f"    pair {pair + 1:<4}{'  '.join(arms)}" for pair, arms in list(pairs.items())[:8]]
    if len(pairs) > 8:
        lines.append(f"    and {len(pairs) - 8} pairs more")
    return "\n".join(lines)
