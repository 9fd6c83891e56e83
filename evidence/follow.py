"""A run folder read while it is written: every whole line that was added since the last look, and nothing twice.

Looking costs the writer nothing: no lock is taken and nothing is sent. A worker's folder, a file and the seal may
appear at any time. A line that meets no schema is counted and left out; judging it is the part of ``evidence.verify``.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from evidence.errors import EvidenceError, Problem
from evidence.layout import HEALTH, MANIFEST, PLAN, REQUESTS, SEAL, STARTED, worker_folders
from evidence.lines import decode_one
from evidence.records import Health, Manifest, Record, Request, Started

R = TypeVar("R", bound=Record)
_MOST_BYTES = 8 * 1024 * 1024  # of one file in one look: catching up takes several


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """What was added. ``health`` comes with its worker's number; ``more``: a file holds more than was read."""

    started: tuple[Started, ...]
    requests: tuple[Request, ...]
    health: tuple[tuple[int, Health], ...]
    n_unreadable: int
    sealed: bool
    more: bool


@dataclass(slots=True)
class Follower:
    """Follows one run folder. ``manifest`` is there from the start, since it is the first file that is written.

    ``plan`` has (plan id, phase, level) of every planned request, ``planned`` the domains and levels that occur; both
    are () where the plan is not on file yet or cannot be read.
    """

    path: Path
    manifest: Manifest = field(init=False)
    plan: tuple[tuple[str, str, str | None], ...] = field(init=False)
    planned: tuple[tuple[str, str | None], ...] = field(init=False)
    _read_to: dict[Path, int] = field(init=False, default_factory=dict)
    _n_unreadable: int = field(init=False, default=0)
    _more: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Raises EvidenceError where the folder has no readable manifest (yet)."""
        file = self.path / MANIFEST
        try:
            found = decode_one(file.read_bytes(), Manifest, MANIFEST)
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise EvidenceError(file, what, "give the path of a run folder that has been begun") from error
        if isinstance(found, Problem):
            raise EvidenceError(file, found.detail, "read it with the version of this program that wrote it")
        self.manifest = found
        lines = _plan_lines(self.path / PLAN)
        self.plan = tuple((str(line["plan_id"]), str(line.get("phase")), line.get("level")) for line in lines)
        self.planned = tuple(dict.fromkeys((str(line["domain"]), line.get("level")) for line in lines))

    def look(self) -> News:
        """Every whole line since the last look. Raises EvidenceError where a file cannot be read."""
        self._n_unreadable, self._more = 0, False
        sealed = (self.path / SEAL).exists()  # looked for first, so that a sealed folder has been read to its end
        started: list[Started] = []
        requests: list[Request] = []
        health: list[tuple[int, Health]] = []
        for worker, folder in worker_folders(self.path):
            # Ends are read before starts: a request that ends in between is then never seen ended and not started.
            requests += self._new(folder / REQUESTS, Request)
            started += self._new(folder / STARTED, Started)
            health += [(worker, record) for record in self._new(folder / HEALTH, Health)]
        return News(
            started=tuple(started),
            requests=tuple(requests),
            health=tuple(health),
            n_unreadable=self._n_unreadable,
            sealed=sealed,
            more=self._more,
        )

    def _new(self, file: Path, schema: type[R]) -> list[R]:
        at = self._read_to.get(file, 0)
        try:
            with file.open("rb") as opened:
                opened.seek(at)
                data = opened.read(_MOST_BYTES)
                full = len(data) == _MOST_BYTES
                while full and b"\n" not in data and (block := opened.read(_MOST_BYTES)):
                    data += block  # one line of more than a block
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EvidenceError(file, f"cannot be read ({error.strerror})", "check its permissions") from error
        end = data.rfind(b"\n") + 1
        self._more = self._more or full
        self._read_to[file] = at + end
        found = [decode_one(line, schema, file.name) for line in data[:end].split(b"\n")[:-1]]
        records = [one for one in found if not isinstance(one, Problem)]
        self._n_unreadable += len(found) - len(records)
        return records


def _plan_lines(file: Path) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
    except (OSError, ValueError, RecursionError):
        return []
    return [line for line in lines if isinstance(line, dict) and "plan_id" in line and "domain" in line]
