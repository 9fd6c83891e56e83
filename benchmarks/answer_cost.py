"""What one answer costs off the path of the stamps: reading it, making its record, keeping raw segments and line.

The answer is received from the fake engine as a client receives it, then each step is timed by itself (CPU time, the
least of a few turns, once in each repeat).
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from evidence import frames
from evidence.durable import AppendFile
from infra.dial import converse, dial
from infra.fake_engine import running_fake_engine
from infra.target import Target
from infra.wire.record_fields import stream_fields
from infra.wire.stamps import Segment
from infra.wire.stream import read_stream

N_TOKENS = 200
TURNS = 20


def received(*, counted: bool) -> tuple[Segment, ...]:
    """The segments of one answer; ``counted``: each chunk carries llama.cpp's timings, as a run asks for."""
    body = {"model": "fake", "messages": [{"role": "user", "content": "count"}], "max_tokens": N_TOKENS}
    body |= {"stream": True, "stream_options": {"include_usage": True}, "timings_per_token": counted}
    with running_fake_engine(fake={"gap_s": 0.001, "cadence": True}) as engine:
        target = Target.parse(engine.url)
        conn = dial(target, 5.0).conn
        request = target.request(
            "POST", "/v1/chat/completions", [("Content-Type", "application/json")], json.dumps(body).encode()
        )
        segments = converse(conn, request, 30.0).segments
        conn.close()
    return segments


def answer_costs(repeats: int) -> list[dict[str, Any]]:
    """CPU microseconds a chunk of each step, by the size of the chunks."""
    rows = []
    for counted in (True, False):
        segments = received(counted=counted)
        facts = read_stream(segments, ended="complete")
        after_s = [0.001 * k for k in range(len(segments))]
        with tempfile.TemporaryDirectory() as folder:
            file = AppendFile(Path(folder) / "segments.bin")
            steps: dict[str, Callable[[], object]] = {
                "read": partial(read_stream, segments, ended="complete"),
                "fields": partial(stream_fields, facts, after_s),
                "keep raw": partial(_keep, file, segments),
            }
            costs = {name: statistics.median(_us_a_chunk(step) for _ in range(repeats)) for name, step in steps.items()}
            file.close(sync=False)
        n_bytes = sum(len(data) for _, _, data in segments) / len(segments)
        rows.append({"bytes_a_chunk": n_bytes, "us_a_chunk": costs})
    return rows


def _keep(file: AppendFile, segments: tuple[Segment, ...]) -> None:
    file.append(frames.encode(0, segments))


def _us_a_chunk(step: Callable[[], object]) -> float:
    best_s = float("inf")
    for _ in range(TURNS):
        began_s = time.process_time()
        step()
        best_s = min(best_s, time.process_time() - began_s)
    return best_s / N_TOKENS * 1e6


def print_costs(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        steps = ", ".join(f"{name} {us:.1f} us" for name, us in row["us_a_chunk"].items())
        print(f"off the path, CPU a chunk of {row['bytes_a_chunk']:.0f} bytes: {steps}")
