"""Chunk marks as columns of numbers: what a loop over 200 marks would say, asked of a hundred thousand answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.marks import Marks
from evidence.records import ChunkMark

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def packed(chunks: Sequence[ChunkMark]) -> Marks:
    """The marks with their columns, as they come from a folder; others are packed first."""
    return chunks if isinstance(chunks, Marks) else Marks(chunks)


def after_s(chunks: Sequence[ChunkMark]) -> Floats:
    """The instants, seconds from t0."""
    return np.asarray(packed(chunks).after_s, dtype=np.float64)


def segments(chunks: Sequence[ChunkMark]) -> Ints:
    return whole(packed(chunks).segments)


def rising(values: Sequence[float | None]) -> bool:
    """No value of a column below the one before it; a column without a number in each place does not rise."""
    if isinstance(values, tuple):
        known = [value for value in values if value is not None]
        return len(known) == len(values) and known == sorted(known)
    numbers = _plain(values)
    return bool((numbers[1:] >= numbers[:-1]).all())


def run_of(chunks: Sequence[ChunkMark], first: int) -> Sequence[int]:
    """The places of all marks that came in one segment with the mark at ``first``."""
    numbers = packed(chunks).segments
    own, n_own = numbers[first], numbers.count(numbers[first])
    behind = first + n_own
    if behind <= len(numbers) and all(number == own for number in numbers[first:behind]):
        return range(first, behind)
    return [place for place, number in enumerate(numbers) if number == own]


def arrivals_s(chunks: Sequence[ChunkMark]) -> Floats:
    """The instant of each received segment with chunks: chunks of one segment share one instant."""
    at, segment = after_s(chunks), column(packed(chunks).segments)
    if not len(at):
        return at
    new = segment[1:] != segment[:-1]
    return at if new.all() else at[np.concatenate(([True], new))]


def column(values: Sequence[int | None]) -> NDArray[Any]:
    """A packed column in the type it is packed in, without a copy; any other as ``whole`` has it."""
    return whole(values) if isinstance(values, tuple) else _plain(values)


def whole(values: Sequence[int | None]) -> Ints:
    """As 64-bit integers; a number beyond them is none of ours and is cut to the largest."""
    if isinstance(values, tuple):
        return np.array([min(value or 0, 2**62) for value in values], dtype=np.int64)
    return _plain(values).astype(np.int64)


def _plain(values: Sequence[float | None]) -> NDArray[Any]:
    return np.frombuffer(values, np.uint8) if isinstance(values, bytes) else np.asarray(values)
