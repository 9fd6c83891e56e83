"""Ended requests of a run one at a time, in an order that only the run's id decides.

Whoever looks at a part of a large run takes the first ones: the part is drawn at random, the same at every reading, and
the rest of the run is never read as records. Only where each line begins is kept.
"""

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path

from evidence.errors import EvidenceError, Problem
from evidence.layout import REQUESTS, WORKERS, worker_folders
from evidence.lines import decode_one
from evidence.records import Request


class DrawnRequests:
    """``n`` lines of ended requests; iterating gives their records. Lines that are none are left out.

    Raises EvidenceError where a file cannot be read.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._run_id = run_id
        self._files: list[tuple[Path, array[int]]] = []
        for _, folder in worker_folders(path):
            file = path / WORKERS / folder.name / REQUESTS
            if file.is_file():
                self._files.append((file, _begins(file)))
        self.n = sum(len(begins) - 1 for _, begins in self._files)

    def __iter__(self) -> Iterator[Request]:
        places = [
            (hashlib.sha256(f"{self._run_id}:{file.parent.name}:{line}".encode()).digest(), which, line)
            for which, (file, begins) in enumerate(self._files)
            for line in range(len(begins) - 1)
        ]
        for _, which, line in sorted(places):
            file, begins = self._files[which]
            found = decode_one(_read(file, begins[line], begins[line + 1]), Request, file.name, line + 1)
            if not isinstance(found, Problem):
                yield found


def _begins(file: Path) -> "array[int]":
    """Where each whole line begins, and behind the last of them."""
    begins = array("Q", [0])
    try:
        with file.open("rb") as opened:
            for line in opened:
                if line.endswith(b"\n"):
                    begins.append(begins[-1] + len(line))
    except OSError as error:
        raise _unreadable(file, error) from error
    return begins


def _read(file: Path, begin: int, end: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(begin)
            return opened.read(end - begin)
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> EvidenceError:
    return EvidenceError(file, f"cannot be read ({error.strerror})", "check its permissions")
