"""The comparison of a study, or of runs paired by hand: what ``compare --json`` prints, before any of it is shown.

Each arm stands on its own: refused where its runs are not comparable with the baseline's, "not measured" where no cell
of it ran, else the paired ratio with everything that must stand beside it. The control goes through the same steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from analysis.arm_outputs import ArmOutputs, OwnDisagreement, arm_outputs, own_disagreement
from analysis.arm_runs import comparability, excluded, sides
from analysis.arm_speculation import ArmSpeculation, arm_speculation
from analysis.compare_beside import degraded, goodputs, lost_json, run_json, shared_launches, spreads
from analysis.compare_scope import compared_scope, study_json
from analysis.comparison import Beside, Comparison, compare_arms, not_measured
from analysis.draft_lengths import draft_costs
from analysis.effect import MARGIN
from analysis.equality import equality
from analysis.outputs import Known
from analysis.study_check import StudyVerdict
from analysis.study_loading import CellRun, Material, NotMeasured

Only = Literal["equal", "valid"]
SUBSETS: Mapping[Only | None, str] = {
    None: "all pairs",
    "equal": "pairs whose answers are equal",
    "valid": "pairs whose answers are both valid by their task check",
}
WORST_FIRST = ("failed", "done", "running", "planned", "dropped")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line asked for."""

    margin: float = MARGIN
    only: Only | None = None
    min_ratio: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One arm, or the control: its element of the report, and what the gate and the draft costs read."""

    entry: dict[str, Any]
    comparison: Comparison | None = None
    speculation: ArmSpeculation | None = None
    cell: CellRun | None = None


def compare_all(material: Material, verdict: StudyVerdict | None, asked: Asked) -> tuple[dict[str, Any], bool]:
    """The report, and whether the evidence lets it stand: False where an arm is refused, a gate is not met, or no arm
    has a ratio at all."""
    base = material.of(material.baseline, "baseline")
    control = material.of(material.baseline, "control")
    whole = None if verdict is None else verdict.refused()
    study = None if material.folder is None else material.folder.study
    planned = study is not None and study.status == "planned"
    own, known = own_disagreement(base, control), Known()
    found: dict[str, Compared] = {}
    if whole is None and not planned:
        found = {arm: _arm(material, arm, own, known, asked) for arm in material.arms}
    kept = None if whole is not None or planned else _control(material, known, asked)
    for one in found.values():
        one.entry["beyond_control"] = _beyond(one.entry["ratio"], None if kept is None else kept.entry["ratio"])
    usable = {
        arm: (one.cell, one.speculation) for arm, one in found.items() if one.cell is not None and one.speculation
    }
    gate = _gate(found, asked)
    report = {
        "study": None if study is None else study_json(material, verdict),
        "scope": compared_scope(material),
        "asked": {
            "margin": asked.margin,
            "only": asked.only,
            "min_ratio": asked.min_ratio,
            "subset": SUBSETS[asked.only],
        },
        "baseline": material.baseline,
        "control": None if kept is None else kept.entry,
        "arms": [one.entry for one in found.values()],
        "baseline_runs": [run_json(one) for one in base.values()],
        "baseline_not_run": [lost_json(one) for one in material.lacking(material.baseline, "baseline")],
        "own_disagreement": own.as_json(),
        "draft_cost": draft_costs(usable),
        "planned": list(material.arms) if planned else [],
        "refused": whole,
        "gate": gate,
        "why": {} if kept is not None else {"control": _why_no_control(material, planned)},
    }
    measured = [one for one in found.values() if one.entry["ratio"] is not None]
    refused = whole is not None or any(one.entry["refused"] for one in found.values())
    return report, bool(measured) and not refused and (gate is None or gate["met"])


def _arm(material: Material, arm: str, own: OwnDisagreement, known: Known, asked: Asked) -> Compared:
    cells, lacking = material.of(arm, "arm"), material.lacking(arm, "arm")
    if not cells:
        return Compared(entry=_not_measured(arm, lacking))
    return _compared(material, arm, cells, lacking, own, known, asked)


def _control(material: Material, known: Known, asked: Asked) -> Compared | None:
    name = material.baseline
    cells, lacking = material.of(name, "control"), material.lacking(name, "control")
    if not cells:
        failed = [one for one in lacking if one.state == "failed"]
        return Compared(entry=_not_measured(name, failed)) if failed else None
    found = _compared(material, name, cells, lacking, OwnDisagreement(pairs=(), source=None), known, asked)
    entry = found.entry
    if entry["outputs_class"] not in (None, "identical"):
        entry["outputs_class"] = "differs from itself"
    interval = entry["interval"]
    entry["agrees_with_itself"] = None if interval is None else interval[0] <= 1 <= interval[1]
    return found


def _compared(
    material: Material,
    arm: str,
    cells: Mapping[int, CellRun],
    lacking: Sequence[NotMeasured],
    own: OwnDisagreement,
    known: Known,
    asked: Asked,
) -> Compared:
    base = material.of(material.baseline, "baseline")
    found = sides(base, cells)
    keys = comparability(found)
    out = excluded([*found.base.values(), *found.arm.values()])
    common: dict[str, Any] = {
        "comparable": keys.as_json(),
        "runs": [run_json(one) for one in cells.values()],
        "excluded": [asdict(one) for one in out],
        "not_run": [lost_json(one) for one in lacking],
        "shared_launches": shared_launches(found),
        "limits": degraded([*found.base.values(), *found.arm.values()]),
    }
    if not keys.ok:
        because = f"not comparable with {material.baseline}: {'; '.join(keys.said)}"
        entry = compare_arms([], [], name=arm, margin=asked.margin).as_json()
        why = dict.fromkeys(entry["why"], because)
        return Compared(entry=entry | common | {"verdict": None, "because": because, "refused": because, "why": why})
    outputs = arm_outputs(found, own, known)
    comparison = compare_arms(
        found.observations(found.base, material.baseline),
        found.observations(found.arm, arm),
        name=arm,
        margin=asked.margin,
        only={None: None, "equal": outputs.equal, "valid": outputs.valid}[asked.only],
        subset=SUBSETS[asked.only],
    )
    speculation = arm_speculation(found, comparison.all.table)
    comparison = replace(comparison, beside=_beside(outputs, speculation))
    entry = comparison.as_json() | common | {"refused": None, "outputs": outputs.as_json()}
    _with_outputs(entry["by_domain"], outputs, own)
    entry["distributions"] = {
        material.baseline if side is found.base else arm: spreads(side.values()) for side in (found.base, found.arm)
    }
    entry["goodput"] = goodputs(found, material.baseline, arm)
    if entry["ratio"] is None:
        whys = [one.why for one in out if one.scope in ("run", "rate")]
        if whys:
            entry["because"] = "; ".join(dict.fromkeys(whys))
            entry["why"] |= {"ratio": entry["because"], "interval": entry["because"], "mde": entry["because"]}
    return Compared(entry=entry, comparison=comparison, speculation=speculation, cell=next(iter(cells.values())))


def _beside(outputs: ArmOutputs, speculation: ArmSpeculation) -> Beside:
    equal = outputs.equality
    whys = {
        "outputs_class": outputs.why or (equal.why if equal.outputs_class is None else None),
        "n_judged": outputs.why,
        "acceptance": speculation.acceptance["why"] if speculation.acceptance["rate"] is None else None,
        "cycle_cost": speculation.cost_why,
    }
    return Beside(
        outputs_equal=None if outputs.why else equal.outputs_equal,
        outputs_compared=None if outputs.why else equal.outputs_compared,
        outputs_class=equal.outputs_class,
        n_judged=None if outputs.why else outputs.arm.n_judged,
        n_valid=None if outputs.why else outputs.arm.n_valid,
        acceptance=speculation.acceptance,
        cycle_cost=speculation.cost_json(),
        why={name: why for name, why in whys.items() if why is not None},
    )


def _with_outputs(domains: dict[str, Any], outputs: ArmOutputs, own: OwnDisagreement) -> None:
    """Each domain's ratio carries the equality of its own answers, and how its task checks ended."""
    for domain, entry in domains.items():
        pairs = [(pair, token) for _, pair, token in outputs.pairs if pair.domain == domain]
        equal = equality(pairs, [pair for pair in own.pairs if pair.domain == domain])
        judged = outputs.by_domain.get(domain)
        entry |= {
            "outputs_class": equal.outputs_class,
            "outputs_compared": equal.outputs_compared,
            "outputs_equal": equal.outputs_equal,
            "n_judged": None if judged is None else judged[1].n_judged,
            "n_valid": None if judged is None else judged[1].n_valid,
            "baseline_n_judged": None if judged is None else judged[0].n_judged,
            "baseline_n_valid": None if judged is None else judged[0].n_valid,
        }


