"""The server's own times of single requests, as llama.cpp sends them in ``timings``; for other engines there are none.

``prompt_s`` is its work on the prompt, without waiting in a queue and without the network: below the client's TTFT, and
no TTFT itself, so ``ttft_s`` is null. ``tpot_s`` is its decode time over its tokens after the first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.quantiles import FLOORS, distribution
from evidence.records import Json, Request
from infra.engines.llamacpp_request import count_of

NO_TTFT = "the server states how long it worked on the prompt (prompt_s), and no time to first token"


def request_timings(requests: Sequence[Request]) -> dict[str, Any]:
    """Quantiles in seconds with series, weighting and coverage, or null and why."""
    prompt = _one(requests, _prompt_s, "timings.prompt_ms", "request")
    decode = _one(requests, _per_token_s, "timings.predicted_ms / (predicted_n - 1)", "token")
    why = NO_TTFT if prompt["n"] else prompt["why"]["median"]
    coverage = f"0 of {len(requests)} completed requests"
    return {
        "ttft_s": {**_quantiles([], why), "series": None, "coverage": coverage},
        "prompt_s": prompt,
        "tpot_s": decode,
    }


def _one(
    requests: Sequence[Request], read: Callable[[Mapping[str, Json]], float | None], series: str, per: str
) -> dict[str, Any]:
    timings = [request.server_fields.get("timings") for request in requests]
    values = [value for one in timings if isinstance(one, Mapping) and (value := read(one)) is not None]
    coverage = f"{len(values)} of {len(requests)} completed requests"
    return {
        **_quantiles(values, f"{series} is known of {coverage}"),
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


def _prompt_s(timings: Mapping[str, Json]) -> float | None:
    return _seconds(timings.get("prompt_ms"))


def _per_token_s(timings: Mapping[str, Json]) -> float | None:
    n_tokens, took_s = count_of(timings, "predicted_n"), _seconds(timings.get("predicted_ms"))
    return None if n_tokens is None or n_tokens <= 1 or took_s is None else took_s / (n_tokens - 1)


def _seconds(value_ms: Json) -> float | None:
    if isinstance(value_ms, bool) or not isinstance(value_ms, int | float) or not math.isfinite(value_ms):
        return None
    return value_ms / 1000 if value_ms > 0 else None
