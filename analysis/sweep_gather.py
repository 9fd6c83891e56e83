"""From a run as read to its levels in numbers: what ``summary --json`` says of each level, with energy and memory.

The driver's memory and the energy of a level come from the GPU samples taken while its requests ran; samples between
levels belong to none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.capacity import driver
from analysis.level_limits import LEAST_RATE
from analysis.loading import LoadedRun
from analysis.measures import Derived, Row
from analysis.report_energy import energy
from analysis.summary import ALL, SINGLES, STREAM_CAME_WHOLE
from analysis.sweep_levels import FROM_SCHEDULE, METRICS, LevelNumbers, Window
from analysis.unsent import visited
from evidence.gpu_records import GpuSample

LATENCIES = ("ttft_s", "ttfv_s", "e2e_s")
Fields = Mapping[str, Any]


def level_numbers(
    run: LoadedRun, summary: Fields, gpu: Sequence[GpuSample], *, pair: int = 0
) -> dict[str, LevelNumbers]:
    """The levels of a run by label, in the plan's order; empty for a kind without levels."""
    kind = kind_of(run)
    groups = {group["level"]: group for group in summary["groups"] if group["domain"] == ALL}
    rows: dict[str, list[Row]] = {}
    for row in run.measured:
        if row.request.level is not None:
            rows.setdefault(row.request.level, []).append(row)
    return {
        level["label"]: _numbers(
            run, kind, level, groups.get(level["label"]) or {}, rows.get(level["label"], []), gpu, summary, pair
        )
        for level in summary.get("levels") or ()
        if visited(level)
    }


def kind_of(run: LoadedRun) -> str:
    """The scenario's kind, or "unknown"."""
    scenario = run.manifest.scenario
    return str(scenario.get("kind") or "unknown") if isinstance(scenario, Mapping) else "unknown"


def objectives(run: LoadedRun) -> dict[str, float]:
    """The scenario's objectives that are set."""
    scenario = run.manifest.scenario
    limits = scenario.get("limits") if isinstance(scenario, Mapping) else None
    found = limits if isinstance(limits, Mapping) else {}
    return {
        name: float(found[name])
        for name in ("ttft_slo_s", "tpot_slo_s")
        if isinstance(found.get(name), int | float) and not isinstance(found[name], bool)
    }


def _numbers(
    run: LoadedRun,
    kind: str,
    level: Fields,
    group: Fields,
    rows: Sequence[Row],
    gpu: Sequence[GpuSample],
    summary: Fields,
    pair: int,
) -> LevelNumbers:
    achieved, scheduled = level.get("achieved_rate_per_s"), level.get("scheduled_rate_per_s")
    whys = level.get("why") or {}
    inside = _during(gpu, rows)
    used = driver(inside)
    return LevelNumbers(
        run_id=run.manifest.run_id,
        pair=pair,
        level=str(level["label"]),
        kind=kind,
        setting=_setting(kind, level),
        n_planned=int(level["n_planned"]),
        n_completed=int(level["n_completed"]),
        n_failed=int(level["n_failed"]),
        n_cancelled=int(level["n_cancelled"]),
        n_unfinished=int(level.get("n_unfinished") or group.get("n_unfinished") or 0),
        failed=dict(Counter(row.request.outcome for row in rows if row.request.outcome != "completed")),
        ended_by=level.get("ended_by"),
        full=_window(level.get("full") or {}),
        steady=_window(level.get("steady") or {}),
        values=_values(rows),
        asked_rate_per_s=level.get("rate_per_s"),
        scheduled_rate_per_s=scheduled,
        achieved_rate_per_s=Derived(achieved, None if achieved is not None else whys.get("achieved_rate_per_s")),
        rate_missed=_rate_missed(level),
        send_lag_s=level.get("send_lag_s") or {},
        n_cap_hits=level.get("n_cap_hits"),
        acceptance=(level.get("server") or {}).get("acceptance") or group.get("acceptance") or {},
        server=level.get("server") or {},
        cached_share=level.get("cached_share"),
        client_floor_s=summary.get("client_floor_s"),
        driver_bytes=Derived(None if used.most_bytes is None else float(used.most_bytes), used.why),
        energy=energy(inside, [row.request for row in rows]),
    )


