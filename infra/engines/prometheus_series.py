"""Which series a Prometheus server is asked for, by engine, and what they mean there.

Only raw samples are ever asked for. Latencies come from a histogram's sum and count; an inter-token histogram is left
out, since vLLM observes it once a step. Never asked for are SGLang's acceptance gauges, which are means over its last
decode batches and stay on after traffic has ended, and llama.cpp's rate gauges, which every scrape resets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SeriesKind = Literal["counter", "gauge"]

UP = "up"
GPU_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
GPU_MEMORY_MIB = "DCGM_FI_DEV_FB_USED"
GPU_POWER_W = "DCGM_FI_DEV_POWER_USAGE"
GPU_CLOCK_MHZ = "DCGM_FI_DEV_SM_CLOCK"
GPU_TEMPERATURE_C = "DCGM_FI_DEV_GPU_TEMP"
GPU_SERIES = (GPU_UTILISATION, GPU_MEMORY_MIB, GPU_POWER_W, GPU_CLOCK_MHZ, GPU_TEMPERATURE_C)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSeries:
    """An engine's series by what they say; None where it publishes no such thing, and ``lacks`` says why.

    ``once`` are labels of which only the value given counts, since every rank repeats the same number.
    """

    generated_tokens: str
    prompt_tokens: str
    requests: str | None
    ttft: str | None  # histogram family, seconds
    tpot: str | None  # histogram family, seconds per token
    generation_s: str | None  # counter of decode seconds, where there is no such histogram
    drafted: str | None
    accepted: str | None
    verify_steps: str | None
    running: str
    queued: str
    kv_use: str | None  # ratio
    once: Mapping[str, str]
    lacks: Mapping[str, str]

    def counters(self) -> tuple[str, ...]:
        """Every counter, the sums and counts of histograms among them."""
        plain = (self.generated_tokens, self.prompt_tokens, self.requests, self.generation_s)
        speculation = (self.drafted, self.accepted, self.verify_steps)
        histograms = [f"{name}{end}" for name in (self.ttft, self.tpot) if name for end in ("_sum", "_count")]
        return tuple(name for name in (*plain, *speculation, *histograms) if name is not None)

    def gauges(self) -> tuple[str, ...]:
        """Every gauge."""
        return tuple(name for name in (self.running, self.queued, self.kv_use) if name is not None)


_NO_HISTOGRAM = "llama.cpp publishes no latency histogram"
_GAUGES = "SGLang publishes accepted drafts as a gauge of its last decode batches only"

ENGINE_SERIES: Mapping[str, EngineSeries] = {
    "llama.cpp": EngineSeries(
        generated_tokens="llamacpp:tokens_predicted_total",
        prompt_tokens="llamacpp:prompt_tokens_total",
        requests=None,
        ttft=None,
        tpot=None,
        generation_s="llamacpp:tokens_predicted_seconds_total",
        drafted="llamacpp:spec_decode_num_draft_tokens_total",
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
        verify_steps="llamacpp:spec_decode_num_drafts_total",
        running="llamacpp:requests_processing",
        queued="llamacpp:requests_deferred",
        kv_use=None,
        once={},
        lacks={
            "requests": "llama.cpp counts no requests",
            "ttft": _NO_HISTOGRAM,
            "kv_use": "llama.cpp publishes no KV use",
        },
    ),
    "vllm": EngineSeries(
        generated_tokens="vllm:generation_tokens_total",
        prompt_tokens="vllm:prompt_tokens_total",
        requests="vllm:request_success_total",
        ttft="vllm:time_to_first_token_seconds",
        tpot="vllm:request_time_per_output_token_seconds",
        generation_s=None,
        drafted="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        verify_steps="vllm:spec_decode_num_drafts_total",
        running="vllm:num_requests_running",
        queued="vllm:num_requests_waiting",
        kv_use="vllm:kv_cache_usage_perc",
        once={},
        lacks={},
    ),
    "sglang": EngineSeries(
        generated_tokens="sglang:generation_tokens_total",
        prompt_tokens="sglang:prompt_tokens_total",
        requests="sglang:num_requests_total",
        ttft="sglang:time_to_first_token_seconds",
        tpot="sglang:request_time_per_output_token_seconds",
        generation_s=None,
        drafted=None,
        accepted=None,
        verify_steps="sglang:spec_verify_calls_total",
        running="sglang:num_running_reqs",
        queued="sglang:num_queue_reqs",
        kv_use="sglang:token_usage",
        once={"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"},
        lacks={"drafted": _GAUGES, "accepted": _GAUGES},
    ),
    "tensorrt-llm": EngineSeries(
        generated_tokens="trtllm_generation_tokens_total",
        prompt_tokens="trtllm_prompt_tokens_total",
        requests=None,
        ttft="trtllm_time_to_first_token_seconds",
        tpot="trtllm_time_per_output_token_seconds",
        generation_s=None,
        drafted="trtllm_spec_decode_num_draft_tokens_total",
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        verify_steps=None,
        running="trtllm_num_requests_running",
        queued="trtllm_num_requests_waiting",
        kv_use="trtllm_kv_cache_utilization",
        once={},
        lacks={
            "requests": "no counter of requests is read for TensorRT-LLM",
            "verify_steps": "TensorRT-LLM counts no verify steps",
        },
    ),
}


def engine_series(adapter: str | None) -> EngineSeries | None:
    """An engine's series; None for one that is not known here."""
    return ENGINE_SERIES.get((adapter or "").lower())


def series_to_ask(adapter: str | None) -> Sequence[tuple[str, SeriesKind]]:
    """What to ask for about one engine: whether it was scraped, then its counters and gauges. () where not known."""
    known = engine_series(adapter)
    if known is None:
        return ()
    counters: list[tuple[str, SeriesKind]] = [(name, "counter") for name in known.counters()]
    return ((UP, "gauge"), *counters, *((name, "gauge") for name in known.gauges()))
