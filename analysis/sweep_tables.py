"""The tables of a sweep: load and throughput, latencies, arrivals, arms beside each other, energy.

Reads the object of ``sweep --json`` and computes nothing. In print every table fits 100 columns; what has no number has
a dash with its reason.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.compare_tables import interval, percent
from analysis.names import NARROW, labels
from analysis.sweep_cells import Cells, Grid
from analysis.tables import ms, number

Fields = Mapping[str, Any]
SHOWN = (("ttft_s", "TTFT ms"), ("tpot_s", "TPOT ms"), ("e2e_s", "E2E ms"))
SCHEDULED = (("ttft_from_schedule_s", "TTFT* ms"), ("e2e_from_schedule_s", "E2E* ms"))
QUANTILES = ("median", "p90", "p95", "p99")


def named(found: Sequence[Fields], widest: int = NARROW) -> Callable[[Fields], str]:
    """How the arm of each level (or launch) of one table is called: a name that is no other's, or the control."""
    shown = labels((str(one["arm"]) for one in found if one["role"] != "control"), widest)
    return lambda one: "control" if one["role"] == "control" else shown[str(one["arm"])]


def launches_named(levels: Sequence[Fields]) -> Callable[[Fields, Fields], str]:
    """The arm, and which paired launch of it where there are several."""
    one_each, several = named(levels), named(levels, 11)
    return lambda one, run: one_each(one) if one["n_launches"] == 1 else f"{several(one)} {run['pair']}"


def load(levels: Sequence[Fields], cells: Cells) -> Grid:
    """Requests, what was lost, throughput of the whole level and of its steady window, goodput."""
    rows = []
    name_of = named(levels)
    for place, one in enumerate(levels):
        path, runs = f"levels.{place}", one["launches"]
        lost = ", ".join(f"{outcome} {n}" for outcome, n in one["failed"].items()) or None
        flight, share = _mean(runs, "full", "mean_in_flight"), one["good_share"]
        rows.append(
            [
                cells.level(one),
                name_of(one),
                cells.number(one["n_launches"], str(one["n_launches"]), f"{path}.n_launches"),
                cells.words(f"{one['n_completed']} of {one['n_planned']}"),
                cells.number(one["n_lost"], str(one["n_lost"]), f"{path}.n_lost", lost),
                cells.dash("in flight is not known") if flight is None else cells.words(number(flight, 1)),
                *[_window(one, window, "output_tok_per_s", cells, path) for window in ("full", "steady")],
                *[_window(one, window, "requests_per_s", cells, path) for window in ("full", "steady")],
                cells.dash(one["why"].get("good_share"))
                if share is None
                else cells.number(share[0], _share(share), f"{path}.good_share.0"),
            ]
        )
    titles = ["level", "arm", "runs", "answered", "lost", "in flight", "tok/s", "steady", "req/s", "steady", "good"]
    return Grid(titles=titles, rows=rows, left=(0, 1))


def latencies(levels: Sequence[Fields], cells: Cells) -> Grid:
    """Quantiles over the requests of all launches, none below its floor; in the open loop from the schedule too."""
    rows = []
    name_of = named(levels)
    for place, one in enumerate(levels):
        label, arm = cells.level(one), name_of(one)
        for metric, title in (*SHOWN, *(SCHEDULED if one["kind"] == "arrivals" else ())):
            stats = one[metric]
            quantiles = [
                cells.dash(stats["why"].get(at))
                if stats[at] is None
                else cells.quantile(one, metric, stats[at], ms(stats[at]), f"levels.{place}.{metric}.{at}")
                for at in QUANTILES
            ]
            rows.append([label, arm, title, str(stats["n"]), *quantiles])
            label = arm = ""
    return Grid(titles=["level", "arm", "metric", "n", *QUANTILES], rows=rows, left=(0, 1, 2))


