"""Workers whose lines are not in the run folder: what the master knows and seals of them instead.

``workers/<n>/kept.json`` has the counts and the digest of every file. The lines may be brought into the folder later,
even after the seal: they are the sealed ones exactly where they have the sealed digests.
"""

from pathlib import Path

from evidence.durable import sha256_file
from evidence.errors import EvidenceError, Problem
from evidence.layout import KEPT, STARTED, WORKERS, worker_folders
from evidence.lines import decode_one
from evidence.worker_records import Kept


def read_kept(path: Path) -> tuple[dict[int, Kept], list[Problem]]:
    """By worker, for those that have a ``kept.json``; what of them cannot be read is a problem."""
    kept, problems = {}, []
    for worker, folder in worker_folders(path):
        name = f"{WORKERS}/{folder.name}/{KEPT}"
        try:
            found = decode_one((path / name).read_bytes(), Kept, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise EvidenceError(path / name, f"cannot be read ({error.strerror})", "check its permissions") from error
        if isinstance(found, Problem):
            problems.append(found)
        elif found.worker != worker:
            problems.append(Problem("wrong_worker", f"it is of worker {found.worker}", name))
        else:
            kept[worker] = found
    return kept, problems


def elsewhere(path: Path, kept: dict[int, Kept]) -> dict[int, Kept]:
    """Those of ``kept`` whose lines have not been brought here."""
    return {n: one for n, one in kept.items() if not (path / WORKERS / str(n) / STARTED).exists()}


def sealed_elsewhere(kept: dict[int, Kept]) -> dict[str, str]:
    """SHA-256 by file of everything that may be brought into the folder without being named in its seal."""
    return {
        f"{WORKERS}/{worker}/{name}": total.sha256
        for worker, one in kept.items()
        for name, total in one.totals.files.items()
    }


def differing(folder: Path, kept: Kept) -> list[str]:
    """Files of a worker's folder that are not those whose digests were kept, in words. Raises OSError."""
    found = []
    for name, total in kept.totals.files.items():
        if not (folder / name).is_file():
            found.append(f"{name} is not there")
        elif (digest := sha256_file(folder / name)) != total.sha256:
            found.append(f"{name} has the digest {digest}, and {total.sha256} was sealed")
    return found
