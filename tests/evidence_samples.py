"""Small real runs and launches for tests of the evidence folders, written through the real writers."""

import hashlib
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evidence.folder import RunWriter
from evidence.lines import canonical
from evidence.records import Health, Launch, Manifest, Request, Scrape, Started, WireRef
from evidence.worker import WorkerWriter

RUN_ID = "run-20261129T161200Z-a1b2c3"
SEGMENTS = [(1_700_000_000_000_000_000, 5_000, b"HTTP/1.1 200 OK\r\n\r\n"), (None, 6_000, b"data: {}\n\n" * 3)]


class Planned(BaseModel):
    """The least a plan line has."""

    plan_id: str
    prompt_id: str
    domain: str = "code"
    phase: str = "measured"


def plan(n_planned: int) -> list[Planned]:
    return [Planned(plan_id=f"m{number:04d}", prompt_id=f"code_{number:02d}") for number in range(n_planned)]


def manifest(lines: list[Planned], **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "created_at_unix_s": 1_700_000_000.0,
        "label": "sample",
        "note": None,
        "scenario": {"name": "sample", "request": {"max_tokens": {"code": 48}}},
        "scenario_sha256": "0" * 64,
        "prompts_sha256": {"code.jsonl": "0" * 64},
        "plan_sha256": hashlib.sha256(b"".join(map(canonical, lines))).hexdigest(),
        "n_planned": len(lines),
        "arm": None,
        "launch_dir": None,
        "launch_id": None,
        "server": {"engine": "llama.cpp"},
        "model": {"asked": "m"},
        "versions": {"python": "3.11"},
        "hardware": {},
        "adapter": None,
        "metric_types": {},
        "git_commit": None,
        "clock": {},
        "calibration": None,
        "environment": {},
        "options": {},
        "request_extra": {},
        "wire_limit_bytes": 1_000_000,
        "n_workers": 2,
        "missing": (),
    }
    return Manifest(**(fields | changes))


def started(sequence: int, *, worker: int = 0, plan_id: str | None = None) -> Started:
    return Started(
        run_id=RUN_ID,
        worker=worker,
        sequence=sequence,
        plan_id=plan_id or f"m{sequence:04d}",
        started_at_unix_s=1_700_000_000.0 + sequence,
        started_at_monotonic_s=10.0 + sequence,
    )


def ended(sequence: int, *, plan_id: str | None = None, wire: WireRef | None = None, **changes: Any) -> Request:
    plan_id = plan_id or f"m{sequence:04d}"
    text = changes.pop("output_text", "def f():\n    return 'é'\n")
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "worker": 0,
        "sequence": sequence,
        "plan_id": plan_id,
        "prompt_id": f"code_{int(plan_id[1:]):02d}",
        "domain": "code",
        "phase": "measured",
        "level": None,
        "pass_index": 0,
        "repeat": 0,
        "transport": "wire",
        "connection": None,
        "sent_at_unix_s": 1_700_000_000.0,
        "sent_at_monotonic_s": 10.0,
        "http_status": 200,
        "headers_after_s": 0.01,
        "first_event_after_s": 0.02,
        "first_token_after_s": 0.02,
        "first_visible_after_s": 0.02,
        "last_token_after_s": 0.04,
        "end_after_s": 0.05,
        "stamp_source": "kernel",
        "clock_step_s": 0.0,
        "kernel_to_user_max_s": 0.0001,
        "coalesced_events": 0,
        "chunks": ((0.02, 0, 1, 3), (0.04, 1, None, 5)),
        "chunk_semantics": "unknown",
        "usage": {"completion_tokens": 2},
        "token_source": "usage",
        "n_completion_tokens": 2,
        "n_prompt_tokens": 9,
        "finish_reason": "stop",
        "outcome": "completed",
        "error": None,
        "output_text": text,
        "output_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "reasoning_text": None,
        "tool_calls_text": None,
        "model_served": "m",
        "server_fields": {},
        "wire": wire,
        "wire_missing": None if wire else "not kept in this sample",
    }
    return Request(**(fields | changes))


def scrape(**changes: Any) -> Scrape:
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "url": "http://127.0.0.1:1/metrics",
        "role": "before",
        "send_unix_s": 1.0,
        "receive_unix_s": 1.1,
        "send_monotonic_s": 1.0,
        "receive_monotonic_s": 1.1,
        "http_status": 200,
        "headers": {"content-type": "text/plain"},
        "body": "a_total 1\n",
        "complete": True,
        "error": None,
    }
    return Scrape(**(fields | changes))


def health() -> Health:
    return Health(
        at_monotonic_s=1.0,
        interval_s=1.0,
        lag_p50_s=0.0,
        lag_max_s=None,
        cpu_ratio=0.5,
        gc_pauses=0,
        gc_pause_max_s=0.0,
        in_flight=1,
    )


def launch(**changes: Any) -> Launch:
    fields: dict[str, Any] = {
        "launch_id": "launch-20261129T161200Z-a1b2c3",
        "arm": {"name": "cpu-f32"},
        "command": ("engine", "--port", "1"),
        "reproduce": "engine --port 1",
        "resolved": {},
        "versions": {},
        "model": {},
        "draft": None,
        "pid": None,
        "url": None,
        "started_at_unix_s": 1_700_000_000.0,
        "ready_at_unix_s": None,
        "ended_at_unix_s": None,
        "stage": "command",
        "speculation": "not asked",
        "speculation_proof": None,
        "outcome": "starting",
        "symptom": None,
        "evidence_grade": None,
        "memory": None,
        "diagnostics": (),
        "exit_code": None,
    }
    return Launch(**(fields | changes))


def create(runs_dir: Path, n_planned: int = 5, *, secrets: tuple[str, ...] = (), **changes: Any) -> RunWriter:
    lines = plan(n_planned)
    return RunWriter.create(runs_dir, RUN_ID, manifest(lines, **changes), lines, secrets=secrets)


def play(worker: WorkerWriter, sequence: int, **changes: Any) -> None:
    """One whole request: started, raw segments, ended."""
    worker.started(started(sequence, worker=worker.worker, plan_id=changes.get("plan_id")))
    wire = worker.wire(sequence, SEGMENTS)
    worker.ended(ended(sequence, wire=wire, worker=worker.worker, **changes))


def small_run(runs_dir: Path, *, n_ended: int = 4, n_planned: int = 5, seal: bool = False) -> Path:
    """A run of two workers with every kind of file; by default its writer is gone without a seal."""
    run = create(runs_dir, n_planned)
    run.server_body("models.json", b'{"data": [{"id": "m"}]}')
    run.scrape(scrape())
    run.worker(0).health(health())
    run.notice("the sample was made")
    for sequence in range(n_ended):
        play(run.worker(0), sequence, outcome="completed" if sequence else "truncated")
    play(run.worker(1), 0, plan_id=f"m{n_ended:04d}", outcome="cancelled")
    run.scrape(scrape(role="after"))
    if seal:
        run.seal()
    else:
        run.close()
    return run.path


def write_without_end(runs_dir: Path, n_planned: int) -> None:
    """What a subprocess does until it is killed: requests one after the other, as fast as it can."""
    run = create(runs_dir, n_planned)
    for sequence in range(n_planned):
        play(run.worker(0), sequence)
        run.scrape(scrape(role="during"))
    run.seal()


if __name__ == "__main__":
    write_without_end(Path(sys.argv[1]), int(sys.argv[2]))
