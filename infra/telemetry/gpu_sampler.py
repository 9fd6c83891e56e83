"""Samples of this host's GPUs at an interval, taken by a process of their own.

NVML's calls block for tens of milliseconds (20 for each direction of PCIe traffic), which would show in the streams'
times if the load generator made them itself. So ``SamplerProcess`` starts this module as a child, which prints one
sample a line, and hands each line on as a record. On a server's own host the same is
``python -m infra gpu --interval 1 > gpu.jsonl``; ``from_line`` reads such a file into a run.
"""

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from evidence.errors import EvidenceError
from evidence.gpu_records import GpuSample
from evidence.lines import first_fault
from infra.telemetry.nvml import Nvml, NvmlError, open_nvml, read_gpu

INTERVAL_S = 1.0
NO_RUN = "no run"  # what stands for the run's id in a file that was sampled apart from one
ROOT = Path(__file__).resolve().parents[2]


class Stop(Protocol):
    def wait(self, timeout: float) -> Any: ...
    def is_set(self) -> bool: ...


def take(nvml: Nvml | str, *, run_id: str, interval_s: float | None, host: str | None) -> GpuSample:
    """One sample of every GPU now; of a host that cannot be sampled the reason, given in place of NVML."""
    begin_s, wall_s = time.monotonic(), time.time()
    gpus = () if isinstance(nvml, str) else tuple(read_gpu(nvml, i) for i in range(len(nvml.handles)))
    took_s = time.monotonic() - begin_s
    return GpuSample(
        run_id=run_id,
        source="nvml",
        host=host,
        at_unix_s=wall_s + took_s / 2,
        at_monotonic_s=begin_s + took_s / 2,
        took_s=took_s,
        interval_s=interval_s,
        gpus=gpus,
        missing=nvml if isinstance(nvml, str) else None,
    )


def sample(
    sink: Callable[[GpuSample], None],
    stop: Stop,
    *,
    run_id: str,
    interval_s: float = INTERVAL_S,
    duration_s: float | None = None,
    host: str | None = None,
    open_library: Callable[[], Nvml] = open_nvml,
) -> int:
    """A sample at once and then every ``interval_s`` until ``stop`` is set or the duration is over; returns how many.

    Where NVML cannot be used, or fails on the way, one record with the reason is the last.
    """
    try:
        nvml = open_library()
    except NvmlError as error:
        sink(take(str(error), run_id=run_id, interval_s=interval_s, host=host))
        return 0
    n_samples, begin_s = 0, time.monotonic()
    try:
        while not stop.is_set():
            sink(take(nvml, run_id=run_id, interval_s=interval_s, host=host))
            n_samples += 1
            next_s = begin_s + n_samples * interval_s
            if duration_s is not None and next_s > begin_s + duration_s:
                break
            stop.wait(max(0.0, next_s - time.monotonic()))
    finally:
        nvml.close()
    return n_samples


def from_line(line: str, run_id: str) -> GpuSample:
    """A line of a sampler as a record of this run. Errors: ValueError for a line that is none."""
    try:
        fields = json.loads(line)
        return GpuSample.model_validate_json(json.dumps({**fields, "run_id": run_id}))
    except (ValueError, TypeError) as error:  # no JSON, none with fields, or other fields than these
        raise ValueError(f"no GPU sample: {first_fault(error)}: {line[:200]!r}") from error


class SamplerProcess:
    """The child and the thread that hands its lines on. Usable under any loop that patches threads and subprocesses.

    ``sink`` gets records one at a time from that thread; what it raises is raised again by ``stop``.
    """

    def __init__(
        self,
        sink: Callable[[GpuSample], None],
        *,
        run_id: str,
        interval_s: float = INTERVAL_S,
        command: Sequence[str] | None = None,
    ) -> None:
        self._sink, self._run_id, self._interval_s = sink, run_id, interval_s
        own = (sys.executable, "-m", "infra.telemetry.gpu_sampler", "--interval", f"{interval_s:g}")
        self._command = tuple(command or own)
        self._child: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.n_samples = 0
        self.missing: str | None = "the sampler was not started"

    def start(self) -> None:
        """Start sampling. A child that cannot be started is a record with the reason."""
        self.missing = "the sampler ended without a sample"
        try:
            self._child = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            self._record_missing(f"the sampler could not be started: {error}")
            return
        self._thread = threading.Thread(target=self._read, name="gpu-sampler", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> int:
        """End sampling and return the number of samples; ``missing`` says why where it is 0."""
        if self._child is not None and self._thread is not None:
            self._child.terminate()
            try:
                self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._thread.join(timeout_s)
            if self.n_samples == 0 and self.missing == "the sampler ended without a sample":
                said = self._child.stderr.read().strip().splitlines() if self._child.stderr else []
                self._record_missing(f"the sampler ended without a sample{': ' + said[-1] if said else ''}")
        self._child = self._thread = None
        if self._failure is not None:
            raise self._failure
        return self.n_samples

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        try:
            for line in self._child.stdout:
                if not line.endswith("\n"):
                    break  # cut by the end of the child
                record = from_line(line, self._run_id)
                self._sink(record)
                self.n_samples += bool(record.gpus)
                self.missing = record.missing
        except (EvidenceError, OSError, ValueError) as failure:
            self._failure = failure
            self._child.terminate()

    def _record_missing(self, why: str) -> None:
        self.missing = why
        self._sink(take(why, run_id=self._run_id, interval_s=self._interval_s, host=None))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=_positive, default=INTERVAL_S, metavar="S", help="between samples (%(default)s)"
    )
    parser.add_argument("--duration", type=_positive, metavar="S", help="end after this long (default: when stopped)")
    parser.add_argument("--host", help="name of this host in the records")
    parser.add_argument(
        "--json", action="store_true", help="taken for the same form as everywhere: lines are JSON anyway"
    )


def command(options: argparse.Namespace, out: TextIO = sys.stdout) -> int:
    """Print samples as lines of JSON. Exit code 1 where there is no GPU to sample; the reason is the line printed."""

    def show(record: GpuSample) -> None:
        out.write(record.model_dump_json() + "\n")
        out.flush()

    try:
        n_samples = sample(
            show,
            threading.Event(),
            run_id=NO_RUN,
            interval_s=options.interval,
            duration_s=options.duration,
            host=options.host,
        )
    except (KeyboardInterrupt, BrokenPipeError):
        return 0
    return 0 if n_samples else 1


def _positive(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of seconds above 0 and below a day")
    return value


if __name__ == "__main__":
    own_parser = argparse.ArgumentParser(prog="python -m infra gpu", description=__doc__)
    add_arguments(own_parser)
    sys.exit(command(own_parser.parse_args()))
