"""The tables beside a comparison's answer: domains and levels, other estimates, outputs, speculation, order, tails."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.names import NARROW, WIDEST_NAME, labels, short
from analysis.tables import Notes, ms, number, table, wrapped

Fields = Mapping[str, Any]
SPREAD_TITLES = {"ttft_s": "TTFT_ms", "tpot_s": "TPOT_ms", "e2e_s": "E2E_ms", "decode_tok_per_s": "decode_tok/s"}


def percent(value: float) -> str:
    """A part as per cent: 0.0312 is 3.1 %."""
    return f"{value:.1%}".replace("%", " %") if abs(value) >= 0.01 else f"{value:.2%}".replace("%", " %")


def interval(bounds: Sequence[float]) -> str:
    return f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"


def token_place(span: Sequence[int] | None, notes: Notes) -> str:
    """The first token that differs, or the first and last that its chunk may hold; counted from 1."""
    if span is None:
        return notes.dash("the server sent no token counts with its chunks, or other text than the visible one")
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"


def ratio_cells(group: Fields, notes: Notes) -> list[str]:
    """Launches x prompts, ratio, interval, least detectable difference, verdict."""
    why = group["why"]
    size = f"{group['n_launches']} x {group['n_prompts']}"
    if group["ratio"] is None:
        dash = notes.dash(group["because"])
        return [size, dash, dash, dash, group["verdict"] or dash]
    if group["scope"] == "prompts only":
        shown = "prompts only"
    elif group["interval"] is None:
        shown = notes.dash(why.get("interval"))
    else:
        shown = interval(group["interval"])
    mde = notes.dash(why.get("mde")) if group["mde_crossed"] is None else percent(group["mde_crossed"])
    return [size, number(group["ratio"], 3), shown, mde, group["verdict"]]


def answer_cells(group: Fields, notes: Notes) -> list[str]:
    """Equal of compared, valid of judged."""
    why = group["why"]
    equal = f"{group['outputs_equal']}/{group['outputs_compared']}"
    if not group["outputs_compared"]:
        equal = notes.dash(why.get("outputs_class") or "no pair of answers could be compared")
    if not group["n_judged"]:
        return [equal, notes.dash(why.get("n_judged") or "no answer could be judged (cut, or without a check)")]
    return [equal, f"{group['n_valid']}/{group['n_judged']}"]


def by_group(arms: Sequence[Fields], part: str, control: Fields | None, notes: Notes) -> list[str]:
    """Under each arm one row for each domain (or level), each interval marginal."""
    rows: list[list[str]] = []
    with_answers = part == "by_domain"
    label = named(arms, control)
    for arm in arms:
        if not arm[part]:
            continue
        rows.append([label(arm), *[""] * (7 if with_answers else 5)])
        for name, group in arm[part].items():
            cells = [*ratio_cells(group, notes), *(answer_cells(group, notes) if with_answers else [])]
            rows.append([f"  {short(name, WIDEST_NAME - 2)}", *cells])
    if not rows:
        return []
    titles = ["arm", "size", "ratio", "95 % interval", "MDE", "verdict", *(["equal", "valid"] if with_answers else [])]
    return table(titles, rows, left=(0, 5))


def others(arms: Sequence[Fields], control: Fields | None, notes: Notes) -> list[str]:
    rows = []
    label = named(arms, control)
    for arm in arms:
        found, why = arm["other_ratios"], arm["why"]
        if found is None:
            continue
        total, bounds = found["total_token_ratio"], found["total_token_interval"]
        shown = notes.dash(found["why"].get("total_token_ratio")) if total is None else number(total, 3)
        if bounds is not None:
            shown += f" {interval(bounds)}"
        names = ("ratio_of_medians", "median_of_ratios", "ratio_of_means")
        times = [
            notes.dash(why.get(name)) if arm[name] is None else number(arm[name], 3)
            for name in ("ttft_ratio", "e2e_ratio")
        ]
        rows.append([label(arm), *[number(found[name], 3) for name in names], shown, *times])
    if not rows:
        return []
    titles = ["arm", "of medians", "median of", "of means", "total tokens", "TTFT", "E2E"]
    said = (
        "of medians: ratio of median rates; median of: median of paired ratios; of means: ratio of mean rates; total"
        " tokens: all decode tokens over all decode time, its interval over launches for these very prompts; TTFT and"
        " E2E: geometric means of paired times, below 1 is faster, E2E only where all answers are equally long."
    )
    return [*table(titles, rows), *wrapped(said)]


def outputs(arms: Sequence[Fields], control: Fields | None, own: Fields, notes: Notes) -> list[str]:
    rows, said = [], []
    label = named(arms, control, NARROW)
    for arm in arms:
        found = arm["outputs"]
        differing = [one for one in found["prompts"] if one["first_divergence_char"] is not None]
        first = min(differing, key=lambda one: one["first_divergence_char"], default=None)
        place, token = "none", "none"
        if first is not None:
            place = f"{short(first['prompt_id'], 10)}:{first['first_divergence_char']}"
            token = token_place(first["first_divergence_token"], notes)
        base, mine = found["baseline_judged"], found["arm_judged"]
        rows.append(
            [
                label(arm),
                f"{found['outputs_equal']}/{found['outputs_compared']}",
                str(found["n_length_differs"]),
                str(sum(one["n_finish_reason_differs"] for one in found["prompts"])),
                place,
                token,
                f"{base['n_valid']}/{base['n_judged']}",
                f"{mine['n_valid']}/{mine['n_judged']}",
                str(mine["n_cut"]),
            ]
        )
        if arm is not control:
            said += wrapped(f"{found['outputs_class'] or 'not compared'}: {found['why']}", lead=f"{arm['arm']}: ")
    if not rows:
        return []
    titles = ["arm", "equal", "lengths", "finish", "first at", "token", "base valid", "valid", "cut"]
    legend = "lengths, finish: pairs that differ in them; first at: prompt and character (from 0) of the earliest"
    legend += " divergence; token: its place, from 1; cut: answers cut by max_tokens, which are not judged."
    if own["source"] is None:
        legend += " What the baseline does to itself is not known: nothing to compare."
    else:
        legend += f" The baseline's own ({own['source']}): {own['outputs_equal']} of {own['outputs_compared']} equal."
    return [*table(titles, rows, left=(0, 4)), *wrapped(legend), *said]


def order(arms: Sequence[Fields], baseline: str, notes: Notes) -> list[str]:
    """Drift of the rate over one launch, and the first pass against later ones."""
    rows: list[list[str]] = []
    label = labels([baseline, *(arm["arm"] for arm in arms)], NARROW)
    for arm in arms:
        if not rows:
            rows.append([label[baseline], *_drift(arm["order"]["baseline"], notes), *_warm(arm, "baseline", notes)])
        rows.append([label[arm["arm"]], *_drift(arm["order"]["arm"], notes), *_warm(arm, "arm", notes)])
        rows.append(["  ratio", *_drift(arm["order"]["ratio"], notes), "", "", ""])
    if not rows:
        return []
    titles = ["arm", "by the end", "95 % interval", "drift", "first pass", "95 % interval", "warm-up"]
    legend = (
        "by the end: fitted change of the rate from a launch's first request to its last; first pass: its rate over"
        " that of later passes."
    )
    return [*table(titles, rows, left=(0, 3, 6)), *wrapped(legend)]


def distributions(arms: Sequence[Fields], notes: Notes) -> list[str]:
    """Quantiles of every arm and of the baseline, each request counted once, none below its floor."""
    found: dict[str, Fields] = {}
    for arm in arms:
        found |= arm["distributions"]
    rows = []
    shown_as = labels(found)
    for name, spreads in found.items():
        label = shown_as[name]
        for metric, title in SPREAD_TITLES.items():
            stats = spreads[metric]
            show = number if metric == "decode_tok_per_s" else ms
            cells = [
                notes.dash(stats["why"].get(at)) if stats[at] is None else show(stats[at])
                for at in ("median", "p90", "p95", "p99")
            ]
            rows.append([label, title, str(stats["n"]), *cells])
            label = ""
    return table(["arm", "metric", "n", "median", "p90", "p95", "p99"], rows, left=(0, 1)) if rows else []


def goodput(arms: Sequence[Fields], notes: Notes) -> list[str]:
    found: dict[str, Fields] = {}
    for arm in arms:
        found |= arm["goodput"]
    if all(one["share"] is None for one in found.values()):
        return []
    rows = []
    shown_as = labels(found)
    for name, one in found.items():
        share = one["share"]
        shown = notes.dash(one["why"]) if share is None else percent(share[0])
        if share is not None and share[0] != share[1]:
            shown += f" to {percent(share[1])}"
        rows.append([shown_as[name], str(one["n_sent"]), str(one["n_good"]), str(one["n_failed"]), shown])
    return table(["arm", "sent", "good", "failed", "share"], rows)


def _drift(found: Fields, notes: Notes) -> list[str]:
    if found["per_request"] is None:
        dash = notes.dash(found["why"])
        return [dash, dash, "not tested"]
    bounds, steps = found["interval"], max(1, found["n"] // found["n_launches"] - 1)
    ends = None if bounds is None else [_change(one * steps) for one in bounds]
    span = notes.dash(found["why"]) if ends is None else f"[{ends[0]}, {ends[1]}]"
    seen = ("not tested" if bounds is None else "not seen") if not found["seen"] else "seen"
    if found["one_order"]:
        seen += notes.mark("all launches sent their prompts in one order: a slope may be the prompts', and no drift")
    return [_change(found["per_request"] * steps), span, seen]


def _change(log_ratio: float) -> str:
    """The relative change that a logarithm stands for; beyond a factor of ten it says no more than that."""
    if log_ratio >= math.log(10):
        return "> +900%"
    return f"{round(math.expm1(log_ratio), 3) + 0.0:+.1%}"


def _warm(arm: Fields, side: str, notes: Notes) -> list[str]:
    found = arm["order"]["warm_up"][side]
    if found["first_ratio"] is None:
        dash = notes.dash(found["why"])
        return [dash, dash, "not tested"]
    bounds = found["interval"]
    span = notes.dash(found["why"]) if bounds is None else interval(bounds)
    said = {True: "sufficed", False: "NOT enough", None: "not tested"}[found["sufficed"]]
    return [number(found["first_ratio"], 3), span, said]


def named(arms: Sequence[Fields], control: Fields | None, widest: int = WIDEST_NAME) -> Callable[[Fields], str]:
    """How each arm of one table is called: a name that fits and is no other's, or the control."""
    found = labels((arm["arm"] for arm in arms if arm is not control), widest)
    return lambda arm: "control" if arm is control else found[arm["arm"]]
