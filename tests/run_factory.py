"""Small synthetic records and run folders for tests of the analysis; folders go through evidence's own writer."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.folder import RunWriter
from evidence.gpu_records import GpuSample
from evidence.level_records import Level
from evidence.lines import canonical
from evidence.records import ChunkMark, ConnectionFacts, Manifest, Request, Scrape, ScrapeRole, Started
from scenarios.plan import LoadRequest, Message, PlannedRequest

TEXT = "alpha beta"
UNIX_S = 1_700_000_000.0


def request(*, chunks: Sequence[ChunkMark] = ((0.1, 0, 1, 5), (0.3, 1, 2, 5)), **changes: Any) -> Request:
    """A completed request whose instants follow from its chunk marks; any field can be changed by name."""
    marks = tuple(chunks)
    text = changes.pop("output_text", TEXT)
    last_s = marks[-1][0] if marks else None
    fields: dict[str, Any] = {
        "run_id": "run-test",
        "worker": 0,
        "sequence": 0,
        "plan_id": "m0000",
        "prompt_id": "code_01",
        "domain": "code",
        "phase": "measured",
        "level": None,
        "pass_index": 0,
        "repeat": 0,
        "transport": "wire",
        "connection": ConnectionFacts(reused=True, resolve_s=None, connect_s=None, tls_s=None, tls_version=None),
        "sent_at_unix_s": UNIX_S,
        "sent_at_monotonic_s": 50.0,
        "http_status": 200,
        "headers_after_s": marks[0][0] if marks else 0.01,
        "first_event_after_s": marks[0][0] if marks else None,
        "first_token_after_s": marks[0][0] if marks else None,
        "first_visible_after_s": marks[0][0] if marks else None,
        "last_token_after_s": last_s,
        "end_after_s": (last_s or 0.0) + 0.05,
        "stamp_source": "kernel",
        "clock_step_s": 0.0,
        "kernel_to_user_max_s": 0.0001,
        "coalesced_events": 0,
        "chunks": marks,
        "chunk_semantics": "token",
        "usage": None,
        "token_source": "usage",
        "n_completion_tokens": marks[-1][2] if marks else 0,
        "n_prompt_tokens": 20,
        "finish_reason": "stop",
        "outcome": "completed",
        "error": None,
        "output_text": text,
        "output_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "reasoning_text": None,
        "tool_calls_text": None,
        "model_served": "tiny",
        "server_fields": {},
        "wire": None,
        "wire_missing": "made by a test",
    }
    return Request(**(fields | changes))


def planned(request: Request, sequence: int, *, text: str = "Say it.", check: Any = None) -> PlannedRequest:
    """The plan line that a request answers."""
    return PlannedRequest(
        plan_id=request.plan_id,
        sequence=sequence,
        phase=request.phase,
        domain=request.domain,
        prompt_id=request.prompt_id,
        prompt_sha256=hashlib.sha256(text.encode()).hexdigest(),
        level=request.level,
        pass_index=request.pass_index,
        repeat=request.repeat,
        endpoint="chat",
        messages=(Message(role="user", content=text),),
        prompt=None,
        max_tokens=48,
        temperature=0.0,
        seed=0,
        ignore_eos=False,
        salt=None,
        check=check,
    )


def _scheduled(line: PlannedRequest, request: Request, began_s: float | None) -> PlannedRequest:
    """The plan line with the instant that a request of the open loop was sent for."""
    if request.send_lag_s is None or request.sent_at_monotonic_s is None or began_s is None:
        return line
    after_s = max(0.0, request.sent_at_monotonic_s - request.send_lag_s - began_s)
    fields = {name: getattr(line, name) for name in type(line).model_fields}
    return LoadRequest(**fields, scheduled_after_s=after_s)


def numbered(requests: Sequence[Request], *, timed: bool = False) -> list[Request]:
    """The requests in the order given, with run-wide sequences and plan ids, and distinct start instants of their own.

    ``timed``: the requests keep the instants they have.
    """
    counts = {"warmup": 0, "measured": 0}
    found = []
    for sequence, one in enumerate(requests):
        place = counts[one.phase]
        counts[one.phase] += 1
        own = {"sequence": sequence, "plan_id": f"{'w' if one.phase == 'warmup' else 'm'}{place:04d}"}
        instants = {"sent_at_monotonic_s": 50.0 + 5 * sequence, "sent_at_unix_s": UNIX_S + 5 * sequence}
        if one.sent_at_monotonic_s is None:
            instants = {}  # it never was sent
        found.append(one.model_copy(update=own if timed else own | instants))
    return found


def manifest(plan: Sequence[PlannedRequest], **changes: Any) -> Manifest:
    """A manifest of a launched, identified llama.cpp without speculation; any field can be changed by name."""
    fields: dict[str, Any] = {
        "run_id": "run-test",
        "created_at_unix_s": UNIX_S - 10,
        "label": None,
        "note": None,
        "scenario": {"name": "tiny", "kind": "sequential", "cache": {"policy": "as-is", "per": "cell"}},
        "scenario_sha256": "0" * 64,
        "prompts_sha256": {},
        "plan_sha256": hashlib.sha256(b"".join(canonical(line) for line in plan)).hexdigest(),
        "n_planned": len(plan),
        "arm": {"name": "cpu-tiny", "engine": "llama.cpp embedded", "args": {"speculative.types": ["none"]}},
        "launch_dir": None,
        "launch_id": None,
        "server": {"engine": "llama.cpp", "version": "b11434", "url": "http://127.0.0.1:1", "speculative": False},
        "model": {"asked": "tiny", "served": "tiny", "file_sha256": "ab" * 32, "quantisation": "F32"},
        "versions": {"python": "3.11"},
        "hardware": {"client_cpu_model": "Test CPU", "client_cores": 2},
        "adapter": "llama.cpp",
        "metric_types": {},
        "git_commit": None,
        "clock": {"monotonic_s": 40.0, "unix_s": UNIX_S - 10},
        "calibration": None,
        "environment": {},
        "options": {},
        "request_extra": {},
        "wire_limit_bytes": 0,
        "n_workers": 1,
        "missing": (),
    }
    return Manifest(**(fields | changes))


def make_run(
    runs_dir: Path,
    requests: Sequence[Request],
    *,
    run_id: str = "run-test",
    scrapes: Sequence[Scrape] = (),
    levels: Sequence[Level] = (),
    gpu: Sequence[GpuSample] = (),
    timed: bool = False,
    checks: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
    never_started: int = 0,
    never_ended: int = 0,
    seal: bool = True,
    **changes: Any,
) -> Path:
    """A run folder of these requests. The last ``never_started`` are only planned, those before them never end.

    ``checks`` and ``texts`` give a prompt's check and text by prompt id; ``timed`` requests keep their instants;
    ``changes`` go into the manifest.
    """
    ordered = [one.model_copy(update={"run_id": run_id}) for one in numbered(requests, timed=timed)]
    plan = [
        planned(
            one,
            sequence,
            text=(texts or {}).get(one.prompt_id, f"Answer {one.prompt_id}."),
            check=(checks or {}).get(one.prompt_id),
        )
        for sequence, one in enumerate(ordered)
    ]
    began = {one.label: one.began_at_monotonic_s for one in levels}
    plan = [_scheduled(line, one, began.get(one.level or "")) for line, one in zip(plan, ordered, strict=True)]
    writer = RunWriter.create(runs_dir, run_id, manifest(plan, run_id=run_id, **changes), plan)
    worker = writer.worker(0)
    for scrape in scrapes:
        writer.scrape(scrape.model_copy(update={"run_id": run_id}))
    for level in levels:
        writer.level(level.model_copy(update={"run_id": run_id}))
    for sample in gpu:
        writer.gpu(sample.model_copy(update={"run_id": run_id}))
    begun = ordered[: len(ordered) - never_started]
    for place, one in enumerate(begun):
        worker.started(
            Started(
                run_id=run_id,
                worker=0,
                sequence=one.sequence,
                plan_id=one.plan_id,
                started_at_unix_s=one.sent_at_unix_s or 0.0,
                started_at_monotonic_s=one.sent_at_monotonic_s or 0.0,
            )
        )
        if place < len(begun) - never_ended:
            worker.ended(one)
    if seal:
        writer.seal()
    else:
        writer.close()
    return writer.path


def llamacpp_scrape(
    role: ScrapeRole, at_s: float, *, headers: Mapping[str, str] | None = None, **counters: int
) -> Scrape:
    """A scrape of llama.cpp's series: prompt, cached, generated, drafted, accepted, steps (0 where not named)."""
    names = {
        "prompt": "prompt_tokens_total",
        "cached": "prompt_tokens_cached_total",
        "generated": "tokens_predicted_total",
        "decoded": "n_decode_total",
        "drafted": "spec_decode_num_draft_tokens_total",
        "accepted": "spec_decode_num_accepted_tokens_total",
        "steps": "spec_decode_num_drafts_total",
    }
    lines = []
    for key, name in names.items():
        lines += [f"# TYPE llamacpp:{name} counter", f"llamacpp:{name} {counters.get(key, 0)}"]
    for name in ("prompt_seconds_total", "tokens_predicted_seconds_total"):
        lines += [f"# TYPE llamacpp:{name} counter", f"llamacpp:{name} 0"]
    body = "\n".join(lines) + "\n"
    sent = {
        "Content-Type": "text/plain; version=0.0.4",
        "Content-Length": str(len(body)),
        "Process-Start-Time-Unix": "77",
    }
    return Scrape(
        run_id="run-test",
        url="http://127.0.0.1:1/metrics",
        role=role,
        send_unix_s=UNIX_S + at_s,
        receive_unix_s=UNIX_S + at_s + 0.01,
        send_monotonic_s=50.0 + at_s,
        receive_monotonic_s=50.0 + at_s + 0.01,
        http_status=200,
        headers=dict(sent | dict(headers or {})),
        body=body,
        complete=True,
        error=None,
    )
