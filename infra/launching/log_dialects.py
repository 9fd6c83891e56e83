"""How each engine's log tells its stages: the lines that begin one, its address, and its errors. Data only.

A stage is reached when it begins. The lines are those of SGLang 0.5.17, vLLM 0.8 to 0.33 and llama.cpp b11434; a
version that words them otherwise reaches fewer stages and nothing else changes, since ready is proven by an answer.
"""

import re
from dataclasses import dataclass
from typing import Literal

LogStage = Literal["weights", "draft", "memory_pool", "graph_capture", "listening"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A stage begins with the ``nth`` line that matches."""

    stage: LogStage
    line: re.Pattern[str]
    nth: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """``loading`` and ``loaded`` bracket the loading of one model's weights, where the engine says both."""

    name: str
    marks: tuple[Mark, ...]
    address: re.Pattern[str]  # group 1: the URL it says it serves
    error: re.Pattern[str] | None = None  # group 1: the message of a line that is an error by its form
    loading: re.Pattern[str] | None = None
    loaded: re.Pattern[str] | None = None


# Before a line's text: vLLM's process and level, once or more. Tensor-parallel ranks of SGLang stand in its brackets.
PREFIX = re.compile(
    r"^(?:\([A-Za-z_]\w*[^()]*pid=\d+[^()]*\) )*(?:(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?)?"
)
_RANK_0 = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?!(?:TP|DP|PP|EP)[1-9])\w+)*\] "
_SGLANG_LOAD = re.compile(_RANK_0 + "Load weight begin")
_VLLM_LOAD = re.compile(r"Starting to load model |Loading drafter model")
_LLAMACPP_MARKS = (
    Mark(stage="weights", line=re.compile(r"load_model: loading model '")),
    Mark(stage="draft", line=re.compile(r"loading draft model '")),
    Mark(stage="memory_pool", line=re.compile(r"load_model: initializing, n_slots = ")),
    Mark(stage="listening", line=re.compile(r"listening on http://")),
)
_LLAMACPP_ADDRESS = re.compile(r"listening on (http://[0-9.]+:[0-9]+)")
_UVICORN = re.compile(r"Uvicorn running on (http://[^\s/]+)")

EMBEDDED = Dialect(
    name="llama.cpp embedded",
    marks=_LLAMACPP_MARKS,
    address=_LLAMACPP_ADDRESS,
    error=re.compile(r"^[0-9.]+ E (.*)$"),
)
LLAMACPP = Dialect(
    name="llama.cpp",
    marks=(
        *_LLAMACPP_MARKS[:2],
        Mark(
            stage="memory_pool", line=re.compile(r"llama_kv_cache: .*KV buffer size|load_model: initializing, n_slots")
        ),
        _LLAMACPP_MARKS[3],
    ),
    address=_LLAMACPP_ADDRESS,
    error=re.compile(r"^(?:[0-9.]+ E )?((?:(?<=E ).*|error: .*|.*\b(?:error loading model|failed to load model).*))$"),
)
SGLANG = Dialect(
    name="sglang",
    marks=(
        Mark(stage="weights", line=_SGLANG_LOAD),
        Mark(stage="draft", line=_SGLANG_LOAD, nth=2),
        Mark(stage="memory_pool", line=re.compile(r"KV Cache is allocated|Memory pool end")),
        Mark(stage="graph_capture", line=re.compile(r"\] Capture .*(?:CUDA|cuda) graph begin")),
        Mark(stage="listening", line=_UVICORN),
    ),
    address=_UVICORN,
    loading=_SGLANG_LOAD,
    loaded=re.compile(_RANK_0 + "Load weight end"),
)
VLLM = Dialect(
    name="vllm",
    marks=(
        Mark(stage="weights", line=re.compile(r"Starting to load model ")),
        Mark(stage="draft", line=re.compile(r"Loading drafter model")),
        Mark(stage="memory_pool", line=re.compile(r"Available KV cache memory: |GPU KV cache size: |# GPU blocks: ")),
        Mark(stage="graph_capture", line=re.compile(r"Capturing CUDA graphs|Capturing the model for CUDA graphs")),
        Mark(stage="listening", line=re.compile(r"Starting vLLM API server|Uvicorn running on ")),
    ),
    address=_UVICORN,
    loading=_VLLM_LOAD,
    loaded=re.compile(r"Model loading took |Loading model weights took "),
)
OTHER = Dialect(
    name="other",
    marks=(Mark(stage="listening", line=re.compile(r"listening on http|Uvicorn running on http|\"url\": \"http")),),
    address=re.compile(r"(?:listening on |Uvicorn running on |\"url\": \")(https?://[0-9.]+:[0-9]+)"),
    error=re.compile(r"^((?:fatal |usage )?error: .*)$", re.IGNORECASE),
)
BY_ENGINE = {"sglang": SGLANG, "vllm": VLLM, "llama.cpp": LLAMACPP, "other": OTHER}

# What a symptom shows of the stage that failed, where the log has no line for its beginning.
SHOWN_STAGES: tuple[tuple[str, LogStage], ...] = (
    ("requires the draft model to share the same vocabulary", "draft"),
    ("two tokenizers have different token-to-id mappings", "draft"),
    ("does not implement set_eagle3_layers_to_capture", "draft"),
    ("No available memory for the cache blocks", "memory_pool"),
    ("larger than the available KV cache memory", "memory_pool"),
    ("Not enough memory. Please try to increase --mem-fraction-static", "memory_pool"),
    ("Capture cuda graph failed", "graph_capture"),
)
