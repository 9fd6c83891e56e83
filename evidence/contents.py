"""Everything that can be read from a run folder, whatever has happened to it.

A folder whose writer was killed at any byte reads as far as its files go. Half-written tails are measured (``torn``)
and left alone; lines that meet no schema become ``problems`` and are not among the records. Nothing here writes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from evidence import frames
from evidence.durable import is_special
from evidence.errors import EvidenceError, Problem, ProblemCode
from evidence.gpu_records import GpuSample
from evidence.layout import (
    GPU,
    HEALTH,
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
    WORKERS,
    folder_kind,
    worker_folders,
)
from evidence.lines import Located, decode, decode_one, whole_lines
from evidence.records import Health, Json, Manifest, Notice, Record, Request, Scrape, Seal, Started
from evidence.window_records import Window

R = TypeVar("R", bound=Record)


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
    plan_bytes: bytes | None
    plan: tuple[PlanLine, ...]
    started: tuple[Located[Started], ...]  # by worker, then in the order written
    requests: tuple[Located[Request], ...]
    scrapes: tuple[Located[Scrape], ...]
    windows: tuple[Located[Window], ...]
    gpu: tuple[Located[GpuSample], ...]
    health: dict[int, tuple[Health, ...]]
    notices: tuple[Notice, ...]
    seal: Seal | None
    torn: dict[str, int]
    problems: tuple[Problem, ...]


def read_contents(path: Path) -> Contents:
    """Everything readable of a run folder. Raises EvidenceError where it is none or a file cannot be opened."""
    if not path.is_dir():
        raise EvidenceError(path, "is no folder", "give the path of a run folder, such as runs/run-...")
    if folder_kind(path) != "run":
        raise EvidenceError(
            path, f"is no run folder: it has no {MANIFEST}, {PLAN} or {WORKERS}/", "give the path of a run folder"
        )
    reader = _Reader(path)
    manifest = reader.document(MANIFEST, Manifest)
    plan_bytes = reader.read(PLAN)
    plan = reader.plan(plan_bytes)
    started: list[Located[Started]] = []
    requests: list[Located[Request]] = []
    health: dict[int, tuple[Health, ...]] = {}
    notices = reader.lines(NOTICED, Notice)
    for worker, folder in worker_folders(path):
        base = f"{WORKERS}/{folder.name}"
        started += reader.lines(f"{base}/{STARTED}", Started)
        requests += reader.lines(f"{base}/{REQUESTS}", Request)
        health[worker] = tuple(one.record for one in reader.lines(f"{base}/{HEALTH}", Health))
        notices += reader.lines(f"{base}/{NOTICED}", Notice)
        reader.wire(f"{base}/{WIRE}/{SEGMENTS}")
    scrapes = reader.lines(SCRAPES, Scrape)
    windows = reader.lines(WINDOWS, Window)
    gpu = reader.lines(GPU, GpuSample)
    seal = reader.document(SEAL, Seal)
    return Contents(
        path=path,
        manifest=manifest,
        plan_bytes=plan_bytes,
        plan=tuple(plan),
        started=tuple(started),
        requests=tuple(requests),
        scrapes=tuple(scrapes),
        windows=tuple(windows),
        gpu=tuple(gpu),
        health=health,
        notices=tuple(one.record for one in notices),
        seal=seal,
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
            what = f"cannot be read ({error.strerror})"
            raise EvidenceError(self.path / name, what, "check its permissions") from error

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
        data = self.read(name)
        if data is None:
            return []
        records, problems = decode(self._whole(name, data), schema, name)
        self.problems += problems
        return records

    def plan(self, data: bytes | None) -> list[PlanLine]:
        if data is None:
            self.problems.append(Problem("plan_missing", "it is not there", PLAN))
            return []
        found = []
        for number, line in enumerate(self._whole(PLAN, data), start=1):
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:
                self.problems.append(Problem("schema_violation", f"plan line: no JSON: {error}", PLAN, number))
                continue
            if not isinstance(fields, dict) or not isinstance(fields.get("plan_id"), str):
                self.problems.append(Problem("schema_violation", "plan line: it has no plan_id", PLAN, number))
            else:
                found.append(PlanLine(number, fields["plan_id"], fields))
        return found

    def wire(self, name: str) -> None:
        data = self.read(name)
        if data is None:
            return
        if not data.startswith(frames.MAGIC):
            if frames.MAGIC.startswith(data):
                self.torn |= {name: len(data)} if data else {}
            else:
                what = f"it begins with {data[:16]!r}, not {frames.MAGIC!r}"
                self.problems.append(Problem("schema_violation", what, name))
            return
        end = len(frames.MAGIC)
        for frame in frames.decode(data, end):
            end = frame.offset + frame.n_bytes
        if end < len(data):
            self.torn[name] = len(data) - end

    def _whole(self, name: str, data: bytes) -> list[bytes]:
        lines, n_torn = whole_lines(data)
        if n_torn:
            self.torn[name] = n_torn
        return lines
