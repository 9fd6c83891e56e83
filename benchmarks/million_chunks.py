"""A million chunks through a whole run (Locust, desk, recorder): memory of the client, CPU a chunk, what was written.

    python -m benchmarks.million_chunks [--chunks 1000000] [--streams 128] [--chunks-per-s 100] [--realtime]

The run is an ordinary one, sealed and judged; the client's memory is sampled each second from outside. Flat means that
the last quarter of the run needs no more than the second one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from evidence.layout import HEALTH, WORKERS
from infra.fake_engine import running_fake_engine
from study.calibrate import SCENARIO

ROOT = Path(__file__).resolve().parent.parent
N_TOKENS = 200
Sample = tuple[float, int, float, float]  # after s, chunks recorded, resident MB, CPU s


def run(n_chunks: int, n_streams: int, chunks_per_s: float, runs: Path, *, realtime: bool) -> dict[str, Any]:
    scenario = runs / "million.toml"
    n_requests = -(-n_chunks // N_TOKENS)
    scenario.write_text(SCENARIO.format(n_tokens=N_TOKENS, n_streams=n_streams, n_requests=n_requests, timeout_s=600.0))
    cores = sorted(os.sched_getaffinity(0))
    priority = 20 if realtime else None
    fake = {"ttft_s": 0.05, "gap_s": 1 / chunks_per_s, "cadence": True}
    with running_fake_engine(fake=fake, cpu=cores[0], realtime=priority) as engine:
        argv = [sys.executable, "-m", "locust", "-f", "locustfiles/sweep.py", "--headless", "--only-summary"]
        argv += ["--host", engine.url, "--scenario", str(scenario), "--label", "million", "--run-dir", str(runs)]
        pinned = ["taskset", "-c", str(cores[-1]), *(["chrt", "-f", "20"] if realtime else []), *argv]
        with subprocess.Popen(pinned, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            samples = _watched(process, runs)
            assert process.stdout is not None
            folder = Path(process.stdout.read().decode().strip().splitlines()[-1])
    return _report(folder, samples)


def _watched(process: subprocess.Popen[bytes], runs: Path) -> list[Sample]:
    """Samples each second until the load is over."""
    client, began_s, samples = psutil.Process(process.pid), time.monotonic(), []
    while process.poll() is None:
        time.sleep(1.0)
        try:
            memory, cpu = client.memory_info().rss / 1e6, client.cpu_times()
        except psutil.NoSuchProcess:
            break
        samples.append((time.monotonic() - began_s, _n_chunks(runs), memory, cpu.user + cpu.system))
        if len(samples) > 5 and samples[-1][1] == samples[-6][1] > 0:
            break
    process.wait()
    return samples


def _n_chunks(runs: Path) -> int:
    files = list(runs.glob(f"run-*/{WORKERS}/0/{HEALTH}"))
    lines = files[0].read_text().splitlines() if files else []
    return sum(json.loads(line)["n_chunks"] for line in lines if line.endswith("}"))


def _report(folder: Path, samples: list[Sample]) -> dict[str, Any]:
    loaded = [sample for sample in samples if sample[1]]
    quarters = [loaded[len(loaded) * k // 4 : len(loaded) * (k + 1) // 4] for k in range(4)]
    seal = json.loads((folder / "seal.json").read_text())
    n_chunks = samples[-1][1]
    growing = [sample for sample in loaded if sample[1] < n_chunks]
    first, last = growing[0], growing[-1]
    return {
        "n_chunks": n_chunks,
        "chunks_per_s": (last[1] - first[1]) / (last[0] - first[0]),
        "cpu_us_per_chunk_in_all": (last[3] - first[3]) / (last[1] - first[1]) * 1e6,
        "resident_mb_by_quarter": [round(statistics.median(s[2] for s in quarter), 1) for quarter in quarters],
        "bytes_written": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "completed": seal["completed"],
        "started": seal["started"],
        "load_1m": os.getloadavg()[0],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.million_chunks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--chunks-per-s", type=float, default=100.0)
    parser.add_argument("--realtime", action="store_true", help="SCHED_FIFO for both, where permitted")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as runs:
        report = run(args.chunks, args.streams, args.chunks_per_s, Path(runs), realtime=args.realtime)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
