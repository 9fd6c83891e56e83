"""A small server beside a run, in a process of its own that ends with the process that started it.

A child is a module run with ``--with-parent``: it prints one JSON line, ``{"url": ...}`` or ``{"error": ...}``, then
serves until its standard input is closed. Nothing of it runs in the measuring process, whatever that has done to its
threads and sockets.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START_LIMIT_S = 20.0
ROOT = Path(__file__).parents[2]


class ChildError(Exception):
    """The child could not be started; ``what`` says why. No run depends on it."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


class Child:
    """A running child, seen from the process that measures. ``stop`` ends it; so does that process's own end."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        self.url = url
        self._process = process

    def stop(self) -> None:
        """End the child; doing so twice is harmless."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_child(module: str, arguments: Sequence[str]) -> Child:
    """Run ``python -m module arguments --with-parent`` and wait for its line. Raises ChildError."""
    argv = [sys.executable, "-m", module, *arguments, "--with-parent"]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True)
    assert process.stdout is not None
    watch = threading.Timer(START_LIMIT_S, process.kill)
    watch.start()
    line = process.stdout.readline()
    watch.cancel()
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        said = {"error": f"{module} ended without a word (exit code {process.poll()})"}
    if "url" not in said:
        Child("", process).stop()
        raise ChildError(str(said["error"]))
    return Child(str(said["url"]), process)


def serve_until_closed(url: str, *, with_parent: bool, as_json: bool = True) -> None:
    """Say where the child listens, at low priority from here on, and wait for SIGTERM, Ctrl-C or the parent's end."""
    os.nice(10)
    sys.stdout.write((json.dumps({"url": url}) if as_json else url) + "\n")
    sys.stdout.flush()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    if with_parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which still has a run to close
        threading.Thread(target=_until_closed, args=(over,), daemon=True).start()
    over.wait()


def _until_closed(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()
