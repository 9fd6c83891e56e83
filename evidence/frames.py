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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MAGIC = b"wire-segments 1\n"
SegmentTuple = tuple[int | None, int, bytes]  # kernel_unix_ns or None, user_monotonic_ns, data

_HEAD = struct.Struct("<IqqI")
_NO_STAMP = -(2**63)


class Frame(NamedTuple):
    """One frame as read: ``offset`` and ``n_bytes`` cover head and data within the bytes that were given."""

    sequence: int
    segment: SegmentTuple
    offset: int
    n_bytes: int


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
