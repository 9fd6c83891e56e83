"""What lies in a folder of runs: one entry a folder, cheap to make, without reading any lines."""

import json
from pathlib import Path
from typing import NamedTuple

from evidence.errors import EvidenceError
from evidence.layout import CALIBRATIONS, LAUNCH, MANIFEST, SEAL, STUDY, FolderKind, folder_kind
from evidence.processes import living_writer
from evidence.records import Json

_ID = {"run": (MANIFEST, "run_id"), "launch": (LAUNCH, "launch_id"), "study": (STUDY, "study_id")}


class FolderInfo(NamedTuple):
    """One folder. ``id`` is the one in its own file, else the folder's name."""

    kind: FolderKind  # "unknown" for any other folder, a run killed before its manifest among them
    path: Path
    id: str
    sealed: bool  # a readable seal is there
    recovered: bool | None  # None without a readable seal
    being_written: bool  # its writer lives


def find_folders(folder: Path) -> tuple[FolderInfo, ...]:
    """The folders directly in ``folder``, sorted by name. Raises EvidenceError where it cannot be listed."""
    try:
        found = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
        children = sorted(child for child in found if child.name != CALIBRATIONS)
    except OSError as error:
        raise EvidenceError(
            folder, f"cannot be listed ({error.strerror})", "give the path of a folder of runs"
        ) from error
    return tuple(folder_info(child) for child in children)


def find_runs(folder: Path) -> tuple[Path, ...]:
    """The run folders directly in ``folder``, sorted by name."""
    return tuple(info.path for info in find_folders(folder) if info.kind == "run")


def folder_info(path: Path) -> FolderInfo:
    """What one folder is. Nothing is verified here."""
    kind = folder_kind(path)
    file, field = _ID.get(kind, ("", ""))
    said = _field(path / file, field) if file else None
    recovered = _field(path / SEAL, "recovered")
    sealed = isinstance(recovered, bool)
    return FolderInfo(
        kind=kind,
        path=path,
        id=said if isinstance(said, str) else path.name,
        sealed=sealed,
        recovered=recovered if isinstance(recovered, bool) else None,
        being_written=not sealed and living_writer(path) is not None,
    )


def _field(path: Path, name: str) -> Json:
    """One field of a JSON file; None when the file or the field is not there or cannot be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None
