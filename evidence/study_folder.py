"""The folder of a study: ``study.json``, its ``launches/`` and ``runs/``, and the seal when every cell has its end.

Launch and run folders inside are evidence of their own, each with its seal; the study's seal hashes ``study.json`` and
their seals, so that a study is checked as a whole without reading every byte twice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from evidence.durable import cannot_write, is_special, sha256_file, write_whole
from evidence.errors import EvidenceError, Problem
from evidence.layout import SEAL, STUDY, is_plain_name
from evidence.lines import decode_one, encode
from evidence.processes import FolderLock, living_writer
from evidence.records import Record, Seal
from evidence.sealing import refuse_sealed
from evidence.study_records import Study

R = TypeVar("R", bound=Record)
LAUNCHES = "launches"
RUNS = "runs"


class StudyWriter:
    """Holds the study's folder while it is being run. Every method raises EvidenceError where the system refuses."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, root: Path, study: Study) -> "StudyWriter":
        """Make ``root/study_id`` with its first ``study.json``."""
        path = root / study.study_id
        if not is_plain_name(study.study_id):
            what = f"study id {study.study_id!r} is no plain name"
            raise EvidenceError(path, what, "make it with evidence.layout.new_id", writing=True)
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            (path / LAUNCHES).mkdir()
            (path / RUNS).mkdir()
        except OSError as error:
            raise cannot_write(path, error) from error
        writer = cls(path, FolderLock(path))
        writer.update(study)
        return writer

    @classmethod
    def resume(cls, path: Path) -> "StudyWriter":
        """Take a study up again. Raises EvidenceError where it is sealed, or another process is running it."""
        refuse_sealed(path)
        if (who := living_writer(path)) is not None:
            raise EvidenceError(path, f"is being run by {who}", "wait for its end, or stop it", writing=True)
        return cls(path, FolderLock(path))

    @property
    def launches(self) -> Path:
        return self.path / LAUNCHES

    @property
    def runs(self) -> Path:
        return self.path / RUNS

    def update(self, study: Study) -> None:
        """Replace ``study.json``; a reader sees this state or the one before, never a half."""
        write_whole(self.path / STUDY, encode(study, self.path / STUDY).line, replace=True)

    def seal(self, study: Study, now_unix_s: float, *, recovered: bool = False) -> Seal:
        """Close the study: hashes of ``study.json`` and of the seals inside."""
        self.update(study)
        names = [STUDY, *sorted(str(p.relative_to(self.path)) for p in self.path.glob(f"*/*/{SEAL}"))]
        try:
            files = {name: sha256_file(self.path / name, sync=True) for name in names}
        except OSError as error:
            raise cannot_write(self.path / SEAL, error) from error
        seal = Seal(
            id=study.study_id,
            sealed_at_unix_s=now_unix_s,
            recovered=recovered,
            planned=0,
            started=0,
            completed=0,
            failed={},
            cancelled=0,
            unfinished=0,
            files=files,
            torn={},
            noticed=study.noticed,
        )
        write_whole(self.path / SEAL, encode(seal, self.path / SEAL).line)
        self.close()
        return seal

    def close(self) -> None:
        """Let go of the folder without sealing it: it can be resumed."""
        self._lock.release()


@dataclass(frozen=True, kw_only=True)
class StudyFolder:
    """A study as read. ``seal`` is None while it can still be resumed; ``problems`` are hashes that differ."""

    path: Path
    study: Study
    seal: Seal | None
    problems: tuple[Problem, ...]


def open_study(path: Path) -> StudyFolder:
    """Read a study's folder. Raises EvidenceError where it is none or cannot be read."""
    study = _document(path, STUDY, Study)
    if study is None:
        raise EvidenceError(path, f"has no {STUDY}", "name the folder of a study, runs/study-...")
    seal = _document(path, SEAL, Seal)
    problems: list[Problem] = []
    for name, expected in (seal.files if seal else {}).items():
        try:
            found = sha256_file(path / name)
        except (OSError, EvidenceError):
            problems.append(Problem("file_missing", "it is gone, or cannot be read", name))
            continue
        if found != expected:
            problems.append(Problem("hash_mismatch", "it was changed after the study was sealed", name))
    return StudyFolder(path=path, study=study, seal=seal, problems=tuple(problems))


def _document(path: Path, name: str, schema: type[R]) -> R | None:
    try:
        if is_special(path / name):
            raise FileNotFoundError(name)
        data = (path / name).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvidenceError(path / name, f"cannot be read ({error.strerror})", "check its permissions") from error
    found = decode_one(data, schema, name)
    if isinstance(found, Problem):
        raise EvidenceError(path / name, found.detail, "restore it from a copy; it was not written by this version")
    return found
