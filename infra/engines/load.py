"""What an engine tells of its load: queue, requests inside, KV cache, requests put back. One table entry an engine.

Counts and histograms are differences over a window; gauges are what single scrapes showed, so their maximum is the
most that was seen and not the most there was. ``stale_s`` says how long a gauge may keep its last value.

    vLLM       running, waiting and the share of KV blocks are set at each engine step; a preempted request is counted
               and later worked out again.
    SGLang     its gauges are refreshed at a prefill or at each decode report, and when idle up to 30 s late; retracted
               requests are a gauge of the last report, so that what was seen is a lower bound.
    llama.cpp  requests in slots and deferred ones; the gauges of its KV cache went away with newer versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.engines.labels import LabelRule, chosen
from infra.engines.meaning import Counted, Latencies, Nowhere, Observed, Where
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.window import Snapshot
from infra.wire.exposition import Exposition


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """Gauges of which the first that is there is read; ``note`` says what to know of it."""

    names: tuple[str, ...]
    note: str = ""


Gauged = Gauge | Nowhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """``kv_used`` counts tokens; where an engine tells a share only, tokens are that share of its capacity."""

    running: Gauged
    waiting: Gauged
    queue: Latencies
    preemptions: Where
    retractions: Gauged
    failures: Where
    kv_used: Gauged
    kv_share: Gauged
    kv_capacity: Gauged  # tokens
    blocks_info: str | None = None  # an info series with ``num_gpu_blocks`` and ``block_size``: the capacity instead


_LATE = "refreshed at a prefill, a decode report, or up to 30 s late when idle"
_NO_KV = Nowhere(why="the server publishes nothing of its KV cache")
_NO_RETRACTIONS = Nowhere(why="the engine preempts, and retracts nothing")
_NO_PREEMPTIONS = Nowhere(why="the engine retracts, and preempts nothing")

LOADS: Mapping[str, Load] = {
    "vllm": Load(
        running=Gauge(names=("vllm:num_requests_running",)),
        waiting=Gauge(names=("vllm:num_requests_waiting",)),
        queue=Observed(names=("vllm:request_queue_time_seconds",), observes="request", note="until first scheduled"),
        preemptions=Counted(names=("vllm:num_preemptions_total",), late=True),
        retractions=_NO_RETRACTIONS,
        failures=Counted(names=("vllm:request_success_total",), labels=(("finished_reason", "error"),)),
        kv_used=Nowhere(why="vLLM tells the share of KV blocks in use, not their tokens"),
        kv_share=Gauge(names=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), note="0 to 1"),
        kv_capacity=Nowhere(why="vllm:cache_config_info tells no blocks"),
        blocks_info="vllm:cache_config_info",
    ),
    "sglang": Load(
        running=Gauge(names=("sglang:num_running_reqs",), note=_LATE),
        waiting=Gauge(names=("sglang:num_queue_reqs",), note=_LATE),
        queue=Observed(names=("sglang:queue_time_seconds",), observes="request"),
        preemptions=_NO_PREEMPTIONS,
        retractions=Gauge(names=("sglang:num_retracted_reqs",), note="of the last report: a lower bound"),
        failures=Nowhere(why="SGLang counts aborted requests among the finished ones"),
        kv_used=Gauge(names=("sglang:kv_used_tokens", "sglang:num_used_tokens"), note=_LATE),
        kv_share=Gauge(names=("sglang:token_usage",), note=f"the fullest pool, 0 to 1; {_LATE}"),
        kv_capacity=Gauge(names=("sglang:max_total_num_tokens",)),
    ),
    "llama.cpp": Load(
        running=Gauge(names=("llamacpp:requests_processing",)),
        waiting=Gauge(names=("llamacpp:requests_deferred",)),
        queue=Nowhere(why="llama.cpp publishes no queue time"),
        preemptions=Nowhere(why="llama.cpp neither preempts nor retracts requests"),
        retractions=Nowhere(why="llama.cpp neither preempts nor retracts requests"),
        failures=Nowhere(why="llama.cpp counts no requests"),
        kv_used=Gauge(names=("llamacpp:kv_cache_tokens",), note="versions before 2025 only"),
        kv_share=Gauge(names=("llamacpp:kv_cache_usage_ratio",), note="versions before 2025 only"),
        kv_capacity=Nowhere(why="llama.cpp publishes no capacity of its KV cache"),
    ),
    "tensorrt-llm": Load(
        running=Gauge(names=("trtllm_num_requests_running",)),
        waiting=Gauge(names=("trtllm_num_requests_waiting",)),
        queue=Observed(names=("trtllm_request_queue_time_seconds",), observes="request"),
        preemptions=Nowhere(why="TensorRT-LLM publishes no preemptions"),
        retractions=_NO_RETRACTIONS,
        failures=Nowhere(why="TensorRT-LLM publishes no failed requests"),
        kv_used=Nowhere(why="TensorRT-LLM tells the share of KV blocks in use, not their tokens"),
        kv_share=Gauge(names=("trtllm_kv_cache_utilization",), note="0 to 1"),
        kv_capacity=Nowhere(why="TensorRT-LLM publishes no capacity of its KV cache"),
    ),
}
_NOTHING = Nowhere(why="no reader of this server's series")
UNKNOWN = Load(
    running=_NOTHING,
    waiting=_NOTHING,
    queue=_NOTHING,
    preemptions=_NOTHING,
    retractions=_NOTHING,
    failures=_NOTHING,
    kv_used=_NO_KV,
    kv_share=_NO_KV,
    kv_capacity=_NO_KV,
)


def load_of(engine: str | None) -> Load:
    """The engine's entry, or one in which nothing is told."""
    return LOADS.get(engine or "", UNKNOWN)


def gauged(where: Gauged, shown: Exposition, rule: LabelRule) -> tuple[str, tuple[float, ...]] | None:
    """The first gauge that is there, with its finite values over what adds; None where there is none.

    Where ranks repeat, so do their processes: some gauges of a multiprocess registry carry a ``pid`` beside the rank.
    """
    if rule.repeats:
        rule = replace(rule, repeats=rule.repeats | {"pid"})
    for name in () if isinstance(where, Nowhere) else where.names:
        values = tuple(s.value for s in chosen(shown.find(name), rule) if abs(s.value) < float("inf"))
        if values:
            return name, values
    return None


def kv_capacity(load: Load, shown: Sequence[Snapshot], rule: LabelRule) -> Reading:
    """Tokens the servers' KV caches hold together, by what they publish of themselves; ``shown`` is one a server."""
    total = 0.0
    for snapshot in shown:
        found = gauged(load.kv_capacity, snapshot.exposition, rule)
        values = () if found is None else found[1]
        if not values and load.blocks_info is not None:
            values = tuple(_blocks(snapshot.exposition, load.blocks_info))
        if not values or min(values) <= 0:
            why = load.kv_capacity.why if isinstance(load.kv_capacity, Nowhere) else "no series of the capacity"
            return Absent(why=why)
        total += sum(values)
    return Measured(total) if shown else Unmeasured(why="no window")


def _blocks(shown: Exposition, name: str) -> list[float]:
    found = []
    for sample in shown.find(name):
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if blocks.isdigit() and size.isdigit():
            found.append(float(int(blocks) * int(size)))
    return found