def _not_measured(arm: str, lacking: Sequence[NotMeasured]) -> dict[str, Any]:
    ordered = sorted(lacking, key=lambda one: WORST_FIRST.index(one.state))
    first = ordered[0] if ordered else None
    entry = not_measured(
        arm,
        stage="not in the study" if first is None else first.stage,
        symptom="no cell of it is on record" if first is None else first.symptom,
        folder=None if first is None else first.folder,
    )
    return entry | {"not_run": [lost_json(one) for one in lacking], "refused": None, "excluded": [], "runs": []}


def _gate(found: Mapping[str, Compared], asked: Asked) -> dict[str, Any] | None:
    """Whether every arm's interval begins at or above the ratio asked for; an arm without one does not meet it."""
    if asked.min_ratio is None:
        return None
    arms = []
    for arm, one in found.items():
        met, because = False, str(one.entry["because"])
        if one.comparison is not None:
            met, because = one.comparison.meets(asked.min_ratio)
        arms.append({"arm": arm, "met": met, "because": because, "outputs_class": one.entry["outputs_class"]})
    return {"min_ratio": asked.min_ratio, "met": bool(arms) and all(one["met"] for one in arms), "arms": arms}


def _beyond(ratio: float | None, control: float | None) -> bool | None:
    """Whether an arm's ratio lies further from 1 than the control's own; None where either is not known."""
    return None if ratio is None or control is None else abs(math.log(ratio)) > abs(math.log(control))


def _why_no_control(material: Material, planned: bool) -> str:
    if planned:
        return "the study is planned: nothing in it was measured"
    if material.folder is None:
        return "runs named one by one have no control: compare two launches of the baseline with each other for one"
    lacking = material.lacking(material.baseline, "control")
    if not lacking:
        return "the study has no control launch"
    return f"no control launch was measured: {lacking[0].stage}: {lacking[0].symptom}"
