"""The verdict of a report, first of all: of a run its reasons and remedies, of a study those of its cells and runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.report_gather import RunView
from analysis.report_html import Child, Markup, details, join, number, prose, slug, table, tag
from analysis.report_study import StudyView
from analysis.study_check import StudyReason
from analysis.summary_view import merged
from analysis.verdict import SCOPES

MARKS = {"VALID": "\u2713", "DEGRADED": "!", "INVALID": "\u2715"}  # a shape beside the colour
MEANS = {
    "VALID": "nothing limits what this can show",
    "DEGRADED": "usable, with the limits named here",
    "INVALID": "no number in a scope so marked may enter a comparison",
}
HEAVIEST = ("INVALID", "DEGRADED", "VALID")
Fields = Mapping[str, Any]


def badge(verdict: str, words: str | None = None) -> Markup:
    """A verdict as a word with a mark and a colour."""
    return tag("span", f"{MARKS.get(verdict, '?')} {words or verdict}", class_=f"badge {verdict.lower()}")


def of_run(run: RunView) -> Markup:
    """A run's verdict, by scope, with each reason."""
    summary = run.summary
    overall = str(summary["verdict"])
    parts: list[Child] = [
        tag("p", badge(overall), " ", MEANS[overall] + ".", class_="lead"),
        tag("p", [join([badge(said, f"{scope} {said}"), " "]) for scope, said in summary["verdicts"].items()]),
        reasons(summary["reasons"]),
    ]
    if summary["noticed"]:
        parts.append(details(f"Noticed by the recorder ({len(summary['noticed'])})", _list(summary["noticed"])))
    return join(parts)


def reasons(found: Sequence[Fields]) -> Markup:
    """Each reason with what was seen and what to do, the heaviest first."""
    return join(
        [
            tag(
                "div",
                tag("p", badge(str(reason["severity"])), " ", tag("b", scopes), ": ", prose(reason["seen"])),
                tag("p", tag("b", "What to do: "), prose(reason["remedy"]), class_="remedy"),
                tag("p", tag("code", reason["code"]), class_="note"),
                class_="reason",
            )
            for scopes, reason in merged(found)
        ]
    )


def of_study(view: StudyView) -> Markup:
    """A study's verdict with its own reasons and those of its runs, its cells, and the verdict of each run."""
    study, runs = view.folder.study, view.runs
    states = [cell.state for cell in study.cells]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no cell"
    overall = view.verdict.verdict
    parts: list[Child] = [
        tag("p", badge(overall), " ", MEANS[overall] + ".", class_="lead"),
        tag("p", f"{len(study.cells)} cells: {counts}. A study is as good as its worst run."),
    ]
    if study.status == "planned":
        parts.append(tag("p", "This study is planned: it holds no measurement.", class_="warn"))
    parts += [_study_reasons(view), _verdicts(runs)]
    if study.noticed:
        parts.append(details(f"Noticed while it ran ({len(study.noticed)})", _list(study.noticed)))
    if view.verdict.notes:
        parts.append(details(f"Notes ({len(view.verdict.notes)})", _list(view.verdict.notes)))
    return join(parts)


def _study_reasons(view: StudyView) -> Markup:
    """A reason that several runs or cells share is said once, with the runs or cells it holds for."""
    cells = {cell.index: cell for cell in view.folder.study.cells}
    found: dict[tuple[str, ...], list[StudyReason]] = {}
    for one in view.verdict.reasons:
        cell = None if one.cell is None else cells.get(one.cell)
        if one.run_id is not None:
            about: tuple[str, ...] = ()
        else:
            about = (one.seen,) if cell is None else (cell.arm, cell.stage or "", cell.symptom or one.seen)
        found.setdefault((one.severity, one.code, *about), []).append(one)
    ordered = sorted(found.items(), key=lambda item: HEAVIEST.index(item[0][0]))
    return join([_study_reason(key[0], own, view) for key, own in ordered])


def _study_reason(severity: str, own: Sequence[StudyReason], view: StudyView) -> Markup:
    scopes = ", ".join(dict.fromkeys(one.scope for one in own))
    ids = {one.run_id for one in own if one.run_id is not None}
    runs = [run for run in view.runs if run.id in ids]
    cells = [str(one.cell) for one in own if one.cell is not None and one.run_id is None]
    where: Child = [" in ", _links(runs, len(view.runs))] if runs else None
    if cells:
        where = f" in cell{'s' if len(cells) > 1 else ''} {', '.join(cells)}"
    seen = list(dict.fromkeys(one.seen for one in own))
    more = f" (and {len(seen) - 1} like it)" if len(seen) > 1 else ""
    return tag(
        "div",
        tag("p", badge(severity), " ", tag("b", scopes), ": ", prose(seen[0]), more),
        tag("p", tag("b", "What to do: "), prose(own[0].remedy), class_="remedy"),
        tag("p", tag("code", own[0].code), where, class_="note"),
        class_="reason",
    )


def _links(own: Sequence[RunView], n_runs: int) -> Markup:
    if len(own) == n_runs and n_runs > 1:
        return join([f"each of the {n_runs} runs"])
    links = [tag("a", run.name, href=f"#{slug('run', run.index)}") for run in own]
    return join([join([", " if place else "", link]) for place, link in enumerate(links)])


def _verdicts(runs: Sequence[RunView]) -> Markup:
    rows = [
        [
            tag("a", run.name, href=f"#{slug('run', run.index)}"),
            badge(str(run.summary["verdict"])),
            *[badge(str(run.summary["verdicts"][scope])) for scope in SCOPES[1:]],
            number(sum(row.request.outcome == "completed" for row in run.loaded.measured), _completed(run)),
        ]
        for run in runs
    ]
    titles = ["run", "verdict", *SCOPES[1:], "completed"]
    return details(
        f"Verdict of each of {len(runs)} runs",
        table(titles, rows, left=range(len(titles) - 1), caption="Verdicts by run"),
    )


def _completed(run: RunView) -> str:
    done = sum(row.request.outcome == "completed" for row in run.loaded.measured)
    return f"{done} of {sum(line.get('phase') == 'measured' for line in run.loaded.plan.values())}"


def _list(lines: Sequence[str]) -> Markup:
    return tag("ul", [tag("li", prose(line)) for line in lines])
