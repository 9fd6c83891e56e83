"""A study's record at its beginning, and an unfinished study taken up again."""

import hashlib
import time
from pathlib import Path

from evidence.layout import STUDY, new_id
from evidence.study_folder import open_study
from evidence.study_records import Study
from scenarios.plan import Plan, scenario_sha256
from scenarios.study_file import StudyFile
from study.order import cells_of


class StudyStopped(Exception):
    """The study cannot go on; the message says what was seen and what to do. Exit code 1."""


def new_study(file: Path, asked: StudyFile, plan: Plan, budget_minutes: float | None) -> Study:
    seed = plan.scenario.seed if asked.seed is None else asked.seed
    return Study(
        study_id=new_id("study"),
        name=asked.name,
        created_at_unix_s=time.time(),
        file=str(file),
        file_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        scenario=plan.scenario.model_dump(mode="json"),
        scenario_file=asked.scenario,
        scenario_sha256=scenario_sha256(plan.scenario),
        prompts_sha256=dict(plan.prompts_sha256),
        baseline=asked.baseline,
        arms=asked.arms,
        launches=asked.launches,
        passes=asked.passes,
        control_launches=asked.control_launches,
        order=asked.order,
        seed=seed,
        status=asked.status,
        budget_minutes=budget_minutes,
        drop_order=asked.drop_order,
        smokes=(),
        cells=cells_of(asked, seed),
        noticed=(),
    )


def unfinished(run_dir: Path, fresh: Study) -> Path:
    """The newest unsealed study of this file in ``run_dir``. Raises StudyStopped where there is none, or it changed."""
    found = []
    for path in sorted(run_dir.glob(f"study-*/{STUDY}")):
        folder = open_study(path.parent)
        if folder.seal is None and folder.study.name == fresh.name:
            found.append(folder)
    if not found:
        raise StudyStopped(f"{run_dir} holds no unfinished study named {fresh.name}; run it without --resume")
    newest = found[-1]
    for key in ("file_sha256", "scenario_sha256", "prompts_sha256"):
        if getattr(newest.study, key) != getattr(fresh, key):
            raise StudyStopped(
                f"{newest.path} was begun with another {key.removesuffix('_sha256')}: restore it, or start a new study"
            )
    return newest.path


def taken_up(study: Study) -> Study:
    """Interrupted cells are planned again; smoke starts are made anew, on this machine."""
    cells = tuple(
        cell.model_copy(update={"state": "planned"}) if cell.state == "running" else cell for cell in study.cells
    )
    taken = f"taken up again at {time.time():.0f}, {sum(cell.state == 'planned' for cell in cells)} cells to run"
    return study.model_copy(update={"cells": cells, "smokes": (), "noticed": (*study.noticed, taken)})
