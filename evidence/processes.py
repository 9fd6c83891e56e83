"""Which process writes a folder, and whether it still lives.

Every writer holds a shared lock (flock) on the folder itself, which the system drops when the process ends in any way;
several worker processes may hold it at once, and whoever wants to close the folder must get it alone. Where a file
system gives no locks, ``writer.json`` says so and the recorded process id decides, on the same host only.
"""

import fcntl
import os
import socket
import time
from pathlib import Path

from pydantic import ValidationError

from evidence.durable import cannot_write, write_whole
from evidence.errors import EvidenceError
from evidence.layout import WRITER
from evidence.records import Writer

_N_TRIES, _BETWEEN_TRIES_S = 4, 0.01


class FolderLock:
    """A writer's hold on a folder, taken at construction and kept until ``release``.

    ``missing`` is None, or why the file system gave no lock. Raises EvidenceError where the folder cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.missing: str | None = None
        self._path = path
        self._fd: int | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH)
        except OSError as error:
            self.missing = f"no lock: {error.strerror}"

    def alone(self) -> bool:
        """Try to hold the folder alone; True also where there are no locks. On False the shared hold stands again."""
        if self._fd is None or self.missing is not None:
            return True
        alone = _hold_alone(self._fd)
        if not alone:
            fcntl.flock(self._fd, fcntl.LOCK_SH)
        return alone

    def release(self) -> None:
        """Let go. Doing so twice is harmless."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def record(self) -> None:
        """Write ``writer.json`` for this process."""
        writer = Writer(
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at_unix_s=time.time(),
            locked=self.missing is None,
            lock_missing=self.missing,
        )
        write_whole(self._path / WRITER, writer.model_dump_json().encode() + b"\n")


def living_writer(path: Path) -> str | None:
    """Who still writes a folder, in words for a message; None when no one does.

    Raises EvidenceError where the folder cannot be opened.
    """
    recorded = _recorded(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise EvidenceError(path, f"cannot be opened ({error.strerror})", "give the path of a folder") from error
    try:
        if not _hold_alone(fd):
            return f"process {recorded.pid} on {recorded.host}" if recorded is not None else "another process"
    except OSError:
        pass  # no locks on this file system: the process id below decides
    finally:
        os.close(fd)
    if recorded is None or recorded.locked or recorded.host != socket.gethostname():
        return None
    return f"process {recorded.pid}" if began_by(recorded.pid, recorded.started_at_unix_s) else None


def _hold_alone(fd: int) -> bool:
    """Take the exclusive lock, with a few tries: whoever asks ``living_writer`` holds it for an instant too.

    Raises OSError where there are no locks.
    """
    for _ in range(_N_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_TRIES_S)
        else:
            return True
    return False


def began_by(pid: int, at_unix_s: float) -> bool:
    """True when process ``pid`` lives and is no later one that was given the same number after ``at_unix_s``.

    A zombie counts as dead. Where the system does not tell when a process began, living is enough.
    """
    if not process_lives(pid):
        return False
    began_unix_s = _process_began_unix_s(pid)
    slack_s = 2.0  # the boot time is known to the second
    return began_unix_s is None or began_unix_s <= at_unix_s + slack_s


def process_lives(pid: int) -> bool:
    """True when a process of this number runs on this host; a zombie has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives and is someone else's
    except OverflowError:
        return False
    fields = _stat_fields(pid)
    return fields is None or fields[0] not in ("Z", "X")


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command name (which may hold spaces and brackets)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _process_began_unix_s(pid: int) -> float | None:
    fields = _stat_fields(pid)
    try:
        boot = Path("/proc/stat").read_text(encoding="ascii").partition("btime ")[2].split(maxsplit=1)
        if fields is None or not boot:
            return None
        return int(boot[0]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _recorded(path: Path) -> Writer | None:
    try:
        return Writer.model_validate_json((path / WRITER).read_bytes())
    except (OSError, ValidationError):
        return None
