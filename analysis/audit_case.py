"""What the case study says of itself apart from its numbers, each with its source: nothing here was measured by us.

Source: the public repository github.com/DARK-art108/sglang-speculative-bench, its results folder (console logs, and
results/research_report.md at commit 56d4fe12) and its README. Facts are cited; prompts, texts and code are not ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = "github.com/DARK-art108/sglang-speculative-bench, results/research_report.md (commit 56d4fe12)"
HARDWARE = "2 x RTX PRO 4000 (24,467 MiB each), TP=2, SGLang 0.5.19, FlashInfer"
MODEL = "Qwen/Qwen2.5-32B-Instruct-AWQ"
BASELINE = "baseline_tp2"
N_PROMPTS = 90
DOMAINS = ("code", "prose", "json")  # thirty each, in this order, in every configuration
MAX_TOKENS: Mapping[str, int] = {"code": 512, "prose": 512, "json": 384}
WARMED_UP = ("code_01", "code_02")  # the two warm-up requests, measured again right after
DRAFT_LIMIT: Mapping[str, int] = {"spec_ngram_k5": 5}

# Launch settings of each configuration as reported; the key that was varied on purpose is named in VARIED.
LAUNCHES: Mapping[str, Mapping[str, str]] = {
    "baseline_tp2": {"--mem-fraction-static": "0.82", "speculation": "none", "--kv-cache-dtype": "auto"},
    "spec_ngram_k5": {
        "--mem-fraction-static": "0.85",
        "speculation": "NGRAM, num-steps 5, num-draft-tokens 6",
        "--kv-cache-dtype": "auto",
    },
    "baseline_fp8kv": {"--mem-fraction-static": "0.85", "speculation": "none", "--kv-cache-dtype": "fp8_e5m2"},
}
VARIED: Mapping[str, str] = {"spec_ngram_k5": "speculation", "baseline_fp8kv": "--kv-cache-dtype"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """An arm that the study reports as failed. No log of it was kept: the symptom is the report's wording."""

    arm: str
    stage: str
    symptom: str


FAILED = (
    Reported(
        arm="spec_standalone_1.5b",
        stage="start-up validation",
        symptom="vocabulary sizes differ: target 152,064, draft 151,936",
    ),
    Reported(
        arm="spec_eagle3",
        stage="CUDA graph capture (prefill)",
        symptom="Mismatched Tensor ... expected dtype=float16",
    ),
)

CONTRADICTED = (
    "the report calls the baseline 'integer-8-bit AWQ' and 'INT8 weights-only'; the checkpoint named is 4-bit AWQ",
    "the README names 2 x RTX 4090 and SGLang v0.4+; the report's run is on 2 x RTX PRO 4000 with SGLang 0.5.19",
)

# Beyond what a single configuration lacks.
CANNOT_SHOW = (
    "a speed-up of the system: one launch of each configuration, and how launches differ was never seen",
    "acceptance: rate, length and steps were never recorded, so nothing shows why NGRAM was faster, or on what",
    "output equality: no answer was kept; that a greedy run gives the same text is an assumption",
    "JSON validity and code correctness: no answer was kept",
    "decode rate without the first chunk's tokens: the rate counts all tokens over a time that starts after the first",
    "the effect of --mem-fraction-static: it changed together with the setting under study (0.82 to 0.85)",
    "the two failed arms: reported without a log, so stage and symptom are the report's words and a cause is not shown",
    "any share of communication, attention or memory traffic: no profile was taken",
    "memory or utilisation during the requests: the samples cover 2 to 12 times the time in which requests ran",
)
