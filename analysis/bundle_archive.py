"""One archive of evidence: a packed tar whose first member, ``bundle.json``, lists every other with size and SHA-256.

Writing is deterministic: members sorted by name, no times, owners or modes of the machine, so that the same folder
gives the same archive. Reading trusts nothing: only plain files whose names stay inside, each once, in the listed
order, of the listed size and hash, and nothing after them. Headers are read one block at a time, so that no extended
header can ask for memory, and no member is read beyond its listed size.
"""

import gzip
import hashlib
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Literal, NoReturn

from pydantic import ValidationError

from analysis.bundle_packing import packing, unpacking
from analysis.errors import AnalysisError
from evidence.lines import first_fault
from evidence.records import SCHEMA_VERSION, Count, Record, Sha256, Version

MANIFEST = "bundle.json"
_BLOCK = tarfile.BLOCKSIZE
_READ_BYTES = 1 << 20
_REMEDY = "fetch it again from where it was made, and compare its SHA-256 with the one printed there"


class BundledFile(Record):
    """One member of the archive."""

    path: str
    n_bytes: Count
    sha256: Sha256


class BundledFolder(Record):
    """One run, launch or study in the archive. ``problems``: codes that a check of it found when it was packed."""

    path: str
    kind: Literal["run", "launch", "study", "unknown"]
    id: str
    sealed: bool
    n_files: Count
    content_sha256: Sha256
    problems: tuple[str, ...]


class BundleManifest(Record):
    """``bundle.json``. ``content_sha256`` is over the lines ``<sha256>  <path>`` of all files, sorted by path."""

    schema_version: Version = SCHEMA_VERSION
    kind: Literal["run", "launch", "study"]
    id: str
    folders: tuple[BundledFolder, ...]
    files: tuple[BundledFile, ...]
    content_sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much an archive may ask for before it is refused."""

    total_bytes: int = 256 << 30
    n_files: int = 1_000_000
    manifest_bytes: int = 256 << 20


NO_MORE_THAN = Limits()
Place = Callable[[BundledFile], AbstractContextManager[IO[bytes] | None]]


def write_archive(out: Path, manifest: BundleManifest, sources: Sequence[Path], *, name: str) -> None:
    """Write the manifest and then each file from its source, in the manifest's order, packed as ``name`` ends.

    Raises AnalysisError for a name or size the format cannot hold and for a file that has another size by now; OSError
    where the system refuses.
    """
    listed = manifest.model_dump_json(indent=1).encode() + b"\n"
    with packing(out, name) as packed:
        packed.write(_header(MANIFEST, len(listed), out) + listed + _padding(len(listed)))
        for file, source in zip(manifest.files, sources, strict=True):
            packed.write(_header(file.path, file.n_bytes, out))
            left = file.n_bytes
            with source.open("rb") as opened:
                while left and (data := opened.read(min(left, _READ_BYTES))):
                    packed.write(data)
                    left -= len(data)
                if left or opened.read(1):
                    what = f"{source} changed while it was packed"
                    raise AnalysisError(what, "export again when nothing writes there", path=out)
            packed.write(_padding(file.n_bytes))
        packed.write(b"\0" * (2 * _BLOCK))


def read_archive(path: Path, place: Place, *, limits: Limits = NO_MORE_THAN) -> BundleManifest:
    """Read and verify a whole archive, each file into what ``place`` opens for it (None: verified only).

    Raises AnalysisError (exit code 1) for anything that is not as its manifest says, (2) for what cannot be read.
    """
    try:
        with unpacking(path) as packed:
            manifest = _manifest(path, packed, limits)
            for file in manifest.files:
                _copy(path, packed, file, place)
            _nothing_after(path, packed)
            return manifest
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        _refuse(path, f"it is cut or damaged ({error})")
    except OSError as error:
        at = Path(error.filename) if error.filename else path
        what = f"cannot be read or unpacked ({error.strerror or error})"
        raise AnalysisError(what, "check the path, its permissions and the space left", path=at) from error


def check_name(name: str) -> str | None:
    """Why a member's name is refused; None for a relative path of plain parts."""
    if not name or len(name) > 255:
        return "is empty or longer than 255 characters"
    if not name.isprintable() or "\\" in name or ":" in name:
        return "holds a control character, a backslash or a colon"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "leads out of its folder, or is absolute"
    return None


