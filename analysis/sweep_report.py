"""Everything ``sweep --json`` prints: the levels of one run, or those of a study's arms beside each other.

A run by itself gives its levels, its capacity and the highest level that holds the objectives. A study gives the same
of each arm over its launches, and the ratios to the baseline with their break-even. Runs that are INVALID are shown and
named; no number of an INVALID scope enters a ratio.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from analysis.capacity import Capacity
from analysis.compare_beside import lost_json
from analysis.compare_scope import compared_scope, study_json
from analysis.errors import AnalysisError
from analysis.launch_capacity import capacity_of
from analysis.loading import LoadedRun
from analysis.slo_level import Attained, Highest, highest_level
from analysis.study_check import StudyVerdict
from analysis.study_loading import Material
from analysis.summary import scope, summarise
from analysis.sweep_arms import ArmSweep, sweep_arms
from analysis.sweep_gather import kind_of, level_numbers, objectives
from analysis.sweep_levels import UNITS, ArmLevel, LevelNumbers, in_order
from analysis.unsent import visited
from analysis.verdict import by_scope, overall
from evidence.gpu_records import GpuSample
from evidence.objectives import ATTAINMENT

Fields = dict[str, Any]
ONE_LAUNCH = "prompts only: one launch of an arm says nothing about how launches differ, and nothing about the system"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRun:
    """A run with its place: its arm, role and pair in a study, "run" and 0 by itself."""

    loaded: LoadedRun
    summary: Mapping[str, Any]
    gpu: Sequence[GpuSample]
    arm: str
    role: str
    pair: int

    @property
    def id(self) -> str:
        return self.loaded.manifest.run_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What the tables and the report show. ``kind`` is None where the runs have no levels."""

    kind: str | None
    objectives: Mapping[str, float]
    levels: tuple[ArmLevel, ...]  # by setting, the baseline first in each
    arms: tuple[ArmSweep, ...]
    highest: Mapping[str, Highest]  # by arm; the control is no arm of its own
    capacities: tuple[tuple[SweepRun, Capacity], ...]
    runs: tuple[SweepRun, ...]

    def as_json(self) -> Fields:
        return {
            "kind": self.kind,
            "unit": UNITS.get(self.kind or ""),
            "objectives": dict(self.objectives),
            "levels": [one.as_json() for one in self.levels],
            "arms": [one.as_json() for one in self.arms],
            "highest_level": {name: one.as_json() for name, one in self.highest.items()},
            "capacity": [
                {"run_id": run.id, "arm": run.arm, "role": run.role, "pair": run.pair, **found.as_json()}
                for run, found in self.capacities
            ],
            "driver_note": self.capacities[0][1].sentence if self.capacities else None,
            "runs": [_run(one) for one in self.runs],
        }


def sweep_run(loaded: LoadedRun, *, arm: str, role: str = "run", pair: int = 0) -> SweepRun:
    """A run made ready: summarised, with its GPU samples."""
    return SweepRun(loaded=loaded, summary=summarise(loaded), gpu=loaded.gpu, arm=arm, role=role, pair=pair)


def sweep_of(runs: Sequence[SweepRun], material: Material | None, *, attainment: float = ATTAINMENT) -> Sweep:
    """From the runs of a study in any order, or from one run. Raises AnalysisError where they are of several kinds."""
    numbers = {one.id: level_numbers(one.loaded, one.summary, one.gpu, pair=one.pair) for one in runs}
    with_levels = [one for one in runs if numbers[one.id]]
    kinds = sorted({kind_of(one.loaded) for one in with_levels})
    if len(kinds) > 1:
        raise AnalysisError(
            f"the runs are of several kinds: {', '.join(kinds)}",
            "a sweep is of one kind: name runs of one scenario",
            value=kinds,
        )
    levels = _arm_levels(with_levels, numbers)
    order = {arm: place for place, arm in enumerate(dict.fromkeys((one.arm, one.role) for one in levels))}
    ordered = sorted(levels, key=lambda one: (one.setting is None, one.setting or 0.0, order[one.arm, one.role]))
    names = dict.fromkeys(one.arm for one in levels if one.role != "control")
    invalid = {one.id: said for one in runs if (said := _why_invalid(one.loaded)) is not None}
    return Sweep(
        kind=kinds[0] if kinds else None,
        objectives=objectives(runs[0].loaded) if runs else {},
        levels=tuple(ordered),
        arms=() if material is None or not kinds else sweep_arms(material, numbers, kinds[0]),
        highest={name: _highest([one for one in levels if one.arm == name], attainment, invalid) for name in names},
        capacities=tuple((one, capacity_of(one.loaded, one.gpu)) for one in runs),
        runs=tuple(runs),
    )


