"""The answer of a comparison as a Markdown table: one row an arm, for pages that are checked against the evidence.

Nothing is computed here. A cell without a number says in words what stands in its place.
"""

from collections.abc import Mapping
from typing import Any

from analysis.compare_tables import interval
from analysis.tables import ms, number, one_line

Fields = Mapping[str, Any]
TITLES = (
    "arm", "launches x prompts", "decode rate, arm / baseline", "95 % interval", "verdict", "answers equal",
    "step and cycle, ms", "tokens a step", "breaks even at",
)  # fmt: skip
MOST_WORDS = 120


def lines(report: Fields) -> list[str]:
    """The study in one line, then its table, the control last."""
    study, control = report["study"], report["control"]
    scope = {name: " / ".join(str(one) for one in found) for name, found in report["scope"].items() if _list(found)}
    name = "Runs paired in the order given" if study is None else f"Study {study['name']}, {study['verdict']}"
    about = [scope.get(key) for key in ("engine", "model", "hardware")]
    found = [f"{name}; baseline {report['baseline']}; {'; '.join(one for one in about if one)}.", ""]
    if report["refused"] is not None:
        return [*found, f"Nothing is compared: {one_line(report['refused'])}"]
    found += [_row(TITLES), _row(["---"] * len(TITLES))]
    for arm in [*report["arms"], *([control] if control is not None else [])]:
        found.append(_row(_cells(arm, "control" if arm is control else str(arm["arm"]))))
    return found


def _cells(arm: Fields, name: str) -> list[str]:
    if arm["not_measured"] is not None:
        lost = arm["not_measured"]
        return [name, "0", f"not measured: {lost['stage']}: {_clipped(str(lost['symptom']))}", *["-"] * 6]
    if arm["refused"] is not None or arm["ratio"] is None:
        return [name, "-", _clipped(str(arm["because"])), *["-"] * 6]
    alone = arm["scope"] == "prompts only"
    bounds = arm["prompt_sampling_interval"] if alone else arm["interval"]
    span = "-" if bounds is None else interval(bounds) + (" over prompts" if alone else "")
    cost, accepted = arm["cycle_cost"], arm["acceptance"]
    known = cost is not None and cost["cost"] is not None
    steps = accepted["tokens_per_target_step"] if accepted is not None else None
    return [
        name,
        f"{arm['n_launches']} x {arm['n_prompts']}",
        number(arm["ratio"], 3),
        span,
        "prompts only: one launch" if alone else str(arm["verdict"]),
        f"{arm['outputs_equal']} of {arm['outputs_compared']}",
        f"{ms(cost['t_base_s'])} and {ms(cost['t_cycle_s'])}" if cost is not None and known else "-",
        "-" if steps is None else number(steps, 3),
        number(cost["cost"], 2) if cost is not None and known else "-",
    ]


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _clipped(said: str) -> str:
    said = one_line(said)
    return said if len(said) <= MOST_WORDS else f"{said[: MOST_WORDS - 3]}..."


def _list(found: Any) -> bool:
    return isinstance(found, list | tuple)
