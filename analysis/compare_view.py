"""A comparison as text: the answer first, then what it rests on. Reads what ``analysis.compare_report`` made.

Every table fits 100 columns; what has no number has a dash with its reason under the tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import compare_tables as tables
from analysis import speculation_tables
from analysis.compare_tables import interval, percent
from analysis.control import doubt
from analysis.tables import Notes, running, table, wrapped

Fields = Mapping[str, Any]
LONGEST_SYMPTOM = 300
RULE = (
    "size: launches x prompts; ratio: geometric mean over prompts and launches of arm / baseline decode rate, above 1"
    " is faster; its interval is the crossed t interval, in which prompts and launches both vary. MDE: the least"
    " difference that launches and prompts like these would show with power 80 %. equal, valid: of the answers"
    " compared, of those judged."
)


def lines(report: Fields) -> list[str]:
    """The whole print-out."""
    notes = Notes()
    found = [*_title(report), *_scope(report["scope"]), ""]
    if report["refused"] is not None:
        return [*found, *wrapped(f"Nothing is compared: {report['refused']}")]
    if report["planned"]:
        said = f"planned, not measured: {', '.join(report['planned'])}. Estimates of a plan are no measurements."
        return [*found, *wrapped(said)]
    compared = [one for one in report["arms"] if one["not_measured"] is None and one["refused"] is None]
    control = report["control"]
    rows = [*report["arms"], *([control] if control is not None else [])]
    ran = control is not None and control["not_measured"] is None and control["refused"] is None
    beside = [*compared, *([control] if ran else [])]
    found += [*_main(report, rows, notes), *wrapped(RULE), ""]
    for arm in report["arms"]:
        found += wrapped(sentence(arm), lead=f"{arm['arm']}: ")
    found += [*wrapped(_control_sentence(report), lead="control: "), ""]
    for title, part in (
        ("By domain", tables.by_group(beside, "by_domain", control, notes)),
        ("By level", tables.by_group(beside, "by_level", control, notes)),
        ("Other estimates (each answers another question)", tables.others(beside, control, notes)),
        ("Outputs", tables.outputs(beside, control, report["own_disagreement"], notes)),
        ("Acceptance (server's own counts)", speculation_tables.acceptance(compared, notes)),
        ("Cost of a cycle", speculation_tables.cycle_cost(compared, report["draft_cost"], notes)),
        ("Order and warm-up", tables.order(compared, report["baseline"], notes)),
        ("Distributions over all requests", tables.distributions(compared, notes)),
        ("Within the objectives", tables.goodput(compared, notes)),
        ("Left out, and what limits the rest", _left_out(report, beside)),
        ("Gate", _gate(report["gate"])),
    ):
        if part:
            found += [title, *part, ""]
    reasons = notes.lines()
    return found + (["Why there is a dash, and marks", *reasons] if reasons else [])


def sentence(arm: Fields) -> str:
    """What may be said of an arm, in words: never of the system where one launch was compared."""
    if arm["not_measured"] is not None:
        lost = arm["not_measured"]
        where = "" if lost["folder"] is None else f" ({lost['folder']})"
        return f"not measured: {lost['stage']}: {_clipped(lost['symptom'])}{where}"
    if arm["refused"] is not None:
        return f"refused: {arm['because']}"
    if arm["ratio"] is None:
        return f"no ratio: {arm['because']}"
    about = f"over {arm['subset']}, " if arm["subset"] != "all pairs" else ""
    answers = f"; answers: {_answers(arm)}"
    if arm["scope"] == "prompts only":
        bounds = arm["prompt_sampling_interval"]
        sampling = "" if bounds is None else f" (sampling of prompts alone: {interval(bounds)})"
        return (
            f"prompts only: {about}ratio {arm['ratio']:.3f} on these {arm['n_prompts']} prompts in one launch"
            f"{sampling}; one launch says nothing about the system{_unseen(arm)}{answers}"
        )
    over = f"over {arm['n_launches']} launches and {arm['n_prompts']} prompts"
    bounds = arm["interval"]
    said = f"{arm['verdict']}: {about}ratio {arm['ratio']:.3f}"
    said += f" ({arm['confidence']:.0%} interval {interval(bounds)} {over})" if bounds else f" {over}, no interval"
    said += f"; {arm['because']}"
    if arm["verdict"] in ("faster", "slower") and arm["within_margin"]:
        said += f", and within the margin of {percent(arm['margin'])} all the same"
    if arm.get("beyond_control") is False:
        said += ", and no further from 1 than the control's own ratio"
    if arm["verdict"] in ("no difference", "not resolved"):
        said += _unseen(arm)
    return said + answers


def _answers(arm: Fields) -> str:
    """Equality and validity, which go with every ratio: a fast wrong answer is no gain."""
    said = str(arm["outputs_class"] or "not compared")
    base, mine = arm["outputs"]["baseline_judged"], arm["outputs"]["arm_judged"]
    if not mine["n_judged"] and not base["n_judged"]:
        return f"{said}, none judged by a task check"
    valid = f"valid {mine['n_valid']} of {mine['n_judged']} judged"
    return f"{said}, {valid}, the baseline's {base['n_valid']} of {base['n_judged']}"


def _unseen(arm: Fields) -> str:
    """What would have stayed unseen, which goes with every "no difference" and "not resolved"."""
    by = [(arm["mde"], "launches"), (arm["mde_prompts"], "prompts")]
    told = [f"{percent(value)} by {unit}" for value, unit in by if value is not None]
    if not told:
        return f"; the least detectable difference is not known: {arm['why'].get('mde', 'no spread was seen')}"
    return f"; a difference below {' and '.join(told)} would stay unseen (power 80 %)"


def _control_sentence(report: Fields) -> str:
    control = report["control"]
    own = report["own_disagreement"]
    said = "" if own["source"] is None else f"own answers, {own['source']}: {own['outputs_equal']} of "
    said += "" if own["source"] is None else f"{own['outputs_compared']} equal. "
    if control is None:
        return f"none: {report['why']['control']}. {said}".strip()
    verdict = sentence(control)
    if (differs := doubt(control)) is not None:
        verdict += f". {differs}: what moves it moves the arms too, and their intervals miss it"
    return f"the baseline against itself. {said}{verdict}"


def _title(report: Fields) -> list[str]:
    study = report["study"]
    subset = "" if report["asked"]["only"] is None else f", over {report['asked']['subset']} only"
    if study is None:
        return wrapped(f"Runs paired in the order given, baseline {report['baseline']}{subset}")
    codes = f" ({', '.join(study['codes'])})" if study["codes"] else ""
    found = wrapped(f"{study['study_id']}  {study['name']}  {study['verdict']}{codes}")
    if not study["sealed"]:
        found += wrapped("Preliminary: the study has no seal, and cells may be missing.")
    return [*found, *wrapped(f"baseline {report['baseline']}{subset}", lead="  ")]


def _scope(scope: Fields) -> list[str]:
    """Launches, passes, prompts, server-counted prompt tokens, concurrency, hardware, engine: the numbers' scope."""

    def listed(name: str, unknown: str) -> str:
        return " / ".join(str(one) for one in scope[name]) or unknown

    launches = ", ".join(f"{arm} {n}" for arm, n in scope["n_launches"].items())
    control = f", control {scope['n_control_launches']}" if scope["n_control_launches"] else ""
    tokens = listed("prompt_tokens_a_launch", "unknown")
    parts = [
        f"launches: {launches}{control}",
        f"passes: {listed('n_passes', 'unknown')}",
        f"{scope['n_prompts']} prompts",
        f"{tokens} prompt tokens a launch (server's count)",
        f"concurrency {listed('concurrency', 'unknown')}",
        f"hardware: {listed('hardware', 'unknown')}",
        f"engine: {listed('engine', 'unknown')}",
        f"model: {listed('model', 'unknown')}",
    ]
    lines = wrapped("; ".join(parts), lead="  ")
    if scope["levels_of_some"]:
        some = ", ".join(scope["levels_of_some"])
        said = (
            f"not every run visited {some}: no pair stands on these, and what is not paired is over all that each ran"
        )
        lines += wrapped(said, lead="  ")
    return lines


