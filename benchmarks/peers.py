"""Other load generators beside this one, on one server of known cadence: what each reports, as ratios to the truth.

    python -m benchmarks.peers --tokenizer DIR [--tool aiperf=PATH ...] [--only NAME ...] [--streams 4 128]

The fake engine (cadence mode: first token at 50 ms, 64 tokens, one each 10 ms) runs on one core, each tool with all its
processes on another, ten requests a stream. Tools take turns, forwards, then backwards. Programs come from ``--tool``,
else from the search path; one that is not found is named and left out. Nothing is installed, and none is a dependency
(docs/peers.md). ``sglang`` and ``sglang-rust`` take a Python that has SGLang; DIR holds the files of a tokenizer.

Each number is the tool's own, over the truth: median TTFT and time per token, 99th percentile of its gaps, requests a
second (whole level, start and end in it). CPU is user and system time of all its processes from start to report.
"""

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.client_load import ROOT, cores, may_be_realtime
from benchmarks.peer_tools import SCENARIO, TOOLS, Tool
from evidence.quantiles import nearest_rank
from evidence.reading import open_run
from infra.fake.schedule import answer_s
from infra.fake_engine import running_fake_engine

TTFT_MS, GAP_MS, N_TOKENS, N_ROUNDS = 50.0, 10.0, 64, 10
REQUEST_S = answer_s(N_TOKENS, ttft_s=TTFT_MS / 1e3, gap_s=GAP_MS / 1e3)
LIMIT_S = 240.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
Row = dict[str, Any]


def measured(name: str, program: str, url: str, n_streams: int, tokenizer: str, core: int | None) -> Row:
    """One run of one tool as a row; where its report cannot be read ``fault`` says why, with the end of its output."""
    tool, n_requests = TOOLS[name], n_streams * N_ROUNDS
    asked = {"streams": n_streams, "requests": n_requests, "tokens": N_TOKENS}
    row: Row = {"tool": name, "n_streams": n_streams, "load_1m": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="peers-") as text:
        folder = Path(text)
        (folder / "peers.toml").write_text(SCENARIO.format(**asked), encoding="utf-8")
        named = asked | {"program": program, "url": url, "tokenizer": tokenizer, "folder": text}
        argv = [part.format(**named) for part in shlex.split(tool.command)]
        pin = [] if core is None else ["taskset", "-c", str(core)]
        with (folder / "told").open("wb") as told:
            row |= _run([*pin, *argv], told)
        try:
            row |= _reported(tool, folder) if tool.report else _recorded(folder)
        except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
            end = (folder / "told").read_text(encoding="utf-8", errors="replace")[-600:]
            return row | {"fault": f"no report that could be read: {error!r}; it said: {end}"}
    row["requests_ratio"] = row["requests_per_s"] * REQUEST_S / n_streams
    return row


def _run(argv: list[str], told: Any) -> Row:
    """Exit code (None: it was killed when its time was up), CPU of all processes, the largest sum of their memory."""
    before, others = resource.getrusage(resource.RUSAGE_CHILDREN), _descendants()
    peak, over = [0], threading.Event()
    env = os.environ | {"OPENAI_API_KEY": "none"}
    process = subprocess.Popen(
        argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True
    )
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, over))
    watcher.start()
    exit_code: int | None = None
    try:
        exit_code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        over.set()
        watcher.join()
        _end(process, others)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"exit_code": exit_code, "cpu_s": cpu_s, "peak_mb": peak[0] / 1e6}


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _end(process: subprocess.Popen[bytes], others: set[psutil.Process]) -> None:
    """Kills and reaps the tool and what it left running: its process group, and all descendants of ours but ``others``.

    Those in a session of their own are among them for as long as a parent leads to us. Where ``_adopting`` had no
    effect, one whose parent has ended is beyond reach: it runs on, and its CPU is not counted.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    while left := _descendants() - others:  # again, for those that came to us when their parent ended
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        for one in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, 0)
    process.wait()


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Processes whose parent ends become children of this one meanwhile, where the system is Linux."""
    if sys.platform != "linux":
        yield
        return
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _watch(pid: int, peak: list[int], over: threading.Event) -> None:
    while not over.wait(0.5):
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(pid)
            peak[0] = max(peak[0], sum(one.memory_info().rss for one in (top, *top.children(recursive=True))))


