"""A sweep as text: what it holds for, the answers first, then the tables they rest on."""

from collections.abc import Mapping
from typing import Any

from analysis import sweep_server_tables as server_tables
from analysis import sweep_tables as tables
from analysis.summary_view import scope_lines
from analysis.sweep_cells import TextCells
from analysis.tables import fine_ms, ms, wrapped

Fields = Mapping[str, Any]
LEGEND = (
    "tok/s, req/s: of the whole level, and of its steady window; over several launches their geometric mean. Tokens"
    " count by the instant they arrived. in flight: mean over the level. lost: failed, cancelled or never ended, by"
    " outcome in the notes. good: share of all requests sent that met the objectives, lost ones counted as not."
)
RATIOS = (
    "tok/s: output tokens a second over the baseline's at the same level, interval over launches (Student)."
    " decode: geometric mean of paired per-prompt decode rates, crossed t interval in which prompts and launches vary."
    " TTFT is a time: below 1 is faster. breaks even: tokens a target step below which speculation loses at that level."
)
ARRIVALS = (
    "due/s: the schedule's own rate over these very arrivals, from which a Poisson process of few arrivals strays by"
    " itself; held: sent of due. A rate not held, or a cap that was hit, limits the client and shows nothing of the"
    " server at the rate asked for."
)
KINDS = {"concurrency": "users at once", "context": "prompt tokens", "arrivals": "arrivals, open loop"}


def lines(report: Fields) -> list[str]:
    """The whole print-out of ``sweep``."""
    cells = TextCells()
    levels, arms = report["levels"], report["arms"]
    found = [*_title(report), *_scope(report), *_objectives(report["objectives"]), ""]
    found += _answers(report)
    for title, grid, legend in (
        ("Load and throughput", tables.load(levels, cells), load_legend(report)),
        ("Arms against the baseline", tables.against(arms, cells), RATIOS),
        ("Latency (the client's clock)", tables.latencies(levels, cells), scheduled(report)),
        ("Arrivals", tables.arrivals(levels, cells), ARRIVALS),
        ("The server's own side", server_tables.server(levels, cells), ""),
        ("Energy a token", tables.energy(levels, cells), ""),
        ("Memory and capacity", server_tables.capacity(report["capacity"], cells), ""),
    ):
        if grid.rows:
            found += [title, *grid.lines(), *(wrapped(legend) if legend else []), ""]
    found += [line for said in capacity_notes(report) for line in wrapped(said, lead="  ")]
    found += ["", *_lost(report), *_floor(report)]
    reasons = cells.notes.lines()
    return found + (["Why there is a dash, and marks", *reasons] if reasons else [])


def load_legend(report: Fields) -> str:
    """The legend of the first table, with the rule of the steady window as it was applied."""
    rule = f" steady: {report['steady_rule']}." if report["steady_rule"] else ""
    left = f" Not visited by the search: {', '.join(report['not_visited'])}." if report["not_visited"] else ""
    return LEGEND + rule + left


def _title(report: Fields) -> list[str]:
    study = report["study"]
    kind = KINDS.get(report["kind"] or "", str(report["kind"]))
    if study is not None:
        codes = f" ({', '.join(study['codes'])})" if study["codes"] else ""
        head = f"{study['study_id']}  {study['name']}  {study['verdict']}{codes}  levels: {kind}"
        return [*wrapped(head), f"  baseline {report['baseline']}"]
    run = report["runs"][0]
    return wrapped(f"{run['arm']}  {run['verdict']}  {run['run_id']}  levels: {kind}")


def _scope(report: Fields) -> list[str]:
    scope = report["scope"]
    if report["study"] is None and "n_launches" in scope and isinstance(scope["n_launches"], int):
        return scope_lines(scope)

    def listed(name: str) -> str:
        return " / ".join(str(one) for one in scope.get(name) or ()) or "unknown"

    launches = ", ".join(f"{arm} {n}" for arm, n in scope["n_launches"].items())
    return wrapped(
        f"launches: {launches}; {scope['n_prompts']} prompts; hardware: {listed('hardware')}; engine: "
        f"{listed('engine')}; model: {listed('model')}",
        lead="  ",
    )