def _main(report: Fields, arms: Sequence[Fields], notes: Notes) -> list[str]:
    rows = []
    label = tables.named(arms, report["control"])
    for arm in arms:
        name = label(arm)
        if arm["not_measured"] is not None:
            lost = arm["not_measured"]
            dash = notes.dash(f"{arm['arm']}: not measured: {lost['stage']}: {_clipped(lost['symptom'])}")
            rows.append([name, dash, dash, dash, dash, "not measured", dash, dash])
            continue
        if arm["refused"] is not None:
            dash = notes.dash(f"{arm['arm']}: {arm['because']}")
            rows.append([name, dash, dash, dash, dash, "refused", dash, dash])
            continue
        rows.append([name, *tables.ratio_cells(arm, notes), *tables.answer_cells(arm, notes)])
    titles = ["arm", "size", "ratio", "95 % interval", "MDE", "verdict", "equal", "valid"]
    return table(titles, rows, left=(0, 5))


def _left_out(report: Fields, arms: Sequence[Fields]) -> list[str]:
    found: list[str] = []
    out = dict.fromkeys((one["scope"], one["why"]) for arm in arms for one in arm["excluded"])
    for scope, why in out:
        found += wrapped(why, lead=f"  no {scope} number from this run: " if scope != "run" else "  not used: ")
    lost = [*report["baseline_not_run"], *(one for arm in arms for one in arm["not_run"])]
    for one in lost:
        said = f"cell {one['index']}, pair {one['pair']}: {one['state']}, {one['stage']}: {_clipped(one['symptom'])}"
        found += wrapped(said, lead="  no run: ")
    for arm in arms:
        coverage, keys = arm["coverage"], arm["comparable"]
        lead = f"  {arm['arm']}: "
        prompts = coverage["left_out_prompts"]
        if prompts:
            first = next(iter(prompts.items()))
            said = f"{len(prompts)} of {coverage['n_prompts_seen']} prompts left out, {first[0]}: {first[1]}"
            found += wrapped(said, lead=lead)
        for launch, why in coverage["left_out_launches"].items():
            found += wrapped(f"launch {launch} left out: {why}", lead=lead)
        for said in (*arm["shared_launches"], *(f"over launches: {one}" for one in keys["over_launches"])):
            found += wrapped(said, lead=lead)
        if keys["on_purpose"]:
            found += wrapped(f"differs on purpose: {'; '.join(keys['on_purpose'])}", lead=lead)
        if keys["unknown"]:
            found += wrapped(f"not known of one run or both: {', '.join(keys['unknown'])}", lead=lead)
        if arm["limits"]:
            counted = ", ".join(f"{code} ({n} run{'' if n == 1 else 's'})" for code, n in arm["limits"].items())
            found += wrapped(f"DEGRADED: {counted}", lead=lead)
    return found


def _gate(gate: Fields | None) -> list[str]:
    if gate is None:
        return []
    found = [f"  at least {gate['min_ratio']:g}: {'met' if gate['met'] else 'NOT met'}"]
    for arm in gate["arms"]:
        said = f"{'met' if arm['met'] else 'not met'}: {_clipped(arm['because'])}"
        found += wrapped(f"{said}; answers: {arm['outputs_class'] or 'not compared'}", lead=f"  {arm['arm']}: ")
    return found


def _clipped(text: str) -> str:
    said = running(text)
    return said if len(said) <= LONGEST_SYMPTOM else f"{said[: LONGEST_SYMPTOM - 3]}..."
