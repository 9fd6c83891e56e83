"""Logical bytes of KV cache for a token of context, from a model's own configuration.

The formula is that of ``infra.engines.kv_elements``. A model that keeps something else (a latent, recurrent state, a
window) gets no number, and the key that shows it is named.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.engines.kv_elements import ELEMENT_BYTES, OTHER_CACHES, token_bytes

_LLAMACPP: Mapping[str, str] = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_head_kv": "num_key_value_heads",
    "n_embd": "hidden_size",
    "n_embd_head_k": "key_width",
    "n_embd_head_v": "value_width",
}
_LLAMACPP_LINE = re.compile(r"print_info: (\w+) += (\d+)\s*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class KvBytes:
    """``bytes_per_token`` with the formula it came by, or None and ``why``."""

    bytes_per_token: float | None
    formula: str | None
    dtype: str | None
    source: str | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "bytes_per_token": self.bytes_per_token,
            "formula": self.formula,
            "dtype": self.dtype,
            "source": self.source,
            "why": self.why,
        }


def no_kv_bytes(why: str) -> KvBytes:
    """No number, for a reason."""
    return KvBytes(bytes_per_token=None, formula=None, dtype=None, source=None, why=why)


def kv_bytes(config: Mapping[str, Any], dtype: str | None, *, source: str) -> KvBytes:
    """From the keys of ``config.json``. ``dtype`` is the cache's element type; None and ``auto``: the model's own.

    llama.cpp's keys and values may differ: ``q8_0/f16``.
    """
    text = config.get("text_config")
    config = {**config, **text} if isinstance(text, Mapping) else config
    other = _not_conventional(config)
    if other is not None:
        return no_kv_bytes(f"not modelled: {other}")
    heads = _count(config, "num_attention_heads", "n_head")
    layers, hidden = _count(config, "num_hidden_layers", "n_layer"), _count(config, "hidden_size", "n_embd", "d_model")
    if heads is None or layers is None:
        return no_kv_bytes(f"{source} does not say how many layers and attention heads")
    kv_heads = _count(config, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    kv_heads = kv_heads or (1 if config.get("multi_query") is True else heads)
    own = hidden // heads if hidden is not None else None
    key = _count(config, "key_width", "head_dim") or own
    value = _count(config, "value_width", "v_head_dim", "head_dim") or own
    if not key or not value:
        return no_kv_bytes(f"{source} says neither the width of a head nor the hidden size")
    said = str(config.get("torch_dtype") or config.get("dtype") or "") if dtype in (None, "", "auto") else str(dtype)
    names = [name.strip().removeprefix("torch.").lower() for name in said.split("/")]
    first, last = names[0], names[-1]
    if first not in ELEMENT_BYTES or last not in ELEMENT_BYTES:
        unknown = f"the cache's element type {said!r} is not known"
        return no_kv_bytes(unknown if said else "no element type of the cache is on record")
    found = token_bytes(layers=layers, kv_heads=kv_heads, key=key, value=value, types=(first, last))
    return KvBytes(
        bytes_per_token=found.value,
        formula=found.formula,
        dtype=said.removeprefix("torch."),
        source=source,
        why=None,
    )


def config_of_llamacpp(lines: Mapping[str, int]) -> dict[str, int]:
    """The lines ``print_info`` of a start log, under the names of ``config.json``."""
    return {to: lines[name] for name, to in _LLAMACPP.items() if name in lines}


def print_info(line: str) -> tuple[str, int] | None:
    """One ``print_info`` line with a whole number."""
    found = _LLAMACPP_LINE.search(line)
    return (found[1], int(found[2])) if found else None


def _not_conventional(config: Mapping[str, Any]) -> str | None:
    for name, what in OTHER_CACHES.items():
        if config.get(name) not in (None, 0, False, [], ""):
            return f"{what} ({name} = {config[name]!r})"
    kinds = config.get("layer_types")
    odd = sorted({str(kind) for kind in kinds} - {"full_attention"}) if isinstance(kinds, list) else []
    if odd:
        return f"layers that are no full attention (layer_types: {', '.join(odd)[:60]})"
    window, reach = _count(config, "sliding_window"), _count(config, "max_position_embeddings")
    if window and config.get("use_sliding_window") is not False and (reach is None or window < reach):
        return f"sliding-window attention (sliding_window = {window})"
    return None


def _count(config: Mapping[str, Any], *names: str) -> int | None:
    found = next((config[name] for name in names if config.get(name) is not None), None)
    return found if type(found) is int and found > 0 else None
