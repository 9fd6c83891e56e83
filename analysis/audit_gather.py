"""The rows of several files brought together by configuration: named where a file left the names out, cross-checked.

Rows without a configuration (the shifted CSV) are cut into stretches of the study's 90 prompts where their number
allows it, and each stretch is named after the configuration whose rows it repeats from the first on (tokens equal, rate
and TTFT equal to the printed digits), looked for in the other files first and in the project's saved observations then.
A stretch that repeats none is called unnamed; if it has 90 rows, its prompts are taken from the study's fixed order,
and that is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from pathlib import Path

from analysis.audit_case import DOMAINS, N_PROMPTS
from analysis.audit_csv import observations
from analysis.audit_rows import SavedRow, Source
from analysis.errors import AnalysisError

SAVED = Path(__file__).resolve().parent.parent / "examples" / "case-study" / "observations.csv"
SAME_RATE, SAME_TTFT_MS = Decimal("0.00501"), Decimal("0.0501")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """One configuration's rows in the order sent, and the files they were read from."""

    name: str
    rows: tuple[SavedRow, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]


def gather(sources: Sequence[Source], *, saved: Path = SAVED) -> dict[str, Config]:
    """The configurations in the order met. Raises AnalysisError where two files tell different rows of one."""
    named: dict[str, tuple[SavedRow, ...]] = {}
    for one in sources:
        for name, rows in _by_config(one).items():
            named.setdefault(name, rows)
    known = dict(named)
    if any(row.config is None for one in sources for row in one.rows):
        known = {**_saved(saved), **named}
    found: dict[str, Config] = {}
    numbers = count(1)
    for one in sources:
        parts = [(name, rows, ()) for name, rows in _by_config(one).items()]
        for name, rows, notes in [*parts, *_unnamed(one, known, numbers)]:
            found[name] = _merge(found.get(name), Config(name=name, rows=rows, files=(str(one.path),), notes=notes))
    return found


def _by_config(one: Source) -> dict[str, tuple[SavedRow, ...]]:
    rows: dict[str, list[SavedRow]] = {}
    for row in one.rows:
        if row.config is not None:
            rows.setdefault(row.config, []).append(row)
    return {name: tuple(sorted(found, key=lambda row: row.order)) for name, found in rows.items()}


def _unnamed(
    one: Source, known: Mapping[str, Sequence[SavedRow]], numbers: "count[int]"
) -> list[tuple[str, tuple[SavedRow, ...], tuple[str, ...]]]:
    rows = [row for row in one.rows if row.config is None]
    if not rows:
        return []
    size = N_PROMPTS if len(rows) % N_PROMPTS == 0 else len(rows)
    found: list[tuple[str, tuple[SavedRow, ...], tuple[str, ...]]] = []
    for start in range(0, len(rows), size):
        stretch = rows[start : start + size]
        place = f"rows {start + 1} to {start + size} of {one.path.name}"
        twin = next((name for name, theirs in known.items() if _repeats(stretch, theirs)), None)
        if twin is not None:
            named = [
                replace(row, config=twin, prompt_id=their.prompt_id, category=their.category)
                for row, their in zip(stretch, known[twin], strict=False)
            ]
            found.append((twin, tuple(named), (f"{place} carry no names; they repeat the saved rows of {twin}",)))
            continue
        name = f"unnamed_{next(numbers)}"
        note = f"{place} carry no names and repeat no configuration known here"
        if size == N_PROMPTS:
            each = N_PROMPTS // len(DOMAINS)
            stretch = [
                replace(row, prompt_id=f"{DOMAINS[at // each]}_{at % each + 1:02d}", category=DOMAINS[at // each])
                for at, row in enumerate(stretch)
            ]
            note += "; prompts are taken from the study's fixed order (30 code, 30 prose, 30 json)"
        found.append((name, tuple(replace(row, config=name) for row in stretch), (note,)))
    return found


def _saved(path: Path) -> dict[str, tuple[SavedRow, ...]]:
    """The project's own copy of the observations, where it is there."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}
    return _by_config(observations(path, "", text))


def _repeats(rows: Sequence[SavedRow], theirs: Sequence[SavedRow]) -> bool:
    return len(rows) <= len(theirs) and not any(_differ(one, other) for one, other in zip(rows, theirs, strict=False))


def _differ(one: SavedRow, other: SavedRow) -> bool:
    return (
        one.completion_tokens != other.completion_tokens
        or abs(one.rate - other.rate) > SAME_RATE
        or abs(one.ttft_ms - other.ttft_ms) > SAME_TTFT_MS
    )


def _merge(first: Config | None, second: Config) -> Config:
    """Two files on one configuration must tell the same rows; what only one of them names is taken over."""
    if first is None:
        return second
    ours, theirs = {row.order: row for row in first.rows}, {row.order: row for row in second.rows}
    both = sorted(ours.keys() & theirs.keys())
    for order in both:
        one, other = ours[order], theirs[order]
        if _differ(one, other) or (one.prompt_id and other.prompt_id and one.prompt_id != other.prompt_id):
            raise AnalysisError(
                f"{first.name}, request {order} differs between {first.files[0]} ({_said(one)}) and {second.files[0]} "
                f"({_said(other)})",
                "give the files of one launch of each configuration",
                value=second.name,
            )
    rows = tuple({**theirs, **ours}[order] for order in sorted({**ours, **theirs}))
    note = f"{second.files[0]} tells the same {len(both)} rows as {first.files[0]}"
    return Config(
        name=first.name, rows=rows, files=(*first.files, *second.files), notes=(*first.notes, *second.notes, note)
    )


def _said(row: SavedRow) -> str:
    return f"{row.prompt_id}, {row.completion_tokens} tokens, {row.rate} tok/s, TTFT {row.ttft_ms} ms"
