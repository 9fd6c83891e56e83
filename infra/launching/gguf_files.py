"""Reading and writing GGUF checkpoints with the ``gguf`` package: header facts, F32 re-typing, another vocabulary.

Imports numpy and gguf, which only a machine that runs the embedded engine has.
"""

import importlib.metadata
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tqdm import tqdm

TOKENS, TOKEN_TYPES, FILE_TYPE = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "general.file_type"


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a checkpoint says of itself. ``quantisation`` is the type of most of its matrices."""

    architecture: str
    file_type: str
    quantisation: str
    tensor_types: dict[str, int]
    n_vocab: int
    n_ctx_train: int


def version() -> str:
    return importlib.metadata.version("gguf")


def read_header(path: Path) -> Header:
    reader = gguf.GGUFReader(path)
    architecture = str(_value(reader, "general.architecture"))
    matrices = Counter(tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1)
    return Header(
        architecture=architecture,
        file_type=gguf.LlamaFileType(_value(reader, FILE_TYPE)).name,
        quantisation=matrices.most_common(1)[0][0],
        tensor_types=dict(sorted(Counter(tensor.tensor_type.name for tensor in reader.tensors).items())),
        n_vocab=len(reader.fields[TOKENS].data),
        n_ctx_train=int(_value(reader, f"{architecture}.context_length")),
    )


def retype_to_f32(source: Path, destination: Path) -> None:
    """Every tensor dequantised and written as F32: the same weights, dearer arithmetic."""
    _copy(
        source,
        destination,
        changed={FILE_TYPE: int(gguf.LlamaFileType.ALL_F32)},
        as_f32=True,
        what="re-typing to F32 (once)",
    )


def change_vocabulary(source: Path, destination: Path) -> None:
    """The same weights under another token map of equal size: the normal tokens from id 5 on rotated by one.

    llama.cpp compares token texts from id 5 on, and only logs that they differ.
    """
    reader = gguf.GGUFReader(source)
    tokens = list(_value(reader, TOKENS))
    normal = [i for i, kind in enumerate(_value(reader, TOKEN_TYPES)) if i >= 5 and kind == gguf.TokenType.NORMAL]
    texts = [tokens[i] for i in normal]
    for i, text in zip(normal, texts[1:] + texts[:1], strict=True):
        tokens[i] = text
    _copy(source, destination, changed={TOKENS: tokens}, as_f32=False, what="changing the vocabulary (once)")


def _copy(source: Path, destination: Path, *, changed: dict[str, Any], as_f32: bool, what: str) -> None:
    """Write every field and tensor of ``source`` one at a time, so that memory holds one tensor only."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(destination, arch=str(_value(reader, "general.architecture")))
    try:
        for name, field in reader.fields.items():
            # The writer makes the GGUF.* fields and the architecture itself.
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            kind, *inner = field.types
            writer.add_key_value(
                name, changed[name] if name in changed else field.contents(), kind, inner[-1] if inner else None
            )
        for tensor in reader.tensors:
            if as_f32:
                shape = tuple(reversed(tensor.shape.tolist()))
                writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), int(tensor.n_elements) * 4)
            else:
                kept = tensor.data
                writer.add_tensor_info(tensor.name, kept.shape, kept.dtype, int(tensor.n_bytes), tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if not sys.stderr.isatty():
            sys.stderr.write(f"{what}\n")
        for tensor in tqdm(reader.tensors, desc=what, unit="tensor", file=sys.stderr, disable=None):
            writer.write_tensor_data(_as_f32(tensor) if as_f32 else tensor.data)
    finally:
        writer.close()


def _as_f32(tensor: Any) -> Any:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)


def _value(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()
