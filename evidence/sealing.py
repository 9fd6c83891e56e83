"""The last file of a folder: the hash of every other file and the counts. Used by writers and by ``recover``."""

import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from evidence.counts import Counts
from evidence.durable import cannot_write, folder_files, sha256_file, write_whole
from evidence.errors import EvidenceError
from evidence.layout import SEAL
from evidence.lines import encode, first_fault
from evidence.records import Seal

NO_REQUESTS = Counts(planned=0, started=0, completed=0, failed={}, cancelled=0, unfinished=0)


def close_folder(
    path: Path,
    *,
    folder_id: str,
    counts: Counts,
    torn: dict[str, int],
    noticed: Iterable[str],
    recovered: bool,
    now_unix_s: float | None = None,
) -> Seal:
    """Bring every file to the disk, hash it, and write ``seal.json``. The folder must not be written to any more.

    Raises EvidenceError where it is sealed already or the system refuses.
    """
    try:
        files = {name: sha256_file(path / name, sync=True) for name in folder_files(path)}
        seal = Seal(
            id=folder_id,
            sealed_at_unix_s=time.time() if now_unix_s is None else now_unix_s,
            recovered=recovered,
            planned=counts.planned,
            started=counts.started,
            completed=counts.completed,
            failed=counts.failed,
            cancelled=counts.cancelled,
            unfinished=counts.unfinished,
            files=files,
            torn=torn,
            noticed=tuple(noticed),
        )
    except OSError as error:
        raise cannot_write(path / SEAL, error) from error
    except ValidationError as error:
        raise EvidenceError(
            path / SEAL, f"cannot be made: {first_fault(error)}", "remove files with undecodable names", writing=True
        ) from error
    write_whole(path / SEAL, encode(seal, path / SEAL).line)
    return seal


def refuse_sealed(path: Path) -> None:
    """Raise EvidenceError when a folder has its seal: nothing is added to evidence that is closed."""
    if (path / SEAL).exists():
        raise EvidenceError(path, "is sealed: nothing may be added to it", "start a new one", writing=True)
