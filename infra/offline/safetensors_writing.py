"""Writing safetensors files with numpy alone: a header of JSON, then the tensors' bytes. bfloat16 from float32."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to the nearest, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def write_bfloat16(path: Path, tensors: Mapping[str, Floats]) -> int:
    """Write every tensor as BF16 in the order of its name; returns the size in bytes of their data.

    The file is written under another name and moved into place when whole. Errors: OSError.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        size = tensors[name].size * 2
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 8)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(len(said).to_bytes(8, "little") + said)
        for name in sorted(tensors):
            file.write(bfloat16(tensors[name]).tobytes())
    partial.replace(path)
    return offset
