"""The process between the launcher and an engine's command: it makes sure that nothing of the engine outlives either.

``python -P warden.py --parent PID --scratch DIR -- COMMAND...`` runs the command in that folder, waits, ends as
the command ended (the same code or signal), and before it ends kills whatever of the engine is still there: engines
start workers, and a worker that is left holds the GPU. It dies with its parent: the kernel sends it SIGTERM then, which
it takes as the order to stop. Linux only; run as a file, so that the engine inherits neither folder nor import path.
"""

import argparse
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parent", required=True, type=int)
    parser.add_argument("--scratch", required=True, help="where the command runs; removed at its end")
    parser.add_argument("--stop-within-s", required=True, type=float)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for number, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
        if prctl(number, value) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({number})")
    # From here on a stop is an order to the engine, also one that came while it was being started.
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    if os.getppid() != options.parent:
        sys.exit("warden: the launcher is gone")
    try:
        Path(options.scratch).mkdir(exist_ok=True)  # a diagnostic runs where the launch ran
        engine = subprocess.Popen(options.command, cwd=options.scratch, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stdout.write(f"warden: {options.command[0]} cannot be run: {error.strerror}\n")
        return 127
    code = _watch(engine, stopping, options.stop_within_s)
    shutil.rmtree(options.scratch, ignore_errors=True)
    return _end_as(code)


def _watch(engine: subprocess.Popen[bytes], stopping: list[int], stop_within_s: float) -> int:
    def stop(_number: int = 0, _frame: FrameType | None = None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: kill_descendants())
        signal.setitimer(signal.ITIMER_REAL, stop_within_s, 1.0)
        engine.terminate()

    signal.signal(signal.SIGTERM, stop)
    if stopping:
        stop()
    code = engine.wait()
    signal.setitimer(signal.ITIMER_REAL, 0)
    kill_descendants()
    return code


def kill_descendants() -> None:
    """SIGKILL to every process that came from this one; orphans among them are ours, since this is their reaper."""
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass  # it has ended in between


def _end_as(code: int) -> int:
    """End by the signal that ended the engine, so that who waits for this process sees how it went."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the engine has left its own where it was to leave one
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    sys.stdout.flush()
    os.kill(os.getpid(), -code)
    return 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
