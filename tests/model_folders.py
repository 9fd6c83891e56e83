"""Small model folders and GGUF headers for tests: real formats, written byte by byte, a few kilobytes or sparse."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Shapes = Mapping[str, tuple[str, Sequence[int]]]
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "BOOL": 1, "F8_E4M3": 1}

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}


def qwen_32b() -> dict[str, Any]:
    """The published shape of Qwen2.5-32B-Instruct."""
    return QWEN | {
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
    }


def qwen_1_5b() -> dict[str, Any]:
    return QWEN | {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }


def safetensors(path: Path, shapes: Shapes, *, data: Mapping[str, bytes] | None = None, sparse: bool = True) -> Path:
    """A file of these tensors; weights are a hole in the file (no disk), values are given in ``data``."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in shapes.items():
        size = BYTES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        begin = file.tell()
        for name, content in (data or {}).items():
            file.seek(begin + header[name]["data_offsets"][0])
            file.write(content)
        if sparse:
            file.truncate(begin + at)
    return path


def tokens(n: int = 60) -> dict[str, int]:
    return {f"t{i}": i for i in range(n)}


def folder(
    path: Path,
    *,
    config: Mapping[str, Any] | None = None,
    vocabulary: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    data: Mapping[str, bytes] | None = None,
    added: Sequence[Mapping[str, Any]] = (),
    tokenizer: bool = True,
    **files: Any,
) -> Path:
    """A model folder; ``files`` are further JSON files by their stem."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config if config is not None else QWEN))
    if tokenizer:
        model = {"type": "BPE", "vocab": dict(vocabulary if vocabulary is not None else tokens()), "merges": []}
        (path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": list(added)}))
    if shapes is not None:
        safetensors(path / "model.safetensors", shapes, data=data)
    for stem, value in files.items():
        (path / f"{stem}.json").write_text(json.dumps(value))
    return path


def dense_shapes(config: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, Sequence[int]]]:
    """The matrices of a Qwen2 or Llama checkpoint of this shape."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    width = hidden // config["num_attention_heads"]
    kv = config["num_key_value_heads"] * width
    found: dict[str, tuple[str, Sequence[int]]] = {"model.embed_tokens.weight": (dtype, (config["vocab_size"], hidden))}
    for i in range(config["num_hidden_layers"]):
        for name, shape in (
            ("self_attn.q_proj", (hidden, hidden)),
            ("self_attn.k_proj", (kv, hidden)),
            ("self_attn.v_proj", (kv, hidden)),
            ("self_attn.o_proj", (hidden, hidden)),
            ("mlp.gate_proj", (inner, hidden)),
            ("mlp.up_proj", (inner, hidden)),
            ("mlp.down_proj", (hidden, inner)),
        ):
            found[f"model.layers.{i}.{name}.weight"] = (dtype, shape)
    if not config.get("tie_word_embeddings"):
        found["lm_head.weight"] = (dtype, (config["vocab_size"], hidden))
    return found


def gguf(
    path: Path, fields: Mapping[str, Any], tensors: Sequence[tuple[str, Sequence[int], int, int]] = (), n_data: int = 0
) -> Path:
    """A GGUF file of version 3; fields are str, int (u32), bool, float, lists; tensors (name, shape, type, offset)."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
    for key, value in fields.items():
        out += _string(key) + _value(value)
    for name, shape, kind, offset in tensors:
        out += _string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", length) for length in reversed(shape)) + struct.pack("<IQ", kind, offset)
    out += b"\0" * (-len(out) % 32)
    path.write_bytes(bytes(out) + b"\0" * n_data)
    return path


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    strings = bool(value) and isinstance(value[0], str)
    head = struct.pack("<IIQ", 9, 8 if strings else 5, len(value))
    return head + b"".join(_string(one) if strings else struct.pack("<i", one) for one in value)
