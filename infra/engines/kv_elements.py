"""What a token of context takes in a KV cache: the arithmetic, and the keys that show a model keeps something else.

    bytes a token = layers x KV heads x (key width x bytes of a key + value width x bytes of a value)

over all devices, each head kept once: what attention has to keep, without an engine's blocks, padding or a draft's own
cache. It holds for conventional attention only; a model with one of ``OTHER_CACHES`` gets no number by it.
"""

from collections.abc import Mapping
from typing import NamedTuple

# Bytes of an element; block scales of llama.cpp's types counted in.
ELEMENT_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("f32", "float32", "fp32"), 4.0),
    **dict.fromkeys(("bf16", "bfloat16", "f16", "float16", "fp16", "half"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e5m2", "int8"), 1.0),
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
_RECURRENT = "recurrent state beside attention"
# Keys of config.json (and, dotted, of a GGUF) that show another kind of cache where they are set, with what it is.
OTHER_CACHES: Mapping[str, str] = {
    **dict.fromkeys(("kv_lora_rank", "attention.kv_lora_rank"), "multi-head latent attention (MLA)"),
    **dict.fromkeys(("ssm_cfg", "mamba_d_state", "mamba_num_heads", "linear_num_value_heads"), _RECURRENT),
    **dict.fromkeys(("hybrid_override_pattern", "full_attention_interval", "attn_layer_period"), _RECURRENT),
    **dict.fromkeys(("attn_layer_offset", "block_types", "ssm.state_size"), _RECURRENT),
    **dict.fromkeys(("num_kv_shared_layers", "cla_share_factor"), "layers that share their cache"),
    "is_encoder_decoder": "an encoder with a cache of its own",
}


class TokenBytes(NamedTuple):
    """``value`` bytes a token, and the formula with its numbers."""

    value: float
    formula: str


def token_bytes(*, layers: int, kv_heads: int, key: int, value: int, types: tuple[str, str]) -> TokenBytes:
    """Widths ``key`` and ``value`` in elements of a head; ``types`` of a key and of a value, names of ELEMENT_BYTES."""
    key_bytes, value_bytes = (ELEMENT_BYTES[name] for name in types)
    widths = f"({key} x {key_bytes:g} + {value} x {value_bytes:g})"
    if key_bytes == value_bytes:
        widths = f"({key} + {value}) x {key_bytes:g}"
    total = layers * kv_heads * (key * key_bytes + value * value_bytes)
    return TokenBytes(total, f"{layers} layers x {kv_heads} KV heads x {widths} bytes")
