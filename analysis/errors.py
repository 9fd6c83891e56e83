"""What goes wrong in this room apart from unreadable evidence: input that can be read and can't be analysed."""

from pathlib import Path


class AnalysisError(Exception):
    """Input that cannot be analysed as asked (exit code 2), or output that can't be written (3).

    ``what`` says what was seen, ``value`` is the value at fault, ``path`` and ``line`` (from 1) where it stood, each
    None where that means nothing. ``remedy`` says what to do and ends the message.
    """

    def __init__(
        self,
        what: str,
        remedy: str,
        *,
        value: object | None = None,
        path: Path | None = None,
        line: int | None = None,
        exit_code: int = 2,
    ) -> None:
        self.what = what
        self.remedy = remedy
        self.value = value
        self.path = path
        self.line = line
        self.exit_code = exit_code
        place = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(f"{place}{what}; {remedy}")


class UsageError(Exception):
    """What was typed cannot be done. Exit code 2."""
