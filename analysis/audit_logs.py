"""The case study's saved files, told apart by their content, and its console logs.

A console log holds one or more blocks, each a header, one line a request and a summary. Lines that are none of these
are shown with their number, never skipped in silence; a log that ends early keeps the requests it has.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from analysis import audit_csv
from analysis.audit_rows import FORMS, SavedRow, Source, source
from analysis.errors import AnalysisError
from evidence.named_file import read_named

MOST_BYTES = 64 << 20  # the study's own files hold 100 kB
REQUEST = re.compile(
    r"\[(\d+)/(\d+)\] (\S+) \(([^)]*)\): Tokens: (\d+) \| TTFT: (\d+(?:\.\d+)?)ms \| Decode: (\d+(?:\.\d+)?) tok/s"
    r"(?: \| Accept Rate: (\d+(?:\.\d+)?)%)?"
)
STARTS = re.compile(r"Starting Benchmark: (\S+)")
DATASET = re.compile(r"Dataset: .*\((\d+) items, .*warmup=(\d+)\)")
SUMMARY = re.compile(r"SUMMARY FOR (\S+) \(n=(\d+)\)")
PRINTED = re.compile(r"(Best \(Max\)|Median|Mean|Min|StdDev):\s+(\d+(?:\.\d+)?) (tok/s|ms)")
KNOWN = re.compile(
    r"=+|Endpoint: .*|Running \d+ warmup requests\.\.\.|Warmup complete\.|Decode Throughput .*|Time-To-First-Token .*|"
    r"Results saved to: .*|BENCH_DONE|Speculative Accept Rate: .*"
)


def read(path: Path) -> Source:
    """Read a file of any of the three kinds. Raises AnalysisError or EvidenceError naming file and line."""
    data = read_named(path, MOST_BYTES, FORMS)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnalysisError(f"byte {error.start} is no UTF-8 text", FORMS, path=path) from error
    found = _read(path, hashlib.sha256(data).hexdigest(), text)
    if text.endswith(("\n", "\r")):
        return found
    return replace(found, notes=(*found.notes, "the last line has no line end: it may be cut within a number"))


def _read(path: Path, digest: str, text: str) -> Source:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if STARTS.search(text):
        return _log(path, digest, text)
    names = tuple(name.strip().strip('"') for name in first.split(","))
    if set(names) == set(audit_csv.OBSERVED) and len(names) == len(audit_csv.OBSERVED):
        return audit_csv.observations(path, digest, text)
    if names == audit_csv.HARNESS:
        return audit_csv.harness_csv(path, digest, text)
    raise AnalysisError(f"is none of the case study's forms; it begins {first[:60]!r}", FORMS, path=path, line=1)


def _log(path: Path, digest: str, text: str) -> Source:
    rows: list[SavedRow] = []
    printed: dict[str, dict[str, Decimal]] = {}
    notes: list[str] = []
    config, items, in_summary = None, 0, False
    for line, raw in enumerate(text.splitlines(), start=1):
        words = raw.strip()
        if found := STARTS.fullmatch(words):
            notes += _short(config, items, rows)
            config, items, in_summary = found[1], 0, False
        elif found := DATASET.fullmatch(words):
            items = int(found[1])
            notes.append(f"{config}: {found[2]} warm-up requests, taken from the first prompts of the same list")
        elif found := SUMMARY.fullmatch(words):
            in_summary = True
            if found[1] != config:
                notes.append(f"line {line}: the summary is for {found[1]}, the header for {config}")
        elif (found := PRINTED.fullmatch(words)) and in_summary and config is not None:
            unit = "rate" if found[3] == "tok/s" else "ttft"
            printed.setdefault(config, {})[f"{unit} {found[1].split()[0].lower()}"] = Decimal(found[2])
        elif (found := REQUEST.fullmatch(words)) and config is not None:
            rows.append(_log_row(found, config))
        elif words and not KNOWN.fullmatch(words):
            notes.append(f"line {line} is none that the harness prints: {words[:80]!r}")
    notes += _short(config, items, rows)
    notes += [f"{name}: no summary block, the log ends early" for name in _configs(rows) if name not in printed]
    return source(path, digest, "console log", rows, printed=printed, notes=tuple(notes))


def _log_row(found: re.Match[str], config: str) -> SavedRow:
    return SavedRow(
        config=config,
        order=int(found[1]),
        prompt_id=found[3],
        category=found[4],
        completion_tokens=int(found[5]),
        ttft_ms=Decimal(found[6]),
        rate=Decimal(found[7]),
        accept_rate_percent=None if found[8] is None else Decimal(found[8]),
    )


def _short(config: str | None, items: int, rows: Sequence[SavedRow]) -> list[str]:
    n_seen = sum(row.config == config for row in rows)
    return [f"{config}: {n_seen} of {items} requests are in the log"] if config and items and n_seen != items else []


def _configs(rows: Sequence[SavedRow]) -> list[str]:
    return list(dict.fromkeys(row.config for row in rows if row.config is not None))
