"""Small synthetic profiler traces, in the shapes that torch.profiler and SGLang's trace merger write."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures" / "profiler"
BASE = FIXTURES / "sglang-base.trace.json.gz"
NGRAM = FIXTURES / "sglang-ngram.trace.json.gz"
BASE_NS = 1_700_000_000_000_000_000


def kernel(name: str, ts: float, dur: float, *, stream: int = 7, pid: Any = 0, cat: str = "kernel") -> dict[str, Any]:
    args = {"device": 0, "stream": stream}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": stream, "ts": ts, "dur": dur, "args": args}


def mark(
    name: str, ts: float, dur: float, number: int, *, gpu: tuple[float, float] | None = None, pid: Any = 99
) -> list[dict[str, Any]]:
    """A range on the CPU, and on GPU 0 where ``gpu`` gives its start and duration."""
    found = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": 99, "ts": ts, "dur": dur,
         "args": {"External id": number}}
    ]  # fmt: skip
    if gpu is not None:
        found.append(
            {"ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": 0, "tid": 7, "ts": gpu[0], "dur": gpu[1],
             "args": {"External id": number}}
        )  # fmt: skip
    return found


def document(events: Sequence[dict[str, Any]], **header: Any) -> dict[str, Any]:
    told = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Test GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": BASE_NS,
    }
    return {**told, **header, "traceEvents": list(events), "traceName": "t.json"}


def write(path: Path, events: Sequence[dict[str, Any]], *, packed: bool = True, **header: Any) -> Path:
    data = json.dumps(document(events, **header)).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path
