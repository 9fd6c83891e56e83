"""The order of a report: of a run, and of a study. Each section is made elsewhere; here is what stands where."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import (
    report_comparison,
    report_evidence,
    report_limits,
    report_numbers,
    report_outputs,
    report_pairs,
    report_ratios,
    report_requests,
    report_verdict,
)
from analysis.report_capacity import capacity_section
from analysis.report_decision import decide
from analysis.report_gather import RunView, domains_of, series_of
from analysis.report_html import Child, Markup, details, join, prose, slug, tag
from analysis.report_page import Section, figure, limits, page, section, sections
from analysis.report_rows import rows_each
from analysis.report_series import MOST_POINTS, lanes
from analysis.report_study import StudyView
from analysis.report_sweep import sweep_data, sweep_section
from analysis.report_traces import traces_section
from analysis.study_check import StudyVerdict
from analysis.study_loading import Material
from analysis.summary_view import scope_lines
from analysis.sweep_report import SweepRun, sweep_json, sweep_of

RECORDS = "Every request and its raw record"
TOTAL_POINTS, FEWEST_POINTS = 2_000, 60  # of a lane over all runs of a page, and of one run
KEYS = "Arrow keys move from mark to mark, Enter opens the request, Escape goes back."
TIME_KEYS = (
    "Drag to zoom, or press + and -; arrow keys move the cursor, Shift with them pans, 0 shows all, Enter opens the"
    " request under the cursor."
)
NO_DECISION = (
    "No decision: this is one run of one launch. What switching would bring needs paired launches of both arms: see"
    " `python -m study run`. What this run shows is how this one launch behaved, below."
)


def run_page(run: RunView, beside: Path) -> str:
    """The report of one run."""
    data, held_back = _data([run], "run")
    data["summary"] = run.summary
    sweep, traced = _sweep([run], None, None), traces_section([(run.name, run.path)], beside)
    data |= {"sweep": sweep_data(sweep), "traces": traced.data}
    n = len(run.measured)
    found = sections(
        [
            section("verdict", "Verdict", "Verdict", report_verdict.of_run(run), _scope(run)),
            section("decision", "Decision", "Decision", tag("p", prose(NO_DECISION), class_="lead")),
            section("numbers", "Numbers", "Numbers", report_numbers.medians(run), report_numbers.server_side(run)),
            section("energy", "Energy", "Energy a token", report_numbers.energies([run])),
            section(
                "plot",
                "Requests",
                "Each request",
                figure("requests", f"{n} measured requests in the order sent; lines are medians. {KEYS}"),
            ),
            section("latency", "Latency", "TTFT and TPOT", _distributions("domain")),
            section("time", "Time", "Server and client in time", _time([run])),
            section("acceptance", "Acceptance", "Acceptance", report_numbers.acceptance(run), _accepted([run])),
            section("sweep", "Levels", "By level", sweep_section(sweep, [run]), _levels([run])),
            section("capacity", "Capacity", "Memory and capacity", capacity_section(sweep, [run])),
            section("traces", "GPU time", "Where the GPU's time went", traced.section),
            section(
                "outputs", "Outputs", "Outputs", report_outputs.judged(run), report_outputs.repeats(run)
            ),
            section("records", "Records", RECORDS, _requests([run], beside)),
            section("evidence", "Evidence", "Evidence and provenance", report_evidence.of_run(run, beside, open_=True)),
            _limits([run], held_back, study=False),
        ]
    )  # fmt: skip
    return page(f"{run.arm}: {run.summary['verdict']}", run.id, found, data)


def study_page(view: StudyView, beside: Path) -> str:
    """The report of a study."""
    runs, study = view.runs, view.folder.study
    arms = [arm for arm in study.arms if arm != study.baseline]
    data, held_back = _data(runs, "study")
    data |= {
        "compare": view.compared,
        "forest": report_comparison.forest(view.compared),
        "pairs": report_pairs.pairs_data(view, arms),
        "baseline": study.baseline,
    }
    sweep, traced = _sweep(runs, view.material, view.verdict), traces_section(_traced(view), beside)
    data |= {"sweep": sweep_data(sweep), "traces": traced.data}
    decided = decide(view.compared, planned=study.status == "planned")
    found = sections(
        [
            section("verdict", "Verdict", "Verdict", report_verdict.of_study(view)),
            section("decision", "Decision", "Decision", report_comparison.decisions(decided, view.compared)),
            section("comparison", "Comparison", "Comparison", *_comparison(view, arms, beside)),
            section("energy", "Energy", "Energy a token", report_numbers.energies(runs)),
            section("plot", "Prompts", "Each prompt", _paired(view)),
            section("latency", "Latency", "TTFT and TPOT", _distributions("arm") if runs else None),
            section("time", "Time", "Server and client in time", _time(runs) if runs else None),
            section("acceptance", "Acceptance", "Acceptance", _accepted(runs),
                    _folded(runs, "Acceptance", report_numbers.acceptance)),
            section("sweep", "Levels", "By level", sweep_section(sweep, runs), _levels(runs)),
            section("capacity", "Capacity", "Memory and capacity", capacity_section(sweep, runs)),
            section("traces", "GPU time", "Where the GPU's time went", traced.section),
            section(
                "outputs",
                "Outputs",
                "Outputs",
                *[report_outputs.compared(view, arm) for arm in (None, *arms)] if runs else [],
                _folded(runs, "Answers judged", lambda run, _: report_outputs.judged(run)),
            ),
            section("numbers", "Numbers", "Numbers of each run", _folded(runs, "Medians", report_numbers.medians)),
            section("records", "Records", RECORDS, _requests(runs, beside) if runs else None),
            section(
                "evidence",
                "Evidence",
                "Evidence and provenance",
                report_evidence.of_study(view, beside),
                join(
                    [report_evidence.of_run(run, beside, first=None if run is runs[0] else runs[0]) for run in runs]
                ),
            ),
            _limits(runs, held_back, study=True),
        ]
    )  # fmt: skip
    return page(f"{study.name}: {view.verdict.verdict}", study.study_id, found, data)


def _data(runs: Sequence[RunView], kind: str) -> tuple[dict[str, Any], list[str]]:
    domains = domains_of(runs)
    requests, held_back = report_requests.embedded(runs, domains)
    shown = [
        {
            "name": run.name,
            "arm": run.series,
            "role": run.role,
            "pair": run.pair,
            "id": run.id,
            "path": str(run.path),
            "verdict": run.summary["verdict"],
            "anchor": slug("run", run.index),
            "lanes": lanes(run, max(FEWEST_POINTS, min(MOST_POINTS, TOTAL_POINTS // len(runs)))),
            "medians": _medians(run),
        }
        for run in runs
    ]
    return {
        "kind": kind,
        "domains": domains,
        "arms": series_of(runs),
        "runs": shown,
        "requests": requests,
        "levels": report_numbers.level_points(runs),
    }, held_back


def _medians(run: RunView) -> list[dict[str, Any]]:
    """The groups' medians as ``summary --json`` has them, for the lines of the charts."""
    names = {"ttft_s": "ttft_s", "tpot_s": "tpot_s", "rate": "decode_tok_per_s", "e2e_s": "e2e_s"}
    return [
        {"domain": g["domain"], "level": g["level"], **{to: g[name]["median"] for to, name in names.items()}}
        for g in run.summary["groups"]
    ]


