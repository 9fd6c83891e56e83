"""A verdict as text and as JSON: every reason with its remedy, and what client and server counted alike."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis import identity
from analysis.client_floor import unverified
from analysis.levels import LevelView
from analysis.loading import LoadedRun
from analysis.request_checks import Check
from analysis.summary_view import merged
from analysis.tables import wrapped
from analysis.unsent import searches
from analysis.verdict import by_scope, overall
from evidence.layout import folder_kind
from evidence.records import Seal

STATES = ("fail", "pass", "not observable")


def as_json(run: LoadedRun) -> dict[str, Any]:
    """Everything ``check --json`` prints."""
    facts = run.facts
    return {
        "run_id": run.manifest.run_id,
        "path": str(run.path),
        "sealed": facts.sealed,
        "verdict": overall(run.reasons),
        "verdicts": by_scope(run.reasons),
        "reasons": [asdict(reason) for reason in run.reasons],
        "counts": {
            "planned": facts.planned,
            "started": facts.started,
            "ended": facts.ended,
            "measured_completed": facts.measured_completed,
            "measured_failed": dict(facts.measured_failed),
            "unread": None if facts.unread is None else facts.unread.as_json(),
        },
        "sendings": list(facts.passes_differ.sendings) if facts.passes_differ else [],
        "checks": [_check(check) for check in run.server.checks],
        "problems": [problem._asdict() for problem in run.problems],
        "search": _search(run),
        "left_by_design": [
            {"level": view.label, "n_requests": view.n_not_sent, "why": _left_why(view)}
            for view in run.levels
            if view.n_not_sent
        ],
        "noticed": list(run.seal.noticed) if run.seal else [],
        "launch_missing": run.launch_missing,
        "calibration_unverified": unverified(run.manifest.calibration, run.path),
    }


def lines(run: LoadedRun, *, brief: bool = False) -> list[str]:
    """The printed verdict; ``brief`` leaves out what agrees."""
    name, verdict = identity.arm_name(run.manifest) or "no label", overall(run.reasons)
    scopes = ", ".join(f"{scope} {said}" for scope, said in by_scope(run.reasons).items())
    report = as_json(run)
    found = [f"{run.manifest.run_id}  {name}  {verdict}", *wrapped(scopes, lead="  ")]
    found += [*(wrapped(report["search"], lead="  search: ") if report["search"] is not None else []), ""]
    for scopes_said, reason in merged(report["reasons"]):
        found.append(f"{reason['severity']}  {scopes_said}  {reason['code']}")
        found += [*wrapped(reason["seen"], lead="  seen:   "), *wrapped(reason["remedy"], lead="  remedy: "), ""]
    if not run.reasons:
        found += ["Nothing limits what this run can show.", ""]
    if brief:
        if doubtful := _of_the_calibration(run):
            found += [*doubtful[1:], ""]
        return [*found[:-1], f"  all checks: python -m analysis check {run.path}", ""]
    found.append("What client and server, and each record by itself, must agree on")
    grouped: dict[tuple[str, str], list[str]] = {}
    for check in run.server.checks:
        grouped.setdefault((check.state, check.seen or check.why or ""), []).append(check.name)
    for (state, words), names in sorted(grouped.items(), key=lambda item: STATES.index(item[0][0])):
        found += wrapped(f"{', '.join(names)}: {words}", lead=f"  {state:<16}")
    found += _of_the_calibration(run)
    left = [f"{one['level']} ({one['n_requests']}): {one['why']}" for one in report["left_by_design"]]
    found += ["", *wrapped("; ".join(left), lead="Requests not sent by design  ")] if left else []
    if run.server.notes:
        found += ["", "Of the server's endpoints"]
        for note in run.server.notes:
            found += wrapped(note, lead="  ")
    if run.seal is not None and run.seal.noticed:
        found += ["", "Noticed by the recorder"]
        for notice in run.seal.noticed:
            found += wrapped(notice, lead="  ")
    return found


def _search(run: LoadedRun) -> str | None:
    if not searches(run.manifest.scenario):
        return None
    from analysis.search_result import result  # a sweep's numbers: much more to load, and few runs are a search

    return result(run)


def _left_why(view: LevelView) -> str:
    return "the search did not visit it" if view.record is None else "it was ended by its time"


def _of_the_calibration(run: LoadedRun) -> list[str]:
    cited = run.manifest.calibration
    differs = cited.get("differs") if isinstance(cited, dict) else None
    said = [*(map(str, differs) if isinstance(differs, list) else ()), *unverified(cited, run.path)]
    if not said:
        return []
    lead = "Of the calibration that it cites"
    return ["", lead, *(line for one in said for line in wrapped(one, lead="  "))]


def _check(check: Check) -> dict[str, Any]:
    return {"name": check.name, "state": check.state, "seen": check.seen or None, "why": check.why}


def recovered_lines(path: Path, seal: Seal) -> list[str]:
    """What a recovery found and closed."""
    found = [f"{path} is closed as recovered" if seal.recovered else f"{path} has its seal"]
    if folder_kind(path) == "run":
        failed = ", ".join(f"{n} {outcome}" for outcome, n in seal.failed.items()) or "none failed"
        counts = f"{seal.planned} planned, {seal.started} started, {seal.completed} completed, {failed}"
        found += wrapped(f"{counts}, {seal.cancelled} cancelled, {seal.unfinished} unfinished", lead="  ")
    for name, n_bytes in seal.torn.items():
        found += wrapped(f"{name} ends in {n_bytes} half-written bytes: kept, not read", lead="  ")
    for notice in seal.noticed:
        found += wrapped(notice, lead="  ")
    return [*found, f"  see: python -m analysis check {path}"]
