"""A table as Parquet, by pyarrow, which is asked for only here: it is no requirement of anything else.

Text, 64-bit integers, doubles, booleans; JSON is text; what is not known is null.
"""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.export_columns import Column, Value

LINES_A_GROUP = 5000


class ParquetTable:
    """A Parquet file that grows by groups of lines. OSError where the system refuses."""

    suffix = ".parquet"

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        arrow, parquet = pyarrow()
        kinds = {"text": arrow.string(), "json": arrow.string(), "integer": arrow.int64()}
        kinds |= {"number": arrow.float64(), "boolean": arrow.bool_()}
        self._arrow = arrow
        self._path = path
        self._columns = columns
        self._schema = arrow.schema([arrow.field(one.name, kinds[one.kind], nullable=one.nullable) for one in columns])
        self._writer = parquet.ParquetWriter(str(path), self._schema)
        self._lines: list[Sequence[Value]] = []

    def write(self, line: Sequence[Value]) -> None:
        self._lines.append(line)
        if len(self._lines) >= LINES_A_GROUP:
            self.finish()

    def close(self) -> None:
        self._writer.close()

    def finish(self) -> None:
        """Everything that was written is in the file, but its end, which ``close`` writes."""
        if not self._lines:
            return
        try:
            arrays = [
                self._arrow.array([line[place] for line in self._lines], type=field.type)
                for place, field in enumerate(self._schema)
            ]
        except (self._arrow.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise AnalysisError(f"a value does not fit ({error})", "export --to csv", path=self._path) from error
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._lines = []


def read_parquet(path: Path, columns: Sequence[Column]) -> Iterator[tuple[Value, ...]]:
    """The lines of a table by the names of its columns."""
    _, parquet = pyarrow()
    with parquet.ParquetFile(str(path)) as opened:
        for batch in opened.iter_batches(batch_size=LINES_A_GROUP, columns=[column.name for column in columns]):
            lists = [batch.column(column.name).to_pylist() for column in columns]
            yield from zip(*lists, strict=True)


def pyarrow() -> tuple[Any, Any]:
    """The library and its Parquet part. Raises AnalysisError where it is not installed."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        what = f"Parquet needs pyarrow, which cannot be imported ({error})"
        remedy = "install it: python -m pip install -r requirements-export.txt (a wheel of 55 MB), or export --to csv"
        raise AnalysisError(what, remedy) from error
