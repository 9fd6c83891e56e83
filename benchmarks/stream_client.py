"""Judges the stream client against ground truth: our wire transport and the openai client on the same streams.

    python -m benchmarks.stream_client [--streams 1 16] [--repeats 4] [--realtime] [--json FILE]

The fake engine runs in a process of its own on one core, the client on another. Each cell is measured several times,
the transports taking turns (A B C A B C), under one policy for all: primed, one connection a stream kept alive, no
garbage collection within a cell. TTFT error = (stamp of the first token - t0) - (written_ns - received_ns of that
chunk): the sending of the request is in it. Gap error = |gap between two stamps - gap between the two written_ns|. The
server's own lateness cancels, since the client is judged against when it really wrote; "server late" shows it all the
same. A p99 is given from 662 values on, below that the largest value.
"""

import argparse
import contextlib
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

US = 1000.0  # nanoseconds
P99_FLOOR = 662  # fewer values do not bound a 99th percentile


def rank(values: Sequence[float], q: float) -> float:
    """Nearest rank, of sorted values."""
    return values[min(len(values) - 1, max(0, -(-int(q * 1000) * len(values) // 1000) - 1))]


def judge(seen: Sequence[Any], wall_s: float, cpu_s: float) -> dict[str, list[float] | float]:
    """The errors of one cell in microseconds, sorted, and its rates."""
    ttft: list[float] = []
    gaps: list[float] = []
    late: list[float] = []
    n_tokens = n_shared = n_with_segment = 0
    for stream in seen:
        tokens = stream.tokens
        first = tokens[0]
        ttft.append(((first.stamp_ns - stream.t0_ns) - (first.written_ns - first.received_ns)) / US)
        for a, b in itertools.pairwise(tokens):
            gaps.append(abs((b.stamp_ns - a.stamp_ns) - (b.written_ns - a.written_ns)) / US)
            n_shared += b.segment is not None and a.segment == b.segment
        late += [(token.written_ns - token.due_ns) / US for token in tokens]
        n_tokens += len(tokens)
        n_with_segment += sum(token.segment is not None for token in tokens)
    return {
        "ttft_error_us": sorted(ttft),
        "gap_error_us": sorted(gaps),
        "server_late_us": sorted(late),
        "chunks": n_tokens,
        "coalesced": n_shared,
        "chunks_with_segment": n_with_segment,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
    }


def pool(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of the report from all repeats of a cell; quantiles are those of the pooled errors."""
    joined = {key: sorted(x for cell in cells for x in cell[key]) for key in cells[0] if key.endswith("_us")}
    total = {key: sum(cell[key] for cell in cells) for key in cells[0] if not key.endswith("_us")}
    row: dict[str, Any] = {"n_requests": len(joined["ttft_error_us"]), "n_gaps": len(joined["gap_error_us"])}
    for key, values in joined.items():
        name = key.removesuffix("_us")
        p99 = rank(values, 0.99) if len(values) >= P99_FLOOR else None
        row |= {f"{name}_p50_us": rank(values, 0.5), f"{name}_p99_us": p99, f"{name}_max_us": values[-1]}
    row["chunks_per_s"] = total["chunks"] / total["wall_s"]
    row["cpu_us_per_chunk"] = total["cpu_s"] / total["chunks"] * 1e6
    with_segment = total["chunks_with_segment"]
    row["coalesced_ratio"] = total["coalesced"] / with_segment if with_segment else None  # None: not visible
    row["ttft_error_p50_us_by_repeat"] = [rank(cell["ttft_error_us"], 0.5) for cell in cells]
    row["gap_error_p50_us_by_repeat"] = [rank(cell["gap_error_us"], 0.5) for cell in cells]
    return row


@contextlib.contextmanager
def no_collection() -> Any:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def measure(transport: Callable[[Any], Callable[[], list[Any]]], load: Any) -> dict[str, Any]:
    with no_collection():
        began_s, cpu_began_s = time.monotonic(), time.process_time()
        read = transport(load)
        wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_began_s
    return judge(read(), wall_s, cpu_s)


def print_report(report: dict[str, Any]) -> None:
    print(json.dumps(report["conditions"]))
    print(
        f"{'streams':>7} {'transport':13} {'TTFT error p50/p99':>23} {'|gap error| p50/p99':>23} {'chunks/s':>8} "
        f"{'coalesced':>9} {'CPU/chunk':>9} {'server late p50/p99':>22}"
    )
    for row in report["rows"]:
        names = ("ttft_error", "gap_error", "server_late")
        ttft, gap, late = (f"{row[f'{k}_p50_us']:.1f} {_upper(row, k)} us" for k in names)
        shared = "-" if row["coalesced_ratio"] is None else f"{row['coalesced_ratio']:.2%}"
        print(
            f"{row['n_streams']:7} {row['transport']:13} {ttft:>23} {gap:>23} {row['chunks_per_s']:8.0f} "
            f"{shared:>9} {row['cpu_us_per_chunk']:6.0f} us {late:>22}"
        )
    for row in report["ratios"]:
        p99 = row["gap_error_p99"]
        print(
            f"{row['n_streams']:7} {row['transport']} is further from the truth than wire: "
            f"TTFT {row['ttft_error_p50']:.1f} times, gaps {row['gap_error_p50']:.1f} times (median), "
            f"{'-' if p99 is None else f'{p99:.1f}'} times (p99)"
        )


def _upper(row: dict[str, Any], name: str) -> str:
    p99 = row[f"{name}_p99_us"]
    return f"max {row[f'{name}_max_us']:.1f}" if p99 is None else f"{p99:.1f}"


def ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for row in rows:
        ours = next(r for r in rows if r["n_streams"] == row["n_streams"] and r["transport"] == "wire")
        if row is not ours:
            names = ("ttft_error_p50", "gap_error_p50", "gap_error_p99")
            pairs = {name: (row[f"{name}_us"], ours[f"{name}_us"]) for name in names}
            errors = {k: None if None in (a, b) or not b else abs(a / b) for k, (a, b) in pairs.items()}
            out.append({"n_streams": row["n_streams"], "transport": row["transport"]} | errors)
    return out


def settle(realtime: bool) -> dict[str, Any]:
    """Pins this process to its second core and says under which conditions it measures."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    conditions: dict[str, Any] = {"server_core": None, "client_core": None, "realtime": False}
    if len(cores) > 1:
        conditions |= {"server_core": cores[0], "client_core": cores[1]}
        os.sched_setaffinity(0, {cores[1]})
    if realtime:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
            conditions["realtime"] = True
        except OSError as error:
            print(f"--realtime: {error}; measuring without it", file=sys.stderr)
    return conditions


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.loop == "gevent":
        from gevent import monkey

        monkey.patch_all()
    from benchmarks import stream_transports as transports
    from benchmarks.openai_transports import OpenAiTransports
    from infra.fake.schedule import answer_s
    from infra.fake_engine import running_fake_engine

    conditions = settle(args.realtime) | {
        "loop": args.loop,
        "python": sys.version.split()[0],
        "load": os.getloadavg()[0],
    }
    fake = {"ttft_s": args.ttft_s, "gap_s": args.gap_s, "sync": args.sync}
    priority = 20 if conditions["realtime"] else None
    with running_fake_engine(cpu=conditions["server_core"], realtime=priority, spin_us=args.spin_us) as engine:
        client = OpenAiTransports(engine.url)
        conditions["openai"] = client.version
        ways = {
            "wire": transports.wire_on_gevent if args.loop == "gevent" else transports.wire_on_selector,
            "openai-bytes": client.iter_bytes,
            "openai-chunks": client.chunks,
        }
        cells: dict[tuple[int, str], list[dict[str, Any]]] = {}

        def load(n_streams: int, n_requests: int, n_tokens: int, spread_s: float) -> transports.Load:
            return transports.Load(
                base_url=engine.url,
                n_streams=n_streams,
                n_requests=n_requests,
                n_tokens=n_tokens,
                spread_s=spread_s,
                fake=fake,
            )

        for way in ways.values():
            way(load(max(args.streams), 1, 2, 0.0))  # primes imports, connections and caches
        for _ in range(args.repeats):
            for n_streams in args.streams:
                for name, way in ways.items():
                    request_s = answer_s(args.n_tokens, ttft_s=args.ttft_s, gap_s=args.gap_s)
                    cell = measure(way, load(n_streams, args.requests, args.n_tokens, request_s))
                    cells.setdefault((n_streams, name), []).append(cell)
    rows = [{"n_streams": n, "transport": name} | pool(repeats) for (n, name), repeats in cells.items()]
    report = {"conditions": conditions | fake, "rows": rows, "ratios": ratios(rows)}
    print_report(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stream_client", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--requests", type=int, default=5, help="of each stream in each repeat")
    parser.add_argument("--n-tokens", type=int, default=50)
    parser.add_argument("--ttft-s", type=float, default=0.035)
    parser.add_argument("--gap-s", type=float, default=0.02)
    parser.add_argument("--sync", action="store_true", help="all streams' chunks in one burst a step")
    parser.add_argument("--loop", choices=["gevent", "selector"], default="gevent")
    parser.add_argument("--spin-us", type=float, default=100.0, help="the server polls this long before a deadline")
    parser.add_argument("--realtime", action="store_true", help="SCHED_FIFO for both, where permitted")
    parser.add_argument("--json", metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