def _limits(runs: Sequence[RunView], held_back: Sequence[str], *, study: bool) -> Section | None:
    said = report_limits.of_runs(runs, held_back, study=study)
    return section("limits", "Limits", "What this can't tell", limits(said))


def _scope(run: RunView) -> Markup:
    return tag("p", tag("b", "Holds for: "), " ".join(line.strip() for line in scope_lines(run.summary["scope"])) + ".")


def _comparison(view: StudyView, arms: Sequence[str], beside: Path) -> list[Markup]:
    caption = (
        "Ratio of decode rates to the baseline's, with its interval: to the right is faster. Filled marks: the interval"
        f" leaves out 1. The grey band is what these launches and prompts could not have shown. {KEYS}"
    )
    return [
        figure("forest", caption) if view.compared.get("arms") or view.compared.get("control") else Markup(""),
        tag("p", _about(view.compared), class_="note"),
        report_ratios.tables(view.compared, view, beside),
        *[part for part in (report_comparison.order(view.compared), report_comparison.left_out(view.compared)) if part],
        report_pairs.pair_tables(view, arms),
    ]


def _about(compared: Mapping[str, Any]) -> Child:
    """The scope of the comparison in words."""
    scope = compared.get("scope") or {}
    parts = [
        f"{scope.get('n_runs')} runs",
        f"{scope.get('n_prompts')} prompts",
        f"{scope.get('n_requests')} requests",
        f"{_listed(scope.get('prompt_tokens_a_launch'))} prompt tokens a launch (server's count)",
        f"concurrency {_listed(scope.get('concurrency'))}",
        f"hardware: {_listed(scope.get('hardware'))}",
        f"engine: {_listed(scope.get('engine'))}",
        f"model: {_listed(scope.get('model'))}",
    ]
    return "Holds for: " + ", ".join(parts) + "."


