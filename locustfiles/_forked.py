"""The workers that ``--processes`` forked: where no run began, they end with the process that forked them.

Locust forks before anything has been checked. When the start is refused then, Locust's own clearing up takes a living
child for one that has ended, and its workers would look for a master for minutes, with the terminal's output in hand.
"""

import atexit
import os
from collections.abc import Callable

import psutil


def end_forked(began: Callable[[], bool]) -> None:
    """To be called before Locust forks: at this process's end its forks end too, unless a run ``began``.

    Workers of a run end by themselves, once their master has their lines. Workers without one hold nothing.
    """
    atexit.register(_end, os.getpid(), began)


def _end(pid: int, began: Callable[[], bool]) -> None:
    if os.getpid() != pid or began():
        return  # one of the forks itself, or a run whose workers end by themselves
    own = psutil.Process(pid)
    command = own.cmdline()
    for child in own.children():
        if _command(child) == command:
            child.kill()
            child.wait()


def _command(process: psutil.Process) -> list[str] | None:
    """None for one that has just ended."""
    try:
        found: list[str] = process.cmdline()
    except psutil.Error:
        return None
    return found