def sweep_json(sweep: Sweep, material: Material | None, verdict: StudyVerdict | None) -> Fields:
    """The whole object, with what the numbers are about."""
    study = None if material is None or material.folder is None else study_json(material, verdict)
    lost = () if material is None else material.not_measured
    launches = {len(one.runs) for one in sweep.levels if one.role != "control"}
    return {
        "study": study,
        "baseline": None if material is None else material.baseline,
        "scope": scope(sweep.runs[0].loaded) if material is None else compared_scope(material),
        **sweep.as_json(),
        "not_measured": [{"arm": one.arm, "role": one.role, **lost_json(one)} for one in lost],
        "steady_rule": next(
            (level["steady"]["rule"] for one in sweep.runs for level in one.summary.get("levels") or ()), None
        ),
        "not_visited": list(dict.fromkeys(label for one in sweep.runs for label in _not_visited(one.summary))),
        "client_floor_s": {one.id: one.summary.get("client_floor_s") for one in sweep.runs},
        "note": ONE_LAUNCH if launches == {1} else None,
    }


def _not_visited(summary: Mapping[str, Any]) -> list[str]:
    return [level["label"] for level in summary.get("levels") or () if not visited(level)]


def _arm_levels(runs: Sequence[SweepRun], numbers: Mapping[str, Mapping[str, LevelNumbers]]) -> list[ArmLevel]:
    """Runs of one arm and role together, level by level, launches in the order of pairs."""
    roles = ("baseline", "run", "arm", "control")
    ranked = sorted(runs, key=lambda one: (roles.index(one.role), one.arm, one.pair))
    found = []
    for (_, arm, role), group in groupby(ranked, key=lambda one: (roles.index(one.role), one.arm, one.role)):
        own = list(group)
        labels = dict.fromkeys(label for one in own for label in numbers[one.id])
        levels = [
            ArmLevel(
                arm=arm,
                role=role,
                runs=tuple(numbers[one.id][label] for one in own if label in numbers[one.id]),
            )
            for label in labels
        ]
        found += in_order(levels)
    return found


def _highest(levels: Sequence[ArmLevel], attainment: float, invalid: Mapping[str, str]) -> Highest:
    """``invalid`` says by run id why nothing of a run stands."""
    found = [
        Attained(
            level=one.level,
            setting=one.setting,
            launch=place,
            n_sent=run.full.n_sent or 0,
            n_good=run.full.n_good or 0,
            n_undecided=run.full.n_undecided or 0,
            why=invalid.get(run.run_id) or run.full.why.get("good_share"),
            rate_missed=run.rate_missed,
        )
        for one in levels
        if one.role != "control"
        for place, run in enumerate(one.runs)
    ]
    return highest_level(found, attainment=attainment)


def _why_invalid(run: LoadedRun) -> str | None:
    """Why a run's goodput does not stand: as a whole, or in what its objectives are about.

    Failed requests are counted by goodput as not met, and are no such reason.
    """
    asked = objectives(run)
    scopes = (
        {"run"} | ({"latency"} if "ttft_slo_s" in asked else set()) | ({"rate"} if "tpot_slo_s" in asked else set())
    )
    heavy = [
        one
        for one in run.reasons
        if one.severity == "INVALID" and one.scope in scopes and one.code != "requests_failed"
    ]
    if not heavy:
        return None
    codes = ", ".join(dict.fromkeys(one.code for one in heavy))
    return f"{run.manifest.run_id} is INVALID for {', '.join(dict.fromkeys(one.scope for one in heavy))}: {codes}"


def _run(one: SweepRun) -> Fields:
    reasons = one.loaded.reasons
    return {
        "run_id": one.id,
        "path": str(one.loaded.path),
        "arm": one.arm,
        "role": one.role,
        "pair": one.pair,
        "launch_id": one.loaded.manifest.launch_id,
        "verdict": overall(reasons),
        "verdicts": by_scope(reasons),
        "codes": list(dict.fromkeys(reason.code for reason in reasons)),
        "invalid": {
            scope: list(dict.fromkeys(r.code for r in reasons if r.severity == "INVALID" and r.scope == scope))
            for scope in dict.fromkeys(r.scope for r in reasons if r.severity == "INVALID")
        },
    }
