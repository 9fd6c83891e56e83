"""What several load-generator processes receive together, beside one: each with a core, and the servers with theirs.

    python -m benchmarks.processes [--parts cells runs] [--processes 1 2 4 8] [--seconds 6] [--repeats 2] [--json FILE]

cells  n client processes, each loading a fake engine of its own, both pinned: chunks/s in all and as a multiple of one
       process's, coalesced share, gap error, CPU a chunk (two cores for each process)
runs   n workers of one ordinary run (``locust -f locustfiles/sweep.py --processes n``, recorded, shipped, sealed and
       judged) against fake engines on one port: what its folder says of the steady window (benchmarks/whole_run.py)

Only the cores that this process may use are used (``taskset -c 0-15 python -m ...``); a number of processes they do not
suffice for is left out, and said, unless ``--oversubscribe`` lets processes share cores, which measures no scaling.
Numbers of processes and loads take turns within each repeat; a multiple compares within one repeat, and the table gives
medians over the repeats. Nothing lasts longer than ``--limit`` seconds; what was begun is killed then.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.client_load import ROOT, TTFT_S, may_be_realtime
from benchmarks.process_table import Row, print_table, table, with_multiples
from benchmarks.whole_run import whole_run
from infra.fake.schedule import answer_s
from infra.fake_engine import FakeEngineError, running_fake_engine

PER_S = 50.0
N_REQUESTS = 3
MORE_S = 60.0  # for imports, connections and reading what one cell received


class ProcessesError(Exception):
    """A client process did not come to its end; the message says which."""


def usable_cores() -> list[int]:
    """Those of this process; the hardware threads that share a core with an earlier one come last."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0), key=lambda core: (_siblings(core).index(core), core))


def n_physical(cores: Sequence[int]) -> int:
    return len({tuple(_siblings(core)) for core in cores})


