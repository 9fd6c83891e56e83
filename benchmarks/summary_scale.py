"""What reading a large run costs: seconds and peak memory of ``analysis check`` and ``analysis summary``.

    python -m benchmarks.summary_scale --requests 100000 --chunks 200

A valid, sealed run folder is written first (a sweep of closed-loop levels against a llama.cpp that is played here, with
warm-up, scrapes and the raw segments of as many requests as ``--wire-mb`` holds). Each command then runs in a process
of its own, whose user and system time, wall time and peak resident memory are printed as one JSON object. Numbers of
the machine it runs on; nothing is asserted here.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from evidence import frames
from evidence.folder import RunWriter
from evidence.layout import REQUESTS, SEGMENTS, STARTED, WIRE, WORKERS
from evidence.level_records import Level
from evidence.lines import canonical
from evidence.records import Manifest, Scrape
from infra.wire.record_fields import stream_fields
from infra.wire.stream import read_stream
from scenarios.plan import Message, PlannedRequest

UNIX_S, MONOTONIC_S = 1_800_000_000.0, 50_000.0
TTFT_S, GAP_S = 0.05, 0.005
PROMPT_TOKENS = 60
RUN_ID = "run-20270115T080000Z-000001"


def plan(n_requests: int, users: Sequence[int]) -> list[PlannedRequest]:
    """Warm-up, then the requests dealt to the levels in equal parts."""
    lines = []
    for number in range(-2, n_requests):
        level = None if number < 0 else f"users={users[number * len(users) // n_requests]}"
        domain = "warmup" if number < 0 else ("code", "prose", "json")[number % 3]
        text = f"Salt {number}. Say in a hundred words what number {number} of {domain} is about, and why it is so."
        lines.append(
            PlannedRequest(
                plan_id=f"w{number + 2:04d}" if number < 0 else f"m{number:06d}",
                sequence=number + 2,
                phase="warmup" if number < 0 else "measured",
                domain=domain,
                prompt_id=f"{domain}_{abs(number) % 90:02d}",
                prompt_sha256=hashlib.sha256(text.encode()).hexdigest(),
                level=level,
                pass_index=0,
                repeat=0 if number < 0 else number // 90,
                endpoint="chat",
                messages=(Message(role="user", content=text),),
                prompt=None,
                max_tokens=512,
                temperature=0.0,
                seed=0,
                ignore_eos=False,
                salt=None,
                check=None,
            )
        )
    return lines


def manifest(lines: Sequence[PlannedRequest], users: Sequence[int], wire_bytes: int) -> Manifest:
    return Manifest(
        run_id=RUN_ID,
        created_at_unix_s=UNIX_S - 60,
        label=None,
        note=None,
        scenario={
            "name": "scale",
            "kind": "concurrency",
            "levels": {"users": list(users)},
            "cache": {"policy": "as-is"},
        },
        scenario_sha256="0" * 64,
        prompts_sha256={},
        plan_sha256=hashlib.sha256(b"".join(canonical(line) for line in lines)).hexdigest(),
        n_planned=len(lines),
        arm={"name": "played", "engine": "llama.cpp embedded", "args": {"speculative.types": ["none"]}},
        launch_dir=None,
        launch_id=None,
        server={"engine": "llama.cpp", "version": "b11434", "url": "http://127.0.0.1:1", "speculative": False},
        model={"asked": "played", "served": "played", "file_sha256": "ab" * 32, "quantisation": "F32"},
        versions={"python": sys.version.split()[0]},
        hardware={},
        adapter="llama.cpp",
        metric_types={},
        git_commit=None,
        clock={"monotonic_s": MONOTONIC_S, "unix_s": UNIX_S},
        calibration=None,
        environment={},
        options={},
        request_extra={},
        wire_limit_bytes=wire_bytes,
        n_workers=1,
        missing=(),
    )


def answer(n_chunks: int) -> list[tuple[float, bytes]]:
    """Every segment of one answer with its offset: a head, a chunk for each token, the end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    usage: dict[str, Any] = {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": n_chunks,
        "total_tokens": PROMPT_TOKENS + n_chunks,
    }
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    found = [(TTFT_S / 2, head)]
    for n in range(1, n_chunks + 1):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": f"word{n % 10} "}, "finish_reason": None}
        timings = {
            "cache_n": 0,
            "prompt_n": PROMPT_TOKENS,
            "prompt_ms": 30.0,
            "predicted_n": n,
            "predicted_ms": 5.0 * n,
        }
        found.append((TTFT_S + GAP_S * (n - 1), _event({"model": "played", "choices": [choice], "timings": timings})))
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    end = _event({"model": "played", "choices": [last], "usage": usage, "timings": timings})
    return [*found, (TTFT_S + GAP_S * n_chunks, end + b"e\r\ndata: [DONE]\n\n\r\n" + b"0\r\n\r\n")]


