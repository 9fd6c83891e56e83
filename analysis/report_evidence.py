"""Evidence and provenance: what was measured with what, by which records, with which hashes, and what is missing."""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import identity
from analysis.report_gather import RunView
from analysis.report_html import Child, Markup, details, facts, join, prose, slug, table, tag
from analysis.report_requests import href
from analysis.report_study import StudyView
from evidence.records import Launch

LONGEST = 6_000  # characters of a folded value
STATES = {"pass": "\u2713 pass", "fail": "\u2715 fail", "not observable": "? not observable"}


def of_run(run: RunView, beside: Path, *, first: RunView | None = None, open_: bool = False) -> Markup:
    """One run's provenance under its anchor ``run-N``; ``first``: a run beside which only what differs is told."""
    manifest, loaded = run.loaded.manifest, run.loaded
    seal = loaded.seal
    served = identity.model_served(row.request for row in loaded.measured)
    head: list[tuple[str, Child]] = [
        ("run", tag("a", str(run.path), href=href(run.path, beside))),
        ("made", when(manifest.created_at_unix_s)),
        ("sealed", "no: not a result" if seal is None else when(seal.sealed_at_unix_s)),
        ("arm", identity.arm_name(manifest) or "no label"),
        ("engine", identity.engine_line(manifest, loaded.launch)),
        ("model", identity.model_line(manifest, loaded.launch, served)),
        ("hardware", identity.hardware_line(manifest)),
        ("plan SHA-256", tag("code", manifest.plan_sha256)),
        ("scenario SHA-256", tag("code", manifest.scenario_sha256)),
        ("project commit", manifest.git_commit or _missing(run, "git_commit")),
        ("note", manifest.note or "none"),
    ]
    if seal is not None:
        ways = ", ".join(f"{n} {outcome}" for outcome, n in seal.failed.items()) or "0 failed"
        counts = f"{seal.planned} planned, {seal.started} started, {seal.completed} completed, {ways}"
        head.append(("requests", f"{counts}, {seal.cancelled} cancelled, {seal.unfinished} unfinished"))
    return details(
        f"{run.name}: {run.id}",
        facts(head),
        _checks(run),
        _gaps(run),
        _launch(loaded.launch, loaded.launch_missing),
        _files(run, beside),
        join([_json(title, value, _beside(first, title)) for title, value in _told(run).items()]),
        open_=open_,
        id_=slug("run", run.index),
    )


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 'es'}"


def of_study(view: StudyView, beside: Path) -> Markup:
    """The study's own record and its cells in the order run."""
    study = view.folder.study
    head: list[tuple[str, Child]] = [
        ("study", tag("a", str(view.path), href=href(view.path, beside))),
        ("made", when(study.created_at_unix_s)),
        ("sealed", "no" if view.folder.seal is None else when(view.folder.seal.sealed_at_unix_s)),
        ("baseline", study.baseline),
        ("arms", ", ".join(study.arms)),
        ("design", f"{_counted(study.launches, 'paired launch')} x {_counted(study.passes, 'pass')}, "
         f"{study.control_launches} control, order {study.order}, seed {study.seed}"),
        ("study file SHA-256", tag("code", study.file_sha256)),
        ("scenario SHA-256", tag("code", study.scenario_sha256)),
    ]  # fmt: skip
    rows: list[list[Child]] = []
    for cell in sorted(study.cells, key=lambda one: one.index):
        run = view.run_of.get(cell.index)
        rows.append(
            [
                cell.index,
                cell.arm,
                cell.role,
                cell.pair,
                cell.state + (f" (attempt {cell.attempt})" if cell.attempt > 1 else ""),
                "-" if cell.took_s is None else f"{cell.took_s:.0f}",
                tag("a", run.id, href=f"#{slug('run', run.index)}") if run else _folder(view, cell.launch_dir, beside),
                ": ".join(part for part in (cell.stage, cell.symptom) if part) or "-",
            ]
        )
    titles = ["cell", "arm", "role", "launch", "state", "took s", "run or launch folder", "stage and symptom"]
    return join([facts(head), table(titles, rows, left=(1, 2, 4, 6, 7), caption="Cells in the order run")])


