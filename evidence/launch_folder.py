"""The folder of a launch: ``launch.json`` rewritten whole at each stage, the engine's log, the seal when it has ended.

launch.json   the record (``records.Launch``), never half-written: a reader sees the last stage or the one before
engine.log    standard output and error of the engine, written by the engine itself
writer.json   the launcher's process, which also holds the lock on the folder
seal.json     hashes of these; its request counts are all 0
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from evidence.durable import cannot_write, is_special, write_whole
from evidence.errors import EvidenceError, Problem, ProblemCode
from evidence.layout import ENGINE_LOG, LAUNCH, NOTICED, SEAL, is_plain_name
from evidence.lines import decode_one, encode, first_fault
from evidence.notices import NoticeBook
from evidence.processes import FolderLock, began_by, living_writer, process_lives
from evidence.records import Launch, Record, Seal
from evidence.redact import KnownSecrets, redact_argv, redact_json, redact_shell, redact_text
from evidence.sealing import NO_REQUESTS, close_folder

R = TypeVar("R", bound=Record)
_REDACTED_FIELDS = ("arm", "resolved", "model", "draft", "speculation_proof", "memory", "diagnostics")
_LOG_BLOCK_BYTES = 1 << 20


class LaunchWriter:
    """Writes one launch folder. Every method raises EvidenceError where the system refuses."""

    def __init__(self, path: Path, launch_id: str, lock: FolderLock, secrets: KnownSecrets) -> None:
        self.path = path
        self._launch_id = launch_id
        self._lock = lock
        self._secrets = secrets
        self._notices = NoticeBook(path / NOTICED, secrets)
        self._last: Launch | None = None
        self._closed = False

    @classmethod
    def create(cls, launches_dir: Path, launch: Launch, *, secrets: Iterable[str] = ()) -> "LaunchWriter":
        """Make ``launches_dir/launch_id`` with its first ``launch.json`` and an empty log.

        ``secrets`` are keys given to the engine; they reach neither record nor sealed log.
        """
        path = launches_dir / launch.launch_id
        if not is_plain_name(launch.launch_id):
            what = f"launch id {launch.launch_id!r} is no plain name"
            raise EvidenceError(path, what, "make it with evidence.layout.new_id", writing=True)
        try:
            launches_dir.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except OSError as error:
            raise cannot_write(path, error) from error
        writer = cls(path, launch.launch_id, FolderLock(path), KnownSecrets(secrets))
        try:
            writer.update(launch)
            writer._lock.record()
            writer.log_path.touch()
        except OSError as error:
            writer.close()
            raise cannot_write(path, error) from error
        except EvidenceError:
            writer.close()
            raise
        return writer

    @property
    def log_path(self) -> Path:
        """Where the engine's standard output and error go; open it for appending."""
        return self.path / ENGINE_LOG

    def update(self, launch: Launch) -> None:
        """Put the record as it now stands in place of the one before, at once and whole."""
        self._refuse_closed()
        if launch.launch_id != self._launch_id:
            what = f"a record of launch {launch.launch_id!r}"
            raise EvidenceError(self.path, what, f"give it the id {self._launch_id!r}", writing=True)
        clean = _redacted(launch, self.path)
        write_whole(self.path / LAUNCH, encode(clean, self.path / LAUNCH, self._secrets).line, replace=True)
        self._last = clean

    def notice(self, text: str) -> None:
        """Note something for the seal."""
        self._notices.add(text)

    def seal(self, *, now_unix_s: float | None = None) -> Seal:
        """Close the folder. The record must say when the engine ended; secrets in the log are overwritten in place."""
        self._refuse_closed()
        if self._last is None or self._last.ended_at_unix_s is None:
            remedy = "update the record with ended_at_unix_s and outcome first"
            raise EvidenceError(self.path, "the engine has not ended", remedy, writing=True)
        try:
            if _mask_file(self.log_path, self._secrets):
                self.notice(f"{ENGINE_LOG}: a secret was overwritten with asterisks")
            self._notices.close()
            return close_folder(
                self.path,
                folder_id=self._launch_id,
                counts=NO_REQUESTS,
                torn={},
                noticed=self._notices.texts,
                recovered=False,
                now_unix_s=now_unix_s,
            )
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the folder without a seal. Doing so twice is harmless."""
        self._closed = True
        try:
            self._notices.close()
        finally:
            self._lock.release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EvidenceError(self.path, "is closed: nothing may be added to it", "start a new launch", writing=True)


@dataclass(frozen=True, kw_only=True)
class LaunchFolder:
    """A launch as read. ``seal`` is None while it runs, and after its launcher was killed."""

    path: Path
    launch: Launch
    log_path: Path
    seal: Seal | None
    problems: tuple[Problem, ...]


def open_launch(path: Path) -> LaunchFolder:
    """Read a launch folder. Raises EvidenceError where its record is absent or cannot be read."""
    launch, seal, problems = read_launch(path)
    if launch is None:
        raise EvidenceError(path / LAUNCH, problems[0].detail, "give the path of a launch folder, or launch again")
    return LaunchFolder(path=path, launch=launch, log_path=path / ENGINE_LOG, seal=seal, problems=tuple(problems))


def read_launch(path: Path) -> tuple[Launch | None, Seal | None, list[Problem]]:
    """What can be read of a launch folder; an absent seal is no problem here, everything unreadable is."""
    problems: list[Problem] = []
    return _document(path, LAUNCH, Launch, problems), _document(path, SEAL, Seal, problems), problems


def live_launch(dirs: Sequence[Path], url: str, arm: str | None = None) -> Path | None:
    """The launch that serves ``url`` now: unsealed, its record names this URL (and arm), its engine's process lives.

    Where several match, the one started last. None when there is none; folders that cannot be read are passed over.
    """
    found: list[tuple[float, Path]] = []
    for path in (child for folder in dirs if folder.is_dir() for child in sorted(folder.iterdir())):
        if not (path / LAUNCH).is_file() or (path / SEAL).exists():
            continue
        launch, _, _ = read_launch(path)
        if launch is None or launch.pid is None or launch.url is None or launch.ended_at_unix_s is not None:
            continue
        named = launch.arm.get("name") if isinstance(launch.arm, dict) else launch.arm
        if _same_server(launch.url, url) and arm in (None, named) and _engine_lives(path, launch.pid, launch):
            found.append((launch.started_at_unix_s, path))
    return max(found)[1] if found else None


def _engine_lives(path: Path, pid: int, launch: Launch) -> bool:
    """While the launcher lives it knows; afterwards the process must have begun before the engine was ready."""
    if living_writer(path) is not None:
        return process_lives(pid)
    return began_by(pid, launch.ready_at_unix_s or launch.started_at_unix_s)


def _same_server(one: str, other: str) -> bool:
    """The same scheme, host, port and path prefix; localhost is 127.0.0.1 and a final slash says nothing."""
    parts = []
    for url in (one, other):
        split = urlsplit(url)
        host = "127.0.0.1" if split.hostname == "localhost" else split.hostname
        port = split.port or {"http": 80, "https": 443}.get(split.scheme)
        parts.append((split.scheme, host, port, split.path.rstrip("/")))
    return parts[0] == parts[1]


def _document(path: Path, name: str, schema: type[R], problems: list[Problem]) -> R | None:
    try:
        if is_special(path / name):
            raise FileNotFoundError(name)
        data = (path / name).read_bytes()
    except FileNotFoundError:
        if name == LAUNCH:
            problems.append(Problem("manifest_missing", "it is not there", name))
        return None
    except OSError as error:
        raise EvidenceError(path / name, f"cannot be read ({error.strerror})", "check its permissions") from error
    found = decode_one(data, schema, name)
    if not isinstance(found, Problem):
        return found
    unreadable: ProblemCode = "manifest_unreadable" if name == LAUNCH else "seal_unreadable"
    problems.append(found if found.code == "unknown_schema_version" else found._replace(code=unreadable))
    return None


def _redacted(launch: Launch, path: Path) -> Launch:
    """The record without secrets, whatever its maker left in."""
    fields = launch.model_dump(warnings=False)
    fields |= {name: redact_json(fields.get(name)) for name in _REDACTED_FIELDS}
    try:
        fields |= {
            "command": redact_argv(launch.command),
            "reproduce": redact_shell(launch.reproduce),
            "url": None if launch.url is None else redact_text(launch.url),
            "symptom": None if launch.symptom is None else redact_text(launch.symptom),
        }
        return Launch.model_validate(fields)
    except (ValidationError, TypeError, AttributeError) as error:
        what = f"does not meet its schema: {first_fault(error)}"
        remedy = "make it through its constructor with the types its schema names"
        raise EvidenceError(path / LAUNCH, what, remedy, writing=True) from error


def _mask_file(path: Path, secrets: KnownSecrets) -> bool:
    """Overwrite known secrets in a file in place, also those across block borders; True when there were any."""
    changed, overlap = False, secrets.longest_bytes
    if overlap == 0:
        return False
    try:
        with path.open("r+b") as file:
            at = 0
            while data := os.pread(file.fileno(), _LOG_BLOCK_BYTES + overlap, at):
                masked = secrets.mask(data)
                if masked != data:
                    changed = True
                    file.seek(at)
                    file.write(masked)
                    file.flush()
                if len(data) < _LOG_BLOCK_BYTES + overlap:
                    break
                at += _LOG_BLOCK_BYTES
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    return changed
