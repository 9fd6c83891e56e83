"""What an engine's start log says of its KV cache: tokens it holds, bytes it takes, the model's own dimensions.

Read line by line, the first line of each kind, the target's before the draft's as the engines write them. The bytes of
SGLang and llama.cpp are of one rank or one device. Units are the engines': SGLang's GB and vLLM's GiB are 2^30 bytes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from analysis.kv_bytes import print_info

GIB, MIB = 2**30, 2**20
MOST_LINES = 20_000  # the start's own lines come first
_SGLANG = re.compile(
    r"KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]+), )?#tokens: (?P<tokens>\d+), "
    r"K size: (?P<k>[\d.]+) GB, V size: (?P<v>[\d.]+) GB"
)
_VLLM_TOKENS = re.compile(r"GPU KV cache size: (?P<tokens>[\d,]+) tokens")
_VLLM_BYTES = re.compile(r"Available KV cache memory: (?P<gib>[\d.]+) GiB")
_LLAMACPP = re.compile(r"llama_kv_cache: size = +(?P<mib>[\d.]+) MiB \( *(?P<cells>\d+) cells")
_LLAMACPP_KINDS = re.compile(r"\bK \((?P<k>\w+)\):.*\bV \((?P<v>\w+)\)")


@dataclass(kw_only=True, slots=True)
class KvLines:
    """``tokens``, ``kv_bytes`` and ``dtype`` with the line each stood in; the draft's pool apart."""

    tokens: int | None = None
    kv_bytes: float | None = None
    dtype: str | None = None
    lines: list[str] = field(default_factory=list)
    draft_bytes: float | None = None
    draft_tokens: int | None = None
    dimensions: dict[str, int] = field(default_factory=dict)


def kv_lines(log: Iterable[str]) -> KvLines:
    """From the lines of a log; a log of another engine gives nothing."""
    found = KvLines()
    for place, line in enumerate(log):
        if place >= MOST_LINES:
            break
        told = print_info(line)
        if told is not None:
            found.dimensions.setdefault(*told)
        elif "KV" in line or "kv_cache" in line:
            _read(found, line)
    return found


def _read(found: KvLines, line: str) -> None:
    if (seen := _SGLANG.search(line)) is not None:
        _pool(found, line, int(seen["tokens"]), (float(seen["k"]) + float(seen["v"])) * GIB, seen["dtype"])
    elif (seen := _LLAMACPP.search(line)) is not None:
        kinds = _LLAMACPP_KINDS.search(line)
        dtype = None if kinds is None else kinds["k"] if kinds["k"] == kinds["v"] else f"{kinds['k']}/{kinds['v']}"
        _pool(found, line, int(seen["cells"]), float(seen["mib"]) * MIB, dtype)
    elif (seen := _VLLM_TOKENS.search(line)) is not None and found.tokens is None:
        found.tokens = int(seen["tokens"].replace(",", ""))
        found.lines.append(line.strip())
    elif (seen := _VLLM_BYTES.search(line)) is not None and found.kv_bytes is None:
        found.kv_bytes = float(seen["gib"]) * GIB
        found.lines.append(line.strip())


def _pool(found: KvLines, line: str, tokens: int, n_bytes: float, dtype: str | None) -> None:
    """The first pool is the target's, the second the draft's."""
    if found.tokens is None:
        found.tokens, found.kv_bytes, found.dtype = tokens, n_bytes, dtype
        found.lines.append(line.strip())
    elif found.draft_bytes is None:
        found.draft_bytes, found.draft_tokens = n_bytes, tokens
        found.lines.append(line.strip())
