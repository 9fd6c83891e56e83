"""A study's record at its beginning, and an unfinished study taken up again."""

import hashlib
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from evidence.layout import STUDY, new_id
from evidence.processes import living_writer
from evidence.study_folder import StudyFolder, open_study
from evidence.study_records import Study
from scenarios.strict_toml import Problem, ScenarioError
from scenarios.study_file import StudyFile, arm_name
from study.arms import StudyArm
from study.order import cells_of
from study.workload import Workload


class StudyStopped(Exception):
    """The study cannot go on; the message says what was seen and what to do. Exit code 1."""


def new_study(
    file: Path,
    asked: StudyFile,
    workload: Workload,
    arms: Mapping[str, StudyArm],
    budget_minutes: float | None,
    environment: Mapping[str, str],
) -> Study:
    """The record with every cell planned. Raises ScenarioError where profiled launches lack their window."""
    if asked.profile_launches and workload.scenario.telemetry.profile is None:
        message = (
            f"needs a window, and {asked.scenario} has none: write profile = {{ steps = 5, after_requests = 10 }} "
        )
        message += "into its [telemetry], or leave profile_launches out"
        raise ScenarioError(file, Problem(key="profile_launches", value=asked.profile_launches, message=message))
    seed = workload.scenario.seed if asked.seed is None else asked.seed
    return Study(
        study_id=new_id("study"),
        name=asked.name,
        created_at_unix_s=time.time(),
        file=str(file),
        file_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        scenario=workload.scenario.model_dump(mode="json"),
        scenario_file=asked.scenario,
        scenario_sha256=workload.sha256,
        prompts_sha256=dict(workload.prompts_sha256),
        baseline=arm_name(asked.baseline),
        arms=tuple(arms),
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
        profile_launches=asked.profile_launches,
        arms_sha256={name: arm.sha256 for name, arm in arms.items()},
        environment=dict(environment),
    )


def unfinished(run_dir: Path, fresh: Study) -> Path:
    """The newest unsealed study of this file in ``run_dir`` that nobody runs.

    Raises StudyStopped where there is none, or where its file, scenario, prompts or arms have changed since.
    """
    found: list[StudyFolder] = []
    running: list[StudyFolder] = []
    for path in sorted(run_dir.glob(f"study-*/{STUDY}")):
        folder = open_study(path.parent)
        if folder.seal is None and folder.study.name == fresh.name:
            (found if living_writer(path.parent) is None else running).append(folder)
    if not found and running:
        raise StudyStopped(f"{running[-1].path} is being run by another process: wait for its end, or stop it")
    if not found:
        raise StudyStopped(f"{run_dir} holds no unfinished study named {fresh.name}; run it without --resume")
    newest = found[-1]
    for key in ("file_sha256", "scenario_sha256", "prompts_sha256", "arms_sha256"):
        was, now = getattr(newest.study, key), getattr(fresh, key)
        if was != now:
            changed = sorted(name for name in was if was[name] != now.get(name)) if isinstance(was, dict) else []
            which = f" ({', '.join(changed)})" if changed else ""
            what = key.removesuffix("_sha256")
            raise StudyStopped(
                f"{newest.path} was begun with another {what}{which}: restore what it was, or start a new study"
            )
    return newest.path


def taken_up(study: Study, fresh: Study) -> Study:
    """Interrupted cells, and those of arms that never got beyond their start, are planned again on this machine.

    Preflights and smoke starts are made anew; ``fresh`` has this machine's environment.
    """
    again = {"state": "planned", "stage": None, "symptom": None, "launch_dir": None, "run_dir": None}
    cells = tuple(
        cell.model_copy(update=again)
        if cell.state == "running" or (cell.state == "failed" and cell.attempt == 0)
        else cell
        for cell in study.cells
    )
    n_left = sum(cell.state == "planned" for cell in cells)
    taken = f"taken up again on {socket.gethostname()} at {time.time():.0f}, {n_left} cells to run"
    changes = {"cells": cells, "smokes": (), "preflights": (), "environment": fresh.environment}
    return study.model_copy(update={**changes, "noticed": (*study.noticed, taken)})