def arrivals(levels: Sequence[Fields], cells: Cells) -> Grid:
    """Rate asked, the schedule's own and the one achieved; how late requests were sent, how often the cap was hit."""
    rows = []
    launch_of = launches_named(levels)
    for place, one in enumerate(levels):
        for nth, run in enumerate(one["launches"] if one["kind"] == "arrivals" else ()):
            path = f"levels.{place}.launches.{nth}"
            asked, achieved, lag = run["asked_rate_per_s"], run["achieved_rate_per_s"], run["send_lag_s"]
            scheduled = run["scheduled_rate_per_s"]
            rows.append(
                [
                    cells.level(one),
                    launch_of(one, run),
                    cells.dash("a trace asks for times, not for a rate") if asked is None else f"{asked:g}",
                    cells.dash(run["why"].get("achieved_rate_per_s")) if scheduled is None else number(scheduled, 3),
                    cells.dash(run["why"].get("achieved_rate_per_s"))
                    if achieved is None
                    else cells.number(achieved, number(achieved, 3), f"{path}.achieved_rate_per_s"),
                    cells.dash(run["why"].get("achieved_rate_per_s") or "the schedule has no rate")
                    if not scheduled or achieved is None
                    else cells.words(percent(achieved / scheduled), run["rate_missed"]),
                    *[
                        cells.dash("no send lag is on record")
                        if lag.get(at) is None
                        else cells.number(lag[at], ms(lag[at]), f"{path}.send_lag_s.{at}")
                        for at in ("median", "p99", "max")
                    ],
                    cells.dash("not on record") if run["n_cap_hits"] is None else str(run["n_cap_hits"]),
                ]
            )
    titles = ["level", "arm", "asked/s", "due/s", "sent/s", "held", "lag p50 ms", "p99", "max", "cap hits"]
    return Grid(titles=titles, rows=rows, left=(0, 1))


def against(arms: Sequence[Fields], cells: Cells) -> Grid:
    """Each arm's ratios to the baseline, level by level."""
    rows = []
    name_of = named(arms)
    for place, arm in enumerate(arms):
        for nth, one in enumerate(arm["levels"]):
            path, cost = f"arms.{place}.levels.{nth}", one["cycle_cost"] or {}
            rate, decode, ttft = one["throughput"], one["decode"], one["ttft"]
            why_cost = one["why"].get("cycle_cost") or (cost.get("why") or {}).get("cost")
            span = decode["interval"] or decode["prompt_sampling_interval"]
            sampling = None if decode["interval"] else "sampling of prompts alone, one launch"
            rows.append(
                [
                    cells.level({**one, "arm": arm["arm"], "role": arm["role"]}),
                    name_of(arm),
                    _ratio(rate, cells, f"{path}.throughput"),
                    cells.dash(rate["why"]) if rate["interval"] is None else interval(rate["interval"]),
                    _ratio(decode, cells, f"{path}.decode"),
                    cells.dash(decode["why"]) if span is None else cells.words(interval(span), sampling),
                    _ratio(ttft, cells, f"{path}.ttft"),
                    *[
                        cells.dash(why_cost)
                        if cost.get(name) is None
                        else cells.number(cost[name], number(cost[name]), f"{path}.cycle_cost.{name}")
                        for name in ("tokens_per_step", "cost")
                    ],
                ]
            )
    titles = ["level", "arm", "tok/s", "interval", "decode", "interval", "TTFT", "tok/step", "breaks even"]
    return Grid(titles=titles, rows=rows, left=(0, 1))


def energy(levels: Sequence[Fields], cells: Cells) -> Grid:
    """Energy a token of each level and launch; nothing where no GPU was sampled in any."""
    rows = []
    launch_of = launches_named(levels)
    runs = [(place, nth, one, run) for place, one in enumerate(levels) for nth, run in enumerate(one["launches"])]
    for place, nth, one, run in runs if any(run["energy"] is not None for *_, run in runs) else ():
        found, path = run["energy"], f"levels.{place}.launches.{nth}.energy"
        if found is None:
            shown = [cells.dash(run["why"].get("energy"))] * 4
        else:
            shown = [
                cells.number(
                    found["joules_per_token"], number(found["joules_per_token"], 3), f"{path}.joules_per_token"
                ),
                cells.number(found["mean_power_w"], number(found["mean_power_w"], 1), f"{path}.mean_power_w"),
                number(found["window_s"], 1),
                str(found["n_tokens"]),
            ]
        rows.append([cells.level(one), launch_of(one, run), *shown])
    return Grid(titles=["level", "arm", "J/token", "mean W", "window s", "tokens"], rows=rows, left=(0, 1))


def _ratio(found: Fields, cells: Cells, path: str) -> str:
    if found["ratio"] is None:
        return cells.dash(found["why"])
    return cells.number(found["ratio"], number(found["ratio"], 3), f"{path}.ratio")


def _window(one: Fields, window: str, name: str, cells: Cells, path: str) -> str:
    key = f"{window}_{name}"
    value = one[key]
    if value is None:
        return cells.dash(one["why"].get(key))
    return cells.number(value, number(value, 1 if value >= 10 else 2), f"{path}.{key}")


def _mean(runs: Sequence[Fields], window: str, name: str) -> float | None:
    known = [run[window][name] for run in runs if run[window][name] is not None]
    return sum(known) / len(known) if known and len(known) == len(runs) else None


def _share(found: Sequence[float]) -> str:
    return percent(found[0]) if found[0] == found[1] else f"{percent(found[0])} to {percent(found[1])}"
