"""How a bundle's bytes are packed: gzip, quick and readable everywhere, or xz, a third of its size, by the name.

Evidence repeats itself: a server's counters are scraped whole each second, and each launch's log tells what the one
before told. gzip looks back 32 KiB and sees little of that; xz looks back 64 MiB. Reading goes by the first bytes, not
by the name, and bounds the memory that an archive may ask for.
"""

import gzip
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from analysis.errors import AnalysisError

XZ_SUFFIX = ".xz"
MOST_MEMORY_BYTES = 192 << 20  # what reading may take; 64 MiB of looking back need 65
_XZ_BEGINS, _GZIP_BEGINS = b"\xfd7zXZ\x00", b"\x1f\x8b"
_READ_BYTES = 1 << 20
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20, "lc": 4, "pb": 0}]


@contextmanager
def packing(out: Path, name: str) -> Iterator[io.BufferedIOBase]:
    """A new file to write a bundle into, packed as ``name`` ends. Nothing of the machine or the time gets in."""
    with out.open("wb") as raw:
        if name.endswith(XZ_SUFFIX):
            with lzma.LZMAFile(raw, "wb", check=lzma.CHECK_SHA256, filters=_FILTERS) as packed:
                yield packed
        else:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as zipped:
                yield zipped


@contextmanager
def unpacking(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes inside. Raises, while they are read, EOFError or OSError, zlib.error or lzma.LZMAError for damage.

    Raises AnalysisError at once for a file that begins like no bundle.
    """
    with path.open("rb") as raw:
        begins = raw.read(len(_XZ_BEGINS))
        raw.seek(0)
        if begins == _XZ_BEGINS:
            with io.BufferedReader(_Unpacked(raw), _READ_BYTES) as found:
                yield found
        else:
            if not begins.startswith(_GZIP_BEGINS[: len(begins)]) and not _XZ_BEGINS.startswith(begins):
                what = f"is no bundle: it begins with {begins!r}"
                raise AnalysisError(what, "name an archive that `export --to bundle` wrote", path=path)
            with gzip.GzipFile(fileobj=raw, mode="rb") as zipped:
                yield zipped


class _Unpacked(io.RawIOBase):
    """One xz stream within a bound of memory, which ``lzma.open`` does not give; bytes after it are damage."""

    def __init__(self, raw: IO[bytes]) -> None:
        super().__init__()
        self._raw = raw
        self._stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MOST_MEMORY_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # io asks for a memoryview, typeshed for more
        while not self._stream.eof:
            packed = self._raw.read(_READ_BYTES) if self._stream.needs_input else b""
            if self._stream.needs_input and not packed:
                raise EOFError("before the end of the packed stream")
            if found := self._stream.decompress(packed, len(buffer)):
                buffer[: len(found)] = found
                return len(found)
        if self._stream.unused_data or self._raw.read(1):
            raise lzma.LZMAError("something stands after the packed stream")
        return 0
