"""What a safetensors file says of its tensors: names, types, shapes, sizes. No weight is read.

A file is eight bytes of header length (little endian), a JSON header, then the data that the header's offsets divide
up (https://github.com/huggingface/safetensors, "Format"). A header whose data is missing whole is kept as such, since
headers alone are a way to look at a model before fetching it; data that ends early is a broken download.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_BYTES = 100_000_000  # the format's own limit of a header
LFS = b"version https://git-lfs.github.com/spec/"
# Bytes of one element; sub-byte types are counted in eighths by their bits.
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}


class HeaderError(Exception):
    """A weight file whose header cannot be read: ``path`` and ``reason``; the reason ends with what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path.name}: {reason}")
        self.path, self.reason = path, reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor as a header names it; shape is rows first, as the framework that wrote it says it."""

    name: str
    dtype: str  # BF16, F8_E4M3, I32, Q4_K ...
    shape: tuple[int, ...]
    n_bytes: int
    file: Path
    offset: int  # in the file

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFile:
    """One weight file's header. ``header_only``: not one byte of its data is there."""

    path: Path
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, Any]
    header_only: bool


def read_safetensors(path: Path) -> WeightFile:
    """The header of a safetensors file. Errors: HeaderError for a file that is cut, a pointer, or no such file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            if head + file.read(len(LFS) - 8) == LFS:
                raise HeaderError(path, "a Git LFS pointer and not the weights; fetch it with `git lfs pull`")
            length = int.from_bytes(head, "little")
            if size < 8 or length > size - 8:
                if len(head) == 8 and length > LIMIT_BYTES:
                    raise HeaderError(path, "no safetensors file: its first eight bytes are no header length")
                said = f"its header should have {length} bytes" if size >= 8 else "its header length is cut"
                raise HeaderError(path, f"truncated: {said}, the file has {size}; fetch it again")
            if length > LIMIT_BYTES:
                raise HeaderError(path, f"a header of {length} bytes is beyond the format's limit; fetch it again")
            file.seek(8)
            raw = file.read(length)
    except OSError as error:
        raise HeaderError(path, f"cannot be read ({error.strerror}); check its permissions") from error
    return _parsed(path, raw, size - 8 - length)


def read_values(tensor: Tensor, limit_bytes: int = 8 << 20) -> tuple[int, ...] | None:
    """The integers of a small map such as ``d2t`` (or the flags of ``t2d``); None where it is no such map or not there.

    These are id tables, some hundred kilobytes, not weights.
    """
    width = {"I64": 8, "I32": 4, "I16": 2, "BOOL": 1, "U8": 1, "I8": 1}.get(tensor.dtype)
    if width is None or tensor.n_bytes > limit_bytes:
        return None
    try:
        with tensor.file.open("rb") as file:
            file.seek(tensor.offset)
            data = file.read(tensor.n_bytes)
    except OSError:
        return None
    if len(data) < tensor.n_bytes:
        return None
    signed = tensor.dtype.startswith("I")
    return tuple(int.from_bytes(data[i : i + width], "little", signed=signed) for i in range(0, len(data), width))


def _parsed(path: Path, raw: bytes, n_data: int) -> WeightFile:
    try:
        header = json.loads(raw)
        if not isinstance(header, dict):
            raise ValueError("it is no object")
        metadata = header.pop("__metadata__", None) or {}
        tensors = [_tensor(path, name, entry, 8 + len(raw)) for name, entry in header.items()]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HeaderError(path, f"its header cannot be read: {error}; fetch the file again") from error
    end = max((tensor.offset + tensor.n_bytes for tensor in tensors), default=8 + len(raw)) - 8 - len(raw)
    header_only = n_data == 0 and end > 0
    if n_data != end and not header_only:
        what = "truncated" if n_data < end else "longer than its header says"
        raise HeaderError(path, f"{what}: {n_data} bytes of data, its header describes {end}; fetch the file again")
    return WeightFile(path=path, tensors=tuple(tensors), metadata=metadata, header_only=header_only)


def _tensor(path: Path, name: str, entry: Any, data_at: int) -> Tensor:
    dtype, shape, (begin, end) = str(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)) or begin > end:
        raise ValueError(f"shape or offsets of {name!r} are no counts")
    bits = _BITS.get(dtype)
    if bits is not None and (math.prod(shape) * bits + 7) // 8 != end - begin:
        raise ValueError(f"{name!r} of {dtype}{list(shape)} has {end - begin} bytes")
    return Tensor(name=name, dtype=dtype, shape=shape, n_bytes=end - begin, file=path, offset=data_at + begin)