def _event(fields: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def request_lines(lines: Sequence[PlannedRequest], n_chunks: int, wire_bytes: int, folder: Path) -> Iterator[bytes]:
    """One line a request, in the order sent: each level's users send one after another, the last level's last."""
    segments = answer(n_chunks)
    facts = read_stream([(0, 0, data) for _, data in segments], ended="complete")
    fields = stream_fields(facts, [after_s for after_s, _ in segments])
    body = json.dumps({name: value for name, value in fields.items() if name != "chunks"})[1:-1]
    took_s = segments[-1][0]
    begin_s, level, place, n_kept = 0.0, None, 0, 0
    wire = (folder / WIRE / SEGMENTS).open("wb") if wire_bytes else None
    at = wire.write(frames.MAGIC) if wire is not None else 0
    for sequence, line in enumerate(lines):
        if line.level != level:
            begin_s, level, place = begin_s + (place + 2) * took_s, line.level, 0
        users = 1 if line.level is None else int(line.level.partition("=")[2])
        slot, turn = place % users, place // users
        place += 1
        late_s = (sequence * 7919 % 1000) * 1e-6  # no two requests alike
        sent_s = begin_s + turn * took_s + slot * took_s / users
        t0_ns = int((MONOTONIC_S + sent_s) * 1e9)
        wall_ns = int(UNIX_S * 1e9) - int(MONOTONIC_S * 1e9)
        marks = ",".join(
            f"[{after_s + late_s:.9f},{n},{n},6]" for n, (after_s, _) in enumerate(segments[1:-1], start=1)
        )
        kept = None
        if wire is not None:
            own = [
                (t0_ns + wall_ns + int((after_s + late_s) * 1e9), t0_ns + int((after_s + late_s) * 1e9) + 30_000, data)
                for after_s, data in segments
            ]
            raw = frames.encode(sequence, own)
            if at + len(raw) <= wire_bytes:
                name = f"{WORKERS}/0/{WIRE}/{SEGMENTS}"
                kept = {"file": name, "offset": at, "n_bytes": len(raw), "n_segments": len(own)}
                at += wire.write(raw)
                n_kept += 1
        shifted = {
            name: round(value + late_s, 9)
            for name, value in fields.items()
            if name.endswith("_after_s") and isinstance(value, float)
        }
        own_fields = {
            "schema_version": 1,
            "run_id": RUN_ID,
            "worker": 0,
            "sequence": sequence,
            **{name: getattr(line, name) for name in ("plan_id", "prompt_id", "domain", "phase", "level")},
            "pass_index": line.pass_index,
            "repeat": line.repeat,
            "transport": "wire",
            "connection": {"reused": True, "resolve_s": None, "connect_s": None, "tls_s": None, "tls_version": None},
            "sent_at_unix_s": (t0_ns + wall_ns) / 1e9,
            "sent_at_monotonic_s": t0_ns / 1e9,
            "stamp_source": "kernel",
            "clock_step_s": 0.0,
            "kernel_to_user_max_s": 0.00003,
            "error": None,
            "wire": kept,
            "wire_missing": None if kept else f"beyond the manifest's {wire_bytes} bytes of raw segments",
            "requests_since_reset": None,
            "stream_problems": list(facts.problems),
        }
        ours, later = json.dumps(own_fields)[1:-1], json.dumps(shifted)[1:-1]
        yield f'{{{ours},{body},{later},"chunks":[{marks}]}}\n'.encode()
    if wire is not None:
        wire.close()


def write_run(runs_dir: Path, n_requests: int, n_chunks: int, users: Sequence[int], wire_bytes: int) -> Path:
    """A whole sealed run folder. Request lines go to the files directly; everything else by the run's own writer."""
    lines = plan(n_requests, users)
    run = RunWriter.create(runs_dir, RUN_ID, manifest(lines, users, wire_bytes), lines)
    folder = run.path / WORKERS / "0"
    (folder / WIRE).mkdir(parents=True)
    scrapes(run, lines, n_chunks)
    with (folder / STARTED).open("wb") as started, (folder / REQUESTS).open("wb") as ended:
        for sequence, (line, written) in enumerate(
            zip(lines, request_lines(lines, n_chunks, wire_bytes, folder), strict=True)
        ):
            begun = {"schema_version": 1, "run_id": RUN_ID, "worker": 0, "sequence": sequence, "plan_id": line.plan_id}
            begun |= {"started_at_unix_s": UNIX_S, "started_at_monotonic_s": MONOTONIC_S}
            started.write(json.dumps(begun).encode() + b"\n")
            ended.write(written)
    times = level_times(lines, n_chunks)
    for number, n_users in enumerate(users):
        label = f"users={n_users}"
        run.level(level_record(number, n_users, sum(line.level == label for line in lines), *times[label]))
    run.seal()
    return run.path


def level_times(lines: Sequence[PlannedRequest], n_chunks: int) -> dict[str, tuple[float, float]]:
    """When each level begins and is drained, in seconds from the first request on: as ``request_lines`` sends them."""
    took_s = answer(n_chunks)[-1][0]
    found: dict[str, tuple[float, float]] = {}
    begin_s, level, place = 0.0, None, 0
    for line in lines:
        if line.level != level:
            begin_s, level, place = begin_s + (place + 2) * took_s, line.level, 0
        place += 1
        if level is not None:
            found[level] = (begin_s, begin_s + (place + 1) * took_s)
    return found


def level_record(index: int, n_users: int, n_requests: int, begin_s: float, end_s: float) -> Level:
    return Level(
        run_id=RUN_ID,
        index=index,
        label=f"users={n_users}",
        kind="concurrency",
        users=n_users,
        rate_per_s=None,
        target_tokens=None,
        steady_s=None,
        began_at_unix_s=UNIX_S + begin_s,
        began_at_monotonic_s=MONOTONIC_S + begin_s,
        full_after_s=0.0,
        drain_after_s=end_s - begin_s,
        drained_after_s=end_s - begin_s,
        n_planned=n_requests,
        n_started=n_requests,
        n_completed=n_requests,
        n_failed=0,
        n_cancelled=0,
        ended_by="requests",
    )


def scrapes(run: RunWriter, lines: Sequence[PlannedRequest], n_chunks: int) -> None:
    """Scrapes at rest around each level, with counters that agree with what the level was served."""
    at_s, served = MONOTONIC_S - 20, sum(line.level is None for line in lines)
    for _ in range(3):
        _scrape(run, "idle-check", None, served, n_chunks, at_s)
    for level, (begin_s, end_s) in level_times(lines, n_chunks).items():
        _scrape(run, "before", level, served, n_chunks, MONOTONIC_S + begin_s)
        served += sum(line.level == level for line in lines)
        _scrape(run, "after", level, served, n_chunks, MONOTONIC_S + end_s)


def _scrape(run: RunWriter, role: Any, level: str | None, served: int, n_chunks: int, at_s: float) -> None:
    counts = {
        "prompt_tokens_total": served * PROMPT_TOKENS,
        "prompt_tokens_cached_total": 0,
        "prompt_seconds_total": served * 0.03,
        "tokens_predicted_total": served * n_chunks,
        "tokens_predicted_seconds_total": served * n_chunks * GAP_S,
        "n_decode_total": served * n_chunks,
        "spec_decode_num_draft_tokens_total": 0,
        "spec_decode_num_accepted_tokens_total": 0,
        "spec_decode_num_drafts_total": 0,
    }
    text = "".join(f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}\n" for name, value in counts.items())
    unix_s = UNIX_S + at_s - MONOTONIC_S
    run.scrape(
        Scrape(
            run_id=RUN_ID,
            url="http://127.0.0.1:1/metrics",
            role=role,
            level=level,
            send_unix_s=unix_s,
            receive_unix_s=unix_s,
            send_monotonic_s=at_s,
            receive_monotonic_s=at_s,
            http_status=200,
            headers={"Content-Type": "text/plain; version=0.0.4", "Process-Start-Time-Unix": "1"},
            body=text,
            complete=True,
            error=None,
        )
    )


def measured(command: str, path: Path) -> dict[str, float]:
    """The command in a process of its own: seconds of wall and of both CPUs, peak resident memory, exit code."""
    argv = [sys.executable, "-m", "analysis", command, str(path), "--json"]
    began = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return {
        "wall_s": round(time.perf_counter() - began, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_rss_mb": round(used.ru_maxrss / 1024, 1),
        "exit_code": child.returncode,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Seconds and peak memory of reading a large run.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--users", type=int, nargs="+", default=[8, 32, 128, 256])
    parser.add_argument("--wire-mb", type=float, default=64.0, help="raw segments kept, in megabytes")
    parser.add_argument("--run", type=Path, help="measure this folder instead of writing one")
    parser.add_argument("--keep", type=Path, help="write the folder here and leave it")
    options = parser.parse_args(argv)
    place = options.keep or Path(tempfile.mkdtemp(prefix="summary-scale-"))
    try:
        path, written_s = options.run, 0.0
        if path is None:
            began = time.perf_counter()
            # In a process of its own: a child's peak memory begins with its parent's.
            wanted = (place, options.requests, options.chunks, options.users, int(options.wire_mb * 1e6))
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
                path = writer.submit(write_run, *wanted).result()
            written_s = time.perf_counter() - began
        n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        found: dict[str, Any] = {"folder_mb": round(n_bytes / 1e6, 1), "written_s": round(written_s, 1)}
        found |= {command: measured(command, path) for command in ("summary", "check")}
        print(json.dumps(found, indent=1))
    finally:
        if options.keep is None and options.run is None:
            shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
