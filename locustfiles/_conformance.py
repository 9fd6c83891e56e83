"""Do the recorded chunks meet the openai client's own types? Judged after the run, from the raw segments on disk.

Every request of a small run is judged; of a large one as many, drawn by the run's id, as ``LIMIT_BYTES`` of segments
hold: the end of a run must not take minutes, nor the run's size in memory.
"""

import json
from pathlib import Path
from typing import Any

from evidence.drawn import DrawnRequests
from evidence.errors import Problem
from evidence.reading import find_frames
from infra.openai_client import validate_chunks
from infra.wire.stream import events
from scenarios.plan import Plan

LIMIT_BYTES = 16_000_000


def conformance(path: Path, run_id: str, plan: Plan, *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """One JSON object: chunks seen and refused, with the first problem of each request that has one.

    ``sample`` says in words which requests were judged, null where all were. Raises EvidenceError.
    """
    endpoints = {planned.plan_id: planned.endpoint for planned in plan.requests}
    drawn = DrawnRequests(path, run_id)
    n_looked_at = n_bytes = n_chunks = n_bad = n_requests = 0
    problems: dict[str, str] = {}
    for request in drawn:
        if n_bytes >= limit_bytes:
            break
        n_looked_at += 1
        if request.wire is None or request.http_status != 200:
            continue
        frames = find_frames(path, request.wire)
        if isinstance(frames, Problem):
            continue  # the folder's own fault, and said where the folder is verified
        n_bytes += request.wire.n_bytes
        segments = [frame.segment for frame in frames]
        payloads = (data for _, data in events(segments, framing="http" if request.transport == "wire" else "body"))
        report = validate_chunks(payloads, endpoints[request.plan_id])
        n_requests += 1
        n_chunks += report.n
        n_bad += report.n_bad
        if report.problems:
            problems[request.plan_id] = report.problems[0]
    said = f"{n_looked_at} of {drawn.n} ended requests, drawn by the run's id: {limit_bytes / 1e6:g} MB of segments"
    found: dict[str, Any] = {
        "judged_by": "openai types ChatCompletionChunk and Completion",
        "sample": said if n_looked_at < drawn.n else None,
        "n_ended": drawn.n,
        "n_requests": n_requests,
        "n_chunks": n_chunks,
        "n_refused": n_bad,
        "first_problem_by_plan_id": problems,
    }
    return json.dumps(found, indent=1).encode() + b"\n"
