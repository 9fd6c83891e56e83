"""The most tokens, prompt and answer together, that a server takes for one request, as it says itself. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextLimit:
    """``tokens`` None: the server does not say; ``why`` is the witness, or why there is none."""

    tokens: int | None
    why: str


def context_limit(bodies: Mapping[str, bytes], model: str | None = None) -> ContextLimit:
    """From the bodies a probe kept ("models.json", "props.json", "server_info.json"; ``ProbeReport.bodies()``).

    llama.cpp says it for one slot in /props, vLLM and newer SGLang for a model in /v1/models, SGLang in /server_info.
    The smallest of what is said counts. ``model`` picks the entry of /v1/models; None: the first.
    """
    said: dict[str, int] = {}
    props = _read(bodies, "props.json")
    said |= _number("n_ctx in /props", _at(props, "default_generation_settings", "n_ctx"))
    entries = _at(_read(bodies, "models.json"), "data")
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    chosen = next((entry for entry in entries if entry.get("id") == model), entries[0] if entries else None)
    said |= _number("max_model_len in /v1/models", _at(chosen, "max_model_len"))
    for name in ("server_info.json", "server_info_old.json"):
        info = _read(bodies, name)
        said |= _number("context_length in /server_info", _at(info, "context_length"))
        said |= _number("max_total_num_tokens in /server_info", _at(info, "max_total_num_tokens"))
        said |= _number("max_model_len in /server_info", _at(info, "vllm_config", "model_config", "max_model_len"))
    if not said:
        return ContextLimit(tokens=None, why="no answer of /props, /v1/models or /server_info states a context length")
    where = min(said, key=lambda name: said[name])
    return ContextLimit(tokens=said[where], why=where)


def _read(bodies: Mapping[str, bytes], name: str) -> Any:
    try:
        return json.loads(bodies.get(name) or b"null")
    except ValueError:
        return None


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _number(where: str, value: Any) -> dict[str, int]:
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return {where: value} if whole else {}
