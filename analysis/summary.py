"""One run in numbers: groups by domain (and level), each with counts, latencies, rates, tokens and acceptance.

Quantiles are request-weighted: each request counts once, however many tokens it has. Whatever is null carries its
reason beside it, under ``why``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analysis import identity
from analysis.cached_share import cached_share
from analysis.client_floor import calibration_json
from analysis.goodput import goodput
from analysis.in_flight import spans_of
from analysis.levels import level_json, limits_of
from analysis.loading import LoadedRun
from analysis.measures import Derived, Interval, Measures, Row, first_chunk_unknown
from analysis.server import group_acceptance
from analysis.throughput import throughput
from analysis.timings import request_timings, server_timings
from analysis.verdict import by_scope, overall
from evidence.quantiles import FLOORS, distribution
from evidence.records import Json

ALL = "all"
STREAM_CAME_WHOLE = ("completed", "no_usage")  # outcomes whose instants are those of a whole answer
SINGLES: dict[str, Callable[[Measures], Derived]] = {
    "ttft_s": lambda m: m.ttft_s,
    "ttfv_s": lambda m: m.ttfv_s,
    "tpot_s": lambda m: m.tpot_s,
    "tpot_common_s": lambda m: m.tpot_common_s,
    "decode_tok_per_s": lambda m: m.decode_tok_per_s,
    "study_rate_tok_per_s": lambda m: m.study_rate_tok_per_s,
    "e2e_s": lambda m: m.e2e_s,
    "n_first_tokens": lambda m: m.n_first_tokens,
    "chunk_gap_median_s": lambda m: m.gap_median_s,
    "chunk_gap_max_s": lambda m: m.gap_max_s,
}
LATENCIES = ("ttft_s", "ttfv_s", "e2e_s")
# Of an open loop: from the instant a request was scheduled for, which its send lag is added for.
SCHEDULED: dict[str, Callable[[Measures], Derived]] = {
    f"{name.removesuffix('_s')}_from_schedule_s": SINGLES[name] for name in LATENCIES
}
INTERVALS: dict[str, Callable[[Measures], Interval]] = {
    "tpot_s": lambda m: m.tpot_bounds_s,
    "decode_tok_per_s": lambda m: m.decode_bounds_tok_per_s,
}


def summarise(run: LoadedRun) -> dict[str, Any]:
    """Everything ``summary --json`` prints for one run."""
    floor_s, why_no_floor = client_floor_s(run)
    calibration, why_no_calibration = calibration_json(run.manifest, (row.request for row in run.measured), run.path)
    whys = {"client_floor_s": why_no_floor, "calibration": why_no_calibration}
    return {
        "run_id": run.manifest.run_id,
        "path": str(run.path),
        "verdict": overall(run.reasons),
        "verdicts": by_scope(run.reasons),
        "reasons": [asdict(reason) for reason in run.reasons],
        "scope": scope(run),
        "groups": groups(run),
        "levels": [level_json(view, run.server, limits_of(run.manifest.scenario)) for view in run.levels],
        "server": server_timings(run.server, [r.request for r in run.measured if r.request.outcome == "completed"]),
        "cached_share": cached_share((row.request for row in run.measured), silent_zero=run.server.silent_zero),
        "server_notes": list(run.server.notes),
        "acceptance": run.server.acceptance.as_json(),
        "client_floor_s": floor_s,
        "calibration": calibration,
        "why": {name: why for name, why in whys.items() if why is not None},
        "noticed": list(run.seal.noticed) if run.seal else [],
        "missing": [missing.model_dump() for missing in run.manifest.missing],
    }


def scope(run: LoadedRun) -> dict[str, Any]:
    """What the numbers are about: they hold for this and for nothing else."""
    manifest = run.manifest
    requests = [row.request for row in run.measured]
    scenario = manifest.scenario if isinstance(manifest.scenario, dict) else {}
    kind = scenario.get("kind")
    return {
        "arm": identity.arm_name(manifest),
        "scenario": scenario.get("name"),
        "plan_sha256": manifest.plan_sha256,
        "request_extra": identity.request_extra(manifest),
        "n_launches": 1,
        "launch_id": manifest.launch_id,
        "n_passes": len({request.pass_index for request in requests}),
        "n_prompts": len({request.prompt_id for request in requests}),
        "n_requests": len(requests),
        "prompt_tokens": _total([r.n_prompt_tokens for r in requests if r.outcome == "completed"])[0],
        "concurrency": 1 if kind in ("sequential", "context") else _concurrency(run),
        "hardware": identity.hardware_line(manifest),
        "engine": identity.engine_line(manifest, run.launch),
        "model": identity.model_line(manifest, run.launch, identity.model_served(requests)),
        "transports": sorted({request.transport for request in requests}),
        "stamp_sources": sorted({request.stamp_source for request in requests if request.stamp_source}),
        "token_sources": sorted({request.token_source for request in requests if request.token_source}),
        "weighting": "each request counts once",
    }


def _concurrency(run: LoadedRun) -> int | str | None:
    """Users at once, of several levels all in words; None in open loop, where nobody sets it.

    Levels that a search did not visit are left out.
    """
    visited = [view for view in run.levels if view.record is not None or view.rows] or run.levels
    users = list(dict.fromkeys(view.users for view in visited if view.users is not None))
    if not users:
        return None
    return users[0] if len(users) == 1 else f"{', '.join(map(str, users[:-1]))} and {users[-1]}, level by level"


def groups(run: LoadedRun) -> list[dict[str, Any]]:
    """One group for each domain in the plan's order and one for all, at each level (None: the kind has no levels)."""
    keys: dict[str | None, dict[str, list[Row]]] = {}
    planned: Counter[tuple[str | None, str]] = Counter()
    for line in run.plan.values():
        if line.get("phase") == "measured":
            keys.setdefault(line.get("level"), {}).setdefault(str(line.get("domain")), [])
            planned[line.get("level"), str(line.get("domain"))] += 1
    for row in run.measured:
        keys.setdefault(row.request.level, {}).setdefault(row.request.domain, []).append(row)
    found = []
    for level, domains in keys.items():
        found += [_group(run, domain, level, rows, planned[level, domain]) for domain, rows in domains.items()]
        together = [row for rows in domains.values() for row in rows]
        found.append(_group(run, ALL, level, together, sum(planned[level, domain] for domain in domains)))
    return found


