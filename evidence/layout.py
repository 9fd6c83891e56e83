"""The names inside run, launch and study folders, and the folders' own ids. No other module spells them."""

import os
import re
import time
from pathlib import Path
from typing import Literal

from evidence.errors import EvidenceError

FolderKind = Literal["run", "launch", "study", "shard", "unknown"]

SEAL = "seal.json"
WRITER = "writer.json"
NOTICED = "noticed.jsonl"
PARTIAL = ".partial"  # ends the name of a file that is being written and will be renamed into place

MANIFEST = "manifest.json"
PLAN = "plan.jsonl"
SCRAPES = "scrapes.jsonl"
WINDOWS = "windows.jsonl"
GPU = "gpu.jsonl"
LEVELS = "levels.jsonl"
SERVER = "server"
PROFILE = "profile.json"
TRACES = "traces"
WORKERS = "workers"
STARTED = "started.jsonl"
REQUESTS = "requests.jsonl"
HEALTH = "health.jsonl"
WIRE = "wire"
SEGMENTS = "segments.bin"
WORKER_EVENTS = "workers.jsonl"
CLOCKS = "clocks.jsonl"
KEPT = "kept.json"

SHARD = "shard.json"
DEALT = "dealt.jsonl"

LAUNCH = "launch.json"
ENGINE_LOG = "engine.log"

STUDY = "study.json"

CALIBRATIONS = "calibrations"  # the folder of calibrations beside the runs

_PREFIX = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def new_id(prefix: str, now_unix_s: float | None = None, entropy: bytes | None = None) -> str:
    """An id such as ``run-20261129T161200Z-a1b2c3``; ids of one prefix sort by the second they were made in (UTC).

    ``now_unix_s`` and ``entropy`` (at least 3 bytes, the first 3 are used) default to the clock and the system's
    source.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"prefix = {prefix!r}: use lower-case letters, digits and single hyphens")
    entropy = os.urandom(3) if entropy is None else entropy
    if len(entropy) < 3:
        raise ValueError(f"entropy has {len(entropy)} bytes: give at least 3")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if now_unix_s is None else now_unix_s))
    return f"{prefix}-{stamp}-{entropy[:3].hex()}"


def shard_folder(runs_dir: Path, run_id: str, worker: int) -> Path:
    """Where a worker keeps its own lines of a run: beside the run folders, so that the two are found together.

    Raises EvidenceError for a run id that is no plain name: it comes from a master, over the network.
    """
    if not is_plain_name(run_id):
        what = f"would hold the lines of a run called {run_id[:80]!r}, which is no run id"
        raise EvidenceError(runs_dir, what, "see which master this worker was told to follow", writing=True)
    return runs_dir / f"{run_id}.shard-{worker}"


def is_plain_name(name: str) -> bool:
    """True for a name that stays inside its folder: no separators, no leading dot, nothing a shell would change."""
    return _PLAIN_NAME.fullmatch(name) is not None and not name.endswith(PARTIAL)


def folder_kind(path: Path) -> FolderKind:
    """What a folder is, by the files it holds. A run or launch killed before its first file is "unknown"."""
    if (path / LAUNCH).exists() or (path / (LAUNCH + PARTIAL)).exists():
        return "launch"
    if (path / STUDY).exists():
        return "study"
    if (path / SHARD).exists() or (path / (SHARD + PARTIAL)).exists():
        return "shard"
    if any((path / name).exists() for name in (MANIFEST, MANIFEST + PARTIAL, PLAN, WORKERS, SCRAPES)):
        return "run"
    return "unknown"


def worker_folders(path: Path) -> tuple[tuple[int, Path], ...]:
    """The workers of a run folder with their numbers, in order. Folders whose names are no numbers are left out."""
    try:
        found = [(int(child.name), child) for child in (path / WORKERS).iterdir() if _NUMBER.fullmatch(child.name)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise EvidenceError(path / WORKERS, f"cannot be listed ({error.strerror})", "check its permissions") from error
    return tuple(sorted(found))
