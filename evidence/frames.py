"""The raw segments on file: ``workers/<n>/wire/segments.bin``.

Format history
    1  first version.

The file begins with the 16 bytes ``wire-segments 1\\n``. Then one frame for each received segment, little-endian:

    u32  sequence of the request on this worker
    i64  kernel receive stamp, Unix time in nanoseconds; the smallest i64 where the kernel gave none
    i64  stamp of our reading it, the worker's monotonic clock in nanoseconds
    u32  length of the data in bytes
    ...  the data

The frames of one request lie together, in the order received. A killed writer leaves whole requests; a full disk may
leave a part of a frame at the end, which is torn and not read.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

MAGIC = b"wire-segments 1\n"
SegmentTuple = tuple[int | None, int, bytes]  # kernel_unix_ns or None, user_monotonic_ns, data

_HEAD = struct.Struct("<IqqI")
_NO_STAMP = -(2**63)
_BLOCK_BYTES = 1 << 22


class Frame(NamedTuple):
    """One frame as read: ``offset`` and ``n_bytes`` cover head and data within the bytes that were given."""

    sequence: int
    segment: SegmentTuple
    offset: int
    n_bytes: int


class Index(NamedTuple):
    """Where the whole frames of a wire file begin and whose they are; ``end`` is behind the last of them.

    Twelve bytes a frame: the index of a gigabyte of small segments fits where its bytes do not.
    """

    offsets: "array[int]"
    sequences: "array[int]"
    end: int
    n_torn: int  # bytes after the last whole frame

    def span(self, offset: int, n_bytes: int) -> range | None:
        """The frames that fill [offset, offset + n_bytes) exactly, by their places here; None where none do."""
        first = self._place(offset)
        behind = self._place(offset + n_bytes)
        return None if first is None or behind is None else range(first, behind)

    def _place(self, offset: int) -> int | None:
        place = bisect_left(self.offsets, offset)
        begins = self.offsets[place] if place < len(self.offsets) else self.end
        return place if begins == offset else None


def encoded_size(segments: Iterable[SegmentTuple]) -> int:
    """Bytes the segments take on file."""
    return sum(_HEAD.size + len(data) for _, _, data in segments)


def encode(sequence: int, segments: Sequence[SegmentTuple]) -> bytes:
    """The frames of one request. Raises struct.error for numbers that do not fit their fields."""
    parts = []
    for kernel_unix_ns, user_monotonic_ns, data in segments:
        stamp = _NO_STAMP if kernel_unix_ns is None else kernel_unix_ns
        parts += [_HEAD.pack(sequence, stamp, user_monotonic_ns, len(data)), data]
    return b"".join(parts)


def decode(data: bytes, start: int = 0) -> Iterator[Frame]:
    """The whole frames of ``data`` from ``start`` on; what is left after the last of them is torn."""
    while start + _HEAD.size <= len(data):
        sequence, stamp, user_monotonic_ns, n_data = _HEAD.unpack_from(data, start)
        begin = start + _HEAD.size
        if begin + n_data > len(data):
            return
        segment = (None if stamp == _NO_STAMP else stamp, user_monotonic_ns, data[begin : begin + n_data])
        yield Frame(sequence, segment, start, _HEAD.size + n_data)
        start = begin + n_data


def index(opened: BinaryIO) -> Index:
    """The whole frames from the file's present position on, read block by block. Raises OSError."""
    offsets, sequences = array("Q"), array("I")
    base = opened.tell()
    data, at = b"", 0
    unpack, n_head = _HEAD.unpack_from, _HEAD.size
    while block := opened.read(_BLOCK_BYTES):
        data = data[at:] + block
        base, at = base + at, 0
        n_data = len(data)
        while at + n_head <= n_data:
            sequence, _, _, n_bytes = unpack(data, at)
            end = at + n_head + n_bytes
            if end > n_data:
                break
            offsets.append(base + at)
            sequences.append(sequence)
            at = end
    return Index(offsets, sequences, base + at, len(data) - at)