def client_floor_s(run: LoadedRun) -> tuple[dict[str, float] | None, str | None]:
    """The cited calibration's floor by metric, or why there is none."""
    floors = {floor.metric: floor.floor_s for floor in run.facts.floors}
    if floors:
        return floors, None
    if run.manifest.calibration is None:
        return None, "the run cites no calibration of the client"
    return None, "the calibration cited states no floor"


def _group(run: LoadedRun, domain: str, level: str | None, rows: Sequence[Row], n_planned: int) -> dict[str, Any]:
    requests = [row.request for row in rows]
    completed = [row for row in rows if row.request.outcome == "completed"]
    done = [row.request for row in completed]
    whole = [row for row in rows if row.request.outcome in STREAM_CAME_WHOLE]
    prompt_tokens, why_no_prompt = _total([row.request.n_prompt_tokens for row in completed])
    tokens, why_no_tokens = _total([row.request.n_completion_tokens for row in completed])
    whys = {"prompt_tokens": why_no_prompt, "completion_tokens": why_no_tokens}
    floor_s, whys["client_floor_s"] = client_floor_s(run)
    scheduled = SCHEDULED if any(request.send_lag_s is not None for request in requests) else {}
    return {
        "domain": domain,
        "level": level,
        "n_planned": n_planned,
        "n_completed": len(completed),
        "n_failed": sum(request.outcome not in ("completed", "cancelled") for request in requests),
        "n_cancelled": sum(request.outcome == "cancelled" for request in requests),
        "n_unfinished": sum(_belongs(run.plan.get(plan_id, {}), domain, level) for plan_id in run.unfinished),
        "failed": dict(Counter(request.outcome for request in requests if request.outcome != "completed")),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "n_cut_by_max_tokens": sum(row.request.finish_reason == "length" for row in completed),
        **{name: _stats(name, read, completed, whole) for name, read in SINGLES.items()},
        **{name: _stats(name, read, completed, whole) for name, read in scheduled.items()},
        **_delivered(run, domain, level, rows),
        "server": request_timings(done),
        "acceptance": group_acceptance(run.server, domain, level, done),
        "client_floor_s": floor_s,
        "why": {name: why for name, why in whys.items() if why is not None},
    }


