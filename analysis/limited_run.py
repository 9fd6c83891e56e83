"""Runs a function from code of unknown quality in a limited process and hands back what it returned.

The process is ``limited_child.py`` under ``python -I -S``: a session of its own, an empty working folder that is
removed afterwards, a bare environment, limits on processor and wall-clock time, memory, processes, files and the size
of what comes back, and the guards that file tells of. It is never told the results wanted. POSIX only.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any  # a value that came as JSON and is kept as it came

_CHILD = Path(__file__).resolve().with_name("limited_child.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one run may use. Wall-clock time is the longer of the two, so that a busy machine fails nobody."""

    cpu_s: int = 4
    wall_s: float = 15.0
    memory_bytes: int = 512 * 1024 * 1024
    result_bytes: int = 1024 * 1024


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """One call that came to an end: ``value`` as JSON, or the ``error`` it raised (then the value is None)."""

    value: Json
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a run gave: the calls that ended, in order, and why the later ones did not (None when all ended)."""

    calls: tuple[Returned, ...]
    stopped: str | None
    guards: tuple[str, ...]  # what held the code
    lacking: tuple[str, ...]  # guards that this system does not offer


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRun:
    """The code was not run: this system cannot limit it, or the process did not start."""

    why: str


def run_calls(
    code: str, function: str, args: Sequence[Sequence[Json]], limits: Limits = DEFAULT_LIMITS
) -> Ran | NotRun:
    """Loads ``code`` and calls ``function`` with each of ``args`` in turn, in one process."""
    if os.name != "posix":
        return NotRun(why=f"code is run under POSIX limits only, and this system is {os.name!r}")
    job = {"code": code, "function": function, "args": args, "cpu_s": limits.cpu_s, "memory_bytes": limits.memory_bytes}
    with tempfile.TemporaryDirectory(prefix="limited-run-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"LC_ALL": "C.UTF-8", "TZ": "UTC"},
            start_new_session=True,
        )
        try:
            output, stopped = _exchange(process, json.dumps(job).encode("ascii"), limits)
        finally:
            _end(process)
    return _read(output, stopped or _died(process.returncode, limits), len(args))


def _exchange(process: "subprocess.Popen[bytes]", job: bytes, limits: Limits) -> tuple[bytes, str | None]:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(job)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it ended before it had read the job; how is read from what it left
    deadline = time.monotonic() + limits.wall_s
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            if not selector.select(left_s):
                break
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return bytes(output), _waited(process, deadline, limits)
            output += data
            if len(output) > limits.result_bytes:
                return bytes(output), f"more than {limits.result_bytes} bytes of results"
    return bytes(output), f"no result within {limits.wall_s:g} s"


def _waited(process: "subprocess.Popen[bytes]", deadline: float, limits: Limits) -> str | None:
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"the results were closed and the process went on for {limits.wall_s:g} s"
    return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # ended already
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _died(returncode: int, limits: Limits) -> str:
    if returncode == 0:
        return "the process ended before the call returned"
    if returncode == -signal.SIGKILL or returncode == -signal.SIGXCPU:
        return f"killed, most likely for more than {limits.cpu_s} s of processor time"
    return f"the process died ({signal.Signals(-returncode).name if returncode < 0 else f'exit {returncode}'})"


def _read(output: bytes, ended: str, n_calls: int) -> Ran | NotRun:
    lines = output.split(b"\n")[:-1]  # a line without its end is not a result
    if not lines:
        return NotRun(why=f"the limited process gave nothing: {ended}")
    head = json.loads(lines[0])
    if "refused" in head:
        return NotRun(why=head["refused"])
    calls = []
    for line in lines[1 : n_calls + 1]:
        try:
            calls.append(_returned(json.loads(line)))
        except (ValueError, RecursionError):
            ended = "what came back is not a result"  # the code wrote into its results itself, or nests too deeply
            break
    stopped = None if len(calls) == n_calls else ended
    return Ran(calls=tuple(calls), stopped=stopped, guards=tuple(head["guards"]), lacking=tuple(head["lacking"]))


def _returned(answer: Json) -> Returned:
    if isinstance(answer, dict) and list(answer) == ["result"]:
        return Returned(value=answer["result"], error=None)
    if isinstance(answer, dict) and list(answer) == ["error"] and isinstance(answer["error"], str):
        return Returned(value=None, error=answer["error"])
    raise ValueError(f"neither a result nor an error: {answer!r}")
