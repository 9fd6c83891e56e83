"""Several runs beside the first: medians and their ratios, which describe these runs and claim nothing of the systems.

A ratio is withheld, with its reason, where a run is INVALID in the scope of the number, where the plans differ
(another mix of requests) or what was added to each body does, or, for rates, where the tokens were counted by different
sources.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.summary_view import completed, group_name, median, scope_lines, title
from analysis.tables import Notes, ms, number, table, wrapped

LETTERS = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
RATIO_LABEL = "ratio of medians, one launch each, no interval: not a claim about the system"
METRICS = (("decode_tok_per_s", "rate", number), ("ttft_s", "latency", ms), ("e2e_s", "latency", ms))
Fields = Mapping[str, Any]


def ratios(summaries: Sequence[Fields]) -> list[dict[str, Any]]:
    """For each run but the first and each of its groups: the ratio to the first run's median, or None and why."""
    base = summaries[0]
    return [
        {
            "run_id": summary["run_id"],
            "domain": group["domain"],
            "level": group["level"],
            **_all_ratios(summary, group, base),
        }
        for summary in summaries[1:]
        for group in summary["groups"]
    ]


def lines(summaries: Sequence[Fields]) -> list[str]:
    """The table: each group with one row a run."""
    notes, names = Notes(), _names(summaries)
    found = []
    for name, summary in zip(names, summaries, strict=True):
        codes = ", ".join(dict.fromkeys(reason["code"] for reason in summary["reasons"]))
        found += wrapped(title(summary, name) + (f" ({codes})" if codes else ""))
        found += scope_lines(summary["scope"])
    titles = [
        "group",
        "run",
        "n",
        "decode_tok/s",
        "ratio",
        "TTFT_ms",
        "ratio",
        "E2E_ms",
        "ratio",
        "accepted",
        "verdict",
    ]
    rows = []
    for group_of in dict.fromkeys(group_name(group) for summary in summaries for group in summary["groups"]):
        label = group_of
        for name, summary in zip(names, summaries, strict=True):
            rows.append([label, name, *_cells(summary, group_of, summaries[0], notes), summary["verdict"]])
            label = ""
    found += ["", *table(titles, rows, left=(0, 1, 10))]
    found += wrapped(f"ratio: to {names[0]}; {RATIO_LABEL}. Above 1 is faster for decode_tok/s and slower for times.")
    reasons = notes.lines()
    return found + (["", "Why there is a dash", *reasons] if reasons else [])


def _cells(summary: Fields, name: str, base: Fields, notes: Notes) -> list[str]:
    group = _named(summary, name)
    if group is None:
        return [notes.dash("this run holds no such group")] * 8
    found = _all_ratios(summary, group, base)
    cells = [completed(group)]
    for metric, _, shown in METRICS:
        ratio = found[metric]
        cells += [
            median(group[metric], shown, notes),
            notes.dash(found["why"][metric]) if ratio is None else number(ratio),
        ]
    accepted = group["acceptance"]
    if accepted["rate"] is None:
        return [*cells, notes.dash(f"acceptance {accepted['state']}: {accepted['why']}")]
    return [*cells, number(accepted["rate"], 3)]


def _all_ratios(summary: Fields, group: Fields, base: Fields) -> dict[str, Any]:
    theirs = _named(base, group_name(group))
    found: dict[str, Any] = {}
    whys: dict[str, str] = {}
    for metric, scope, _ in METRICS:
        why = _why_none(summary, base, scope)
        medians = (group[metric]["median"], None if theirs is None else theirs[metric]["median"])
        if why is None and (medians[0] is None or not medians[1]):
            why = "no median in this run, or none in the first"
        found[metric] = None if why is not None else medians[0] / medians[1]
        if why is not None:
            whys[metric] = why
    return {**found, "why": whys}


def _why_none(summary: Fields, base: Fields, scope: str) -> str | None:
    for run in (base, summary):
        if run["verdicts"][scope] == "INVALID":
            return f"{run['run_id']} is INVALID for {scope}: its numbers enter no comparison"
    if summary["scope"]["plan_sha256"] != base["scope"]["plan_sha256"]:
        return "the two runs did not send the same plan"
    extras = [run["scope"].get("request_extra") or {} for run in (base, summary)]
    if extras[0] != extras[1]:
        names = [name for name in sorted({*extras[0], *extras[1]}) if extras[0].get(name) != extras[1].get(name)]
        return f"the two runs' request bodies differ in {', '.join(names) or 'what was added'} (--extra-body)"
    if scope == "rate" and summary["scope"]["token_sources"] != base["scope"]["token_sources"]:
        return f"tokens counted by {summary['scope']['token_sources']} and by {base['scope']['token_sources']}"
    return None


def _names(summaries: Sequence[Fields]) -> list[str]:
    """The arms' names, with a letter before them where one name stands for several runs."""
    arms = [str(summary["scope"]["arm"] or "no label") for summary in summaries]
    if len(set(arms)) == len(arms):
        return arms
    return [f"{letter} {arm}" for letter, arm in zip(LETTERS, arms, strict=False)]


def _named(summary: Fields, name: str) -> Fields | None:
    return next((group for group in summary["groups"] if group_name(group) == name), None)