def _manifest(path: Path, packed: BufferedIOBase, limits: Limits) -> BundleManifest:
    name, size = _next_header(path, packed)
    if name != MANIFEST:
        _refuse(path, f"its first member is {name!r} and not {MANIFEST}")
    if size > limits.manifest_bytes:
        _refuse(path, f"{MANIFEST} has {size} bytes, more than {limits.manifest_bytes}")
    data = _exactly(packed, size)
    _exactly(packed, len(_padding(size)))
    try:
        manifest = BundleManifest.model_validate_json(data)
    except ValidationError as error:
        _refuse(path, f"{MANIFEST} does not meet its schema: {first_fault(error)}")
    _check_manifest(path, manifest, limits)
    return manifest


def _check_manifest(path: Path, manifest: BundleManifest, limits: Limits) -> None:
    names = [file.path for file in manifest.files]
    for name in names:
        if (why := check_name(name)) is not None:
            _refuse(path, f"the name {name!r} {why}")
    if names != sorted(set(names)):
        _refuse(path, "its files are listed twice or out of order")
    folders = {"/".join(parts[:n]) for parts in (name.split("/") for name in names) for n in range(1, len(parts))}
    if both := sorted(folders.intersection(names)):
        _refuse(path, f"{both[0]!r} is listed as a file and as a folder")
    if len(names) > limits.n_files:
        _refuse(path, f"it lists {len(names)} files, more than {limits.n_files}")
    total = sum(file.n_bytes for file in manifest.files)
    if total > limits.total_bytes:
        _refuse(path, f"it would unpack to {total} bytes, more than {limits.total_bytes}")
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in manifest.files)
    if hashlib.sha256(lines.encode()).hexdigest() != manifest.content_sha256:
        _refuse(path, "the hash of the whole is not that of its list of files")


def _copy(path: Path, packed: BufferedIOBase, file: BundledFile, place: Place) -> None:
    name, size = _next_header(path, packed)
    if name != file.path:
        _refuse(path, f"{name!r} stands where {file.path!r} is listed")
    if size != file.n_bytes:
        _refuse(path, f"{name!r} has {size} bytes, {file.n_bytes} are listed")
    digest, left = hashlib.sha256(), size
    with place(file) as opened:
        while left:
            data = packed.read(min(left, _READ_BYTES))
            if not data:
                raise EOFError(f"inside {name}")
            digest.update(data)
            left -= len(data)
            if opened is not None:
                opened.write(data)
    _exactly(packed, len(_padding(size)))
    if digest.hexdigest() != file.sha256:
        _refuse(path, f"{name!r} does not have the SHA-256 that is listed for it")


def _next_header(path: Path, packed: BufferedIOBase) -> tuple[str, int]:
    """Name and size of the next member. Links, devices, folders and extended headers are refused."""
    block = _exactly(packed, _BLOCK)
    if not block.strip(b"\0"):
        _refuse(path, "it ends before all listed files have come")
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        _refuse(path, f"a member's header is damaged ({error})")
    if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        _refuse(path, f"{found.name!r} is no plain file (tar type {found.type!r})")
    if (why := check_name(found.name)) is not None:
        _refuse(path, f"the name {found.name!r} {why}")
    if found.size < 0:
        _refuse(path, f"{found.name!r} has the size {found.size}")
    return found.name, found.size


def _nothing_after(path: Path, packed: BufferedIOBase) -> None:
    """Two blocks of zeros, and the end of the stream with its check sum."""
    rest = packed.read(2 * _BLOCK + 1)
    if len(rest) > 2 * _BLOCK or rest.strip(b"\0"):
        _refuse(path, "something stands after the last listed file")
    if len(rest) < 2 * _BLOCK:
        raise EOFError("before the archive's end")


def _exactly(packed: BufferedIOBase, n_bytes: int) -> bytes:
    data = packed.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError("inside a member")
    return data


def _header(name: str, n_bytes: int, out: Path) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = n_bytes, 0o644, 0
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except (ValueError, UnicodeEncodeError) as error:
        what = f"{name!r} of {n_bytes} bytes does not fit into the archive's format ({error})"
        raise AnalysisError(what, "shorten the name; a single file holds at most 8 GiB", path=out) from error


def _padding(n_bytes: int) -> bytes:
    return b"\0" * (-n_bytes % _BLOCK)


def _refuse(path: Path, what: str) -> NoReturn:
    raise AnalysisError(f"this bundle is refused: {what}", _REMEDY, path=path, exit_code=1)


def open_new(path: Path) -> IO[bytes]:
    """A file that must not be there yet, through no link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "wb")
