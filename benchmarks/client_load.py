"""What this client costs and how far it is from the truth, under load: ratios within one run, server and client apart.

    python -m benchmarks.client_load [--parts error rate cpu workers reading] [--repeats 3] [--no-realtime]

The fake engine (cadence mode) runs on one core, each cell of the client in a fresh process on another. Ways and
settings take turns (A B A B); each number is the median over the repeats, with the load average beside it.

error    64 streams of 50 chunks/s: |chunk-gap error| and TTFT error, with real-time priority for both sides and without
rate     one process at above 20,000 chunks/s and at above 10,000: chunks received, coalesced share, errors, CPU a chunk
cpu      CPU a chunk beside the openai client (chunk objects, as ``--transport openai`` takes them, and bytes)
workers  one process, and two on one core with as much each: CPU a chunk
reading  what reading, recording and keeping an answer costs a chunk, off the path of the stamps
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from infra.fake_engine import running_fake_engine

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("error", "rate", "cpu", "workers", "reading")
TTFT_S = 0.05
Row = dict[str, Any]


def cores() -> tuple[int | None, int | None]:
    """One for the server, one for the client; None where there are not two, or the system pins nothing."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (usable[0], usable[1]) if len(usable) > 1 else (None, None)


def cells(
    n_streams: int,
    chunks_per_s: float,
    *,
    seconds: float,
    way: str = "wire",
    realtime: bool,
    n_processes: int = 1,
) -> list[Row]:
    """One load, dealt to so many client processes at once; a row of each."""
    server_core, client_core = cores()
    n_requests = 3
    n_tokens = max(10, round((seconds / n_requests - TTFT_S) * chunks_per_s))
    asked = {
        "way": way,
        "n_streams": n_streams // n_processes,
        "chunks_per_s": chunks_per_s,
        "ttft_s": TTFT_S,
        "n_requests": n_requests,
        "n_tokens": n_tokens,
        "core": client_core,
        "realtime": realtime,
    }
    priority = 20 if realtime else None
    with running_fake_engine(cpu=server_core, realtime=priority, spin_us=100) as engine:
        argv = [sys.executable, "-m", "benchmarks.load_cell", json.dumps(asked | {"url": engine.url})]
        with ThreadPoolExecutor(n_processes) as pool:
            return list(pool.map(_one, [argv] * n_processes))


def _one(argv: list[str]) -> Row:
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=300)
    row: Row = json.loads(done.stdout)
    return row


def medians(rows: Sequence[Row]) -> Row:
    """Of every number, over the repeats; None where a repeat has none."""
    return {
        key: None if any(row[key] is None for row in rows) else statistics.median(row[key] for row in rows)
        for key in rows[0]
    }


def error(repeats: int, *, realtime: bool) -> list[Row]:
    found: dict[bool, list[Row]] = {}
    for _ in range(repeats):
        for priority in (True, False) if realtime else (False,):
            found.setdefault(priority, []).extend(cells(64, 50, seconds=6, realtime=priority))
    return [{"part": "error", "load": "64 x 50/s", "way": "wire"} | medians(rows) for rows in found.values()]


def rate(repeats: int, *, realtime: bool) -> list[Row]:
    found: dict[str, list[Row]] = {}
    for _ in range(repeats):
        for n_streams, per_s in ((512, 50.0), (128, 100.0)):
            rows = cells(n_streams, per_s, seconds=9, realtime=realtime)
            found.setdefault(f"{n_streams} x {per_s:g}/s", []).extend(rows)
    return [{"part": "rate", "load": load, "way": "wire"} | medians(rows) for load, rows in found.items()]


def cpu(repeats: int, *, realtime: bool) -> list[Row]:
    found: dict[tuple[str, str], list[Row]] = {}
    for _ in range(repeats):
        for n_streams in (32, 64):
            for way in ("wire", "openai-bytes", "openai-chunks"):
                rows = cells(n_streams, 50, seconds=6, way=way, realtime=realtime)
                found.setdefault((f"{n_streams} x 50/s", way), []).extend(rows)
        rows = cells(128, 100, seconds=6, realtime=realtime)
        found.setdefault(("128 x 100/s", "wire"), []).extend(rows)
    return [{"part": "cpu", "load": load, "way": way} | medians(rows) for (load, way), rows in found.items()]


def workers(repeats: int, *, realtime: bool) -> list[Row]:
    found: dict[int, list[Row]] = {}
    for _ in range(repeats):
        for n_processes in (1, 2):
            rows = cells(64 * n_processes, 100, seconds=6, realtime=realtime, n_processes=n_processes)
            found.setdefault(n_processes, []).append(medians(rows))
    return [
        {"part": "workers", "load": "64 x 100/s each", "way": f"{n} processes"} | medians(rows)
        for n, rows in found.items()
    ]


def print_rows(rows: Sequence[Row]) -> None:
    heads = ("part", "load", "way", "priority", "TTFT error p50", "|gap error| p50", "p99", "chunks/s", "coalesced")
    print("".join(head.rjust(16) for head in (*heads, "CPU a chunk", "load avg")))
    for row in rows:
        shared = row["coalesced_ratio"]
        p99 = row["gap_error_p99_us"]
        cells_ = (
            *(row["part"], row["load"], row["way"], "real-time" if row["realtime"] else "normal"),
            *(f"{row['ttft_error_p50_us']:.1f} us", f"{row['gap_error_p50_us']:.2f} us"),
            "-" if p99 is None else f"{p99:.1f} us",
            *(f"{row['chunks_per_s']:.0f}", "-" if shared is None else f"{shared:.3%}"),
            *(f"{row['cpu_us_per_chunk']:.1f} us", f"{row['load_1m']:.1f}"),
        )
        print("".join(str(cell).rjust(16) for cell in cells_))


def print_ratios(rows: Sequence[Row]) -> None:
    ours = {row["load"]: row["cpu_us_per_chunk"] for row in rows if row["part"] == "cpu" and row["way"] == "wire"}
    fast = ours.get("128 x 100/s")
    for row in rows:
        if row["part"] == "cpu" and row["way"] != "wire":
            times = row["cpu_us_per_chunk"] / ours[row["load"]]
            beside = "" if fast is None else f", {row['cpu_us_per_chunk'] / fast:.1f} times wire's at 128 x 100/s"
            print(f"{row['load']}: {row['way']} takes {times:.1f} times the CPU a chunk of wire{beside}")
    one, two = ([r for r in rows if r["part"] == "workers" and r["way"] == f"{n} processes"] for n in (1, 2))
    if one and two:
        ratio = two[0]["cpu_us_per_chunk"] / one[0]["cpu_us_per_chunk"]
        print(f"two processes take {ratio:.2f} times the CPU a chunk of one")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.client_load", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-realtime", action="store_true", help="normal priority everywhere")
    parser.add_argument("--json", metavar="FILE", type=Path)
    args = parser.parse_args(argv)
    realtime = not args.no_realtime and may_be_realtime()
    rows: list[Row] = []
    for name, measure in (("error", error), ("rate", rate), ("cpu", cpu), ("workers", workers)):
        if name in args.parts:
            rows += measure(args.repeats, realtime=realtime)
    if rows:
        print_rows(rows)
        print_ratios(rows)
    reading: list[Row] = []
    if "reading" in args.parts:
        from benchmarks.answer_cost import answer_costs, print_costs

        reading = answer_costs(args.repeats)
        print_costs(reading)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "reading": reading}, indent=1) + "\n")
    return 0


def may_be_realtime() -> bool:
    """Whether this user may ask for SCHED_FIFO."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    code = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
