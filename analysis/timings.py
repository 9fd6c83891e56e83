"""The server's own latencies: of single requests as its answers carry them, and of the run by its histograms.

Each states its series, what one observation is, how observations are weighted, and how many requests it covers. A step
time is never printed as a time per token, and a histogram that the client's clock refutes is refused with the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.latency_checks import LATENCY_CHECKS
from analysis.server import ServerSide
from evidence.quantiles import FLOORS, distribution
from evidence.records import Json, Request
from infra.engines.fields import count_of, part_of, seconds_of
from infra.engines.histogram import Latency, latency
from infra.engines.readings import Measured
from infra.engines.window import Window

NO_TTFT = "the server states how long it worked on the prompt (prompt_s), and no time to first token"
_MS = 0.001
_Read = Callable[[Mapping[str, Json]], float | None]


def server_timings(side: ServerSide, requests: Sequence[Request]) -> dict[str, Any]:
    """The run's server side: its answers' own times, and beside them what its histograms say of the whole window."""
    return {**request_timings(requests), "histograms": histogram_timings(side)}


def histogram_timings(
    side: ServerSide, *, windows: Sequence[Window] | None = None, n_completed: int | None = None
) -> dict[str, Any]:
    """``ttft_s``, ``tpot_s`` and ``inter_token_s`` from the window's histograms: mean, intervals, or null and why.

    ``windows`` and the completed requests in them are the whole run's unless a part of it is given.
    """
    of = side.windows if windows is None else windows
    done = len(side.completed) if n_completed is None else n_completed
    names = ("ttft_s", "tpot_s", "inter_token_s")
    if side.adapter is None or side.no_window is not None or not of:
        why = side.no_window or "no window"
        return {name: {"series": None, "mean": None, "why": why} for name in names}
    found = (
        latency(side.adapter.meaning.ttft, of),
        side.adapter.tpot(of),
        side.adapter.inter_token(of),
    )
    refused = {
        check.name: check.seen for check in side.checks if check.state == "fail" and check.name in LATENCY_CHECKS
    }
    first, between = (refused.get(name) for name in LATENCY_CHECKS[:2])
    by_token = found[1].series is not None and found[1].series == found[2].series
    whys = (first, between if by_token else None, between)
    return {name: _histogram(one, why, done) for name, one, why in zip(names, found, whys, strict=True)}


def _histogram(one: Latency, refused: str | None, n_completed: int) -> dict[str, Any]:
    said = one.as_json()
    if refused is not None:
        return {**said, "mean": None, "quantile_intervals": None, "why": f"refused: {refused}"}
    if not isinstance(one.mean_s, Measured):
        return said
    of = {"request": "request", "token": "token", "step": "step of a request"}.get(one.observes or "", "observation")
    return {
        **said,
        "weighting": f"each {of} counts once",
        "coverage": f"{said['n']} observations in the window of {n_completed} completed requests",
    }


def request_timings(requests: Sequence[Request]) -> dict[str, Any]:
    """Of single answers: quantiles in seconds with series, weighting and coverage, or null and why."""
    prompt = _one(requests, (("timings.prompt_ms", _prompt_s),), "request")
    decode = _one(
        requests,
        (
            ("timings.predicted_ms / (predicted_n - 1)", _per_token_s),
            ("metrics.mean_itl_ms", lambda f: seconds_of(f.get("metrics"), "mean_itl_ms", unit_s=_MS)),
        ),
        "token",
    )
    first = _one(
        requests,
        (
            ("metrics.time_to_first_token_ms (from scheduling, not from arrival)", _scheduled_first_s),
            ("meta_info.first_token_latency", lambda f: seconds_of(f.get("meta_info"), "first_token_latency")),
        ),
        "request",
    )
    if not first["n"]:
        why = NO_TTFT if prompt["n"] else first["why"]["median"]
        first = {**_quantiles([], why), "series": None, "coverage": first["coverage"]}
    return {"ttft_s": first, "prompt_s": prompt, "tpot_s": decode}


def _one(requests: Sequence[Request], reads: Sequence[tuple[str, _Read]], per: str) -> dict[str, Any]:
    """By the first series that any answer carries."""
    series, values = reads[0][0], []
    for name, read in reads:
        told = [value for request in requests if (value := read(request.server_fields)) is not None]
        if told:
            series, values = name, told
            break
    coverage = f"{len(values)} of {len(requests)} completed requests"
    tried = " and ".join(name for name, _ in reads)
    return {
        **_quantiles(values, f"{tried} {'is' if len(reads) == 1 else 'are'} known of {coverage}"),
        "series": series if values else None,
        "per": per,
        "weighting": "each request counts once",
        "coverage": coverage,
    }


def _quantiles(values: Sequence[float], why_none: str) -> dict[str, Any]:
    spread = distribution(values)
    whys = {f"p{percent}": spread.why_none(percent) for percent in FLOORS if percent != 50}
    whys["median"] = None if values else why_none
    return {
        "n": spread.n,
        "median": spread.median,
        "p90": spread.p90,
        "p95": spread.p95,
        "p99": spread.p99,
        "why": {key: why for key, why in whys.items() if why is not None},
    }


def _prompt_s(fields: Mapping[str, Json]) -> float | None:
    return seconds_of(fields.get("timings"), "prompt_ms", unit_s=_MS)


def _per_token_s(fields: Mapping[str, Json]) -> float | None:
    n_tokens = count_of(fields.get("timings"), "predicted_n")
    took_s = seconds_of(fields.get("timings"), "predicted_ms", unit_s=_MS)
    return None if n_tokens is None or n_tokens <= 1 or took_s is None else took_s / (n_tokens - 1)


def _scheduled_first_s(fields: Mapping[str, Json]) -> float | None:
    return seconds_of(part_of(fields, "metrics"), "time_to_first_token_ms", unit_s=_MS)