def _siblings(core: int) -> list[int]:
    """The hardware threads of one core; itself alone where the system does not tell."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return [core]
    ranges = [part.partition("-") for part in text.strip().split(",")]
    return [one for first, _, last in ranges for one in range(int(first), int(last or first) + 1)]


@contextmanager
def engines(cores: Sequence[int], *, realtime: bool) -> Iterator[list[str]]:
    """The URLs of so many fake engines, each on one of ``cores``."""
    with ExitStack() as stack:
        priority = 20 if realtime else None
        yield [stack.enter_context(running_fake_engine(cpu=core, realtime=priority, spin_us=100)).url for core in cores]


def n_tokens_in(seconds: float) -> int:
    """Of one answer, where each stream makes ``N_REQUESTS`` in so many seconds."""
    return max(10, round((seconds / N_REQUESTS - TTFT_S) * PER_S))


def cell(urls: Sequence[str], cores: Sequence[int], n_streams: int, *, seconds: float, realtime: bool) -> list[Row]:
    """``n_streams`` from each server by a client process on the core beside it, all at once; a row of each.

    Raises ProcessesError.
    """
    asked = {
        "way": "wire",
        "n_streams": n_streams,
        "chunks_per_s": PER_S,
        "ttft_s": TTFT_S,
        "n_requests": N_REQUESTS,
        "n_tokens": n_tokens_in(seconds),
        "realtime": realtime,
        "together": True,
    }
    argvs = [
        [sys.executable, "-m", "benchmarks.load_cell", json.dumps(asked | {"url": url, "core": core})]
        for url, core in zip(urls, cores, strict=True)
    ]
    clients = [
        subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for argv in argvs
    ]
    limit = threading.Timer(seconds + MORE_S, _kill, [clients])
    limit.start()
    try:
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()  # "ready", or nothing from one that has ended
        return [_ended(client) for client in _begun(clients)]
    finally:
        limit.cancel()
        _kill(clients)


def _begun(clients: Sequence[subprocess.Popen[str]]) -> Sequence[subprocess.Popen[str]]:
    for client in clients:
        assert client.stdin is not None
        try:
            client.stdin.write("begin\n")
            client.stdin.flush()
        except BrokenPipeError:
            raise ProcessesError(f"{client.args!r} ended before it began; its standard error says why") from None
    return clients


def _ended(client: subprocess.Popen[str]) -> Row:
    said = client.communicate()[0]
    if client.returncode:
        raise ProcessesError(f"{client.args!r} ended with {client.returncode}; its standard error says why")
    row: Row = json.loads(said)
    return row


def _kill(clients: Sequence[subprocess.Popen[str]]) -> None:
    for client in clients:
        if client.poll() is None:
            client.kill()
            with suppress(subprocess.TimeoutExpired):  # one that gets no turn on its core cannot end
                client.wait(5)


def of_cells(rows: Sequence[Row], n_streams: int, repeat: int, seconds: float) -> Row:
    """One row for processes that ran at once; lists hold a value of each process.

    Offered is what a client gets that is never late, over the same time: the spread of the beginnings is in it.
    """
    one_s = answer_s(n_tokens_in(seconds), ttft_s=TTFT_S, gap_s=1 / PER_S)
    spread_s = min(1.0, one_s) * (n_streams - 1) / n_streams
    offered_per_s = n_streams * N_REQUESTS * n_tokens_in(seconds) / (spread_s + N_REQUESTS * one_s)
    each = {
        name: [row[name] for row in rows]
        for name in ("coalesced_ratio", "gap_error_p50_us", "gap_error_p99_us", "server_late_p99_us")
    }
    return {
        "part": "cells",
        "n_processes": len(rows),
        "load": f"{n_streams} x {PER_S:g}/s each",
        "repeat": repeat,
        "realtime": all(row["realtime"] for row in rows),
        "offered_chunks_per_s": len(rows) * offered_per_s,
        "chunks_per_s": sum(row["chunks_per_s"] for row in rows),
        "chunks_per_s_each": [row["chunks_per_s"] for row in rows],
        "cpu_us_per_chunk": statistics.mean(row["cpu_us_per_chunk"] for row in rows),
        "load_1m": rows[0]["load_1m"],
    } | each


def measured(args: argparse.Namespace, cores: list[int], *, realtime: bool, runs: Path) -> Iterator[Row]:
    """One row after the other, while the time allows."""
    end_s = time.monotonic() + args.limit
    numbers = {
        part: [n for n in args.processes if args.oversubscribe or needs(part, n) <= len(cores)] for part in args.parts
    }
    pairs = [cores[k % len(cores)] for k in range(2 * max(numbers.get("cells", []), default=0))]
    with engines(pairs[::2], realtime=realtime) as urls:
        for repeat in range(args.repeats):
            for n_streams in args.streams:
                for n in numbers.get("cells", []):
                    if time.monotonic() + args.seconds + 8 < end_s:
                        rows = cell(urls[:n], pairs[1 : 2 * n : 2], n_streams, seconds=args.seconds, realtime=realtime)
                        yield of_cells(rows, n_streams, repeat, args.seconds)
    for repeat in range(args.run_repeats):
        for n in numbers.get("runs", []):
            left_s = end_s - time.monotonic()
            if left_s > args.seconds + 14:
                yield {"part": "runs", "repeat": repeat} | whole_run(
                    n,
                    cores,
                    args.run_streams,
                    PER_S,
                    seconds=args.seconds,
                    realtime=realtime,
                    runs=runs,
                    limit_s=left_s,
                )


def needs(part: str, n: int) -> int:
    """Cores for ``n`` processes; in a run an engine serves up to two of them, and the master shares what is left."""
    return 2 * n if part == "cells" else n + -(-n // 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 measured, 1 a process did not come to its end, 2 usage."""
    args = _arguments(argv)
    cores = usable_cores()
    if len(cores) < (1 if args.oversubscribe else 2):
        print("fewer than two usable cores here: one for a server and one for a client are needed", file=sys.stderr)
        return 2
    for part in args.parts:
        for n in args.processes:
            if not args.oversubscribe and needs(part, n) > len(cores):
                print(f"{part}: {n} processes need {needs(part, n)} cores, {len(cores)} usable here: left out")
    signal.signal(signal.SIGTERM, _told_to_end)
    realtime = not (args.no_realtime or args.oversubscribe) and may_be_realtime()
    rows: list[Row] = []
    fault = None
    with tempfile.TemporaryDirectory(prefix="processes-") as folder:
        try:
            for row in measured(args, cores, realtime=realtime, runs=args.run_dir or Path(folder)):
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
        except (ProcessesError, FakeEngineError) as error:
            fault = str(error)
    rows = with_multiples(rows)
    lines = table(rows)
    print_table(lines)
    if args.json:
        host = {"cores": cores, "n_physical": n_physical(cores), "realtime": realtime, "shared": args.oversubscribe}
        args.json.write_text(json.dumps({"host": host, "table": lines, "rows": rows, "fault": fault}, indent=1) + "\n")
    if fault is not None:
        print(fault, file=sys.stderr)
    return 0 if fault is None else 1


def _told_to_end(*_: object) -> None:
    raise ProcessesError("told to end: what was measured until then stands above")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=["cells", "runs"], default=["cells", "runs"])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--streams", nargs="+", type=int, default=[512, 256], help="of each cell's process, at 50/s")
    parser.add_argument("--run-streams", type=int, default=256, help="of each worker of a run, at 50/s")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load in a cell, of steady load in a run")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--run-repeats", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds in all; what does not fit is not begun")
    parser.add_argument("--oversubscribe", action="store_true", help="processes share cores; no real-time priority")
    parser.add_argument("--no-realtime", action="store_true", help="normal priority everywhere")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="keep the runs' folders here")
    parser.add_argument("--json", metavar="FILE", type=Path)
    args = parser.parse_args(argv)
    if min(*args.processes, *args.streams, args.run_streams, args.repeats, args.run_repeats) < 1 or args.seconds <= 0:
        parser.error("processes, streams, repeats and seconds are numbers above 0")
    return args


if __name__ == "__main__":
    sys.exit(main())
