"""Does the server speculate? Judged on its own words and counters after an answer.

True, False, or None where it cannot be told, with the reason. "Configured" is not "active": SGLang must have counted a
verify step, vLLM a draft; a mode that drafts only where it finds a match need not have drafted for a short answer.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.dial import DialError, exchange
from infra.launching.ready import QUESTION, speculates
from infra.launching.reported import Reported, fetch_metrics
from infra.target import Target
from infra.wire.exposition import Exposition, Sample
from infra.wire.http1 import read_response

Json = Any

_VERIFY = "sglang:spec_verify_calls_total"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_MAY_DRAFT_NOTHING = ("ngram", "ngram_gpu", "suffix")
_METRICS_WITHIN_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """``says`` is None where it cannot be told. ``seen`` is what was looked at, for the record."""

    says: bool | None
    why: str
    seen: Mapping[str, Json] = field(default_factory=dict)


def judge_sglang(server_info: Json, n_verify_steps: float | None, source: str) -> Proof:
    """``n_verify_steps``: counted so far, None where nothing counts them; ``source`` says who did or why none did."""
    if not isinstance(server_info, Mapping) or "speculative_algorithm" not in server_info:
        return Proof(says=None, why="/server_info does not say speculative_algorithm")
    algorithm = server_info["speculative_algorithm"]
    seen = {"speculative_algorithm": algorithm, "n_verify_steps": n_verify_steps, "source": source}
    if algorithm is None:
        if n_verify_steps:
            return Proof(
                says=None, why=f"/server_info says no algorithm, {source} says {n_verify_steps:g} steps", seen=seen
            )
        return Proof(says=False, why="/server_info: speculative_algorithm null", seen=seen)
    if n_verify_steps is None:
        return Proof(says=None, why=f"configured ({algorithm}), and no verify step can be counted: {source}", seen=seen)
    if not n_verify_steps > 0:
        return Proof(says=False, why=f"configured ({algorithm}), and {source} counts no verify step", seen=seen)
    return Proof(says=True, why=f"{algorithm}: {n_verify_steps:g} verify steps counted by {source}", seen=seen)


def judge_vllm(metrics: Exposition | None, method: str | None, why_no_metrics: str | None = None) -> Proof:
    """The series are there only where speculation is configured; ``method`` as resolved or asked, None if unknown."""
    if metrics is None:
        return Proof(says=None, why=f"the series {_DRAFTS} would tell, and there are none: {why_no_metrics}")
    samples = metrics.find(_DRAFTS)
    if not samples:
        return Proof(says=False, why=f"the series {_DRAFTS} is absent")
    n_drafts = _total(samples)
    seen = {"n_drafts": n_drafts, "method": method}
    if n_drafts > 0:
        return Proof(says=True, why=f"{n_drafts:g} drafts counted", seen=seen)
    if method in _MAY_DRAFT_NOTHING:
        return Proof(
            says=True, why=f"{method} is configured; it found nothing to draft for the first answer", seen=seen
        )
    return Proof(says=False, why=f"configured ({method or 'method unknown'}), and no draft was counted", seen=seen)


def judge_llamacpp(slots: Json) -> Proof:
    """``/slots`` alone tells: the counters read 0 with speculation off too."""
    if not isinstance(slots, list) or not slots or not all(isinstance(slot, Mapping) for slot in slots):
        return Proof(says=None, why="/slots lists no slots: start it with --slots")
    said = [{key: slot.get(key) for key in ("id", "speculative")} for slot in slots]
    return Proof(
        says=speculates([dict(slot) for slot in slots]), why=f"/slots: {json.dumps(said)}", seen={"slots": slots}
    )


def prove(reported: Reported, url: str, timeout_s: float, headers: Mapping[str, str], *, method: str | None) -> Proof:
    """Judge what was reported; where SGLang's counter is not to be had, ask it for one short answer of its own form."""
    if reported.engine == "sglang":
        info = reported.bodies.get("server_info")
        steps, source = _verify_steps(info, reported.metrics, url, timeout_s, headers)
        return judge_sglang(info, steps, source)
    if reported.engine == "vllm":
        return judge_vllm(reported.metrics, method, reported.lacks.get("metrics"))
    if reported.engine == "llama.cpp":
        return judge_llamacpp(reported.bodies.get("slots"))
    return Proof(says=None, why="nothing is known of how this engine tells that it speculates")


def _total(samples: Sequence[Sample]) -> float:
    """What was counted over all ranks; a value that is no number counts nothing."""
    return sum(sample.value for sample in samples if math.isfinite(sample.value))


def _verify_steps(
    info: Json, metrics: Exposition | None, url: str, timeout_s: float, headers: Mapping[str, str]
) -> tuple[float | None, str]:
    """Counted verify steps and by whom. The counter moves when a request ends and may come a moment later."""
    configured = isinstance(info, Mapping) and info.get("speculative_algorithm") is not None
    deadline = time.monotonic() + min(timeout_s, _METRICS_WITHIN_S)
    while metrics is not None:
        samples = metrics.find(_VERIFY)
        if samples or not configured:
            return _total(samples) if samples else None, _VERIFY
        if time.monotonic() > deadline:
            break
        time.sleep(0.25)
        metrics, _ = fetch_metrics(url, timeout_s, headers)
    if not configured:
        return None, "no metrics"
    return _steps_of_one_answer(url, timeout_s, list(headers.items()))


def _steps_of_one_answer(url: str, timeout_s: float, headers: Sequence[tuple[str, str]]) -> tuple[float | None, str]:
    target = Target.parse(url)
    asked = {"text": QUESTION, "sampling_params": {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True}}
    typed = [("Content-Type", "application/json"), *headers]
    try:
        request = target.request("POST", "/generate", typed, json.dumps(asked).encode())
        segments, _, _ = exchange(target, request, timeout_s)
        said = json.loads(read_response(segment.data for segment in segments).body)
        steps = said["meta_info"].get("spec_verify_ct")
    except (DialError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"no series {_VERIFY}, and /generate does not say ({type(error).__name__})"
    if isinstance(steps, bool) or not isinstance(steps, int | float):
        return None, f"no series {_VERIFY}, and /generate carries no spec_verify_ct"
    return float(steps), "/generate meta_info.spec_verify_ct"
