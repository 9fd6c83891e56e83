"""Cells of a sweep's tables, for print: the report makes its own of the same numbers (``report_sweep``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from analysis.tables import Notes, table

Fields = Mapping[str, Any]


class Cells(Protocol):
    """What a table's cells are made by. ``path`` is the number's place in the object of ``sweep --json``."""

    def number(self, value: float, shown: str, path: str, mark: str | None = None) -> str:
        """A number as printed; ``mark`` is a remark on it."""

    def dash(self, why: str | None) -> str:
        """No number, and why."""

    def words(self, said: str, mark: str | None = None) -> str:
        """Text, with a remark."""

    def level(self, one: Fields) -> str:
        """The name of a level of one arm."""

    def quantile(self, one: Fields, metric: str, value: float, shown: str, path: str) -> str:
        """A quantile, which is the value of one request of that level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A table before it is drawn; columns in ``left`` are left-aligned."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int]

    def lines(self) -> list[str]:
        """As text; nothing where there is no row."""
        return table(self.titles, self.rows, left=self.left) if self.rows else []


class TextCells:
    """For a terminal: remarks and reasons are numbers in brackets that stand under the tables."""

    def __init__(self) -> None:
        self.notes = Notes()

    def number(self, value: float, shown: str, path: str, mark: str | None = None) -> str:  # noqa: ARG002 (a protocol)
        return self.words(shown, mark)

    def dash(self, why: str | None) -> str:
        return self.notes.dash(why)

    def words(self, said: str, mark: str | None = None) -> str:
        return said if mark is None else said + self.notes.mark(mark)

    def level(self, one: Fields) -> str:
        return str(one["level"])

    def quantile(self, one: Fields, metric: str, value: float, shown: str, path: str) -> str:  # noqa: ARG002 (a protocol)
        return shown
