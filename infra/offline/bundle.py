"""A bundle: folders and files packed into pieces small enough to carry, with a manifest of every hash. Python alone.

``manifest.json`` beside ``piece-001.bin``, ``piece-002.bin``, ... A folder is stored as ``tar.xz``, a file as it is.
The stored bytes of all contents, one after the other, are cut into the pieces, so a content may begin in one piece and
end in another. ``unbundle.py`` reads it.
"""

import hashlib
import json
import lzma
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

FORMAT = 1
MANIFEST = "manifest.json"
_BLOCK = 1 << 20
# Never needed on the other side: rebuilt by Python itself.
_LEFT_OUT = ("__pycache__",)


class OfflineError(Exception):
    """A bundle, an environment or a model that cannot be made or read as asked. The message ends with what to do."""


class NotWholeError(OfflineError):
    """A bundle that is not what its manifest says: a piece is missing or changed, or ends early."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """One packed folder or file: its name, how it is stored, and the hash of the stored bytes."""

    name: str
    stored: str  # tar.xz | as it is
    stored_bytes: int
    stored_sha256: str
    n_files: int
    size_bytes: int  # of what is in it


@dataclass(frozen=True, kw_only=True)
class Piece:
    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    contents: tuple[Content, ...]
    pieces: tuple[Piece, ...]

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def pack(contents: Mapping[str, Path], out: Path, *, piece_bytes: int, level: int = 6) -> Manifest:
    """Pack each named path into ``out``, which is made and has to be empty. Errors: OfflineError, OSError."""
    for name, path in contents.items():
        if not plain(name):
            raise OfflineError(f"{name!r} is no name of a content; write NAME=PATH with a plain NAME")
        if not path.exists():
            raise OfflineError(f"{path} is not there; write NAME=PATH with a folder or a file that is")
    if piece_bytes < 1:
        raise OfflineError(f"pieces of {piece_bytes} bytes cannot be made; give at least 1 MB")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise OfflineError(f"{out} is not empty; name a new folder")
    pieces = _Pieces(out, piece_bytes)
    packed = [_store(name, path, pieces, level) for name, path in contents.items()]
    manifest = Manifest(contents=tuple(packed), pieces=pieces.close())
    (out / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=1) + "\n", encoding="utf-8")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle. Errors: OfflineError."""
    path = folder / MANIFEST
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["format"] != FORMAT:
            raise OfflineError(
                f"{path} is of format {said['format']!r}, known is {FORMAT}; unpack it with what packed it"
            )
        contents = tuple(Content(**content) for content in said["contents"])
        pieces = tuple(Piece(**piece) for piece in said["pieces"])
        strange = [name for name in (*(c.name for c in contents), *(p.file for p in pieces)) if not plain(name)]
        if strange:
            raise OfflineError(f"{path} names {strange[0]!r}, which is no plain name; do not unpack this bundle")
        return Manifest(contents=contents, pieces=pieces)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OfflineError(f"{path} cannot be read ({error!r}); bring the bundle's manifest again") from error


def plain(name: str) -> bool:
    """A name of one folder or file, with no way out of where it is put."""
    return bool(name) and not name.startswith(".") and not set(name) & {"/", "\\", "\0"}


class _Counted:
    """A file's size and hash while it is written; ``write`` passes everything on."""

    def __init__(self, pieces: "_Pieces") -> None:
        self._pieces = pieces
        self.n_bytes = 0
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._pieces.write(data)
        self.hash.update(data)
        self.n_bytes += len(data)
        return len(data)


class _Pieces:
    """Bytes written one after the other into files of at most ``piece_bytes``."""

    def __init__(self, out: Path, piece_bytes: int) -> None:
        self._out, self._limit = out, piece_bytes
        self._done: list[Piece] = []
        self._begin()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._limit - self._n_bytes
            if not room:
                self._end()
                self._begin()
                continue
            taken = view[:room]
            self._file.write(taken)
            self._hash.update(taken)
            self._n_bytes += len(taken)
            view = view[len(taken) :]

    def close(self) -> tuple[Piece, ...]:
        self._end()
        return tuple(self._done)

    def _begin(self) -> None:
        self._name = f"piece-{len(self._done) + 1:03d}.bin"
        self._file = (self._out / self._name).open("wb")
        self._n_bytes, self._hash = 0, hashlib.sha256()

    def _end(self) -> None:
        self._file.close()
        self._done.append(Piece(file=self._name, size_bytes=self._n_bytes, sha256=self._hash.hexdigest()))


def _store(name: str, path: Path, pieces: _Pieces, level: int) -> Content:
    counted = _Counted(pieces)
    n_files = size = 0
    if path.is_dir():
        packer = lzma.LZMACompressor(preset=level)
        through = cast(IO[bytes], _Through(packer, counted))  # a stream of tar asks for ``write`` alone
        with tarfile.open(fileobj=through, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for inner in _files(path):
                tar.add(inner, arcname=str(inner.relative_to(path)), recursive=False, filter=_nobody)
                n_files += 1
                size += inner.lstat().st_size
        counted.write(packer.flush())
    else:
        n_files, size = 1, path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                counted.write(block)
    return Content(
        name=name,
        stored="tar.xz" if path.is_dir() else "as it is",
        stored_bytes=counted.n_bytes,
        stored_sha256=counted.hash.hexdigest(),
        n_files=n_files,
        size_bytes=size,
    )


class _Through:
    """What a tar stream is written to: compressed on its way."""

    def __init__(self, packer: lzma.LZMACompressor, counted: _Counted) -> None:
        self._packer, self._counted = packer, counted

    def write(self, data: bytes) -> int:
        self._counted.write(self._packer.compress(data))
        return len(data)


def _files(folder: Path) -> Iterator[Path]:
    """Files and links in the order of their names, so that equal folders make equal bundles."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        links = [name for name in folders if (Path(where) / name).is_symlink()]
        yield from (Path(where) / name for name in sorted([*names, *links]))


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owner and group are of no use on another machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
