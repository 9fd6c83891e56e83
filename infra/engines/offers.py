"""Which evidence an engine can give, what of it this server gives, and the flag or field that would supply it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.engines.versions import at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class Lack:
    """Something missing, why, and what would supply it (None: nothing does)."""

    what: str
    why: str
    supply: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + ("" if self.supply is None else f"; {self.supply}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What was found out about a server. ``info`` is its resolved configuration where it tells it."""

    engine: str
    version: str | None
    models: int
    speculative: bool | None
    why_speculative: str
    metrics: bool  # whether /metrics can be read as this engine's
    why_no_metrics: str | None
    info: Mapping[str, Any]


_METRICS = "its token, request and acceptance counters"
_CHUNKS = "tokens so far in each chunk, so the first chunk's are known"
_EACH = "acceptance of each request"
_CACHED = "cached prompt tokens of each request"

_VERSION = "launch it by `python -m infra launch ARM`: that records which version was started"
_METRICS_FLAG: Mapping[str, str] = {
    "llama.cpp": "start llama-server with --metrics",
    "sglang": "start the server with --enable-metrics",
    "vllm": "start the server without --disable-log-stats",
    "tensorrt-llm": "set return_perf_metrics and enable_iter_perf_stats in the extra options, and pass "
    "--metrics-url URL/prometheus/metrics",
}
_SPECULATION: Mapping[str, str] = {
    "llama.cpp": "start llama-server with --slots",
    "sglang": "ask /server_info with the key it wants, or keep its launch command",
    "vllm": "keep its launch command: only its metrics tell",
}


def evidence(known: Known) -> tuple[tuple[str, ...], tuple[Lack, ...]]:
    """What it offers, and what it lacks."""
    offers: list[str] = []
    lacks: list[Lack] = []
    if known.models:
        offers.append("the models served (/v1/models)")
    else:
        lacks.append(Lack(what="the models served", why="/v1/models names none", supply="name the model with --model"))
    if known.speculative is None:
        lacks.append(
            Lack(what="whether it speculates", why=known.why_speculative, supply=_SPECULATION.get(known.engine))
        )
    else:
        offers.append("whether it speculates")
    if known.version is None and known.engine != "unknown":
        lacks.append(Lack(what="its version", why="it does not say", supply=_VERSION))
    (_unknown if known.engine == "unknown" else _ENGINES[known.engine])(known, offers, lacks)
    if known.metrics:
        offers.append(f"{_METRICS} (/metrics), and an idle check on them")
    else:
        lacks.append(
            Lack(
                what=f"metrics ({known.why_no_metrics or 'not read'})",
                why="no acceptance of the run, no comparison of counts",
                supply=_metrics_supply(known),
            )
        )
    return tuple(offers), tuple(lacks)


def _metrics_supply(known: Known) -> str | None:
    """A flag where nothing is served there; an address where something else is."""
    why = known.why_no_metrics or ""
    if known.engine == "tensorrt-llm" or why.startswith(("HTTP 404", "HTTP 405", "HTTP 501", "not asked")):
        return _METRICS_FLAG.get(known.engine)
    if why.startswith(("HTTP 401", "HTTP 403")):
        return "give the key it wants"
    return "pass the engine's own metrics address with --metrics-url" if known.engine != "unknown" else None


def _llamacpp(_: Known, offers: list[str], lacks: list[Lack]) -> None:
    offers += [
        f"{_CHUNKS} (request field timings_per_token)",
        "acceptance and cached tokens of each request (timings)",
        "time on the prompt and time per token of each request (timings)",
    ]
    lacks += [
        Lack(what="verify steps of a single request", why="llama.cpp does not tell them", supply=None),
        Lack(what="its own time to first token", why="llama.cpp publishes no latency histogram", supply=None),
    ]


def _sglang(known: Known, offers: list[str], lacks: list[Lack]) -> None:
    offers.append(f"{_CHUNKS} (request field stream_options.continuous_usage_stats)")
    details = at_least(known.version, (0, 5, 19))
    if details:
        offers.append(f"{_EACH}: verify steps, drafts, histogram (request field return_spec_tokens_details)")
    else:
        old = "an unknown version" if known.version is None else f"version {known.version}"
        lacks.append(
            Lack(
                what=_EACH,
                why=f"{old} {'may' if known.version is None else 'does'} not know return_spec_tokens_details",
                supply="0.5.19 and later take that request field; else native /generate tells it, or an answer of chat "
                "that is not streamed (request field return_meta_info), or the counters of the run",
            )
        )
    cache_report = known.info.get("enable_cache_report")
    if cache_report is True or details:
        offers.append(f"{_CACHED} (usage, --enable-cache-report; or request field return_cached_tokens_details)")
    else:
        why = "--enable-cache-report is off" if cache_report is False else "it does not say whether it reports them"
        lacks.append(Lack(what=_CACHED, why=why, supply="start the server with --enable-cache-report"))
    lacks.append(
        Lack(
            what="counted accepted tokens",
            why="SGLang counts verify calls: accepted tokens follow from them, and the rate is by window slots",
            supply=None,
        )
    )
    if known.metrics and at_least(known.version, (0, 5, 20)) is False:
        why = f"version {known.version} has the token-weighted one only"
        lacks.append(Lack(what="time per output token by request", why=why, supply="a version after 0.5.19"))


def _vllm(known: Known, offers: list[str], lacks: list[Lack]) -> None:
    offers.append(f"{_CHUNKS} (request field stream_options.continuous_usage_stats)")
    if known.speculative is not False:
        lacks.append(
            Lack(
                what=_EACH,
                why="shown only where it was asked for at start",
                supply="start the server with --per-request-spec-decode-metrics summary",
            )
        )
    lacks += [
        Lack(
            what=_CACHED,
            why="usage shows them only where it was asked for at start",
            supply="start the server with --enable-prompt-tokens-details",
        ),
        Lack(
            what="the server's own times of each request",
            why="shown only where it was asked for at start",
            supply="start the server with --enable-per-request-metrics",
        ),
        Lack(
            what="a reset of its prefix cache",
            why="/reset_prefix_cache exists in development mode only",
            supply="start the server with VLLM_SERVER_DEV_MODE=1",
        ),
    ]


def _tensorrtllm(_: Known, offers: list[str], lacks: list[Lack]) -> None:
    offers.append("usage at the end of a stream")
    lacks += [
        Lack(what=_EACH, why="TensorRT-LLM does not send it", supply=None),
        Lack(what="verify steps", why="only a gauge of the last iteration's acceptance length", supply=None),
    ]


def _unknown(_: Known, offers: list[str], lacks: list[Lack]) -> None:
    offers.append("usage at the end of a stream, where it honours stream_options.include_usage")
    lacks.append(
        Lack(
            what="tokens of the first chunk",
            why="unless it sends them unasked, rates become intervals",
            supply="try stream_options.continuous_usage_stats or return_token_ids with --extra-body",
        )
    )
    lacks.append(Lack(what="the engine behind it", why="nothing names one", supply="probe the engine's own address"))


_ENGINES = {"llama.cpp": _llamacpp, "sglang": _sglang, "vllm": _vllm, "tensorrt-llm": _tensorrtllm}
