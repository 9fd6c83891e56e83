"""Writing that survives a kill: whole files renamed into place, lines appended by one system call each, hashes.

A line goes out in a single ``write`` on a descriptor opened for appending, so a killed process leaves either the whole
line or none of it; only a full disk, a file-size limit or a power cut can leave a part, and that part has no newline at
its end and is recognised as torn. After such a part nothing more is written to the file: the torn line stays the last.
"""

import errno
import hashlib
import os
import stat
from pathlib import Path

from evidence.errors import EvidenceError
from evidence.layout import PARTIAL, SEAL

_BLOCK_BYTES = 1 << 20


def cannot_write(path: Path, error: OSError) -> EvidenceError:
    """The system's refusal as an EvidenceError, with what to do about it."""
    remedy = {
        errno.ENOSPC: "free space on the disk, close the folder with `python -m analysis recover`, and run again",
        errno.EDQUOT: "free space in the quota, close the folder with `python -m analysis recover`, and run again",
        errno.EFBIG: "raise the file-size limit (ulimit -f), and run again",
        errno.EACCES: "choose a folder you may write to with --run-dir",
        errno.EPERM: "choose a folder you may write to with --run-dir",
        errno.EROFS: "choose a folder on a writable file system with --run-dir",
        errno.EEXIST: "choose another folder or id; evidence is never written over",
        errno.ENOTDIR: "a part of this path is a file: choose another folder with --run-dir",
    }.get(error.errno or 0, "choose another folder with --run-dir, or repair this one")
    return EvidenceError(
        path, f"cannot be written ({error.strerror or error})", remedy, value=error.errno, writing=True
    )


def write_whole(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file so that at any instant it is either absent (or the old one) or whole, and on the disk on return.

    Raises EvidenceError where it exists and ``replace`` is false, or where the system refuses.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        if not replace and path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_folder(path: Path) -> None:
    """Bring a folder's own entries to the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class AppendFile:
    """A new file that only grows. Every method raises EvidenceError where the system refuses."""

    def __init__(self, path: Path, *, fsync_each: bool = False) -> None:
        self.path = path
        self.n_bytes = 0
        self._fsync_each = fsync_each
        self._failure: EvidenceError | None = None
        self._fd: int | None = None
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o666)
        except OSError as error:
            raise cannot_write(path, error) from error

    @property
    def failure(self) -> EvidenceError | None:
        """Why nothing more is written here: the first write that failed."""
        return self._failure

    def append(self, data: bytes) -> int:
        """Append all of ``data`` in one system call and return the offset it begins at.

        Raises EvidenceError when the file is closed, when an earlier write failed, and when this one was refused or
        cut short.
        """
        if self._fd is None:
            raise EvidenceError(self.path, "is closed", "write everything before the seal", writing=True)
        if self._failure is not None:
            raise self._failure
        try:
            n_written = os.write(self._fd, data)
            if n_written == len(data) and self._fsync_each:
                os.fsync(self._fd)
        except OSError as error:
            self._failure = cannot_write(self.path, error)
            raise self._failure from error
        if n_written != len(data):
            self._failure = EvidenceError(
                self.path,
                f"only {n_written} of {len(data)} bytes could be written: the disk is full or a size limit is reached",
                "free space, close the folder with `python -m analysis recover`, and run again",
                value=n_written,
                writing=True,
            )
            raise self._failure
        offset = self.n_bytes
        self.n_bytes += n_written
        return offset

    def close(self, *, sync: bool = True) -> None:
        """Close, and bring the content to the disk first unless told not to. Closing twice is harmless."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            try:
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise cannot_write(self.path, error) from error


def folder_files(path: Path) -> tuple[str, ...]:
    """Every file below a folder but its seal, relative and with forward slashes, sorted. Raises OSError."""
    skipped = (SEAL, SEAL + PARTIAL)
    found = []
    for base, _, names in os.walk(path, onerror=_raise):
        found += [(Path(base) / name).relative_to(path).as_posix() for name in names]
    return tuple(sorted(name for name in found if name not in skipped))


def is_special(path: Path) -> bool:
    """True for a pipe, socket or device, which can be read without end; false for a file, a folder, and nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def sha256_file(path: Path, *, sync: bool = False) -> str:
    """SHA-256 of a file as lower-case hex; ``sync`` brings its content to the disk too. Raises OSError."""
    if is_special(path):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
        if sync:
            os.fsync(file.fileno())
    return digest.hexdigest()


def _raise(error: OSError) -> None:
    raise error