def when(unix_s: float) -> str:
    """An instant as UTC."""
    return datetime.datetime.fromtimestamp(unix_s, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _folder(view: StudyView, named: str | None, beside: Path) -> Child:
    return "-" if named is None else tag("a", named, href=href(view.path / named, beside))


def _missing(run: RunView, what: str) -> str:
    why = next((one.why for one in run.loaded.manifest.missing if one.what == what), None)
    return f"not on record: {why}" if why else "not on record"


def _checks(run: RunView) -> Markup:
    order = ("fail", "pass", "not observable")
    checks = sorted(run.loaded.server.checks, key=lambda check: order.index(check.state))
    rows = [[STATES[check.state], check.name, prose(check.seen or check.why or "")] for check in checks]
    return table(["state", "what must agree", "seen, or why not"], rows, left=range(3), caption="Conservation checks")


def _gaps(run: RunView) -> Markup:
    missing = [[one.what, prose(one.why)] for one in run.loaded.manifest.missing]
    problems = [[problem.code, prose(str(problem))] for problem in run.loaded.problems]
    found = []
    if missing:
        found.append(table(["not on record", "why"], missing, left=range(2), caption="Missing of the manifest"))
    if problems:
        found.append(table(["problem", "where"], problems, left=range(2), caption="Problems of the folder"))
    return join(found)


def _launch(launch: Launch | None, why: str | None) -> Markup:
    if launch is None:
        return tag("p", f"Launch: {why}.", class_="note")
    said: list[tuple[str, Child]] = [
        ("launch", launch.launch_id),
        ("stage", f"{launch.stage}, {launch.outcome}, speculation {launch.speculation}"),
        ("started", when(launch.started_at_unix_s)),
        ("again", tag("code", launch.reproduce)),
        ("versions", ", ".join(f"{name} {version}" for name, version in launch.versions.items())),
    ]
    if launch.symptom:
        said.append(("symptom", tag("pre", launch.symptom[:LONGEST], class_="model")))
    return facts(said)


def _told(run: RunView) -> dict[str, Any]:
    """What is folded away under each title."""
    manifest, launch = run.loaded.manifest, run.loaded.launch
    return {
        "Command": None if launch is None else list(launch.command),
        "Arguments as resolved": None if launch is None else launch.resolved,
        "Scenario as resolved": manifest.scenario,
        "Recipe": manifest.arm,
        "Server as it described itself": manifest.server,
        "Model": manifest.model,
        "Versions of this client": manifest.versions,
        "Hardware": manifest.hardware,
        "Clocks of this client": manifest.clock,
        "Options": manifest.options,
        "Request fields": manifest.request_extra,
        "Environment (redacted)": manifest.environment,
        "Prompt files by SHA-256": manifest.prompts_sha256,
        "Client calibration cited": manifest.calibration,
    }


def _beside(first: RunView | None, title: str) -> tuple[RunView, Any] | None:
    return None if first is None else (first, _told(first)[title])


def _files(run: RunView, beside: Path) -> Markup:
    if run.loaded.seal is None:
        return Markup("")
    rows = [
        [tag("a", name, href=href(run.path / name, beside)), tag("code", digest)]
        for name, digest in sorted(run.loaded.seal.files.items())
    ]
    return details(f"Sealed files by SHA-256 ({len(rows)})", table(["file", "SHA-256"], rows, left=range(2)))


def _json(title: str, value: Any, beside: tuple[RunView, Any] | None = None) -> Markup:
    if value is None or (isinstance(value, Mapping | Sequence) and not value):
        return Markup("")
    if beside is not None:
        run, other = beside
        there = tag("a", run.name, href=f"#{slug('run', run.index)}")
        if value == other:
            return tag("p", join([f"{title}: as of ", there, "."]), class_="note")
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            gone = sorted(other.keys() - value.keys())
            value = {key: one for key, one in value.items() if key not in other or other[key] != one}
            title += f", what is not as of {run.name}" + (f"; without {', '.join(gone)}" if gone else "")
    said = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=isinstance(value, Mapping))
    cut = said[:LONGEST] + (f"\n\u2026 {len(said) - LONGEST} characters more on file" if len(said) > LONGEST else "")
    return details(title, tag("pre", cut, class_="model"))
