"""Facts about the client's host and this checkout for the manifest; what cannot be had is listed with its reason."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

import psutil

from evidence.records import Json, Missing

PACKAGES = ("locust", "gevent", "greenlet", "openai", "h11", "prometheus_client", "pydantic", "numpy")
PROJECT_VERSION = "0.3.0"  # as in pyproject.toml; a test compares them
ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    found = {
        "project": PROJECT_VERSION,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "system": platform.platform(),
    }
    for name in PACKAGES:
        found[name] = metadata.version(name)
    return found


def cpu_model() -> str | None:
    """The processor's name as the kernel gives it; None where /proc/cpuinfo has none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def hardware() -> dict[str, Json]:
    """The client's host (for a server on loopback, the server's host too)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "client_cpu_model": cpu_model(),
        "client_cores": os.cpu_count(),
        "client_cores_usable": len(affinity(0)) if affinity else None,
        "client_memory_bytes": psutil.virtual_memory().total,
        "client_load_1m": os.getloadavg()[0],
    }


def git_commit() -> tuple[str | None, Missing | None]:
    """The checkout's commit, with "-dirty" behind it where tracked files differ from it."""
    try:
        head = _git("rev-parse", "HEAD")
        dirty = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError) as error:
        return None, Missing(what="git_commit", why=f"git could not tell: {error}")
    return head + ("-dirty" if dirty else ""), None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def clock_pair() -> dict[str, float]:
    """A monotonic and a wall reading taken together, with how far apart the bracketing readings lay."""
    before_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    after_ns = time.monotonic_ns()
    return {
        "monotonic_s": (before_ns + after_ns) / 2e9,
        "unix_s": wall_ns / 1e9,
        "bracket_s": (after_ns - before_ns) / 1e9,
    }
