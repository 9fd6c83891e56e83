"""``outputs STUDY``: the answers of every arm against the baseline's, beside what the baseline does to itself.

Equality does not hang on speed: runs that may not be compared for rates are compared here as far as they asked the
same, and the keys in which they differ are named.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.arm_outputs import ArmOutputs, OwnDisagreement, arm_outputs, own_disagreement
from analysis.arm_runs import Excluded, comparability, excluded, sides
from analysis.compare_beside import lost_json
from analysis.compare_tables import Fields, token_place
from analysis.names import short
from analysis.outputs import Known
from analysis.study_check import check_study_folder
from analysis.study_loading import Material
from analysis.tables import Notes, table, wrapped


def study_outputs(path: Path) -> tuple[dict[str, Any], bool]:
    """The report, and whether any arm's answers could be compared. Raises EvidenceError where nothing can be read."""
    material, verdict = check_study_folder(path)
    base = material.of(material.baseline, "baseline")
    control = material.of(material.baseline, "control")
    own, known = own_disagreement(base, control), Known()
    whole = verdict.refused()
    arms = [] if whole is not None else [_arm(material, arm, own, known) for arm in material.arms]
    assert material.folder is not None
    report = {
        "study_id": material.folder.study.study_id,
        "path": str(path),
        "verdict": verdict.verdict,
        "baseline": material.baseline,
        "control": _control(own),
        "arms": arms,
        "refused": whole,
    }
    return report, any(arm["outputs_compared"] for arm in arms)


def lines(report: Fields) -> list[str]:
    """Each arm's prompts that differ, then the counts."""
    notes = Notes()
    found = wrapped(f"{report['study_id']}  outputs against {report['baseline']}")
    if report["refused"] is not None:
        return [*found, *wrapped(f"Nothing is compared: {report['refused']}")]
    control = report["control"]
    if control["source"] is None:
        found += wrapped("The baseline's own disagreement is not known: it answered each prompt once.")
    else:
        counts = f"{control['outputs_equal']} of {control['outputs_compared']} pairs equal"
        found += wrapped(f"The baseline against itself ({control['source']}): {counts}.")
    for arm in report["arms"]:
        found += ["", *_arm_lines(arm, notes)]
    reasons = notes.lines()
    return found + (["", *reasons] if reasons else [])


def _arm(material: Material, arm: str, own: OwnDisagreement, known: Known) -> dict[str, Any]:
    found = sides(material.of(material.baseline, "baseline"), material.of(arm, "arm"))
    lacking = material.lacking(arm, "arm")
    outputs = arm_outputs(found, own, known)
    keys = comparability(found)
    out: Sequence[Excluded] = excluded([*found.base.values(), *found.arm.values()])
    why = outputs.why
    if not found.arm and lacking:
        why = f"not measured: {lacking[0].stage}: {lacking[0].symptom}"
    return {
        "arm": arm,
        **outputs.as_json(),
        "why": why or outputs.equality.why,
        "differing_keys": list(keys.said),
        "excluded": [asdict(one) for one in out if one.scope in ("run", "outputs")],
        "not_run": [lost_json(one) for one in lacking],
        "pairs": _pairs(outputs),
    }


def _pairs(outputs: ArmOutputs) -> list[dict[str, Any]]:
    return [
        {"launch": launch, **asdict(pair), "first_divergence_token": None if token is None else list(token)}
        for launch, pair, token in outputs.pairs
    ]


def _control(own: OwnDisagreement) -> dict[str, Any]:
    differing = [one for one in own.pairs if one.equal is False]
    return own.as_json() | {
        "differing_prompts": list(dict.fromkeys(one.prompt_id for one in differing)),
        "n_length_differs": sum(one.n_completion_tokens[0] != one.n_completion_tokens[1] for one in differing),
        "n_finish_reason_differs": sum(one.finish_reason[0] != one.finish_reason[1] for one in differing),
    }


def _arm_lines(arm: Fields, notes: Notes) -> list[str]:
    if not arm["outputs_compared"]:
        return wrapped(f"not compared: {arm['why']}", lead=f"{arm['arm']}: ")
    said = f"{arm['outputs_equal']} of {arm['outputs_compared']} answers equal"
    found = wrapped(f"{said}: {arm['outputs_class']} ({arm['why']})", lead=f"{arm['arm']}: ")
    rows = []
    for one in arm["prompts"]:
        if one["n_equal"] == one["n_compared"]:
            continue
        place = one["first_divergence_char"]
        own = f"{one['control_n_equal']}/{one['control_n_compared']}"
        if not one["control_n_compared"]:
            own = notes.dash("the baseline did not answer it twice")
        parted = notes.dash("only the reasoning or the tool calls differ") if place is None else str(place)
        rows.append(
            [
                short(one["prompt_id"]),
                f"{one['n_equal']}/{one['n_compared']}",
                parted,
                token_place(one["first_divergence_token"], notes),
                str(one["n_length_differs"]),
                str(one["n_finish_reason_differs"]),
                own,
            ]
        )
    if rows:
        found += table(["prompt", "equal", "at char", "token", "lengths", "finish", "baseline's own"], rows)
    for domain, judged in arm["judged_by_domain"].items():
        base, mine = judged["baseline"], judged["arm"]
        counts = f"valid {mine['n_valid']} of {mine['n_judged']} judged ({mine['n_cut']} cut)"
        found += wrapped(f"{counts}, the baseline's {base['n_valid']} of {base['n_judged']}", lead=f"  {domain}: ")
    for key in arm["differing_keys"]:
        found += wrapped(key, lead="  differs: ")
    for out in arm["excluded"]:
        found += wrapped(out["why"], lead="  not used: ")
    for lost in arm["not_run"]:
        found += wrapped(f"cell {lost['index']}: {lost['stage']}: {lost['symptom']}", lead="  no run: ")
    return found