def _objectives(found: Fields) -> list[str]:
    names = {"ttft_slo_s": "TTFT", "tpot_slo_s": "TPOT"}
    told = [f"{names[name]} at most {ms(value)} ms" for name, value in found.items() if name in names]
    return wrapped(f"objectives: {', '.join(told) or 'none is set ([limits] ttft_slo_s, tpot_slo_s)'}", lead="  ")


def answers(report: Fields) -> list[tuple[str, str]]:
    """Of whom and what: the highest level that holds the objectives, and where each arm breaks even."""
    found: list[tuple[str, str]] = []
    if report["objectives"]:
        found += [(f"{arm}, objectives", one["said"]) for arm, one in report["highest_level"].items()]
    for arm in report["arms"]:
        if arm["refused"] is not None:
            found.append((tables.named([arm], 100)(arm), f"refused: {arm['refused']}"))
        elif arm["role"] != "control":
            for what, title in (("throughput", "throughput"), ("decode", "decode rate")):
                found.append((f"{arm['arm']}, {title}", arm["break_even"][what]["said"]))
    if report["note"] is not None and report["study"] is not None:
        found.append(("scope", report["note"]))
    return found


def _answers(report: Fields) -> list[str]:
    found = [line for who, said in answers(report) for line in wrapped(said, lead=f"{who}: ")]
    return [*found, ""] if found else []


def scheduled(report: Fields) -> str:
    if report["kind"] != "arrivals":
        return ""
    return "* from the instant a request was scheduled for, whatever the client did; the others from its sending."


def capacity_notes(report: Fields) -> list[str]:
    """Formula, sources, and why a difference of the driver's readings is not what an algorithm costs."""
    formulas = dict.fromkeys(
        f"{one['kv_cache']['formula']} ({one['kv_cache']['source']}; {one['kv_cache']['dtype']})"
        for one in report["capacity"]
        if one["kv_cache"]["formula"]
    )
    sources = dict.fromkeys(one["tokens_source"] for one in report["capacity"] if one["tokens_source"])
    found = [f"logical bytes a token: {'; '.join(formulas)}"] if formulas else []
    found += [f"KV tokens by: {'; '.join(sources)}"] if sources else []
    if any(one["driver_most_bytes"] is not None for one in report["capacity"]):
        found.append(str(report["driver_note"]))
    return found


def _floor(report: Fields) -> list[str]:
    """The client's own part of each latency, as the calibration cited by a run has it."""
    told = dict.fromkeys(
        ", ".join(f"{name} {fine_ms(value)} ms" for name, value in floors.items())
        for floors in report["client_floor_s"].values()
        if floors
    )
    n_without = sum(not floors for floors in report["client_floor_s"].values())
    none = f"{n_without} of {len(report['client_floor_s'])} runs cite none (`python -m study calibrate` measures it)"
    said = [*told, *([none] if n_without else [])]
    return [*wrapped("; ".join(said), lead="client floor: "), ""]


def _lost(report: Fields) -> list[str]:
    found: list[str] = []
    for one in report["runs"]:
        for scope, codes in one["invalid"].items():
            said = f"INVALID for {scope}: {', '.join(codes)}: its numbers stand here and enter no ratio"
            found += wrapped(said, lead=f"  {one['run_id']}: ")
    for one in report["not_measured"]:
        said = f"not measured: {one['stage']}: {_clipped(str(one['symptom']))}"
        found += wrapped(said, lead=f"  {one['arm']}, pair {one['pair']}: ")
    return ["Left out, and what is INVALID", *found, ""] if found else []


def _clipped(said: str, most: int = 300) -> str:
    return said if len(said) <= most else f"{said[: most - 3]}..."
