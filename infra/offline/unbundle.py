"""Reading a bundle on the other side: hashes first, then each content whole or not at all. Python alone.

Pieces may come one by one: ``unpack(..., partial=True)`` lays out what is complete so far, and a later call the rest.
A content is unpacked under another name and moved into place, beside a mark with its hash: a second call leaves it.
"""

import hashlib
import lzma
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

from infra.offline.bundle import Content, Manifest, NotWholeError, OfflineError, Piece, read_manifest

_BLOCK = 1 << 20


def faults(folder: Path, *, partial: bool = False) -> tuple[str, ...]:
    """Everything wrong with the pieces: missing (not with ``partial``), of another size, of another hash."""
    found = []
    for piece in read_manifest(folder).pieces:
        fault = _fault(folder, piece)
        if fault is not None and not (partial and not (folder / piece.file).exists()):
            found.append(fault)
    return tuple(found)


def unpack(folder: Path, destination: Path, *, partial: bool = False) -> tuple[str, ...]:
    """Lay out the contents below ``destination``; returns the names of those that are there now.

    Errors: OfflineError where a piece or a content is not what the manifest says; what was laid out before stays.
    """
    manifest = read_manifest(folder)
    wrong = faults(folder, partial=partial)
    if wrong:
        raise NotWholeError("; ".join(wrong) + ". Bring these pieces again")
    destination.mkdir(parents=True, exist_ok=True)
    here = [
        index
        for index in range(len(manifest.contents))
        if all((folder / piece.file).is_file() for piece in _pieces_of(manifest, index))
    ]
    todo = [index for index in here if not _marked(destination, manifest.contents[index])]
    with ThreadPoolExecutor() as threads:  # xz lets other threads run
        list(threads.map(lambda index: _lay_out(folder, manifest, index, destination), todo))
    return tuple(content.name for content in manifest.contents if _marked(destination, content))


def _fault(folder: Path, piece: Piece) -> str | None:
    path = folder / piece.file
    if not path.is_file():
        return f"{piece.file} is missing"
    if (size := path.stat().st_size) != piece.size_bytes:
        return f"{piece.file} has {size} bytes, the manifest says {piece.size_bytes}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return None if digest == piece.sha256 else f"{piece.file} has another hash than the manifest says"


def _span(manifest: Manifest, index: int) -> tuple[int, int]:
    """First byte of a content in the row of all pieces, and the one after its last."""
    begin = sum(content.stored_bytes for content in manifest.contents[:index])
    return begin, begin + manifest.contents[index].stored_bytes


def _pieces_of(manifest: Manifest, index: int) -> Iterator[Piece]:
    begin, end = _span(manifest, index)
    at = 0
    for piece in manifest.pieces:
        if at < end and at + piece.size_bytes > begin:
            yield piece
        at += piece.size_bytes


def _stored(folder: Path, manifest: Manifest, index: int) -> Iterator[bytes]:
    """The stored bytes of one content, block by block. Errors: OfflineError at the end where their hash is another."""
    begin, end = _span(manifest, index)
    content, digest, at = manifest.contents[index], hashlib.sha256(), 0
    for piece in manifest.pieces:
        first, last = max(begin - at, 0), min(end - at, piece.size_bytes)
        if first < last:
            with (folder / piece.file).open("rb") as file:
                file.seek(first)
                for block in _blocks(file, last - first):
                    digest.update(block)
                    yield block
        at += piece.size_bytes
    if digest.hexdigest() != content.stored_sha256:
        raise NotWholeError(f"{content.name} has another hash than the manifest says; bring the bundle again")


def _blocks(file: IO[bytes], n_bytes: int) -> Iterator[bytes]:
    while n_bytes:
        block = file.read(min(_BLOCK, n_bytes))
        if not block:
            raise NotWholeError(f"{file.name} ended early; bring it again")
        n_bytes -= len(block)
        yield block


class _Plain:
    """The unpacked bytes as a file to read from."""

    def __init__(self, stored: Iterator[bytes]) -> None:
        self._stored, self._unpacker, self._held = stored, lzma.LZMADecompressor(), b""

    def read(self, n_bytes: int) -> bytes:
        parts, have = [self._held], len(self._held)
        while have < n_bytes:
            block = next(self._stored, None)
            if block is None:
                break
            plain = self._unpacker.decompress(block) if not self._unpacker.eof else b""
            parts.append(plain)
            have += len(plain)
        whole = b"".join(parts)
        self._held = whole[n_bytes:]
        return whole[:n_bytes]


def _lay_out(folder: Path, manifest: Manifest, index: int, destination: Path) -> None:
    content = manifest.contents[index]
    partial, path = destination / f"{content.name}.partial", destination / content.name
    _remove(partial)
    stored = _stored(folder, manifest, index)
    plain = _Plain(stored)
    try:
        if content.stored == "tar.xz":
            partial.mkdir()
            # A stream of tar asks for ``read`` alone.
            with tarfile.open(fileobj=cast(IO[bytes], plain), mode="r|", bufsize=_BLOCK) as tar:
                tar.extractall(partial, filter="tar")  # as packed; nothing above the folder, no owner
        elif content.stored == "as it is":
            with partial.open("wb") as file:
                file.writelines(stored)
        else:
            raise OfflineError(f"{content.name} is stored as {content.stored!r}; unpack it with what packed it")
        for _ in stored:  # to the end, where the hash is compared
            pass
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise NotWholeError(f"{content.name} cannot be unpacked ({error}); bring the bundle again") from error
    _remove(path)
    partial.replace(path)
    _mark(destination, content).write_text(content.stored_sha256 + "\n", encoding="ascii")


def _mark(destination: Path, content: Content) -> Path:
    return destination / f".{content.name}.sha256"


def _marked(destination: Path, content: Content) -> bool:
    mark = _mark(destination, content)
    return (
        (destination / content.name).exists()
        and mark.is_file()
        and mark.read_text(encoding="ascii").strip() == content.stored_sha256
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
