"""A profiler window laid beside a run's requests, by Unix time: which requests were under way in it, pass by pass.

An instant of a trace is ``baseTimeNanoseconds / 1e9 + ts / 1e6`` on the server's clock; a request is under way from
``sent_at_unix_s`` to ``end_after_s`` later on the client's. A pass belongs to the one request that was under way when
it began; where several were, it is theirs together and to none of them alone.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Any

from analysis.trace_intervals import union
from analysis.trace_lanes import Lane, RankTrace, TraceFile
from analysis.trace_passes import began_ns, passes_of
from analysis.trace_shares import identity
from analysis.trace_stream import Fault
from evidence.reading import Run, open_run
from evidence.records import Request

LONGEST_LIST = 200


def read_requests(path: Path) -> Run:
    """The run whose requests the windows are laid beside. Raises EvidenceError where it cannot be read."""
    return open_run(path)


def alignment(run: Run, files: tuple[TraceFile, ...]) -> tuple[dict[str, Any], list[tuple[TraceFile, Fault]]]:
    """The report's part on requests, and the windows in which none ran."""
    timed = sorted((one for one in run.requests if one.sent_at_unix_s is not None), key=lambda one: _from_ns(one))
    windows, faults = [], []
    for file in files:
        for rank in file.ranks:
            for lane in rank.lanes.values():
                if file.base_ns is None:
                    windows.append(
                        {**_named(file, rank, lane), "requests": None, "why": "it has no baseTimeNanoseconds"}
                    )
                    continue
                found = _window(file, file.base_ns, rank, lane, timed)
                windows.append(found)
                if not found["requests"]:
                    faults.append((file, _missed(found, timed)))
    return {
        "run_id": run.manifest.run_id,
        "n_requests": len(timed),
        "profiled_by_plan": _profiled(run),
        "one_clock": run.manifest.hardware.get("server_on_this_host") is True,
        "windows": windows,
    }, faults


def _window(file: TraceFile, base_ns: int, rank: RankTrace, lane: Lane, timed: list[Request]) -> dict[str, Any]:
    starts, ends = lane.bounds()
    busy = union(starts, ends)
    from_ns, to_ns = base_ns + int(busy.starts[0]), base_ns + int(busy.ends[-1])
    inside = [one for one in timed if _from_ns(one) < to_ns and _to_ns(one) > from_ns]
    alone: dict[int, int] = {}  # place in ``inside`` -> passes
    n_shared = n_without = 0
    passes = passes_of(rank, lane.device)
    sent = [_from_ns(one) for one in inside]
    for mark in passes:
        at_ns = base_ns + began_ns(mark, lane.device)
        under_way = [place for place in range(bisect_right(sent, at_ns)) if _to_ns(inside[place]) > at_ns]
        if len(under_way) == 1:
            alone[under_way[0]] = alone.get(under_way[0], 0) + 1
        n_shared += len(under_way) > 1
        n_without += not under_way
    spans = [(max(_from_ns(one), from_ns), min(_to_ns(one), to_ns)) for one in inside]
    covered = busy.within([(first - base_ns, last - base_ns) for first, last in spans])
    return {
        **_named(file, rank, lane),
        "from_unix_s": from_ns / 1e9,
        "to_unix_s": to_ns / 1e9,
        "n_passes": len(passes),
        "n_passes_of_several": n_shared,
        "n_passes_of_none": n_without,
        "n_requests": len(inside),
        "requests": [
            {
                "plan_id": one.plan_id,
                "prompt_id": one.prompt_id,
                "domain": one.domain,
                "phase": one.phase,
                "outcome": one.outcome,
                "whole_inside": _from_ns(one) >= from_ns and _to_ns(one) <= to_ns,
                "from_after_s": (first - _from_ns(one)) / 1e9,
                "to_after_s": (last - _from_ns(one)) / 1e9,
                "n_passes_alone": alone.get(place, 0),
                "gpu_busy_s": covered[place] / 1e9 if file.fault is None else None,
            }
            for place, (one, (first, last)) in enumerate(zip(inside, spans, strict=True))
        ][:LONGEST_LIST],
        "why": None,
    }


def _named(file: TraceFile, rank: RankTrace, lane: Lane) -> dict[str, Any]:
    return {"file": str(file.path), "rank": identity(file, rank)["rank"], "device": lane.device}


def _missed(window: dict[str, Any], timed: list[Request]) -> Fault:
    """Why no request was under way: the window closed before, opened after, or lay between."""
    from_ns, to_ns = round(window["from_unix_s"] * 1e9), round(window["to_unix_s"] * 1e9)
    remedy = "profile again with the window opened while a request decodes, and name the run it belongs to"
    if not timed:
        seen = "the run sent no request"
    elif to_ns <= _from_ns(timed[0]):
        seen = f"the window closed {(_from_ns(timed[0]) - to_ns) / 1e9:.3f} s before the run's first request was sent"
    elif from_ns >= (last := max(_to_ns(one) for one in timed)):
        seen = f"the window opened {(from_ns - last) / 1e9:.3f} s after the run's last request had ended"
    else:
        seen = "the window lies between two requests of the run"
    return Fault(code="no_request_in_window", seen=seen, remedy=remedy)


def _profiled(run: Run) -> bool:
    scenario = run.manifest.scenario if isinstance(run.manifest.scenario, dict) else {}
    telemetry = scenario.get("telemetry")
    return isinstance(telemetry, dict) and telemetry.get("profile") is not None


def _from_ns(request: Request) -> int:
    assert request.sent_at_unix_s is not None, "only requests that were sent are timed"
    return round(request.sent_at_unix_s * 1e9)


def _to_ns(request: Request) -> int:
    return _from_ns(request) + round(request.took_s * 1e9)
