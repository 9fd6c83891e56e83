"""Whether a server had its GPU to itself, by memory that is not its own. Where one GPU was sampled; SGLang alone tells.

Before it loads weights it writes how much of the device is free: what is missing from the whole then, beyond what a
process begins with, was somebody's before it. When it is ready it reports what is free once more: what the driver shows
in use beyond that during the run came to somebody after it. Memory does not show that the other one was at work; it
shows that there was another one, and then no time of this run is the engine's alone.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from evidence.gpu_records import GpuSample
from evidence.records import Launch

SLACK_BYTES = 4 << 30  # a CUDA context, a pool for images, and what an engine takes while it works
MOST_LINES = 5000
_FREE = re.compile(r"Load weight begin\. avail mem=([0-9.]+) GB")


def shared_gpu(launch: Launch | None, launch_path: Path | None, samples: Sequence[GpuSample]) -> str | None:
    """What shows that another process held memory of the server's GPU; None where nothing does, or nothing tells."""
    devices = {gpu.uuid or gpu.index for sample in samples for gpu in sample.gpus}
    told = [gpu for sample in samples for gpu in sample.gpus if gpu.memory_used_bytes is not None]
    total = next((gpu.memory_total_bytes for gpu in told if gpu.memory_total_bytes), None)
    if launch is None or len(devices) != 1 or total is None:
        return None
    free = _free_before(launch_path)
    if free is not None and total - free > SLACK_BYTES:
        return f"{_gib(total - free)} of the GPU's {_gib(total)} were in use before the server loaded its weights"
    after = _free_after(launch.resolved)
    used = min(gpu.memory_used_bytes or 0 for gpu in told)
    if after is not None and used - (total - after) > SLACK_BYTES:
        return (
            f"{_gib(used)} of the GPU's {_gib(total)} were in use during the run, {_gib(total - after)} when the "
            "server was ready"
        )
    return None


def _free_before(launch_path: Path | None) -> float | None:
    if launch_path is None:
        return None
    try:
        with (launch_path / "engine.log").open(encoding="utf-8", errors="replace") as log:
            return _first(islice(log, MOST_LINES))
    except OSError:
        return None


def _first(lines: Iterable[str]) -> float | None:
    found = next((seen for line in lines if (seen := _FREE.search(line)) is not None), None)
    return None if found is None else float(found[1]) * (1 << 30)


def _free_after(resolved: Any) -> float | None:
    outcomes = resolved.get("resolved.outcomes") if isinstance(resolved, dict) else None
    memory = outcomes.get("internal_states.memory_usage") if isinstance(outcomes, dict) else None
    free = memory.get("startup_available") if isinstance(memory, dict) else None
    return float(free) * (1 << 30) if isinstance(free, int | float) and not isinstance(free, bool) else None


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / (1 << 30):.1f} GiB"
