"""Chunk marks, packed: a hundred thousand answers of two hundred chunks each fit into memory beside one another.

A mark on file is [after_s, segment, cumulative tokens or null, characters]. As tuples of Python numbers the marks of
one answer of 200 chunks take some 30 KB; as four columns of the smallest number type that holds them, some 3 KB. To a
reader they stay a sequence of tuples, equal to one, and every column can be had whole.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from math import isfinite
from typing import Annotated, Any, NamedTuple, Self, overload

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema, from_json

_Count = Annotated[int, Field(ge=0)]
ChunkMark = tuple[float, _Count, _Count | None, _Count]
_TYPES = ("H", "I", "Q")  # arrays of whole numbers from 0 on beyond one byte, the smallest first

# How the marks stand in a line as this program writes it, and what is left of them without the numbers.
_BEGIN, _END, _IN_NUMBERS = b'"chunks":[[', b"]]", b"0123456789+-.eE"
_COUNTED, _UNCOUNTED = b"[,,,],", b"[,,null,],"
_NOWHERE = int.from_bytes(os.urandom(7)) + 2**56  # the segment of the stand-in: no file can have foreseen it
_STAND_IN = b"[[0.0,%d,null,0]]" % _NOWHERE


class Marks(Sequence[ChunkMark]):
    """The chunk marks of one request, in the order received.

    ``tokens`` is None where no mark has a count of tokens. A column is bytes or an array, or a tuple where it holds
    what neither can: None beside counts, or a number beyond 64 bits.
    """

    __slots__ = ("after_s", "characters", "segments", "tokens")

    def __init__(self, marks: Iterable[ChunkMark] = ()) -> None:
        self._pack(tuple(zip(*marks, strict=True)) or ((), (), (), ()))

    @classmethod
    def of_text(cls, text: bytes) -> Self | None:
        """The marks of a JSON text that plainly meets the schema, with all of them counted or none; else None."""
        shape = text.translate(None, _IN_NUMBERS)
        mark = _UNCOUNTED if b"null" in shape else _COUNTED
        # Counted in the text, so that no digit stands between two marks.
        if shape != b"[" + (mark * (text.count(b"],[") + 1))[:-1] + b"]":
            return None
        found = cls.__new__(cls)
        try:
            numbers = from_json(b"[" + text.translate(None, b"[]") + b"]")
            found._pack(tuple(numbers[place::4] for place in range(4)))
        except (TypeError, ValueError, OverflowError):
            return None
        whole = (found.segments, found.characters, found.segments if found.tokens is None else found.tokens)
        return found if isfinite(sum(found.after_s)) and all(isinstance(one, bytes | array) for one in whole) else None

    def _pack(self, columns: Sequence[Sequence[Any]]) -> None:
        self.after_s: array[float] = array("d", columns[0])
        self.segments: Sequence[int] = _packed(columns[1])
        self.characters: Sequence[int] = _packed(columns[3])
        counts: Sequence[int | None] = columns[2]
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


def _packed(values: Sequence[Any]) -> Sequence[int]:
    """Whole numbers from 0 on in the smallest type that holds them all."""
    try:
        return _shared(bytes(values))
    except ValueError:  # one is beyond a byte
        pass
    for code in _TYPES:
        try:
            return array(code, values)
        except OverflowError:
            continue
    return values


@lru_cache(maxsize=4096)
def _shared(values: bytes) -> bytes:
    """One column for all answers that have the same, which nobody can write into: most count alike."""
    return values


class Cut(NamedTuple):
    """A line with a stand-in for its marks, and the marks: read apart, the two take half the time of the whole."""

    line: bytes
    marks: Marks


def cut(line: bytes) -> Cut | None:
    """None for a line whose marks do not stand as this program writes them: the schema has to read it whole."""
    begin = line.find(_BEGIN) + len(_BEGIN) - 2
    end = line.find(_END, begin) + len(_END)
    marks = Marks.of_text(line[begin:end]) if 0 < begin < end else None
    return None if marks is None else Cut(line[:begin] + _STAND_IN + line[end:], marks)


def is_stand_in(chunks: Sequence[ChunkMark]) -> bool:
    """Whether these are what ``cut`` put in place of a line's marks, and not something that stood in the line."""
    return len(chunks) == 1 and chunks[0][1] == _NOWHERE


class Packed:
    """For a field of marks: validated as a tuple of marks, from JSON or not, and kept packed.

    Marks that are packed already are taken as they are; a line is held against the schema before it is written.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        marks = core_schema.no_info_after_validator_function(Marks, handler.generate_schema(tuple[ChunkMark, ...]))
        return core_schema.json_or_python_schema(
            json_schema=marks,
            python_schema=core_schema.no_info_wrap_validator_function(_as_they_are, marks),
            serialization=core_schema.plain_serializer_function_ser_schema(tuple),
        )


def _as_they_are(value: Any, validated: Callable[[Any], Marks]) -> Marks:
    return value if isinstance(value, Marks) else validated(value)
