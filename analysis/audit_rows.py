"""The case study's saved requests: one row each, whatever file it was read from.

Numbers are kept as decimals: a median of printed numbers must not gain a digit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from analysis.errors import AnalysisError

Kind = Literal["observations", "console log", "shifted csv"]
FORMS = "give the saved observations, a console log of the harness, or the CSV it wrote"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedRow:
    """One request as saved. ``rate`` is the study's own: all tokens / (end of stream - first content)."""

    config: str | None
    order: int  # from 1
    prompt_id: str | None
    category: str | None
    completion_tokens: int
    ttft_ms: Decimal
    rate: Decimal
    accept_rate_percent: Decimal | None = None  # printed by the harness from a gauge; never in the saved logs


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file as read. ``printed`` holds a log's own summary by configuration and name."""

    path: Path
    sha256: str
    kind: Kind
    rows: tuple[SavedRow, ...]
    printed: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def source(
    path: Path,
    digest: str,
    kind: Kind,
    rows: Sequence[SavedRow],
    *,
    printed: Mapping[str, Mapping[str, Decimal]] | None = None,
    notes: tuple[str, ...] = (),
) -> Source:
    """A file's rows, at least one, each request of a configuration once. Raises AnalysisError."""
    if not rows:
        raise AnalysisError("holds no request", FORMS, path=path)
    seen: set[tuple[str | None, object]] = set()
    for row in rows:
        key = (row.config, row.prompt_id or f"{row.order} of {row.config}")
        if row.config is not None and key in seen:
            raise AnalysisError(f"{row.config} has {row.prompt_id} twice", "give each run once", path=path, value=key)
        seen.add(key)
    return Source(path=path, sha256=digest, kind=kind, rows=tuple(rows), printed=printed or {}, notes=notes)
