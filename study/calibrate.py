"""``study calibrate``: the floor of this client's error, by an ordinary run against an engine of known cadence.

The fake engine runs in a process of its own, on a core of its own where there are two, and sends N streams of R chunks
a second; the run is recorded, sealed and judged like any other. What the client measured is then compared with the
stamps that the engine put into its chunks, and the errors become a calibration: a record beside the runs, which later
runs cite in their manifest.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.calibration_records import Calibration
from evidence.durable import write_whole
from evidence.errors import EvidenceError
from evidence.layout import CALIBRATIONS, SEAL, new_id
from evidence.reading import Run, open_run
from evidence.records import Json
from infra.fake.schedule import answer_s
from infra.fake_engine import FakeEngineError, running_fake_engine
from scenarios.schema import load_scenario
from scenarios.strict_toml import ScenarioError
from study.calibration_text import lines
from study.client_error import FLOOR_METRICS, Differences, differences
from study.replay import ROOT, Replayed, replay

GOOD, EVIDENCE_SAYS_NO, USAGE, NOT_WRITTEN = 0, 1, 2, 3
TTFT_S = 0.05
SAID_CHARACTERS = 600
ENOUGH_REQUESTS = 800  # for a p99 of what there is one of a request
FEWEST_A_STREAM = 3
FEWEST_TOKENS = 16
MOST_TOKENS = 4096
SCENARIO = """name = "calibration"
kind = "concurrency"
seed = 1
[mix]
domains = {{ prose = 1 }}
[request]
max_tokens = {{ prose = {n_tokens} }}
ignore_eos = true
[warmup]
requests = 2
[levels]
users = [{n_streams}]
requests = {n_requests}
[limits]
timeout_s = {timeout_s:.1f}
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent: ``n_requests`` in all, ``n_tokens`` each, a chunk a token."""

    n_streams: int
    chunks_per_s: float
    n_requests: int
    n_tokens: int

    @property
    def request_s(self) -> float:
        return answer_s(self.n_tokens, ttft_s=TTFT_S, gap_s=1 / self.chunks_per_s)


def load_of(n_streams: int, chunks_per_s: float, seconds: float) -> Load:
    """About so many seconds of load, in as many requests as bear a p99 where the time allows."""
    shortest_s = answer_s(FEWEST_TOKENS, ttft_s=TTFT_S, gap_s=1 / chunks_per_s)
    each = max(FEWEST_A_STREAM, min(math.ceil(ENOUGH_REQUESTS / n_streams), int(seconds / shortest_s)))
    n_tokens = round((seconds / each - TTFT_S) * chunks_per_s)
    return Load(
        n_streams=n_streams,
        chunks_per_s=chunks_per_s,
        n_requests=each * n_streams,
        n_tokens=max(FEWEST_TOKENS, min(n_tokens, MOST_TOKENS)),
    )


def add_parser(verbs: Any) -> None:
    """The sub-command of ``python -m study``."""
    made = verbs.add_parser("calibrate", help="measure this client's own error at so many streams, for runs to cite")
    made.add_argument("--streams", metavar="N", type=_streams, help="at once (default: the scenario's, else 16)")
    made.add_argument(
        "--chunks-per-s", metavar="R", type=_positive, default=50.0, help="of each stream (default: %(default)g)"
    )
    made.add_argument("--scenario", metavar="FILE", type=Path, help="take the streams from its largest level")
    made.add_argument(
        "--seconds", metavar="S", type=_positive, default=20.0, help="of load, about (default: %(default)g)"
    )
    made.add_argument("--transport", choices=["wire", "openai"], default="wire", help="what is calibrated")
    made.add_argument("--run-dir", metavar="DIR", type=Path, default=Path("runs"), help="where run and record land")
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    made.set_defaults(command=command, parser=made)


def command(args: argparse.Namespace) -> int:
    """Exit 0 with the record written, 1 where nothing could be compared, 2 usage, 3 where it could not be written."""
    try:
        n_streams = args.streams or (16 if args.scenario is None else streams_of(args.scenario))
        path, made = calibrate(
            load_of(n_streams, args.chunks_per_s, args.seconds), args.run_dir, transport=args.transport
        )
    except (ScenarioError, CalibrationError, FakeEngineError, EvidenceError) as error:
        print(error, file=sys.stderr)
        if args.json:
            print(json.dumps({"ok": False, "error": str(error)}))
        if isinstance(error, EvidenceError):
            return error.exit_code
        return USAGE if isinstance(error, ScenarioError) else EVIDENCE_SAYS_NO
    if args.json:
        print(json.dumps({"ok": True, "file": str(path), **made.model_dump(mode="json")}))
    else:
        print("\n".join(lines(made)))
        print(path)
    return GOOD


class CalibrationError(Exception):
    """No calibration came about; the message says why and what to do."""


def streams_of(scenario: Path) -> int:
    """The most requests under way at once that a scenario plans. Raises ScenarioError."""
    read = load_scenario(scenario)
    if read.levels is not None:
        return max(read.levels.users)
    if read.arrivals is not None:
        return read.arrivals.max_in_flight
    return 1


def calibrate(load: Load, run_dir: Path, *, transport: str = "wire") -> tuple[Path, Calibration]:
    """Runs, compares, writes. Raises CalibrationError, FakeEngineError or EvidenceError."""
    schedule = {"ttft_s": TTFT_S, "gap_s": 1 / load.chunks_per_s, "cadence": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        _core_apart() as core,
        running_fake_engine(fake=schedule, cpu=core) as engine,
    ):
        scenario = Path(folder) / "calibration.toml"
        timeout_s = 60 + 10 * load.request_s
        scenario.write_text(
            SCENARIO.format(
                n_tokens=load.n_tokens, n_streams=load.n_streams, n_requests=load.n_requests, timeout_s=timeout_s
            ),
            encoding="utf-8",
        )
        said = Path(folder) / "said.txt"
        print(f"calibrating: {load.n_requests} requests, {load.n_streams} at once", file=sys.stderr, flush=True)
        done = _quiet(
            said,
            (
                *(sys.executable, "-m", "locust", "-f", "locustfiles/sweep.py", "--headless", "--only-summary"),
                *("--skip-log-setup", "--host", engine.url, "--scenario", str(scenario), "--label", "calibration"),
                *("--run-dir", str(run_dir.resolve()), "--transport", transport),
                *("--calibration", "none"),
            ),
        )
        if done.folder is None:
            raise CalibrationError(f"the run left no folder; it said: {_end_of(said)}")
        if done.exit_code not in (GOOD, EVIDENCE_SAYS_NO):
            raise CalibrationError(f"{done.folder}: the run ended with {done.exit_code}; it said: {_end_of(said)}")
    _refuse_without_verdict(done.folder)
    run = open_run(done.folder)
    found = differences(run)
    if not found.n_requests:
        raise CalibrationError(f"{run.path}: no request could be compared: `python -m analysis check` says why")
    made = record_of(run, load, found, run_dir, transport)
    path = run_dir / CALIBRATIONS / f"{made.calibration_id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EvidenceError(
            path.parent, f"cannot be made ({error.strerror})", "choose another --run-dir", writing=True
        ) from error
    write_whole(path, made.model_dump_json(indent=1).encode() + b"\n")
    return path, made


def _quiet(said: Path, argv: tuple[str, ...]) -> Replayed:
    """The run with its progress and verdict kept aside: an ordinary run's remedies do not concern a calibration."""
    with said.open("wb") as stderr:
        return replay(argv, stderr=stderr)