def _listed(values: Any) -> str:
    return " | ".join(str(value) for value in values) if values else "unknown"


def _paired(view: StudyView) -> Markup | None:
    if not report_pairs.pairs_data(view, view.folder.study.arms):
        return None
    caption = (
        "Each mark is one prompt in one paired launch: its decode rate over the baseline's in the same launch. Prompts"
        f" stand in order of their mean within each domain. {KEYS}"
    )
    return figure("paired", caption)


def _distributions(by: str) -> Markup:
    said = (
        "Share of requests that took at most so long, each request counts once; a step is one request. Dots mark the"
        f" medians by nearest rank. {KEYS}"
    )
    return join(
        [
            figure("ecdf", f"TTFT. {said}", data_field="ttft_s", data_by=by),
            figure("ecdf", "TPOT, in the same way.", data_field="tpot_s", data_by=by),
        ]
    )


def _time(runs: Sequence[RunView]) -> Markup:
    said = "Seconds since the first measured request was sent. Client and server are joined by their wall clocks."
    return figure("lanes", f"{said} {TIME_KEYS}", data_runs=len(runs))


def _accepted(runs: Sequence[RunView]) -> Markup | None:
    if not any(entry.acceptance and entry.acceptance.get("n_drafted") for run in runs for entry in run.measured):
        return None
    return figure("accepted", f"Accepted share of the drafted tokens against the decode rate, each request. {KEYS}")


def _sweep(runs: Sequence[RunView], material: Material | None, verdict: StudyVerdict | None) -> dict[str, Any]:
    """The object of ``sweep --json`` from runs that were read already; of runs without levels only their capacity."""
    made = [
        SweepRun(
            loaded=run.loaded,
            summary=run.summary,
            gpu=run.loaded.gpu,
            arm=run.arm,
            role=run.role or "run",
            pair=run.pair or 0,
        )
        for run in runs
    ]
    return sweep_json(sweep_of(made, material), material, verdict)


def _traced(view: StudyView) -> list[tuple[str, Path]]:
    """Profiled launches of a study, and timed runs that hold a trace all the same."""
    profiles = [(f"{one.arm}, profiled, launch {one.pair}", one.run.path) for one in view.material.profiles]
    return [*profiles, *[(run.name, run.path) for run in view.runs]]


def _levels(runs: Sequence[RunView]) -> Markup | None:
    tables = [report_numbers.levels(run, f"runs.{run.index}") for run in runs]
    if all(found is None for found in tables):
        return None
    inside = [figure("levels", f"Medians by level. {KEYS}"), *[found for found in tables if found is not None]]
    return details("Medians by level and domain, run by run", *inside)


def _folded(runs: Sequence[RunView], title: str, made: Callable[[RunView, str], Markup]) -> Markup | None:
    """The same of each run, folded away together."""
    if not runs:
        return None
    each = [tag("div", tag("h3", run.name), made(run, f"runs.{run.index}")) for run in runs]
    return details(f"{title}, run by run ({len(runs)})", each)


def _requests(runs: Sequence[RunView], beside: Path) -> Markup:
    controls = tag(
        "p",
        tag("label", "Show only rows with ", tag("input", type="search", id="filter", placeholder="text")),
        " Click a column's title to sort by it.",
        class_="js note",
    )
    most, tables = rows_each(len(runs)), []
    for run in runs:
        rows, anchor = report_requests.table_of(run, beside, most), slug("requests", run.index)
        alone = len(runs) == 1
        tables.append(
            tag("div", tag("h3", run.name), rows, id=anchor) if alone else details(run.name, rows, id_=anchor)
        )
    return join([controls, *tables])
