"""Requests as a worker records them, made without a server: for benchmarks of what carries and reads them."""

import hashlib
from pathlib import Path

from evidence.folder import RunWriter
from evidence.layout import new_id
from evidence.records import ConnectionFacts, Manifest, Request, Started
from evidence.shard import Shard
from scenarios.plan import Plan, PlannedRequest
from scenarios.stock import plan_from_file

CHUNK = (
    b'6c\r\ndata: {"choices":[{"index":0,"delta":{"content":" token"}}],'
    b'"created":1700000000,"id":"chatcmpl-123456789"}\n\n\r\n'
)
UNIX_S = 1_700_000_000.0


def plan_of(folder: Path, n_requests: int, users: int) -> Plan:
    file = folder / "crowd.toml"
    file.write_text(
        'name = "crowd"\nkind = "concurrency"\n[mix]\ndomains = { code = "all", prose = "all" }\n'
        '[request]\nmax_tokens = { code = 200, prose = 200 }\n[warmup]\nrequests = 0\n[cache]\npolicy = "as-is"\n'
        f"[levels]\nusers = [{users}]\nrequests = {n_requests}\n",
        encoding="utf-8",
    )
    return plan_from_file(file)


def new_run(runs: Path, plan: Plan, n_workers: int) -> RunWriter:
    run_id = new_id("run")
    manifest = Manifest(
        run_id=run_id,
        created_at_unix_s=UNIX_S,
        label="crowd",
        note=None,
        scenario=plan.scenario.model_dump(mode="json"),
        scenario_sha256="0" * 64,
        prompts_sha256={},
        plan_sha256=plan.digest,
        n_planned=len(plan.requests),
        arm=None,
        launch_dir=None,
        launch_id=None,
        server={},
        model={},
        versions={},
        hardware={},
        adapter=None,
        metric_types={},
        git_commit=None,
        clock={},
        calibration=None,
        environment={},
        options={},
        request_extra={},
        wire_limit_bytes=1 << 40,
        n_workers=n_workers,
        missing=(),
    )
    return RunWriter.create(runs, run_id, manifest, plan.requests)


def send(shard: Shard, run_id: str, planned: PlannedRequest, n_chunks: int) -> None:
    """One request of so many chunks, from its started to its ended line."""
    sequence = shard.n_started
    shard.started(
        Started(
            run_id=run_id,
            worker=shard.worker,
            sequence=sequence,
            plan_id=planned.plan_id,
            started_at_unix_s=UNIX_S,
            started_at_monotonic_s=1.0,
        )
    )
    stamps = [(1_700_000_000_000_000_000 + n * 10_000_000, n * 10_000_000) for n in range(n_chunks)]
    wire = shard.wire(sequence, [(kernel, user, CHUNK) for kernel, user in stamps])
    text = " token" * n_chunks
    shard.ended(
        Request(
            run_id=run_id,
            worker=shard.worker,
            sequence=sequence,
            plan_id=planned.plan_id,
            prompt_id=planned.prompt_id,
            domain=planned.domain,
            phase=planned.phase,
            level=planned.level,
            pass_index=planned.pass_index,
            repeat=planned.repeat,
            transport="wire",
            connection=ConnectionFacts(reused=True, resolve_s=None, connect_s=None, tls_s=None, tls_version=None),
            sent_at_unix_s=UNIX_S,
            sent_at_monotonic_s=1.0,
            http_status=200,
            headers_after_s=0.05,
            first_event_after_s=0.05,
            first_token_after_s=0.05,
            first_visible_after_s=0.05,
            last_token_after_s=0.05 + n_chunks * 0.01,
            end_after_s=0.06 + n_chunks * 0.01,
            stamp_source="kernel",
            clock_step_s=0.0,
            kernel_to_user_max_s=0.0001,
            coalesced_events=0,
            chunks=tuple((0.05 + n * 0.010000123, n, n + 1, 6) for n in range(n_chunks)),
            chunk_semantics="token",
            usage={"prompt_tokens": 30, "completion_tokens": n_chunks, "total_tokens": 30 + n_chunks},
            token_source="usage",
            n_completion_tokens=n_chunks,
            n_prompt_tokens=30,
            finish_reason="stop",
            outcome="completed",
            error=None,
            output_text=text,
            output_sha256=hashlib.sha256(text.encode()).hexdigest(),
            reasoning_text=None,
            tool_calls_text=None,
            model_served="m",
            server_fields={},
            wire=wire,
            wire_missing=None,
        )
    )
