"""What an out-of-memory message says in numbers: total, in use, requested; what it does not say stays None. Pure.

Read: torch's CUDA messages (2.1 and older, and since), SGLang's and vLLM's refusals of a pool, and ggml's failed
allocations. Messages round to two decimals of their unit, so a number of bytes here is that exact and no more.
"""

import re
from collections.abc import Iterable
from typing import Any

_UNITS = {"B": 1, "bytes": 1, "KiB": 2**10, "KB": 2**10, "MiB": 2**20, "MB": 2**20, "GiB": 2**30, "GB": 2**30}
_N = r"(-?[0-9]+(?:\.[0-9]+)?) ?(bytes|[KMG]i?B|B)"

_TORCH = re.compile(
    rf"CUDA out of memory\. Tried to allocate {_N}\. GPU (?P<device>\d+) has a total capac[a-z]+ of {_N} "
    rf"of which {_N} is free\."
)
_TORCH_OURS = re.compile(rf"this process has {_N} memory in use")
_TORCH_OLD = re.compile(
    rf"CUDA out of memory\. Tried to allocate {_N} \(GPU (?P<device>\d+); {_N} total capacity; {_N} already allocated; "
    rf"{_N} free"
)
_VLLM_START = re.compile(
    r"Free memory on device (?P<device>\S+ )?\(([0-9.]+)/([0-9.]+) GiB\) on startup is less than desired GPU memory "
    r"utilization \([0-9.]+, ([0-9.]+) GiB\)"
)
_VLLM_LENGTH = re.compile(
    r"\(?([0-9.]+) GiB KV cache is needed, which is larger than the available KV cache memory \((-?[0-9.]+) GiB\)"
)
_VLLM_NONE = re.compile(r"No available memory for the cache blocks")
_VLLM_AVAILABLE = re.compile(r"Available KV cache memory: (-?[0-9.]+) GiB")
_SGLANG_NONE = re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static")
_SGLANG_AVAILABLE = re.compile(r"avail mem=(-?[0-9.]+) GB")
_GGML_CUDA = re.compile(rf"allocating {_N} on device (?P<device>\d+): cudaMalloc failed: out of memory")
_GGML_BUFFER = re.compile(r"failed to allocate (?:(?P<device>\w+) )?buffer of size ([0-9]+)")
_GGML_VULKAN = re.compile(r"Device memory allocation of size ([0-9]+) failed")
_GGML_DEVICE = re.compile(r"- (\w+) +: .*\(([0-9]+) MiB, ([0-9]+) MiB free\)")
_BARE = re.compile(r"CUDA error: out of memory|ErrorOutOf(?:Device|Host)Memory|OutOfMemoryError|std::bad_alloc")


def read_memory(lines: Iterable[str]) -> dict[str, Any] | None:
    """``total_bytes``, ``in_use_bytes``, ``requested_bytes`` and what else the first such message says; else None.

    ``said`` is the line itself. ``available_bytes`` is what the engine last said was left for it; on what it counts
    (the whole device, or its share) engines differ, so nothing is reckoned from it.
    """
    available: int | None = None
    devices: dict[str, tuple[int, int]] = {}
    found: dict[str, Any] | None = None
    for line in lines:
        if found is None:
            if spoken := (_VLLM_AVAILABLE.search(line) or _SGLANG_AVAILABLE.search(line)):
                available = _bytes(spoken[1], "GiB")
            if device := _GGML_DEVICE.search(line):
                devices[device[1]] = (int(device[2]) * 2**20, int(device[3]) * 2**20)
        said = _said(line)
        if said is None:
            continue
        if found is None:
            found = {"total_bytes": None, "in_use_bytes": None, "requested_bytes": None, "said": line.strip()}
            found |= {"available_bytes": available} | {key: value for key, value in said.items() if value is not None}
        else:  # a later line of the same failure fills what the first left open
            found |= {key: value for key, value in said.items() if value is not None and found.get(key) is None}
    if found is not None and found["total_bytes"] is None and found.get("device") in devices:
        total, free = devices[found["device"]]
        found |= {"total_bytes": total, "free_at_start_bytes": free}
    return found


def _said(line: str) -> dict[str, Any] | None:
    """The numbers of one line; an empty dict for a message without any; None where the line is no such message."""
    if m := _TORCH.search(line):
        requested, total, free = _bytes(m[1], m[2]), _bytes(m[4], m[5]), _bytes(m[6], m[7])
        ours = _TORCH_OURS.search(line)
        return {
            **_numbers(total, total - free, requested, m["device"]),
            "process_in_use_bytes": _bytes(ours[1], ours[2]) if ours else None,
        }
    if m := _TORCH_OLD.search(line):
        requested, total, ours_, free = (_bytes(m[i], m[i + 1]) for i in (1, 4, 6, 8))
        return {**_numbers(total, total - free, requested, m["device"]), "process_in_use_bytes": ours_}
    if m := _VLLM_START.search(line):
        total, free = _bytes(m[3], "GiB"), _bytes(m[2], "GiB")
        device = m["device"].strip() if m["device"] else None
        return _numbers(total, total - free, _bytes(m[4], "GiB"), device)
    if m := _VLLM_LENGTH.search(line):
        return {"requested_bytes": _bytes(m[1], "GiB"), "available_bytes": _bytes(m[2], "GiB")}
    if m := _GGML_CUDA.search(line):
        return {"requested_bytes": _bytes(m[1], m[2]), "device": f"CUDA{m['device']}"}
    if m := _GGML_BUFFER.search(line):
        return {"requested_bytes": int(m[2]), "device": m["device"]}
    if m := _GGML_VULKAN.search(line):
        return {"requested_bytes": int(m[1])}
    if any(pattern.search(line) for pattern in (_VLLM_NONE, _SGLANG_NONE, _BARE)) or "CUDA out of memory" in line:
        return {}
    return None


def _numbers(total: int, in_use: int, requested: int, device: str | None) -> dict[str, Any]:
    return {"total_bytes": total, "in_use_bytes": in_use, "requested_bytes": requested, "device": device}


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
