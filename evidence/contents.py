"""Everything that can be read from a run folder, whatever has happened to it.

A folder whose writer was killed at any byte reads as far as its files go. Half-written tails are measured (``torn``)
and left alone; lines that meet no schema become ``problems`` and are not among the records. Nothing here writes.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from evidence import frames
from evidence.durable import is_special
from evidence.errors import EvidenceError, Problem, ProblemCode
from evidence.gpu_records import GpuSample
from evidence.kept import read_kept
from evidence.layout import (
    CLOCKS,
    GPU,
    HEALTH,
    LEVELS,
    MANIFEST,
    NOTICED,
    PLAN,
    REQUESTS,
    SCRAPES,
    SEAL,
    SEGMENTS,
    STARTED,
    WINDOWS,
    WIRE,
    WORKER_EVENTS,
    WORKERS,
    folder_kind,
    worker_folders,
)
from evidence.level_records import Level
from evidence.lines import Located, decode, decode_one
from evidence.records import Health, Json, Manifest, Notice, Record, Request, Scrape, Seal, Started
from evidence.window_records import Window
from evidence.worker_records import Kept, WorkerClock, WorkerEvent

R = TypeVar("R", bound=Record)
_BLOCK_BYTES = 1 << 20  # read at once: a line of a long answer is larger than the usual buffer


class PlanLine(NamedTuple):
    """One line of ``plan.jsonl`` as it stands; its fields belong to the plan's own schema."""

    line: int
    plan_id: str
    fields: dict[str, Json]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything that could be read from a run folder, with the place of each record.

    ``manifest`` and ``seal`` are None where the file is absent or unreadable; ``problems`` then holds the reason, but
    for an absent seal. ``torn`` is the number of bytes after the last whole line or frame, by file.
    """

    path: Path
    manifest: Manifest | None
    plan_sha256: str | None  # None where the plan is not there
    plan: tuple[PlanLine, ...]
    started: tuple[Located[Started], ...]  # by worker, then in the order written
    requests: tuple[Located[Request], ...]
    scrapes: tuple[Located[Scrape], ...]
    windows: tuple[Located[Window], ...]
    gpu: tuple[Located[GpuSample], ...]
    levels: tuple[Located[Level], ...]
    workers: tuple[Located[WorkerEvent], ...]  # () where one process did everything
    clocks: tuple[Located[WorkerClock], ...]
    kept: dict[int, Kept]  # workers whose lines were sealed by digest; they may be here or elsewhere
    health: dict[int, tuple[Health, ...]]
    notices: tuple[Notice, ...]
    seal: Seal | None
    wire: dict[str, frames.Index]  # where the frames lie, by wire file; a file that is none is not among them
    torn: dict[str, int]
    problems: tuple[Problem, ...]


def read_contents(path: Path, *, requests: bool = True) -> Contents:
    """Everything readable of a run folder. Raises EvidenceError where it is none or a file cannot be opened.

    Without ``requests`` their files are left unread, and ``started``, ``requests`` and ``wire`` are empty: for who has
    read them before, since those of a large run are nearly all of it.
    """
    if not path.is_dir():
        raise EvidenceError(path, "is no folder", "give the path of a run folder, such as runs/run-...")
    kind = folder_kind(path)
    if kind in ("study", "launch"):
        remedy = {"study": "name one of the runs in its runs/, or ask check, compare or report of the study"}
        raise EvidenceError(path, f"is a {kind} and no run", remedy.get(kind, "give the path of a run folder"))
    if kind != "run":
        raise EvidenceError(
            path, f"is no run folder: it has no {MANIFEST}, {PLAN} or {WORKERS}/", "give the path of a run folder"
        )
    reader = _Reader(path)
    manifest = reader.document(MANIFEST, Manifest)
    plan_sha256, plan = reader.plan()
    started: list[Located[Started]] = []
    ended: list[Located[Request]] = []
    health: dict[int, tuple[Health, ...]] = {}
    notices = reader.lines(NOTICED, Notice)
    for worker, folder in worker_folders(path):
        base = f"{WORKERS}/{folder.name}"
        if requests:
            started += reader.lines(f"{base}/{STARTED}", Started)
            ended += reader.lines(f"{base}/{REQUESTS}", Request)
        health[worker] = tuple(one.record for one in reader.lines(f"{base}/{HEALTH}", Health))
        notices += reader.lines(f"{base}/{NOTICED}", Notice)
        if requests:
            reader.wire(f"{base}/{WIRE}/{SEGMENTS}")
    scrapes = reader.lines(SCRAPES, Scrape)
    windows = reader.lines(WINDOWS, Window)
    gpu = reader.lines(GPU, GpuSample)
    levels = reader.lines(LEVELS, Level)
    workers = reader.lines(WORKER_EVENTS, WorkerEvent)
    clocks = reader.lines(CLOCKS, WorkerClock)
    kept, unreadable = read_kept(path)
    reader.problems += unreadable
    seal = reader.document(SEAL, Seal)
    return Contents(
        path=path,
        manifest=manifest,
        plan_sha256=plan_sha256,
        plan=tuple(plan),
        started=tuple(started),
        requests=tuple(ended),
        scrapes=tuple(scrapes),
        windows=tuple(windows),
        gpu=tuple(gpu),
        levels=tuple(levels),
        workers=tuple(workers),
        clocks=tuple(clocks),
        kept=kept,
        health=health,
        notices=tuple(one.record for one in notices),
        seal=seal,
        wire=reader.wire_files,
        torn=reader.torn,
        problems=tuple(reader.problems),
    )


def what_is_there(contents: Contents) -> str:
    """The readable part in words, for messages."""
    return (
        f"{len(contents.plan)} plan lines, {len(contents.started)} started and {len(contents.requests)} ended "
        f"requests, {len(contents.scrapes)} scrapes"
    )


class _Reader:
    """Collects torn tails and problems while the files of one folder are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: dict[str, int] = {}
        self.wire_files: dict[str, frames.Index] = {}
        self.problems: list[Problem] = []

    def read(self, name: str) -> bytes | None:
        """A file's bytes, None when it is absent."""
        if is_special(self.path / name):
            return None  # a pipe in a file's place would never end; the seal tells that the file is gone
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(name, error) from error

    def document(self, name: str, schema: type[R]) -> R | None:
        data = self.read(name)
        if data is None:
            if name == MANIFEST:
                self.problems.append(Problem("manifest_missing", "it is not there", name))
            return None
        found = decode_one(data, schema, name)
        if not isinstance(found, Problem):
            return found
        unreadable: ProblemCode = "manifest_unreadable" if name == MANIFEST else "seal_unreadable"
        self.problems.append(found if found.code == "unknown_schema_version" else found._replace(code=unreadable))
        return None

    def lines(self, name: str, schema: type[R]) -> list[Located[R]]:
        records, problems = decode(self._whole(name), schema, name)
        self.problems += problems
        return records

    def plan(self) -> tuple[str | None, list[PlanLine]]:
        """The digest of the plan's bytes, and its lines; names of fields are kept once for all lines."""
        digest, found = hashlib.sha256(), []
        if not self._there(PLAN):
            self.problems.append(Problem("plan_missing", "it is not there", PLAN))
            return None, []
        for number, line in enumerate(self._whole(PLAN, digest), start=1):
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:
                self.problems.append(Problem("schema_violation", f"plan line: no JSON: {error}", PLAN, number))
                continue
            if not isinstance(fields, dict) or not isinstance(fields.get("plan_id"), str):
                self.problems.append(Problem("schema_violation", "plan line: it has no plan_id", PLAN, number))
            else:
                shared = {sys.intern(name): value for name, value in fields.items()}
                found.append(PlanLine(number, fields["plan_id"], shared))
        return digest.hexdigest(), found

    def wire(self, name: str) -> None:
        """Where the frames of a wire file lie; its bytes are not kept."""
        if not self._there(name):
            return
        try:
            with (self.path / name).open("rb") as opened:
                start = opened.read(len(frames.MAGIC))
                if start == frames.MAGIC:
                    found = frames.index(opened)
                    self.wire_files[name] = found
                    if found.n_torn:
                        self.torn[name] = found.n_torn
                elif frames.MAGIC.startswith(start):
                    self.torn |= {name: len(start)} if start else {}
                else:
                    what = f"it begins with {start!r}, not {frames.MAGIC!r}"
                    self.problems.append(Problem("schema_violation", what, name))
        except OSError as error:
            raise self._unreadable(name, error) from error

    def _there(self, name: str) -> bool:
        return (self.path / name).exists() and not is_special(self.path / name)

    def _whole(self, name: str, digest: "hashlib._Hash | None" = None) -> Iterator[bytes]:
        """The whole lines of a file one after another, without their ends; none where it is absent.

        ``digest`` takes in every byte, those after the last whole line too.
        """
        if not self._there(name):
            return
        try:
            with (self.path / name).open("rb", buffering=_BLOCK_BYTES) as opened:
                for line in opened:
                    if digest is not None:
                        digest.update(line)
                    if line.endswith(b"\n"):
                        yield line[:-1]
                    else:
                        self.torn[name] = len(line)
        except OSError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: OSError) -> EvidenceError:
        return EvidenceError(self.path / name, f"cannot be read ({error.strerror})", "check its permissions")
