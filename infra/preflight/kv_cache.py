"""Bytes of KV cache for one token of context, and what another element type saves.

The formula is that of ``infra.engines.kv_elements``. A model that keeps something else (recurrent state beside
attention, a compressed latent, a window) needs a model of its own; for such a model no number is given, and the key
that shows it is named.
"""

from dataclasses import dataclass
from typing import Any

from infra.engines.kv_elements import ELEMENT_BYTES, OTHER_CACHES, token_bytes
from infra.preflight.checkpoint import Checkpoint
from infra.preflight.findings import Finding


@dataclass(frozen=True, kw_only=True)
class KvCache:
    """``bytes_per_token`` over all devices, None where it is not modelled (``why_none``)."""

    bytes_per_token: float | None
    why_none: str | None = None
    formula: str = ""
    dtype: str = ""
    n_kv_heads: int | None = None
    elements_per_token: int | None = None


def kv_cache(model: Checkpoint, dtype: str | None) -> KvCache:
    """The cache of a model in an element type; ``auto`` and None mean the model's own.

    llama.cpp's types for keys and values may differ: give ``K/V``, e.g. ``q8_0/f16``.
    """
    other = not_conventional(model)
    if other is not None:
        return KvCache(bytes_per_token=None, why_none=f"not modelled: {other}")
    heads = model.value("attention.head_count") if model.gguf else model.number("num_attention_heads", "n_head")
    kv_heads = _kv_heads(model, heads)
    layers, hidden = model.n_layers, model.hidden_size
    if type(heads) is not int or not heads or kv_heads is None or layers is None or hidden is None:
        return KvCache(bytes_per_token=None, why_none="config.json does not say layers, heads and hidden size")
    own = hidden // heads
    key = model.number("attention.key_length") if model.gguf else model.number("head_dim")
    value = model.number("attention.value_length") if model.gguf else model.number("head_dim")
    key, value = key or own, value or own
    if not key or not value:
        return KvCache(bytes_per_token=None, why_none=f"{heads} heads do not fit a hidden size of {hidden}")
    names = _types(model, dtype)
    unknown = [name for name in names if name not in ELEMENT_BYTES]
    if unknown:
        return KvCache(bytes_per_token=None, why_none=f"element type {unknown[0]!r} is not known")
    found = token_bytes(layers=layers, kv_heads=kv_heads, key=key, value=value, types=names)
    shown = names[0] if names[0] == names[1] else "/".join(names)
    return KvCache(
        bytes_per_token=found.value,
        formula=f"{found.formula} ({shown})",
        dtype=shown,
        n_kv_heads=kv_heads,
        elements_per_token=layers * kv_heads * (key + value),
    )


def not_conventional(model: Checkpoint) -> str | None:
    """What the model keeps in place of, or beside, whole keys and values, with the key that shows it; None: nothing."""
    for name, what in OTHER_CACHES.items():
        value = model.value(name)
        if value not in (None, 0, False, [], ""):
            return f"{what} ({name} = {_short(value)})"
    kinds = model.config.get("layer_types")
    odd = sorted({str(kind) for kind in kinds} - {"full_attention"}) if isinstance(kinds, list) else []
    if odd:
        what = "sliding-window attention" if "sliding_attention" in odd else "layers that are no full attention"
        return f"{what} (layer_types: {', '.join(odd)})"
    per_layer = model.value("attention.head_count_kv")
    if isinstance(per_layer, tuple) and len(set(per_layer)) > 1:
        return f"layers of different kinds (attention.head_count_kv = {_short(per_layer)})"
    window = model.number("attention.sliding_window") if model.gguf else model.number("sliding_window")
    if window and model.config.get("use_sliding_window") is not False:
        reach = model.number("context_length") if model.gguf else model.number("max_position_embeddings")
        if reach is None or window < reach:
            return f"sliding-window attention (sliding_window = {window})"
    return None


