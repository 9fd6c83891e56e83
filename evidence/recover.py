"""Closing a folder whose writer did not live to seal it, as what it is.

Nothing is repaired and nothing is thrown away: half-written tails stay where they are, measured in the seal; requests
without an end are counted as unfinished; the seal says ``recovered``.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from evidence.checks import check_contents, summarised
from evidence.contents import Contents, read_contents, what_is_there
from evidence.counts import count
from evidence.durable import cannot_write
from evidence.errors import EvidenceError, Problem
from evidence.launch_folder import read_launch
from evidence.layout import LAUNCH, MANIFEST, SEAL, STUDY, folder_kind
from evidence.lines import decode_one
from evidence.processes import FolderLock, began_by, living_writer
from evidence.records import Seal
from evidence.sealing import NO_REQUESTS, close_folder
from evidence.study_folder import LAUNCHES, RUNS, StudyWriter, open_study
from evidence.study_records import Cell
from evidence.unread import unread

_DAMAGED = ".damaged"
ENDED = "what ran the study ended"  # begins the symptom of a cell that was lost with it


def recover(path: Path, *, now_unix_s: float | None = None, noticed: Iterable[str] = ()) -> Seal:
    """Seal a run, launch or study folder that has no readable seal, and return the seal.

    Of a study, the folders inside that have no seal are closed first; the cell that ran counts as failed, those still
    to come as dropped, and what was measured stands. A seal that is there and cannot be read is kept as
    ``seal.json.damaged``; ``noticed`` stands first in a run's new one. Raises EvidenceError where the folder is sealed,
    where its writer (of a launch: the engine too) still lives, where it is no such folder, and where it cannot be
    written.
    """
    kind = folder_kind(path)
    if kind == "study":
        return _recover_study(path, now_unix_s, noticed)
    if kind not in ("run", "launch"):
        there = ", ".join(sorted(child.name for child in path.iterdir())[:8]) if path.is_dir() else "no folder"
        what = f"holds nothing to recover: neither {MANIFEST}, {LAUNCH} nor {STUDY}, but {there or 'nothing at all'}"
        raise EvidenceError(path, what, "give the path of a run, launch or study folder, or delete this one")
    living = living_writer(path)
    if living is not None:
        raise EvidenceError(
            path, f"is still being written by {living}", "stop that process first (SIGTERM lets it seal)"
        )
    lock = FolderLock(path)
    try:
        if not lock.alone():
            raise EvidenceError(path, "is being closed by another process", "wait for it")
        return _recover_run(path, now_unix_s, noticed) if kind == "run" else _recover_launch(path, now_unix_s)
    finally:
        lock.release()


def _recover_run(path: Path, now_unix_s: float | None, also: Iterable[str]) -> Seal:
    contents = read_contents(path)
    _refuse_sealed(path, contents.seal, contents.problems)
    manifest = contents.manifest
    noticed = [*also, f"recovered with {what_is_there(contents)}", *(one.text for one in contents.notices)]
    noticed += _left_unread(contents)
    noticed += summarised(problem for problem in check_contents(contents) if problem.code != "seal_missing")
    ids = [one.record.run_id for one in contents.started] + [one.record.run_id for one in contents.requests]
    return close_folder(
        path,
        folder_id=manifest.run_id if manifest is not None else (ids[0] if ids else path.resolve().name),
        counts=count(contents),
        torn=contents.torn,
        noticed=[*noticed, *_set_aside(path)],
        recovered=True,
        now_unix_s=now_unix_s,
    )


def _left_unread(contents: Contents) -> Iterator[str]:
    """Requests that count as unfinished and whose bytes are here all the same, whatever came of them."""
    ended = {(one.record.worker, one.record.sequence) for one in contents.requests}
    unfinished = [one.record for one in contents.started if (one.record.worker, one.record.sequence) not in ended]
    found = unread(contents.path, unfinished)
    if found:
        n_bytes = sum(ref.n_bytes for ref in found.values())
        yield (
            f"{len(found)} of {len(unfinished)} unfinished requests left raw segments, {n_bytes} bytes that nobody "
            "had read; `python -m analysis check` says what they hold"
        )


def _recover_launch(path: Path, now_unix_s: float | None) -> Seal:
    launch, seal, problems = read_launch(path)
    _refuse_sealed(path, seal, problems)
    noticed = [str(problem) for problem in problems]
    if launch is None:
        noticed.append(f"{LAUNCH} cannot be read; what else is there was closed")
    elif launch.ended_at_unix_s is None:
        if launch.pid is not None and began_by(launch.pid, launch.ready_at_unix_s or launch.started_at_unix_s):
            what = f"its engine, process {launch.pid}, still runs"
            raise EvidenceError(path, what, "stop the engine first")
        noticed.append(f"the launcher ended at stage {launch.stage!r} without saying how the engine ended")
    return close_folder(
        path,
        folder_id=path.resolve().name if launch is None else launch.launch_id,
        counts=NO_REQUESTS,
        torn={},
        noticed=[*noticed, *_set_aside(path)],
        recovered=True,
        now_unix_s=now_unix_s,
    )


def _recover_study(path: Path, now_unix_s: float | None, also: Iterable[str]) -> Seal:
    if (who := living_writer(path)) is not None:
        raise EvidenceError(path, f"is being run by {who}", "wait for its end, or stop it")
    aside = () if _has_seal(path) else tuple(_set_aside(path))
    _refuse_sealed(path, open_study(path).seal, ())
    writer = StudyWriter.resume(path)
    try:
        study = open_study(path).study
        inside = sorted(child for room in (LAUNCHES, RUNS) for child in (path / room).glob("*/"))
        left_open = [child for child in inside if child.is_symlink() or not _has_seal(child)]
        ours = [child for child in left_open if not child.is_symlink()]
        closed = [child for child in ours if folder_kind(child) in ("run", "launch")]
        for child in closed:
            recover(child, now_unix_s=now_unix_s)
        cells = tuple(_ended(cell) for cell in study.cells)
        n_lost = sum(new != old for new, old in zip(cells, study.cells, strict=True))
        noticed = [*study.noticed, *also, *aside]
        noticed.append(f"recovered: what ran the study did not live to its end; {n_lost} of {len(cells)} cells lost")
        for said, children in (
            ("recovered inside", closed),
            ("left as found, neither a run nor a launch", [child for child in left_open if child not in closed]),
        ):
            noticed += [f"{said}: {', '.join(child.name for child in children)}"] if children else []
        now_unix_s = time.time() if now_unix_s is None else now_unix_s
        whole = study.model_copy(update={"cells": cells, "noticed": tuple(noticed)})
        return writer.seal(whole, now_unix_s, recovered=True)
    finally:
        writer.close()


def _has_seal(path: Path) -> bool:
    """Whether a seal is there and can be read, if only by another version of this program."""
    try:
        found = decode_one((path / SEAL).read_bytes(), Seal, SEAL)
    except OSError:
        return False
    return not isinstance(found, Problem) or found.code == "unknown_schema_version"


def _ended(cell: Cell) -> Cell:
    """A cell as it stands once nobody will go on with its study."""
    match cell.state:
        case "running":
            return cell.model_copy(update={"state": "failed", "symptom": f"{ENDED} during this cell"})
        case "planned":
            return cell.model_copy(update={"state": "dropped", "symptom": f"{ENDED} before this cell"})
    return cell


def _refuse_sealed(path: Path, seal: Seal | None, problems: Iterable[Problem]) -> None:
    """Also a folder of another schema version: what cannot be read here is not lost and must not be counted so."""
    for problem in problems:
        if problem.code == "unknown_schema_version":
            remedy = "recover it with the version of this program that wrote it"
            raise EvidenceError(path / problem.file, problem.detail, remedy, line=problem.line)
    if seal is not None:
        how = "it was recovered before" if seal.recovered else "its writer closed it"
        raise EvidenceError(path, f"is sealed already, {how}", "check it with `python -m analysis check`")


def _set_aside(path: Path) -> Iterable[str]:
    """Keep an unreadable seal under another name, where the new one counts it among the files."""
    if not (path / SEAL).exists():
        return ()
    name = SEAL + _DAMAGED
    while (path / name).exists():
        name += _DAMAGED
    try:
        (path / SEAL).rename(path / name)
    except OSError as error:
        raise cannot_write(path / SEAL, error) from error
    return (f"a seal that could not be read was kept as {name}",)
