"""Do the recorded chunks meet the openai client's own types? Judged after the run, from the raw segments on disk."""

import json
from pathlib import Path
from typing import Any

from evidence.reading import open_run, read_segments
from infra.openai_client import validate_chunks
from infra.wire.stream import events
from scenarios.plan import Plan


def conformance(path: Path, plan: Plan) -> bytes:
    """One JSON object: chunks seen and refused over the run, with the first problem of each request that has one."""
    run = open_run(path)
    endpoints = {planned.plan_id: planned.endpoint for planned in plan.requests}
    n_chunks = n_bad = n_requests = 0
    problems: dict[str, str] = {}
    for request in run.requests:
        if request.wire is None or request.http_status != 200:
            continue
        segments = read_segments(run, request.wire)
        payloads = (data for _, data in events(segments, framing="http" if request.transport == "wire" else "body"))
        report = validate_chunks(payloads, endpoints[request.plan_id])
        n_requests += 1
        n_chunks += report.n
        n_bad += report.n_bad
        if report.problems:
            problems[request.plan_id] = report.problems[0]
    found: dict[str, Any] = {
        "judged_by": "openai types ChatCompletionChunk and Completion",
        "n_requests": n_requests,
        "n_chunks": n_chunks,
        "n_refused": n_bad,
        "first_problem_by_plan_id": problems,
    }
    return json.dumps(found, indent=1).encode() + b"\n"
