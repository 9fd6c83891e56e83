"""What stands before the first cell: each arm's files looked at, each arm started for a moment, settings compared."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.study_records import Preflight, Smoke
from infra.launching.launch import LaunchError, launching
from infra.launching.models import ModelError
from infra.launching.recipes import Arm
from infra.launching.resolved import compare_launches
from infra.preflight.checkpoint import CheckpointError
from infra.preflight.command import look
from infra.preflight.subject import SubjectError, of_arm, with_memory_here
from study.arms import StudyArm


def preflight(name: str, arm: Arm, models: Path | None) -> Preflight:
    """What the arm's files say, nothing started. Files that are not here are no refusal: the engine may fetch them."""
    try:
        subject = of_arm(arm, target=None, draft=None, models=models)
        findings = look(replace(subject, devices=with_memory_here(subject.devices)))
    except (SubjectError, CheckpointError, ModelError) as error:
        return Preflight(arm=name, verdict="not looked at", refused=(), why=str(error))
    refused = tuple(f"{one.check}: {one.seen}" for one in findings if one.verdict == "refuse")
    return Preflight(arm=name, verdict="refuse" if refused else "good", refused=refused, why=None)


def smoke_start(name: str, arm: StudyArm, launches: Path) -> tuple[Smoke, dict[str, Any] | None]:
    """Start an arm, have it proven ready, stop it; the launch as recorded, None where it did not start.

    ``Smoke.launch_dir`` is absolute here.
    """
    began_s = time.monotonic()
    try:
        with launching(arm.arm, launch_root=launches, restart=arm.restarts) as engine:
            took_s = time.monotonic() - began_s
            launch = engine.launch.model_dump(mode="json")
            folder = engine.folder
        return Smoke(arm=name, launch_dir=str(folder), ok=True, took_s=took_s, stage=None, symptom=None), launch
    except LaunchError as error:
        took_s = time.monotonic() - began_s
        failed = error.launch
        smoke = Smoke(
            arm=name, launch_dir=str(error.folder), ok=False, took_s=took_s, stage=failed.stage, symptom=failed.symptom
        )
        return smoke, None


def unmatched(baseline: str, launches: Mapping[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Differences that no arm names as varied, and why some settings could not be compared; each led by its arm."""
    differ, silent = [], []
    for name, launch in launches.items():
        if name == baseline:
            continue
        differences, why = compare_launches(launches[baseline], launch)
        differ += [f"{name}: {difference}" for difference in differences]
        silent += [f"{name}: settings not compared: {why}"] if why is not None else []
    return differ, silent