def _reported(tool: Tool, folder: Path) -> Row:
    said = json.loads(next(folder.glob(tool.report)).read_text(encoding="utf-8"))

    def at(path: str) -> float:
        value = said
        for key in path.split("/"):
            value = value[int(key) if isinstance(value, list) else key]
        return float(value)

    return {
        "ttft_ratio": at(tool.ttft) * tool.unit_ms / TTFT_MS,
        "token_ratio": at(tool.token) * tool.unit_ms / GAP_MS,
        "gap_p99_ratio": None if tool.gap_p99 is None else at(tool.gap_p99) * tool.unit_ms / GAP_MS,
        "requests_per_s": at(tool.rate),
    }


def _recorded(folder: Path) -> Row:
    """Of our run, from its records; raises LookupError where the level did not end."""
    run = open_run(next((folder / "runs").iterdir()))
    done = [one for one in run.requests if one.phase == "measured" and one.outcome == "completed"]
    instants = [[mark[0] for mark in one.chunks] for one in done]
    gaps = sorted(b - a for at in instants for a, b in itertools.pairwise(at))
    drained_s = run.levels[0].drained_after_s
    if drained_s is None or not gaps:
        raise LookupError("the level did not end")
    return {
        "ttft_ratio": statistics.median(at[0] for at in instants) * 1e3 / TTFT_MS,
        "token_ratio": statistics.median((at[-1] - at[0]) / (N_TOKENS - 1) for at in instants) * 1e3 / GAP_MS,
        "gap_p99_ratio": nearest_rank(gaps, 99) * 1e3 / GAP_MS,
        "requests_per_s": len(done) / drained_s,
    }


def rows(programs: dict[str, str], streams: Sequence[int], repeats: int, tokenizer: str) -> Iterator[Row]:
    server, client = cores()
    realtime = 20 if may_be_realtime() else None
    fake = {"ttft_s": TTFT_MS / 1e3, "gap_s": GAP_MS / 1e3, "n_tokens": N_TOKENS, "cadence": True}
    for repeat in range(repeats):
        for n_streams in streams:
            for name in list(programs)[:: -1 if repeat % 2 else 1]:
                with running_fake_engine(cpu=server, realtime=realtime, spin_us=100, fake=fake) as engine:
                    yield measured(name, programs[name], engine.url, n_streams, tokenizer, client)


HEADS = {
    "ttft_ratio": ("TTFT", "{:.3f}"),
    "token_ratio": ("token", "{:.3f}"),
    "gap_p99_ratio": ("gap p99", "{:.3f}"),
    "requests_ratio": ("requests/s", "{:.3f}"),
    "cpu_s": ("CPU s", "{:.1f}"),
    "peak_mb": ("MB", "{:.0f}"),
    "exit_code": ("exit", "{:.0f}"),
    "load_1m": ("load avg", "{:.1f}"),
}


def print_table(found: Sequence[Row]) -> None:
    """Medians over the repeats."""
    print("".join(head.rjust(13) for head in ("streams", "tool", *(head for head, _ in HEADS.values()))))
    for n_streams, name in dict.fromkeys((row["n_streams"], row["tool"]) for row in found):
        same = [row for row in found if (row["n_streams"], row["tool"]) == (n_streams, name)]
        texts = [str(n_streams), name]
        for key, (_, form) in HEADS.items():
            values = [row[key] for row in same if row.get(key) is not None]
            texts.append(form.format(statistics.median(values)) if values else "-")
        print("".join(text.rjust(13) for text in texts))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 measured, 1 a report could not be read, 2 usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", required=True, metavar="DIR")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME=PATH", help=", ".join(TOOLS))
    parser.add_argument("--only", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--streams", nargs="+", type=int, default=[4, 128])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", type=Path)
    args = parser.parse_args(argv)
    programs = _programs(parser, args)
    found: list[Row] = []
    with _adopting():
        for row in rows(programs, args.streams, args.repeats, str(Path(args.tokenizer).resolve())):
            found.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    print_table(found)
    if args.json:
        args.json.write_text(json.dumps({"rows": found}, indent=1) + "\n", encoding="utf-8")
    return 1 if any("fault" in row for row in found) else 0


def _programs(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, str]:
    given = dict(one.partition("=")[::2] for one in args.tool)
    for name, path in given.items():
        if name not in TOOLS or shutil.which(path) is None:
            parser.error(f"--tool {name}={path}: no such program, or the name is not one of {', '.join(TOOLS)}")
    found: dict[str, str] = {}
    for name in args.only:
        path = given.get(name) or (shutil.which(name) if TOOLS[name].report else sys.executable)
        if path is None:
            print(f"{name}: not found, left out; --tool {name}=PATH names it")
        else:
            found[name] = path
    return found


if __name__ == "__main__":
    sys.exit(main())