def _end_of(said: Path) -> str:
    return said.read_text(encoding="utf-8", errors="replace").strip()[-SAID_CHARACTERS:] or "nothing"


def _refuse_without_verdict(folder: Path) -> None:
    """Raises CalibrationError where the check comes to no verdict, or finds that the run as a whole is none."""
    argv = [sys.executable, "-m", "analysis", "check", "--json", str(folder.resolve())]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        verdict = json.loads(done.stdout)["verdicts"]["run"]
    except (ValueError, KeyError, TypeError):
        told = (done.stderr or done.stdout).strip()[-SAID_CHARACTERS:] or "nothing"
        what = f"{folder}: the check came to no verdict, so nothing is calibrated; it ended with {done.returncode}: "
        raise CalibrationError(what + told) from None
    if verdict == "INVALID":
        raise CalibrationError(f"{folder}: the run is INVALID: `python -m analysis check {folder}` says why")


@contextmanager
def _core_apart() -> Iterator[int | None]:
    """A core for the engine, which the client started meanwhile keeps off, as from a server elsewhere.

    None where there is but one core, or the system does not deal them out.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(usable) < 2:
        yield None
        return
    core = max(usable)
    os.sched_setaffinity(0, usable - {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, usable)


def record_of(run: Run, load: Load, found: Differences, run_dir: Path, transport: str) -> Calibration:
    """The calibration a run came to: errors and floors of every metric that could be compared, and this client.

    A metric without a value has no entry. Raises OSError where the run's seal cannot be read, and ValueError where the
    run does not lie in ``run_dir``.
    """
    errors = {name: found.error(name) for name in found.by_metric}
    floors = {name: found.floor(name) for name in FLOOR_METRICS}
    floors["ttfv_s"] = floors["ttft_s"]  # the engine's tokens are visible ones
    known = {name: floor for name, floor in floors.items() if floor is not None}
    return Calibration(
        calibration_id=new_id("calibration"),
        made_at_unix_s=time.time(),
        run_id=run.manifest.run_id,
        run_dir=f"../{run.path.resolve().relative_to(run_dir.resolve())}",
        run_seal_sha256=hashlib.sha256((run.path / SEAL).read_bytes()).hexdigest(),
        transport="openai" if transport == "openai" else "wire",
        n_streams=load.n_streams,
        chunks_per_s=load.chunks_per_s,
        total_chunks_per_s=_total_chunks_per_s(run),
        truth={"ttft_s": TTFT_S, "gap_s": 1 / load.chunks_per_s, "n_tokens": load.n_tokens},
        n_requests=found.n_requests,
        n_left_out=found.n_left_out,
        errors={name: error for name, error in errors.items() if error is not None},
        client_floor_s={name: floor for name, (floor, _) in known.items()},
        floor_quantile={name: quantile for name, (_, quantile) in known.items()},
        client=_client(run),
        hardware=run.manifest.hardware,
        versions=run.manifest.versions,
        git_commit=run.manifest.git_commit,
    )


def _total_chunks_per_s(run: Run) -> float | None:
    """Chunks received a second while all users were up; None where they never were."""
    level = run.levels[0] if run.levels else None
    if level is None or level.full_after_s is None or level.drain_after_s is None:
        return None
    begin_s, end_s = (level.began_at_monotonic_s + after_s for after_s in (level.full_after_s, level.drain_after_s))
    n = 0
    for request in run.requests:
        if request.level == level.label and request.sent_at_monotonic_s is not None:
            t0_s = request.sent_at_monotonic_s
            n += sum(begin_s <= t0_s + mark[0] < end_s for mark in request.chunks)
    return n / (end_s - begin_s) if end_s > begin_s else None


def _client(run: Run) -> dict[str, Json]:
    """The worst of each sign of lateness over the run, and the shares over all of it; None where no line tells."""
    lines = [line for worker in run.health.values() for line in worker if line.in_flight]
    told = [(one.coalesced_chunks, one.n_chunks) for one in lines]
    counted = [(n_shared, n) for n_shared, n in told if n_shared is not None and n is not None]
    n_chunks = sum(n for _, n in counted)
    cpu = [line.cpu_ratio for line in lines if line.cpu_ratio is not None]
    return {
        "lag_max_s": max((line.lag_max_s for line in lines if line.lag_max_s is not None), default=None),
        "kernel_to_user_max_s": max(
            (line.kernel_to_user_max_s for line in lines if line.kernel_to_user_max_s is not None), default=None
        ),
        "coalesced_ratio": sum(n_shared for n_shared, _ in counted) / n_chunks if n_chunks else None,
        "cpu_ratio_mean": sum(cpu) / len(cpu) if cpu else None,
        "gc_pause_max_s": max((line.gc_pause_max_s for line in lines), default=None),
        "load_1m_max": max((line.load_1m for line in lines if line.load_1m is not None), default=None),
    }


def _streams(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of streams: give a whole number from 1 to 100000")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0 < value <= 1e6):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0: give one, for example 50")
    return value
