"""The case study's two CSVs: the saved observations, and the shifted file that its harness wrote.

Observations: seven named columns. The shifted CSV: its header has 14 names, its rows 10 values, because the writer left
out config_name, model, prompt_id and category, so that each value behind the time stamp stands four columns too far
left. A row is re-read under its right names and must satisfy the identities of its own numbers (total = TTFT + decode,
rate = tokens / decode, end-to-end rate = tokens / total), else the file is refused. What is not in a file (names of
prompts and configurations in the shifted CSV) is None.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from analysis.audit_case import N_PROMPTS
from analysis.audit_rows import FORMS, SavedRow, Source, source
from analysis.errors import AnalysisError

OBSERVED = ("config", "order", "prompt_id", "category", "completion_tokens", "ttft_ms", "client_decode_tok_s")
HARNESS = (
    *("timestamp", "config_name", "model", "prompt_id", "category", "prompt_tokens", "completion_tokens", "ttft_s"),
    *("decode_time_s", "total_time_s", "decode_tok_per_sec", "e2e_tok_per_sec", "spec_accept_rate"),
    "spec_accept_length",
)
LEFT_OUT = ("config_name", "model", "prompt_id", "category")
SHIFTED = tuple(name for name in HARNESS if name not in LEFT_OUT)
AGREE_WITHIN = Decimal("0.02")  # of the value; the file rounds, and a wrong column is off by far more


def observations(path: Path, digest: str, text: str) -> Source:
    """Read the saved observations, columns by name in any order."""
    rows = []
    for line, fields in _records(path, text, (len(OBSERVED),)):
        row = SavedRow(
            config=_word(path, line, "config", fields),
            order=_whole(path, line, "order", fields),
            prompt_id=_word(path, line, "prompt_id", fields),
            category=_word(path, line, "category", fields),
            completion_tokens=_whole(path, line, "completion_tokens", fields),
            ttft_ms=_number(path, line, "ttft_ms", fields),
            rate=_number(path, line, "client_decode_tok_s", fields),
        )
        rows.append(row)
    return source(path, digest, "observations", rows)


def harness_csv(path: Path, digest: str, text: str) -> Source:
    """Read the harness's CSV, shifted rows and whole ones."""
    rows: list[SavedRow] = []
    shifted = 0
    for line, fields in _records(path, text, (len(HARNESS), len(SHIFTED)), names={len(SHIFTED): SHIFTED}):
        shifted += "config_name" not in fields
        tokens = _whole(path, line, "completion_tokens", fields)
        rate, ttft_s = _number(path, line, "decode_tok_per_sec", fields), _number(path, line, "ttft_s", fields)
        decode_s, total_s = _number(path, line, "decode_time_s", fields), _number(path, line, "total_time_s", fields)
        _must_agree(path, line, "total_time_s", total_s, ttft_s + decode_s)
        _must_agree(path, line, "decode_tok_per_sec", rate, tokens / decode_s)
        if fields["e2e_tok_per_sec"].strip():
            _must_agree(path, line, "e2e_tok_per_sec", _number(path, line, "e2e_tok_per_sec", fields), tokens / total_s)
        rows.append(
            SavedRow(
                config=fields.get("config_name") or None,
                order=len(rows) + 1,
                prompt_id=fields.get("prompt_id") or None,
                category=fields.get("category") or None,
                completion_tokens=tokens,
                ttft_ms=ttft_s * 1000,
                rate=rate,
            )
        )
    note = f"{shifted} of {len(rows)} rows hold 10 values under 14 names and were re-read under their right names"
    numbered = _numbered(rows)
    return source(path, digest, "shifted csv", numbered, notes=(note,) if shifted else ())


def _numbered(rows: Sequence[SavedRow]) -> list[SavedRow]:
    """The shifted CSV names no order: its rows were appended, so a row's order is its place in its configuration."""
    counts: dict[str | None, int] = {}
    whole = len(rows) % N_PROMPTS == 0
    found = []
    for row in rows:
        counts[row.config] = place = counts.get(row.config, 0) + 1
        order = (place - 1) % N_PROMPTS + 1 if row.config is None and whole else place
        found.append(replace(row, order=order))
    return found


def _records(
    path: Path, text: str, widths: Sequence[int], *, names: Mapping[int, Sequence[str]] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows by name; each must have one of the widths. ``names`` gives other names to rows of another width."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = cells
            elif len(cells) not in widths:
                wanted = " or ".join(str(width) for width in widths)
                raise AnalysisError(
                    f"a row of {len(cells)} values where {wanted} are expected",
                    "the file is cut or was edited: give it as written",
                    path=path,
                    line=reader.line_num,
                    value=cells,
                )
            else:
                yield reader.line_num, dict(zip((names or {}).get(len(cells), header), cells, strict=True))
    except csv.Error as error:
        raise AnalysisError(f"is no CSV ({error})", "give it as written", path=path, line=reader.line_num) from error


def _must_agree(path: Path, line: int, name: str, said: Decimal, found: Decimal) -> None:
    if abs(said - found) > AGREE_WITHIN * found:
        raise AnalysisError(
            f"{name} is {said} where the row's other numbers give {found:.4f}: these are not the columns they seem",
            "the file's columns are shifted otherwise than the case study's: give it as its harness wrote it",
            path=path,
            line=line,
            value=str(said),
        )


def _word(path: Path, line: int, name: str, fields: Mapping[str, str]) -> str:
    if not fields[name].strip():
        raise AnalysisError(f"{name} is empty", "every row needs one", path=path, line=line)
    return fields[name].strip()


def _whole(path: Path, line: int, name: str, fields: Mapping[str, str]) -> int:
    value = _number(path, line, name, fields)
    if value != int(value):
        raise AnalysisError(f"{name} = {fields[name]!r} is no whole number", FORMS, path=path, line=line, value=value)
    return int(value)


def _number(path: Path, line: int, name: str, fields: Mapping[str, str]) -> Decimal:
    try:
        value = Decimal(fields[name].strip())
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value <= 0:
        raise AnalysisError(
            f"{name} = {fields[name]!r} is no positive number",
            "leave out what was not measured",
            path=path,
            line=line,
            value=fields[name],
        )
    return value
