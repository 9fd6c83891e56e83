"""Plain aligned tables for a terminal. The only place where seconds become milliseconds (``*_ms``, in print only).

A value that is not known prints as a dash with a number, and the reason stands under the table at that number: a
reader never meets a 0 that nobody measured.
"""

import textwrap
import unicodedata
from collections.abc import Sequence

WIDTH = 100
DASH = "-"


class Notes:
    """The reasons behind the dashes of one print-out, numbered in the order they were first met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def dash(self, why: str | None) -> str:
        """A dash that refers to its reason; without a reason the dash says that none is on record."""
        return DASH + self.mark(why or "no reason on record")

    def mark(self, words: str) -> str:
        """A number in brackets that refers to these words under the table."""
        return f"[{self._numbers.setdefault(words, len(self._numbers) + 1)}]"

    def lines(self) -> list[str]:
        """One wrapped line for each reason."""
        found = []
        for why, number in self._numbers.items():
            found += wrapped(why, lead=f"[{number}] ")
        return found


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Lines of a table: columns named in ``left`` are left-aligned, all others right; no trailing blanks."""
    cells = [list(titles), *[list(row) for row in rows]]
    if any(len(row) != len(titles) for row in cells):
        raise ValueError(f"each row must have {len(titles)} cells, as the titles {tuple(titles)} have")
    widths = [max(width(row[column]) for row in cells) for column in range(len(titles))]
    lines = [
        "  ".join(_padded(one_line(text), widths[column], column in left) for column, text in enumerate(row)).rstrip()
        for row in cells
    ]
    return [lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]]


def wrapped(text: str, *, lead: str = "") -> list[str]:
    """The text in lines of at most 100 columns, later lines indented to stand under the first one's text."""
    return textwrap.wrap(
        lead + running(text),
        width=WIDTH,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [lead.rstrip()]


def one_line(text: str) -> str:
    """The text with control characters (new lines, escapes) made visible, so that data cannot move the cursor."""
    return "".join(char if char.isprintable() or char == " " else repr(char)[1:-1] for char in text)


def running(text: str) -> str:
    """As ``one_line``, a space for each new line: for words within a sentence."""
    return one_line(text.replace("\r\n", " ").replace("\n", " "))


def width(text: str) -> int:
    """Columns the text takes in a terminal: wide characters two, combining marks none."""
    columns = 0
    for char in one_line(text):
        if not unicodedata.combining(char):
            columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return columns


def _padded(text: str, columns: int, left: bool) -> str:
    gap = " " * (columns - width(text))
    return text + gap if left else gap + text


def ms(value_s: float) -> str:
    """Seconds printed as milliseconds: 5052, 380.4, 0.43."""
    value_ms = value_s * 1000
    if value_ms >= 1000:
        return f"{value_ms:.0f}"
    return f"{value_ms:.1f}" if value_ms >= 10 else f"{value_ms:.2f}"


def fine_ms(value_s: float) -> str:
    """As ``ms``, with the digits that a few microseconds need: 0.43, 0.0031."""
    return ms(value_s) if value_s == 0 or value_s >= 1e-4 else f"{value_s * 1000:.4f}"


def number(value: float, digits: int = 2) -> str:
    """A plain decimal number."""
    return f"{value:.{digits}f}"