def model_dtype(model: Checkpoint) -> str:
    """The element type an engine computes in when it is left to it; llama.cpp's cache is f16 whatever the model."""
    if model.gguf:
        return "f16"
    said = str(model.config.get("torch_dtype") or model.config.get("dtype") or "bfloat16")
    return said.removeprefix("torch.")


def check_kv(model: Checkpoint, kv_dtype: str | None, n_devices: int) -> Finding:
    """Bytes of cache a token, what the arm's element type saves against the model's own, and how heads divide."""
    check = "KV cache"
    own, cache = kv_cache(model, None), kv_cache(model, kv_dtype)
    if cache.bytes_per_token is None or own.bytes_per_token is None:
        why = cache.why_none or own.why_none
        remedy = "read the engine's own figures from its start log"
        return Finding(check=check, verdict="unknown", seen=f"bytes a token: {why}", remedy=remedy, facts={"why": why})
    facts = {"bytes_per_token": cache.bytes_per_token, "own_bytes_per_token": own.bytes_per_token, "dtype": cache.dtype}
    seen = f"{cache.bytes_per_token:,.0f} bytes a token: {cache.formula}"
    if cache.dtype != own.dtype:
        saved = 1 - cache.bytes_per_token / own.bytes_per_token
        facts |= {"saves_ratio": saved}
        seen += f"; {own.dtype} would take {own.bytes_per_token:,.0f}, so {saved:.0%} is saved"
    else:
        other = kv_cache(model, "q8_0" if model.gguf else "fp8")
        assert other.bytes_per_token is not None
        saved = 1 - other.bytes_per_token / own.bytes_per_token
        facts |= {"would_save_ratio": saved, "would_save_with": other.dtype}
        seen += f"; {other.dtype} would save {saved:.0%}"
    if cache.n_kv_heads is not None and n_devices > cache.n_kv_heads:
        seen += f"; {n_devices} devices share {cache.n_kv_heads} KV heads, so heads are kept more than once"
    return Finding(check=check, verdict="pass", seen=seen, facts=facts)


def check_scales(model: Checkpoint, kv_dtype: str | None) -> Finding | None:
    """Where the scales of an FP8 cache come from; None for another element type."""
    name = (kv_dtype or "auto").lower()
    if not name.startswith("fp8"):
        return None
    source = _scales_in(model)
    facts = {"dtype": name, "source": source}
    if source is not None:
        return Finding(check="KV scales", verdict="pass", seen=f"from {source}", facts=facts)
    if name == "fp8_e5m2":
        return Finding(check="KV scales", verdict="pass", seen="none: e5m2 is stored without scales", facts=facts)
    seen = "the checkpoint has none: the engine will use 1.0 for each, which can clip"
    return Finding(
        check="KV scales", verdict="caution", seen=seen, remedy="compare outputs, or use fp8_e5m2", facts=facts
    )


def _scales_in(model: Checkpoint) -> str | None:
    found = [one.name for one in model.tensors if one.name.endswith((".k_scale", ".v_scale", ".kv_scale"))]
    if found:
        return f"{len(found)} scale tensors of the checkpoint, {found[0]} first"
    if "kv_cache_scales.json" in model.extra:
        return "kv_cache_scales.json"
    said = model.config.get("quantization_config")
    if isinstance(said, dict) and said.get("kv_cache_scheme"):
        return "config.json, quantization_config.kv_cache_scheme (its tensors are not here to look at)"
    return None


def _types(model: Checkpoint, dtype: str | None) -> tuple[str, str]:
    said = model_dtype(model) if dtype in (None, "auto", "") else str(dtype)
    first, _, second = said.lower().partition("/")
    return first, second or first


def _kv_heads(model: Checkpoint, heads: Any) -> int | None:
    if model.gguf:
        said = model.value("attention.head_count_kv")
        said = said[0] if isinstance(said, tuple) and said else said
    else:
        said = model.number("num_key_value_heads", "num_kv_heads", "n_head_kv")
        if said is None and model.config.get("multi_query") is True:
            said = 1
    found = heads if said is None else said
    return found if type(found) is int and found > 0 else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
