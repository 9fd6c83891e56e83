"""Whether a server speculates, by its own word: slots, series that exist only then, or its resolved configuration."""

from collections.abc import Mapping

from infra.engines.answers import Answer, resolved_info
from infra.wire.exposition import Exposition

Speculation = tuple[bool | None, str, str | None]


def speculation(engine: str, answers: Mapping[str, Answer], metrics: Exposition | None) -> Speculation:
    if engine == "llama.cpp":
        return _speculation_llamacpp(answers)
    if engine == "vllm":
        return _speculation_vllm(metrics)
    if engine == "sglang":
        return _speculation_sglang(answers, metrics)
    if engine == "tensorrt-llm":
        return _speculation_trtllm(metrics)
    return None, "an engine that is not known here", None


def _speculation_llamacpp(answers: Mapping[str, Answer]) -> Speculation:
    """``/slots`` alone tells: the counters read 0 with speculation off too."""
    answer = answers.get("slots")
    slots = answer.json() if answer else None
    if not isinstance(slots, list):
        return None, f"/slots does not say ({answer.seen if answer else 'not asked'})", None
    told = [s.get("speculative") for s in slots if isinstance(s, Mapping)]
    if not told or any(not isinstance(t, bool) for t in told):
        return None, "/slots carries no field speculative", None
    params = [s.get("params") for s in slots if isinstance(s, Mapping)]
    modes = [p.get("speculative.types") for p in params if isinstance(p, Mapping)]
    mode = next((m for m in modes if isinstance(m, str)), None)
    if len(set(told)) > 1:
        return None, "/slots: some slots speculate and some do not", mode
    return told[0], f"/slots: speculative {str(told[0]).lower()}", mode


def _speculation_vllm(metrics: Exposition | None) -> Speculation:
    if metrics is None:
        return None, "no readable metrics: the speculation series would tell", None
    found = bool(metrics.find("vllm:spec_decode_num_drafts_total"))
    said = "are there" if found else "are absent, and they are there only when speculation is configured"
    return found, f"the series vllm:spec_decode_* {said}", None


def _speculation_sglang(answers: Mapping[str, Answer], metrics: Exposition | None) -> Speculation:
    info = resolved_info(answers)
    if "speculative_algorithm" in info:
        algorithm = info["speculative_algorithm"]
        mode = algorithm if isinstance(algorithm, str) else None
        return mode is not None, f"/server_info: speculative_algorithm {algorithm}", mode
    if metrics is not None and metrics.find("sglang:spec_verify_calls_total"):
        return True, "the series sglang:spec_verify_calls_total is there", None
    return None, "/server_info does not say, and no verify call has been counted", None


def _speculation_trtllm(metrics: Exposition | None) -> Speculation:
    if metrics is None:
        return None, "no readable metrics: the speculation series would tell", None
    if any(name.startswith(("trtllm_spec_decode_", "trtllm_speculative_config_info")) for name in metrics.names()):
        return True, "the series trtllm_spec_decode_* or trtllm_speculative_config_info are there", None
    return None, "no speculation series, and they appear only with the first drafted token", None
