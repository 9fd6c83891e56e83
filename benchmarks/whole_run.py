"""One ordinary run of several workers against fake engines on one port, and what its folder says of the steady window.

Steady is from the instant all users were let go to the one from which no request was taken. The engines have cores of
their own, the master and its workers the others. Engines that share a port have no metrics, so the run's server side is
"not observable", which its verdict says.
"""

import contextlib
import dataclasses
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence.reading import Run, open_run
from infra.fake.schedule import answer_s
from infra.fake_engine import running_fake_engine
from study.client_error import differences

ROOT = Path(__file__).resolve().parent.parent
TTFT_S = 0.05
REQUEST_S = 1.5  # of one answer; users are let go over so long, and drained over it
N_COMPARED = 400  # requests whose chunks are compared with what the engine wrote
SCENARIO = """name = "processes"
kind = "concurrency"
seed = 1
[mix]
domains = {{ prose = 1 }}
[request]
max_tokens = {{ prose = {n_tokens} }}
ignore_eos = true
[warmup]
requests = 1
[levels]
users = [{users}]
steady_s = {seconds:g}
at_most_requests = {n_requests}
[limits]
timeout_s = 60.0
"""


def shares(n: int, cores: Sequence[int]) -> tuple[list[int], list[int]]:
    """Cores of the engines and of the run: an engine a worker where they suffice beside a core for the master."""
    n_engines = max(1, min(n, max(-(-n // 2), len(cores) - n - 1), len(cores) // 2))
    return list(cores[:n_engines]), list(cores[n_engines:] or cores)


def whole_run(
    n: int,
    cores: Sequence[int],
    n_streams: int,
    per_s: float,
    *,
    seconds: float,
    realtime: bool,
    runs: Path,
    limit_s: float,
) -> dict[str, Any]:
    """A run of ``n`` workers with ``n_streams`` each, as a row; killed after ``limit_s``, and the row says so."""
    engine_cores, client_cores = shares(n, cores)
    n_tokens = round((REQUEST_S - TTFT_S) * per_s)
    users = n * n_streams
    n_requests = users * math.ceil((seconds + 3 * REQUEST_S) / REQUEST_S + 1)
    row = {
        "n_processes": n,
        "load": f"{n_streams} x {per_s:g}/s each",
        "realtime": realtime,
        "n_engines": len(engine_cores),
        "offered_chunks_per_s": users * n_tokens / answer_s(n_tokens, ttft_s=TTFT_S, gap_s=1 / per_s),
    }
    runs.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="whole-run-") as folder,
        running_fake_engine(
            processes=len(engine_cores),
            cpu=engine_cores,
            realtime=20 if realtime else None,
            fake={"ttft_s": TTFT_S, "gap_s": 1 / per_s, "cadence": True},
        ) as engine,
    ):
        scenario = Path(folder) / "processes.toml"
        scenario.write_text(
            SCENARIO.format(n_tokens=n_tokens, users=users, seconds=seconds, n_requests=n_requests), encoding="utf-8"
        )
        argv = [
            *(sys.executable, "-m", "locust", "-f", "locustfiles/sweep.py", "--headless", "--only-summary"),
            *("--skip-log-setup", "--processes", str(n), "--host", engine.url, "--scenario", str(scenario)),
            *("--label", f"{n}-processes", "--run-dir", str(runs.resolve()), "--calibration", "none"),
        ]
        exit_code, said, told = _ran(argv, client_cores, realtime=realtime, limit_s=limit_s)
    lines = said.strip().splitlines()
    path = Path(lines[-1]) if lines else None
    if path is None or not path.is_dir():
        return row | {
            "chunks_per_s": None,
            "exit_code": exit_code,
            "verdict": "no folder",
            "reasons": [],
            "told": told[-600:],
        }
    return row | _told(open_run(path)) | {"exit_code": exit_code} | _judged(told)


def _ran(argv: list[str], cores: Sequence[int], *, realtime: bool, limit_s: float) -> tuple[int, str, str]:
    """Exit code (-9: killed when the time was up), standard output and error of a command on ``cores``."""
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            os.sched_setaffinity(process.pid, cores)
            if realtime:
                os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(20))
            said, told = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, told = process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said, told


def _judged(told: str) -> dict[str, Any]:
    """The run's verdict and the codes of its reasons, as it said them at its end."""
    verdict = re.search(r"^run-\S+ .*\b(VALID|DEGRADED|INVALID)$", told, re.MULTILINE)
    reasons = re.findall(r"^(?:DEGRADED|INVALID) .* (\w+)$", told, re.MULTILINE)
    return {"verdict": verdict[1] if verdict else "none said", "reasons": reasons}


def _told(run: Run) -> dict[str, Any]:
    """None where the level never was steady, or nothing tells."""
    level, seal = run.levels[0] if run.levels else None, run.seal
    counts = {
        "n_started": None if seal is None else seal.started,
        "n_completed": None if seal is None else seal.completed,
        "all_ended": seal is not None and seal.started == seal.completed + sum(seal.failed.values()),
        "ended_by": None if level is None else level.ended_by,
        "workers": len(run.health),
    }
    if level is None or level.full_after_s is None or level.drain_after_s is None:
        return counts | {"chunks_per_s": None}
    begin_s, end_s = (level.began_at_monotonic_s + after_s for after_s in (level.full_after_s, level.drain_after_s))
    workers = sorted({*run.health, *(request.worker for request in run.requests)})
    n_chunks = dict.fromkeys(workers, 0)
    n_coalesced = dict.fromkeys(workers, 0)
    for request in run.requests:
        if request.level == level.label and request.sent_at_monotonic_s is not None:
            t0_s, last = request.sent_at_monotonic_s, None
            for mark in request.chunks:
                if begin_s <= t0_s + mark[0] < end_s:
                    n_chunks[request.worker] += 1
                    n_coalesced[request.worker] += mark[1] == last
                last = mark[1]
    took_s = end_s - begin_s
    lines = {
        worker: [one for one in health if begin_s + one.interval_s <= one.at_monotonic_s <= end_s]
        for worker, health in ((worker, run.health.get(worker, ())) for worker in workers)
    }
    cpu = [_mean([one.cpu_ratio for one in health]) for health in lines.values()]
    total_per_s, busy = sum(n_chunks.values()) / took_s, [one for one in cpu if one is not None]
    return (
        counts
        | {
            "steady_s": took_s,
            "chunks_per_s": total_per_s,
            "chunks_per_s_each": [n / took_s for n in n_chunks.values()],
            "coalesced_ratio": [n_coalesced[worker] / n if n else None for worker, n in n_chunks.items()],
            "kernel_to_user_p50_s": [_mean([one.kernel_to_user_p50_s for one in health]) for health in lines.values()],
            "kernel_to_user_p99_s": [_mean([one.kernel_to_user_p99_s for one in health]) for health in lines.values()],
            "cpu_ratio": cpu,
            "cpu_us_per_chunk": sum(busy) / total_per_s * 1e6 if len(busy) == len(cpu) and total_per_s else None,
        }
        | _errors(run, level.label)
    )


def _errors(run: Run, label: str) -> dict[str, Any]:
    """|gap error| of a sample of the level's requests, in microseconds."""
    of_level = [request for request in run.requests if request.level == label]
    sample = tuple(of_level[:: max(1, len(of_level) // N_COMPARED)])
    error = differences(dataclasses.replace(run, requests=sample)).error("chunk_gap_s")
    return {
        "gap_error_p50_us": [None if error is None else error.p50 * 1e6],
        "gap_error_p99_us": [None if error is None or error.p99 is None else error.p99 * 1e6],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None
