"""Chunk marks, packed: a hundred thousand answers of two hundred chunks each fit into memory beside one another.

A mark on file is [after_s, segment, cumulative tokens or null, characters]. As tuples of Python numbers the marks of
one answer of 200 chunks take some 30 KB; as four columns of the smallest number type that holds them, some 3 KB. To a
reader they stay a sequence of tuples, equal to one, and every column can be had whole.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Annotated, Any, overload

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_Count = Annotated[int, Field(ge=0)]
ChunkMark = tuple[float, _Count, _Count | None, _Count]
_TYPES = ("B", "H", "I", "Q")  # arrays of whole numbers from 0 on, the smallest first


class Marks(Sequence[ChunkMark]):
    """The chunk marks of one request, in the order received.

    ``tokens`` is None where no mark has a count of tokens. A column is an array, or a tuple where it holds what no
    array can: None beside counts, or a number beyond 64 bits.
    """

    __slots__ = ("after_s", "characters", "segments", "tokens")

    def __init__(self, marks: Iterable[ChunkMark] = ()) -> None:
        columns = tuple(zip(*marks, strict=True)) or ((), (), (), ())
        self.after_s: array[float] = array("d", columns[0])
        self.segments: Sequence[int] = _packed(columns[1])
        self.characters: Sequence[int] = _packed(columns[3])
        counts: tuple[int | None, ...] = columns[2]
        self.tokens: Sequence[int | None] | None = counts
        if None not in counts:
            self.tokens = _packed(columns[2])
        elif not any(count is not None for count in counts):
            self.tokens = None

    def __len__(self) -> int:
        return len(self.after_s)

    def __iter__(self) -> Iterator[ChunkMark]:
        tokens = repeat(None, len(self.after_s)) if self.tokens is None else self.tokens
        return zip(self.after_s, self.segments, tokens, self.characters, strict=True)

    @overload
    def __getitem__(self, at: int) -> ChunkMark: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ChunkMark, ...]: ...
    def __getitem__(self, at: int | slice) -> ChunkMark | tuple[ChunkMark, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        tokens = None if self.tokens is None else self.tokens[at]
        return self.after_s[at], self.segments[at], tokens, self.characters[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Marks):
            own, others = (
                (m.after_s, list(m.segments), m.tokens if m.tokens is None else list(m.tokens), list(m.characters))
                for m in (self, other)
            )
            return own == others
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type["Marks"], tuple[tuple[ChunkMark, ...]]]:
        return Marks, (tuple(self),)


def _packed(values: tuple[Any, ...]) -> Sequence[int]:
    """Whole numbers from 0 on in the smallest array that holds them all."""
    for code in _TYPES:
        try:
            return array(code, values)
        except OverflowError:
            continue
    return values


class Packed:
    """For a field of marks: validated as a tuple of marks, from JSON or not, and kept packed."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        marks = core_schema.no_info_after_validator_function(Marks, handler.generate_schema(tuple[ChunkMark, ...]))
        return core_schema.json_or_python_schema(
            json_schema=marks,
            python_schema=core_schema.no_info_before_validator_function(_unpacked, marks),
            serialization=core_schema.plain_serializer_function_ser_schema(tuple),
        )


def _unpacked(value: Any) -> Any:
    return tuple(value) if isinstance(value, Marks) else value
