"""The header of a GGUF file: its fields and what it says of its tensors. No weight is read, and no package is needed.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version, counts, key-value pairs, tensor
descriptions, padding, data. A file of another byte order or of version 1 is refused by name.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.preflight.weight_headers import LFS, HeaderError, Tensor

MAGIC = b"GGUF"
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# ggml's tensor types: number, name, elements of a block, bytes of a block.
_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """``fields`` by key, arrays as tuples. ``n_weight_bytes``: the data there is, else the data described."""

    path: Path
    fields: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    n_weight_bytes: int
    header_only: bool


def read_gguf(path: Path) -> GgufHeader:
    """The header of a GGUF file. Errors: HeaderError for a file that is cut, a pointer, or no such file."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(len(LFS))
            if head == LFS:
                raise HeaderError(path, "a Git LFS pointer and not the weights; fetch it with `git lfs pull`")
            if head[:4] != MAGIC:
                raise HeaderError(path, f"no GGUF file: it begins with {head[:4]!r}; give a .gguf file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size).header()
    except (OSError, ValueError) as error:
        raise HeaderError(path, f"cannot be read ({error}); check the file") from error


class _Reader:
    """Walks the header once, bounds checked by struct and by the slices' lengths."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 4

    def header(self) -> GgufHeader:
        version = self.scalar("<I")
        if version not in (2, 3):
            order = " (or of the other byte order)" if version > 0xFFFF else ""
            raise HeaderError(self.path, f"GGUF version {version}{order}; versions 2 and 3 can be read")
        n_tensors, n_fields = self.scalar("<Q"), self.scalar("<Q")
        if n_tensors > self.size or n_fields > self.size:
            raise HeaderError(self.path, f"{n_tensors} tensors and {n_fields} fields cannot be; fetch the file again")
        fields: dict[str, Any] = {}
        for _ in range(n_fields):
            key = self.string()
            fields[key] = self.value(self.scalar("<I"))
        found = [self.tensor() for _ in range(n_tensors)]
        told = fields.get("general.alignment")
        alignment = told if type(told) is int and told > 0 else 32
        data_at = -(-self.at // alignment) * alignment
        tensors = tuple(
            Tensor(name=n, dtype=kind, shape=shape, n_bytes=n_bytes, file=self.path, offset=data_at + offset)
            for n, kind, shape, n_bytes, offset in found
        )
        there = max(0, self.size - data_at)
        end = max((one.offset + one.n_bytes for one in tensors), default=data_at) - data_at
        if 0 < there < end:
            what = f"truncated: {there} bytes of weights, its header describes {end}; fetch the file again"
            raise HeaderError(self.path, what)
        return GgufHeader(
            path=self.path,
            fields=fields,
            tensors=tensors,
            n_weight_bytes=there or end,
            header_only=not there and end > 0,
        )

    def tensor(self) -> tuple[str, str, tuple[int, ...], int, int]:
        name = self.string()
        n_dimensions = self.scalar("<I")
        if n_dimensions > 8:
            raise HeaderError(self.path, f"tensor {name!r} has {n_dimensions} dimensions; fetch the file again")
        shape = tuple(reversed([self.scalar("<Q") for _ in range(n_dimensions)]))
        number, offset = self.scalar("<I"), self.scalar("<Q")
        kind, block, n_bytes = _TYPES.get(number, (f"type {number}", 1, 0))
        n_elements = 1
        for length in shape:
            n_elements *= length
        return name, kind, shape, n_elements // block * n_bytes, offset

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.scalar("<I"), self.scalar("<Q")
            if count > self.size:
                raise HeaderError(self.path, f"truncated: an array of {count} values; fetch the file again")
            if inner == _STRING:
                return tuple(self.string() for _ in range(count))
            layout = self.layout(inner)
            self.need(struct.calcsize(layout) * count)
            values = struct.unpack_from(f"<{count}{layout[1:]}", self.data, self.at)
            self.at += struct.calcsize(layout) * count
            return values
        return self.scalar(self.layout(kind))

    def layout(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise HeaderError(
                self.path, f"a field of type {kind}, which the format does not have; fetch the file again"
            )
        return _SCALARS[kind]

    def scalar(self, layout: str) -> Any:
        self.need(struct.calcsize(layout))
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def string(self) -> str:
        length = self.scalar("<Q")
        self.need(length)
        text = self.data[self.at : self.at + length].decode("utf-8", "replace")
        self.at += length
        return text

    def need(self, n_bytes: int) -> None:
        if self.at + n_bytes > self.size:
            what = f"truncated: the header goes beyond the file's {self.size} bytes; fetch the file again"
            raise HeaderError(self.path, what)
