"""A table as CSV by RFC 4180, written by name and read back by type.

UTF-8, a header, ``\\r\\n`` at a line's end, quotes where they are needed; texts stand as they are, with line breaks,
quotes and NUL. A value that is not known is an empty cell. In a column in which that may happen an empty *text* would
look the same, so there a text of nothing but quotation marks (the empty one too) gets two more: ``""`` is the empty
text. Numbers are written so that they read back to the last bit; ``true`` and ``false``; JSON as its text.

A spreadsheet may run a model's answer that begins with = as a formula: open the file as text there.
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.export_columns import Column, Value


class CsvTable:
    """A CSV file that grows line by line. OSError where the system refuses."""

    suffix = ".csv"

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._file = path.open("w", encoding="utf-8", newline="")
        names = [column.name for column in columns]
        self._writer = csv.DictWriter(self._file, names, restval=None, extrasaction="raise", lineterminator="\r\n")
        self._writer.writeheader()

    def write(self, line: Sequence[Value]) -> None:
        cells = {column.name: cell(column, value) for column, value in zip(self._columns, line, strict=True)}
        self._writer.writerow(cells)

    def finish(self) -> None:
        """Everything that was written is in the file."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def cell(column: Column, value: Value) -> str:
    """A value as the text of its cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return f'{text}""' if column.kind == "text" and column.nullable and not text.strip('"') else text


def value_of(column: Column, text: str) -> Value:
    """The value a cell's text stands for. Raises ValueError for what no such cell holds."""
    if column.nullable and text == "":
        return None
    if column.kind == "text":
        if column.nullable and not text.strip('"'):
            if len(text) < 2:
                raise ValueError(f"{text!r} is no text of a column that may be empty")
            return text[:-2]
        return text
    if column.kind == "boolean":
        return {"true": True, "false": False}[text]
    if column.kind == "integer":
        return int(text)
    return float(text) if column.kind == "number" else text


def read_csv(path: Path, columns: Sequence[Column]) -> Iterator[tuple[Value, ...]]:
    """The lines of a table by the names of its columns, whatever their order in the file.

    Raises AnalysisError for a header that has other names, or a line or cell that does not fit.
    """
    with _long_fields(), path.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened, strict=True)
        names = list(reader.fieldnames or ())
        if sorted(names) != sorted(column.name for column in columns):
            wrong = sorted({column.name for column in columns}.symmetric_difference(names))
            raise AnalysisError(f"its columns differ from the table's: {wrong}", "export again", path=path, line=1)
        for row in reader:
            yield _typed(path, reader.line_num, columns, row)


def _typed(path: Path, line: int, columns: Sequence[Column], row: Mapping[str, str]) -> tuple[Value, ...]:
    found: list[Value] = []
    for column in columns:
        text = row[column.name]
        try:
            if None in row or text is None:
                raise ValueError("the line has another number of cells than the header")
            found.append(value_of(column, text))
        except (ValueError, KeyError) as error:
            what = f"{column.name} = {text!r} cannot be read ({error})"
            raise AnalysisError(what, "export again", path=path, line=line, value=text) from error
    return tuple(found)


@contextmanager
def _long_fields() -> Iterator[None]:
    """The csv module refuses fields above 128 KiB unless it is told otherwise, for the whole process."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