def _setting(kind: str, level: Fields) -> float | None:
    value = level.get({"concurrency": "users", "context": "target_tokens", "arrivals": "rate_per_s"}.get(kind, ""))
    return None if value is None else float(value)


def _window(found: Fields) -> Window:
    good = found.get("goodput") or {}
    whys = dict(found["why"]) if isinstance(found.get("why"), Mapping) else {}
    said = found.get("why") if isinstance(found.get("why"), str) else None
    for name in ("output_tok_per_s", "requests_per_s"):
        if found.get(name) is None and name not in whys:
            whys[name] = said or "no such window of this level"
    if good.get("share") is None:
        whys["good_share"] = whys["good_per_s"] = good.get("why") or said or "no goodput is on record"
    return Window(
        window_s=found.get("window_s"),
        output_tok_per_s=found.get("output_tok_per_s"),
        requests_per_s=found.get("requests_per_s"),
        mean_in_flight=found.get("mean_in_flight"),
        good_per_s=_two(good.get("per_s")),
        good_share=_two(good.get("share")),
        n_sent=good.get("n_sent") if good.get("share") is not None else None,
        n_good=good.get("n_good") if good.get("share") is not None else None,
        n_undecided=good.get("n_undecided") if good.get("share") is not None else None,
        why=whys,
    )


def _two(found: Sequence[float] | None) -> tuple[float, float] | None:
    return None if found is None else (found[0], found[1])


def _values(rows: Sequence[Row]) -> dict[str, tuple[float, ...]]:
    """The requests' numbers as ``summary`` takes its quantiles from them: latencies of every stream that came whole."""
    whole = [row for row in rows if row.request.outcome in STREAM_CAME_WHOLE]
    completed = [row for row in rows if row.request.outcome == "completed"]
    found = {}
    for name in METRICS:
        read = [SINGLES[name](row.measures).value for row in (whole if name in LATENCIES else completed)]
        found[name] = tuple(value for value in read if value is not None)
    for name, scheduled in zip(LATENCIES, FROM_SCHEDULE, strict=True):
        read = [
            value + row.request.send_lag_s
            for row in whole
            if row.request.send_lag_s is not None and (value := SINGLES[name](row.measures).value) is not None
        ]
        found[scheduled] = tuple(value for value in read if value is not None)
    return found


def _rate_missed(level: Fields) -> str | None:
    """Against the schedule's own rate: a Poisson process strays from its nominal one by itself."""
    ratio, n_cap_hits = level.get("achieved_ratio"), level.get("n_cap_hits")
    if n_cap_hits:
        return f"{n_cap_hits} requests waited in the client: more were due than may be in flight"
    if ratio is None or ratio >= LEAST_RATE:
        return None
    achieved, scheduled = level["achieved_rate_per_s"], level["scheduled_rate_per_s"]
    return f"the client sent {achieved:.3g} of the {scheduled:.3g} requests a second that were scheduled"


def _during(gpu: Sequence[GpuSample], rows: Sequence[Row]) -> list[GpuSample]:
    """Samples between the level's first request and its last one's end, or that say why there are none."""
    told = [(row.request.sent_at_unix_s, row.request.end_after_s) for row in rows]
    sent = [at for at, _ in told if at is not None]
    ended = [at + after_s for at, after_s in told if at is not None and after_s is not None]
    if not sent:
        return []
    last = max([*sent, *ended])  # a request whose end is not known was there when it was sent
    return [one for one in gpu if not one.gpus or min(sent) <= one.at_unix_s <= last]