def _delivered(run: LoadedRun, domain: str, level: str | None, rows: Sequence[Row]) -> dict[str, Any]:
    """Goodput of a group, and at a level its throughput, over the whole level (without levels: over the whole run)."""
    view = next((one for one in run.levels if one.label == level), None)
    spans = view.spans if view is not None else spans_of([row.request for row in run.measured], run.clock)
    begin_s, end_s = (None, None) if spans is None else (spans.first_s, spans.last_s)
    window_s = None if begin_s is None or end_s is None or end_s <= begin_s else end_s - begin_s
    limits = limits_of(run.manifest.scenario)
    n_unfinished = sum(_belongs(run.plan.get(plan_id, {}), domain, level) for plan_id in run.unfinished)
    good = goodput(
        rows,
        window_s=window_s,
        ttft_slo_s=limits.ttft_slo_s,
        tpot_slo_s=limits.tpot_slo_s,
        n_unfinished=n_unfinished,
    )
    found: dict[str, Any] = {"goodput": good.as_json()}
    if view is not None and spans is not None and window_s is not None and begin_s is not None and end_s is not None:
        unended = [one for one in view.unended if _belongs(run.plan.get(one.plan_id, {}), domain, level)]
        found["throughput"] = throughput(rows, spans, begin_s, end_s, run.clock, unended).as_json()
        found["throughput"].pop("mean_in_flight")  # of the level, not of a domain in it
    return found


def _from_schedule(row: Row, read: Callable[[Measures], Derived]) -> Derived:
    """The value from the scheduled instant on; none where the request carries no send lag."""
    found, lag_s = read(row.measures), row.request.send_lag_s
    if found.value is None:
        return found
    return Derived(None, "no scheduled instant on record") if lag_s is None else Derived(found.value + lag_s, None)


def _belongs(line: Mapping[str, Json], domain: str, level: str | None) -> bool:
    """Whether a plan line is a measured one of this group."""
    return line.get("phase") == "measured" and line.get("level") == level and domain in (ALL, line.get("domain"))


def _stats(
    name: str, read: Callable[[Measures], Derived], completed: Sequence[Row], whole: Sequence[Row]
) -> dict[str, Any]:
    """Quantiles of one number. A rate needs counts, so rows without usage enter latencies only."""
    rows = whole if name in (*LATENCIES, *SCHEDULED) else completed
    pairs = [_from_schedule(row, read) if name in SCHEDULED else read(row.measures) for row in rows]
    values = [pair.value for pair in pairs if pair.value is not None]
    spread = distribution(values)
    whys = {f"p{percent}": spread.why_none(percent) for percent in FLOORS if percent != 50}
    without = pairs if len(values) < len(pairs) else ()
    lacking = Counter(pair.why for pair in without if pair.why is not None)
    whys["median"] = None if spread.n else (_most(lacking) or "no request in this group completed")
    whys["n"] = f"{sum(lacking.values())} of {len(pairs)} requests have none: {_most(lacking)}" if lacking else None
    stats: dict[str, Any] = {
        "n": spread.n,
        "median": spread.median,
        "p90": spread.p90,
        "p95": spread.p95,
        "p99": spread.p99,
    }
    if name in INTERVALS:
        stats["bounds"], whys["bounds"] = _bounds(rows, INTERVALS[name])
    stats["why"] = {key: why for key, why in whys.items() if why is not None}
    return stats


def _bounds(rows: Sequence[Row], read: Callable[[Measures], Interval]) -> tuple[list[float] | None, str | None]:
    """Where first chunks are uncounted: the medians of the lower and the upper bounds, which enclose the median."""
    uncounted = [row for row in rows if first_chunk_unknown(row)]
    if not uncounted:
        return None, "no interval is needed: the tokens of every first chunk are known"
    lacking = Counter(why for why in (read(row.measures).why for row in uncounted) if why is not None)
    if lacking:
        return None, _most(lacking)
    known = [bounds for bounds in (read(row.measures).bounds for row in rows) if bounds is not None]
    low, high = distribution(low for low, _ in known).median, distribution(high for _, high in known).median
    return None if low is None or high is None else [low, high], None


def _most(reasons: Counter[str]) -> str | None:
    """The commonest reason, with a word on how many others there are."""
    if not reasons:
        return None
    (first, _), *others = reasons.most_common()
    return first + (f" (and {len(others)} other reasons)" if others else "")


def _total(counts: Iterable[int | None]) -> tuple[int | None, str | None]:
    """The sum, or None and why: a sum over unknown parts is unknown."""
    known = list(counts)
    if not known:
        return None, "no request in this group completed"
    lacking = sum(count is None for count in known)
    if lacking:
        return None, f"{lacking} of {len(known)} requests carry no server's count"
    return sum(count for count in known if count is not None), None
