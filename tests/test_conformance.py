"""Recorded chunks against the openai types: all of a small run, a drawn sample of a large one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evidence_samples as sample

from evidence.drawn import DrawnRequests
from locustfiles._conformance import conformance

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNK = {
    "id": "x",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
}


def recorded(root: Path, n: int, *, odd: int | None = None) -> tuple[Path, Any]:
    """A run of n requests with three chunks each, and its plan; chunks of request ``odd`` are none of the types."""
    writer = sample.create(root, n)
    worker = writer.worker(0)
    for place in range(n):
        told = CHUNK | ({"choices": "none"} if place == odd else {})
        worker.started(sample.started(place))
        events = [(None, 2, f"data: {json.dumps(told)}\n\n".encode()) for _ in range(3)]
        worker.ended(sample.ended(place, wire=worker.wire(place, [(None, 1, HEAD), *events])))
    writer.close()
    planned = [SimpleNamespace(plan_id=one.plan_id, endpoint="chat") for one in sample.plan(n)]
    return writer.path, SimpleNamespace(requests=planned)


def test_every_request_of_a_small_run_is_judged_and_the_first_problem_named(tmp_path):
    path, plan = recorded(tmp_path, 12, odd=7)
    found = json.loads(conformance(path, sample.RUN_ID, plan))
    assert (found["n_ended"], found["n_requests"], found["n_chunks"], found["n_refused"]) == (12, 12, 36, 3)
    assert found["sample"] is None
    assert list(found["first_problem_by_plan_id"]) == [plan.requests[7].plan_id]


def test_of_a_large_run_a_sample_is_judged_and_said(tmp_path):
    path, plan = recorded(tmp_path, 40)
    found = json.loads(conformance(path, sample.RUN_ID, plan, limit_bytes=3000))
    assert 1 < found["n_requests"] < 12
    assert found["n_chunks"] == 3 * found["n_requests"]
    assert found["sample"] == f"{found['n_requests']} of 40 ended requests, drawn by the run's id: 0.003 MB of segments"


def test_requests_are_drawn_by_the_runs_id_alone_and_a_torn_line_is_none(tmp_path):
    path, plan = recorded(tmp_path, 20)
    drawn = [one.plan_id for one in DrawnRequests(path, "run-a")]
    in_order = [one.plan_id for one in plan.requests]
    assert sorted(drawn) == sorted(in_order)
    assert drawn != in_order
    assert drawn == [one.plan_id for one in DrawnRequests(path, "run-a")]
    assert drawn != [one.plan_id for one in DrawnRequests(path, "run-b")]
    with (path / "workers" / "0" / "requests.jsonl").open("ab") as file:
        file.write(b'{"schema_version":1,"run')
    assert DrawnRequests(path, "run-a").n == 20
