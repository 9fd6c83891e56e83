"""What goes wrong with evidence: one error for what cannot be written or read, one record for what a check found."""

from pathlib import Path
from typing import Literal, NamedTuple

ProblemCode = Literal[
    # the folder as a whole
    "manifest_missing",
    "manifest_unreadable",
    "seal_missing",  # not a result: the writer was killed, or is still at work
    "seal_unreadable",
    "recovered",  # closed afterwards; the recorder did not live to seal it
    "unknown_schema_version",
    "schema_violation",
    "torn_tail",  # a half-written last line or frame, kept and not read
    # the seal against what is there
    "hash_mismatch",
    "file_missing",
    "file_extra",
    "counts_mismatch",
    "wrong_id",
    # the plan
    "plan_missing",
    "plan_digest_mismatch",
    "plan_count_mismatch",
    "plan_id_duplicate",
    "plan_id_unknown",
    "planned_not_started",
    # requests
    "sequence_duplicate",
    "sequence_gap",
    "started_twice",  # one planned request was started more than once
    "ended_without_started",
    "unfinished",  # started, and no line says how it ended
    "wrong_worker",
    "differs_from_plan",
    "output_sha256_mismatch",
    # levels
    "level_duplicate",
    "level_differs",  # from the plan or the scenario
    "level_counts_mismatch",  # with the lines of its requests
    "level_instants",  # that cannot follow each other
    "sent_outside_level",
    # raw segments
    "wire_out_of_range",
    "wire_frames_mismatch",
    "wire_unreferenced",
    "wire_without_reason",
]

LEVEL_CODES: frozenset[ProblemCode] = frozenset(
    {"level_duplicate", "level_differs", "level_counts_mismatch", "level_instants", "sent_outside_level"}
)


class Problem(NamedTuple):
    """One thing a check of a folder found: ``file`` is relative to the folder, ``line`` counts from 1."""

    code: ProblemCode
    detail: str
    file: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.code}: {self.detail}"


class EvidenceError(Exception):
    """Evidence cannot be written (``writing``: exit code 3, the run must stop) or cannot be read (exit code 2).

    ``path`` is the file or folder, or the URL of one (without credentials); ``line`` counts from 1, ``value`` is what
    was seen. ``remedy`` says what to do and ends the message.
    """

    def __init__(
        self,
        path: Path | str,
        what: str,
        remedy: str,
        *,
        line: int | None = None,
        value: object | None = None,
        writing: bool = False,
    ) -> None:
        self.path = path
        self.what = what
        self.remedy = remedy
        self.line = line
        self.value = value
        self.writing = writing
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {what}; {remedy}")

    @property
    def exit_code(self) -> int:
        """3 when evidence could not be written, 2 when it could not be read."""
        return 3 if self.writing else 2
