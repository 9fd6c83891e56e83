"""Reading a run folder, sealed or not. A killed run reads too: every whole record of it (see evidence/contents.py)."""

import re
from dataclasses import dataclass
from pathlib import Path

from evidence import frames
from evidence.contents import Contents, read_contents, what_is_there
from evidence.durable import is_special
from evidence.errors import EvidenceError, Problem
from evidence.gpu_records import GpuSample
from evidence.layout import MANIFEST, SEGMENTS, SERVER, WIRE, WORKERS
from evidence.level_records import Level
from evidence.records import Health, Json, Manifest, Notice, Request, Scrape, Seal, Started, WireRef
from evidence.window_records import Window
from evidence.worker_records import Kept, WorkerClock, WorkerEvent

_WIRE_FILE = re.compile(rf"{WORKERS}/(0|[1-9][0-9]*)/{WIRE}/{re.escape(SEGMENTS)}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as read. ``seal`` is None when the folder was never closed: not a result, but readable.

    ``problems`` are lines and files that do not meet their schema; ``evidence.verify.verify`` finds everything else.
    """

    path: Path
    manifest: Manifest
    plan: tuple[dict[str, Json], ...]
    started: tuple[Started, ...]  # by worker, then in the order written
    requests: tuple[Request, ...]
    places: tuple[tuple[str, int], ...]  # file and line of each of ``requests``
    scrapes: tuple[Scrape, ...]
    windows: tuple[Window, ...]
    gpu: tuple[GpuSample, ...]
    levels: tuple[Level, ...]  # in the order they ran
    workers: tuple[WorkerEvent, ...]  # () where one process did everything
    clocks: tuple[WorkerClock, ...]  # each worker's clocks against the master's
    kept: dict[int, Kept]  # by worker; its lines were sealed by digest, and may be here or elsewhere
    health: dict[int, tuple[Health, ...]]  # by worker
    notices: tuple[Notice, ...]
    server: dict[str, Path]  # raw bodies by name
    seal: Seal | None
    torn: dict[str, int]
    problems: tuple[Problem, ...]


def open_run(path: Path) -> Run:
    """Read a run folder. Raises EvidenceError where it is no run folder or its manifest cannot be read."""
    return run_of(read_contents(path))


def run_of(contents: Contents) -> Run:
    """The run of a folder whose contents were read. Raises EvidenceError where its manifest cannot be read."""
    path = contents.path
    if contents.manifest is None:
        why = next(problem for problem in contents.problems if problem.file == MANIFEST)
        what = f"the manifest cannot be read ({why.detail}); the folder holds {what_is_there(contents)}"
        remedy = "close it with `python -m analysis recover` to keep what is there, and measure again"
        if why.code == "unknown_schema_version":
            remedy = "read it with the version of this program that wrote it"
        raise EvidenceError(path / MANIFEST, what, remedy)
    return Run(
        path=path,
        manifest=contents.manifest,
        plan=tuple(line.fields for line in contents.plan),
        started=tuple(one.record for one in contents.started),
        requests=tuple(one.record for one in contents.requests),
        places=tuple((one.file, one.line) for one in contents.requests),
        scrapes=tuple(one.record for one in contents.scrapes),
        windows=tuple(one.record for one in contents.windows),
        gpu=tuple(one.record for one in contents.gpu),
        levels=tuple(one.record for one in contents.levels),
        workers=tuple(one.record for one in contents.workers),
        clocks=tuple(one.record for one in contents.clocks),
        kept=contents.kept,
        health=contents.health,
        notices=contents.notices,
        server={file.name: file for file in sorted((path / SERVER).glob("*")) if file.is_file()},
        seal=contents.seal,
        torn=contents.torn,
        problems=contents.problems,
    )


def read_segments(run: Run, ref: WireRef) -> list[frames.SegmentTuple]:
    """The raw segments of a request: (kernel_unix_ns or None, user_monotonic_ns, data) in the order received.

    Raises EvidenceError where the reference points outside the file or at anything but its number of whole frames.
    """
    found = find_frames(run.path, ref)
    if isinstance(found, Problem):
        raise EvidenceError(run.path / ref.file, found.detail, "check the folder with `python -m analysis check`")
    return [frame.segment for frame in found]


def find_frames(path: Path, ref: WireRef) -> list[frames.Frame] | Problem:
    """As ``read_segments``, with the sequence each frame carries; a reference that is wrong gives the problem."""
    if not _WIRE_FILE.fullmatch(ref.file):
        return Problem("wire_out_of_range", f"{ref.file!r} is no wire file of a run", ref.file)
    if is_special(path / ref.file):
        return Problem("wire_out_of_range", f"{ref.file} is no regular file", ref.file)
    try:
        with (path / ref.file).open("rb") as opened:
            opened.seek(ref.offset)
            data = opened.read(ref.n_bytes)
    except OSError as error:
        return Problem("wire_out_of_range", f"{ref.file} cannot be read ({error.strerror})", ref.file)
    span = f"bytes {ref.offset} to {ref.offset + ref.n_bytes} of {ref.file}"
    if ref.offset < len(frames.MAGIC) or len(data) < ref.n_bytes:
        return Problem("wire_out_of_range", f"{span} are not all there", ref.file)
    found = list(frames.decode(data))
    if len(found) != ref.n_segments or sum(frame.n_bytes for frame in found) != ref.n_bytes:
        return Problem("wire_frames_mismatch", f"{span} hold {len(found)} whole frames, not {ref.n_segments}", ref.file)
    return found
