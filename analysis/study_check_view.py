"""The verdict of a study as text and as JSON: each cell's run with its verdict, then every reason with its remedy."""

import argparse
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.study_check import StudyVerdict, check_study_folder
from analysis.study_loading import Material
from analysis.tables import wrapped
from analysis.verdict import by_scope, overall


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """``check STUDY``: exit code, the JSON object and the lines. The folder is named by ``options.run``."""
    material, found = check_study_folder(options.run)
    return (1 if found.verdict == "INVALID" else 0), as_json(material, found), lines(material, found)


def entry_fields(path: Path) -> dict[str, Any]:
    """What ``list`` says of a study, by the names of ``analysis.inventory.Entry``. Raises EvidenceError."""
    material, found = check_study_folder(path)
    assert material.folder is not None
    study = material.folder.study
    return {
        "created_at_unix_s": study.created_at_unix_s,
        "arm": f"study {study.name}, {len(study.arms)} arms",
        "scenario": study.name,
        "n_completed": sum(one.run.facts.measured_completed for one in material.cells),
        "n_planned": sum(one.run.manifest.n_planned for one in material.cells),
        "verdict": found.verdict,
        "codes": tuple(dict.fromkeys(one.code for one in found.reasons)),
    }


def as_json(material: Material, found: StudyVerdict) -> dict[str, Any]:
    """Everything ``check STUDY --json`` prints."""
    assert material.folder is not None
    study = material.folder.study
    return {
        "study_id": study.study_id,
        "path": str(material.folder.path),
        "sealed": material.folder.seal is not None,
        "verdict": found.verdict,
        "reasons": [{name: value for name, value in asdict(one).items() if name != "bars"} for one in found.reasons],
        "counts": dict(Counter(cell.state for cell in study.cells)),
        "baseline": study.baseline,
        "arms": {arm: dict(Counter(c.state for c in study.cells if c.arm == arm)) for arm in study.arms},
        "runs": [
            {
                "cell": one.index,
                "pair": one.pair,
                "arm": one.arm,
                "role": one.role,
                "run_id": one.run.manifest.run_id,
                "path": str(one.run.path),
                "verdict": overall(one.run.reasons),
                "verdicts": by_scope(one.run.reasons),
            }
            for one in material.cells
        ],
        "noticed": list(study.noticed),
        "notes": list(found.notes),
    }


def lines(material: Material, found: StudyVerdict) -> list[str]:
    """The printed verdict."""
    assert material.folder is not None
    study = material.folder.study
    states = ", ".join(f"{n} {state}" for state, n in Counter(cell.state for cell in study.cells).items()) or "no cells"
    shown = [
        f"{study.study_id}  {study.name}  {found.verdict}",
        *wrapped(f"{len(study.cells)} cells: {states}", lead="  "),
    ]
    for one in material.cells:
        verdict = overall(one.run.reasons)
        scopes = ", ".join(f"{scope} {said}" for scope, said in by_scope(one.run.reasons).items() if said != "VALID")
        said = f"{one.run.manifest.run_id}  {one.arm} ({one.role})  {verdict}"
        shown += wrapped(said + (f"  {scopes}" if scopes else ""), lead=f"  cell {one.index:>3}  pair {one.pair:>2}  ")
    shown.append("")
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for reason in found.reasons:
        key = (reason.severity, reason.scope, reason.code, reason.remedy)
        grouped.setdefault(key, []).append(f"{reason.run_id}: {reason.seen}" if reason.run_id else reason.seen)
    for (severity, scope, code, remedy), seen in sorted(grouped.items(), key=lambda item: item[0][0] != "INVALID"):
        shown.append(f"{severity}  {scope}  {code}")
        for one_seen in seen:
            shown += wrapped(one_seen, lead="  seen:   ")
        shown += [*wrapped(remedy, lead="  remedy: "), ""]
    if not found.reasons:
        shown += ["Nothing limits what this study can show.", ""]
    for note in (*study.noticed, *found.notes):
        shown += wrapped(note, lead="  noticed: ")
    return shown
