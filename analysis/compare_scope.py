"""What the numbers of a comparison are about: launches, passes, prompts, concurrency, hardware, engine and model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from analysis.arm_runs import why_not
from analysis.study_check import StudyVerdict
from analysis.study_loading import CellRun, Material
from analysis.summary import scope


def compared_scope(material: Material) -> dict[str, Any]:
    """Over every run that may be used; a fact on which the runs differ lists each value."""
    kept = [one for one in material.cells if why_not(one, "run") is None]
    scopes = [scope(one.run) for one in kept]
    base = [one for one in kept if one.role == "baseline"]

    def values(name: str) -> list[Any]:
        return list(dict.fromkeys(found[name] for found in scopes if found[name] is not None))

    prompt_tokens = values("prompt_tokens")
    return {
        "n_runs": len(kept),
        "n_launches": {
            arm: _n_launches(one for one in kept if one.arm == arm and one.role != "control") for arm in _arms(material)
        },
        "n_control_launches": _n_launches(one for one in kept if one.role == "control"),
        "n_passes": values("n_passes"),
        "n_prompts": max((found["n_prompts"] for found in scopes), default=0),
        "n_requests": sum(found["n_requests"] for found in scopes),
        "prompt_tokens_a_launch": prompt_tokens,
        "prompt_tokens_baseline": _total([found["prompt_tokens"] for found in map(scope, (one.run for one in base))]),
        "concurrency": values("concurrency"),
        "levels_of_some": _levels_of_some(kept),
        "scenario": values("scenario"),
        "hardware": values("hardware"),
        "engine": values("engine"),
        "model": values("model"),
        "transports": sorted({name for found in scopes for name in found["transports"]}),
        "token_sources": sorted({name for found in scopes for name in found["token_sources"]}),
    }


def _arms(material: Material) -> tuple[str, ...]:
    return (material.baseline, *material.arms)


def _n_launches(cells: Iterable[CellRun]) -> int:
    """Launches by their ids; a run that cites none counts by itself here, and in no interval."""
    return len({one.run.manifest.launch_id or one.run.manifest.run_id for one in cells})


def _levels_of_some(cells: Sequence[CellRun]) -> list[str]:
    """Levels that some runs visited and others did not, as two searches may: no pair stands on them."""
    labels = [{row.request.level for row in one.run.measured if row.request.level is not None} for one in cells]
    every = dict.fromkeys(view.label for one in cells for view in one.run.levels)
    return [label for label in every if 0 < sum(label in own for own in labels) < len(labels)]


def _total(counts: list[int | None]) -> int | None:
    return None if not counts or any(one is None for one in counts) else sum(one for one in counts if one is not None)


def study_json(material: Material, verdict: StudyVerdict | None) -> dict[str, Any]:
    """The study as it was planned and as far as it came, with its verdict."""
    assert material.folder is not None
    study = material.folder.study
    return {
        "study_id": study.study_id,
        "name": study.name,
        "path": str(material.folder.path),
        "status": study.status,
        "sealed": material.folder.seal is not None,
        "order": study.order,
        "seed": study.seed,
        "launches_asked": study.launches,
        "control_launches_asked": study.control_launches,
        "passes": study.passes,
        "cells": dict(Counter(cell.state for cell in study.cells)),
        "verdict": None if verdict is None else verdict.verdict,
        "codes": [] if verdict is None else list(dict.fromkeys(one.code for one in verdict.reasons)),
    }
