"""The server's side of one level: what its counters and histograms say of the window between the scrapes around it, and
its gauges in the scrapes within.

Joined by rule: a level's scrapes carry its label, the window opens and closes at rest, so what it shows is the level's
own. Where levels were not scraped apart nothing is shown of a single one. Gauges are samples: their maximum is the most
that any scrape showed. What an engine does not tell stands as "not observable", with the reason.
"""

from collections.abc import Sequence
from typing import Any

from analysis.server import ALL, ServerSide, group_acceptance
from analysis.timings import histogram_timings
from infra.engines.adapter import Adapter
from infra.engines.histogram import latency
from infra.engines.load import Gauge, Gauged, Load, gauged, kv_capacity, load_of
from infra.engines.meaning import growth
from infra.engines.readings import Measured, Reading, why_none
from infra.engines.window import Snapshot, Window

UNSEEN = "not observable: "
FEWEST_SCRAPES = 2  # below it the mean of a gauge says nothing


def level_server(side: ServerSide, label: str, *, n_completed: int) -> dict[str, Any]:
    """Everything the server tells of a level, for ``summary --json``; each part is numbers, or null and why."""
    windows = side.opened.at(label)
    broken = next((window.why for window in windows if window.why is not None), None)
    why = side.no_window or broken or (None if windows else "the levels were not scraped apart")
    acceptance = group_acceptance(side, ALL, label)
    if why is not None or side.adapter is None:
        said = {"why": f"{UNSEEN}{why or 'no reader of what this server tells'}"}
        times = {name: {"series": None, "mean": None, **said} for name in ("ttft_s", "tpot_s", "inter_token_s")}
        single = {name: {"value": None, **said} for name in ("preemptions", "retractions", "failures")}
        gauges = {name: {"max": None, "mean": None, **said} for name in ("running", "waiting", "kv_tokens_used")}
        return {
            "coverage": said["why"],
            **times,
            "acceptance": acceptance,
            "queue_s": {"series": None, "mean": None, **said},
            **single,
            **gauges,
        } | {"kv_tokens_used": {**gauges["kv_tokens_used"], "capacity": None, "ratio_max": None}}
    load, adapter = load_of(side.adapter.engine), side.adapter
    shots = [shot for window in windows for shot in window.during]
    return {
        "coverage": f"the window between the scrapes at rest around the level, {len(shots)} scrapes within it",
        **histogram_timings(side, windows=windows, n_completed=n_completed),
        "acceptance": acceptance,
        "queue_s": latency(load.queue, windows).as_json() | _seen(latency(load.queue, windows).mean_s),
        "preemptions": _counted(growth(load.preemptions, windows).reading),
        "retractions": _retractions(load, windows, adapter),
        "failures": _counted(growth(load.failures, windows).reading),
        "running": _gauge(load.running, windows, adapter),
        "waiting": _gauge(load.waiting, windows, adapter),
        "kv_tokens_used": _kv(load, windows, adapter),
    }


def _counted(reading: Reading) -> dict[str, Any]:
    return {"value": reading.value if isinstance(reading, Measured) else None, **_seen(reading)}


def _seen(reading: Reading) -> dict[str, Any]:
    why = why_none(reading)
    return {"why": None if why is None else UNSEEN + why}


def _gauge(where: Gauged, windows: Sequence[Window], adapter: Adapter) -> dict[str, Any]:
    """Mean and maximum over the scrapes within the window, servers of a round added."""
    name, values = _series(where, windows, adapter)
    if name is None or not values:
        why = _why(where, windows)
        return {"series": None, "mean": None, "max": None, "n": 0, "why": UNSEEN + why, "note": None}
    mean = sum(values) / len(values) if len(values) >= FEWEST_SCRAPES else None
    return {
        "series": name,
        "mean": mean,
        "max": max(values),
        "n": len(values),
        "why": None if mean is not None else "one scrape has no mean",
        "note": where.note if isinstance(where, Gauge) and where.note else None,
    }


def _series(where: Gauged, windows: Sequence[Window], adapter: Adapter) -> tuple[str | None, list[float]]:
    """The series, and its value in each round of scrapes: summed over what adds, and over the servers."""
    columns: list[list[float]] = []
    series = None
    for window in windows:
        found = [gauged(where, shot.exposition, adapter.rule) for shot in window.during]
        series = series or next((one[0] for one in found if one is not None), None)
        columns.append([sum(one[1]) for one in found if one is not None])
    rounds = min((len(column) for column in columns), default=0)
    return series, [sum(column[n] for column in columns) for n in range(rounds)]


def _why(where: Gauged, windows: Sequence[Window]) -> str:
    if not isinstance(where, Gauge):
        return where.why
    if not any(window.during for window in windows):
        return "no scrape within the level"
    return f"no series {' or '.join(where.names)}"


def _retractions(load: Load, windows: Sequence[Window], adapter: Adapter) -> dict[str, Any]:
    """A gauge of the last report: the most that was seen, which is the fewest there were."""
    found = _gauge(load.retractions, windows, adapter)
    return {"value": found["max"], "series": found["series"], "why": found["why"], "note": found["note"]}


def _kv(load: Load, windows: Sequence[Window], adapter: Adapter) -> dict[str, Any]:
    """Tokens held in the KV cache against its capacity, over the scrapes within the level."""
    total = kv_capacity(load, [window.after for window in windows], adapter.rule)
    capacity = total.value if isinstance(total, Measured) else None
    used = _gauge(load.kv_used, windows, adapter)
    share = _share(load.kv_share, windows, adapter)
    if used["max"] is None and share["max"] is not None and capacity is not None:
        scaled = {name: None if share[name] is None else share[name] * capacity for name in ("mean", "max")}
        used = {**share, **scaled, "note": f"{share['series']} of a capacity of {capacity:g} tokens"}
    highest = used["max"] / capacity if used["max"] is not None and capacity else share["max"]
    why = used["why"] if used["max"] is None else None
    return {
        **used,
        "why": why,
        "capacity": capacity,
        "ratio_max": highest,
        "ratio_mean": used["mean"] / capacity if used["mean"] is not None and capacity else share["mean"],
        "why_no_capacity": None if capacity is not None else UNSEEN + (why_none(total) or "no capacity"),
    }


def _share(where: Gauged, windows: Sequence[Window], adapter: Adapter) -> dict[str, Any]:
    """A share does not add: over the ranks and servers of a scrape its mean is taken, they being alike in size."""
    found = _gauge(where, windows, adapter)
    if found["series"] is None:
        return found
    n_parts = sum(max((_parts(where, shot, adapter) for shot in window.during), default=0) for window in windows)
    return {**found, **{key: None if found[key] is None else found[key] / max(1, n_parts) for key in ("mean", "max")}}


def _parts(where: Gauged, shot: Snapshot, adapter: Adapter) -> int:
    found = gauged(where, shot.exposition, adapter.rule)
    return 0 if found is None else len(found[1])
