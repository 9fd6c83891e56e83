"""Every request of a report: the data behind its points, and the table that all points and numbers lead to.

A page holds a bounded part of what is on record, and says which: texts are stored once for each distinct text and cut
to one common length where all of them would be too long; chunk marks are thinned to a share for each request, the
first, the last and the one after the longest gap always among them. The raw record, named by file and line, is whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from analysis.columns import packed, whole
from analysis.report_gather import Entry, RunView, domains_of
from analysis.report_html import Markup, join, json_size, number, prose, scroller, slug, tag
from analysis.report_rows import as_sent, column, left_out, rows_each, shown
from analysis.tables import ms
from evidence.layout import PLAN
from evidence.records import ChunkMark

OUTPUT_BYTES = 1_700_000  # of all distinct outputs in the page
PROMPT_BYTES = 400_000
TOTAL_MARKS = 18_000
FEWEST_MARKS = 8
MOST_MARKS = 400
ERROR_CHARS = 2_000

FIELDS = (
    "run", "plan", "prompt", "domain", "level", "repeat", "phase", "outcome", "sent_s", "ttft_s", "ttfv_s", "tpot_s",
    "tpot_bounds_s", "rate", "rate_bounds", "e2e_s", "n_tokens", "n_prompt_tokens", "finish", "output", "question",
    "sha256", "file", "line", "plan_line", "wire", "marks", "drafted", "accepted", "ok", "why", "error", "rate_why",
    "order",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """Distinct texts by place. ``cut`` is the length all were cut to, None where every one is whole."""

    texts: tuple[tuple[str, int], ...]  # as far as the page holds it, and its whole length in characters
    places: dict[str, int]
    cut: int | None

    def place(self, said: str) -> int:
        return self.places[said]


def keep(said: Iterable[str], limit_bytes: int) -> Texts:
    """The distinct texts, cut to the longest common length at which all of them fit."""
    distinct = list(dict.fromkeys(said))
    places = {one: place for place, one in enumerate(distinct)}
    cut = _common_length(distinct, limit_bytes)
    return Texts(texts=tuple((one[:cut], len(one)) for one in distinct), places=places, cut=cut)


def _common_length(distinct: Sequence[str], limit_bytes: int) -> int | None:
    if sum(map(json_size, distinct)) <= limit_bytes:
        return None
    low, high = 0, max(map(len, distinct))
    while low < high:  # the largest length that fits
        middle = (low + high + 1) // 2
        if sum(json_size(one[:middle]) for one in distinct) <= limit_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def asked(entry: Entry) -> str:
    """What was asked, as one text."""
    messages = entry.plan.get("messages")
    if isinstance(messages, list | tuple):
        return "\n\n".join(f"[{m.get('role')}] {m.get('content')}" for m in messages if isinstance(m, dict))
    return str(entry.plan.get("prompt") or "")


def thinned(marks: Sequence[ChunkMark], most: int) -> list[list[float | int | None]]:
    """At most about ``most`` of the marks: [after_s, tokens so far or null, characters so far]."""
    columns = packed(marks)
    places: Iterable[int] = range(len(marks))
    if len(marks) > most:
        longest = int(np.argmax(np.diff(columns.after_s))) + 1
        places = sorted(
            {round(place * (len(marks) - 1) / (most - 1)) for place in range(most)} | {longest, longest - 1}
        )
    characters = np.cumsum(whole(columns.characters))
    return [
        [round(columns.after_s[at], 5), None if columns.tokens is None else columns.tokens[at], int(characters[at])]
        for at in places
    ]


def by_difference(marks: Sequence[Sequence[float | int | None]]) -> list[list[int | None]]:
    """Each mark as what it adds to the one before: ticks of 10 us, tokens (null where none are counted), characters."""
    found: list[list[int | None]] = []
    ticks = tokens = characters = 0
    for after_s, so_far, n_chars in marks:
        now, said = round((after_s or 0) * 100_000), int(n_chars or 0)
        found.append([now - ticks, None if so_far is None else int(so_far) - tokens, said - characters])
        ticks, tokens, characters = now, tokens if so_far is None else int(so_far), said
    return found


def marks_each(entries: Sequence[Entry]) -> int:
    """How many marks the page holds of each of these requests."""
    total = sum(len(entry.request.chunks) for entry in entries)
    if total <= TOTAL_MARKS:
        return max((len(entry.request.chunks) for entry in entries), default=0)
    return min(MOST_MARKS, max(FEWEST_MARKS, TOTAL_MARKS // len(entries)))


def embedded(runs: Sequence[RunView], domains: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The requests for the page's script, and what of their records is not in the page, in sentences."""
    entries = [entry for run in runs for entry in run.entries]
    outputs = keep((entry.request.output_text for entry in entries), OUTPUT_BYTES)
    prompts = keep((asked(entry) for entry in entries), PROMPT_BYTES)
    files = list(dict.fromkeys(entry.file for entry in entries))
    with_marks = frozenset[int]().union(*(shown(run, rows_each(len(runs))) for run in runs))
    most = marks_each([entry for entry in entries if entry.number in with_marks])
    places = {domain: place for place, domain in enumerate(domains)}
    rows, held = [], 0
    for run in runs:
        order = {entry.number: place for place, entry in enumerate(as_sent(run.measured))}
        for entry in run.entries:
            marks = by_difference(thinned(entry.request.chunks, most)) if entry.number in with_marks else None
            held += len(marks or ())
            rows.append(_row(run, entry, order.get(entry.number), places, files, outputs, prompts, marks))
    said = []
    total = sum(len(entry.request.chunks) for entry in entries)
    if held < total:
        of = "" if len(with_marks) == len(entries) else f" of the {len(with_marks)} requests with a row in its tables"
        said.append(
            f"The page holds {held} of {total} chunk marks, thinned evenly{of}; all of them are in the raw records."
        )
    for name, kept in (("answers", outputs), ("prompts", prompts)):
        if kept.cut is not None:
            said.append(
                f"{name.capitalize()} are cut after {kept.cut} characters in the page; the raw records hold them whole."
            )
    data = {
        "fields": FIELDS,
        "n": len(rows),
        "columns": [column(values) for values in zip(*rows, strict=True)] if rows else [[] for _ in FIELDS],
        "files": files,
        "plan_file": PLAN,
        "outputs": [list(one) for one in outputs.texts],
        "prompts": [list(one) for one in prompts.texts],
    }
    return data, said


def _row(
    run: RunView,
    entry: Entry,
    order: int | None,
    domains: dict[str, int],
    files: Sequence[str],
    outputs: Texts,
    prompts: Texts,
    marks: list[list[int | None]] | None,
) -> list[Any]:
    request, found, answer, accepted = entry.request, entry.row.measures, entry.answer, entry.acceptance or {}
    sent = None if request.sent_at_unix_s is None else round(request.sent_at_unix_s - run.t0_unix_s, 6)
    wire = None if request.wire is None else [request.wire.file, request.wire.offset, request.wire.n_bytes]
    error = None
    if request.error is not None:
        error = f"{request.error.kind}: {request.error.message}"[:ERROR_CHARS]
    bounded = found.tpot_s.value is None
    values: dict[str, Any] = {
        "run": run.index,
        "plan": request.plan_id,
        "prompt": request.prompt_id,
        "domain": domains.get(request.domain, -1),
        "level": request.level,
        "repeat": request.repeat,
        "phase": request.phase,
        "outcome": request.outcome,
        "sent_s": sent,
        "ttft_s": found.ttft_s.value,
        "ttfv_s": found.ttfv_s.value,
        "tpot_s": found.tpot_s.value,
        "tpot_bounds_s": found.tpot_bounds_s.bounds if bounded else None,
        "rate": found.decode_tok_per_s.value,
        "rate_bounds": found.decode_bounds_tok_per_s.bounds if bounded else None,
        "e2e_s": found.e2e_s.value,
        "n_tokens": request.n_completion_tokens,
        "n_prompt_tokens": request.n_prompt_tokens,
        "finish": request.finish_reason,
        "output": outputs.place(request.output_text),
        "question": prompts.place(asked(entry)),
        "sha256": request.output_sha256[:16],
        "file": files.index(entry.file),
        "line": entry.line,
        "plan_line": entry.plan_line,
        "wire": wire,
        "marks": marks,
        "drafted": accepted.get("n_drafted"),
        "accepted": accepted.get("n_accepted"),
        "ok": None if answer is None else answer.ok,
        "why": None if answer is None else answer.why,
        "error": error,
        "rate_why": found.decode_tok_per_s.why,
        "order": order,
    }
    return [values[name] for name in FIELDS]


def table_of(run: RunView, beside: Path, most: int) -> Markup:
    """The requests of one run by domain, warm-up last, each with its anchor; links lead from the folder ``beside``.

    About ``most`` rows at most: what is left out of a longer run is said above them.
    """
    rows = shown(run, most)
    said = left_out(run, rows, most)
    levels = any(entry.request.level is not None for entry in run.entries)
    titles = ["request", "prompt", *(["level"] if levels else []), "sent s", "TTFT ms", "TPOT ms", "tok/s", "E2E ms",
              "tokens", "finish", "outcome", "raw record"]  # fmt: skip
    left = {0, 1, len(titles) - 1, len(titles) - 2, len(titles) - 3}
    head = tag(
        "tr",
        [
            tag("th", tag("button", title, type="button"), scope="col", class_="l" if place in left else None)
            for place, title in enumerate(titles)
        ],
    )
    groups = [(name, [e for e in run.measured if e.request.domain == name]) for name in domains_of([run])]
    groups.append(("warm-up", [entry for entry in run.entries if not entry.measured]))
    bodies = []
    for name, own in groups:
        if own:
            kept = [entry for entry in as_sent(own) if entry.number in rows]
            count = f"{name}: {len(own)}" + ("" if len(kept) == len(own) else f", {len(kept)} of them here")
            group = tag("th", count, colspan=len(titles), scope="colgroup", class_="l")
            bodies.append(
                tag(
                    "tbody",
                    tag("tr", group, class_="group"),
                    [_line(run, entry, levels, beside) for entry in kept],
                    id=slug("requests", run.index, name),
                    data_domain=name,
                )
            )
    whole = tag("table", tag("thead", head), bodies, class_="requests")
    note = None if said is None else tag("p", prose(said), class_="note")
    return join([note, scroller(whole, f"requests of {run.name}")])


def _line(run: RunView, entry: Entry, levels: bool, beside: Path) -> Markup:
    request, found = entry.request, entry.row.measures
    sent = None if request.sent_at_unix_s is None else request.sent_at_unix_s - run.t0_unix_s
    bounds = found.tpot_bounds_s.bounds if found.tpot_s.value is None else None
    rates = found.decode_bounds_tok_per_s.bounds if found.decode_tok_per_s.value is None else None
    judged = "" if entry.answer is None or entry.answer.ok is None else (" valid" if entry.answer.ok else " invalid")
    cells = [
        tag("td", tag("a", request.plan_id, href=f"#{entry.anchor}"), class_="l"),
        tag("td", request.prompt_id + (f" #{request.repeat}" if request.repeat else ""), class_="l"),
        *([tag("td", request.level)] if levels else []),
        tag("td", "-" if sent is None else f"{sent:.2f}"),
        tag("td", _shown(found.ttft_s.value, None, ms)),
        tag("td", _shown(found.tpot_s.value, bounds, ms)),
        tag("td", _shown(found.decode_tok_per_s.value, rates, lambda rate: f"{rate:.2f}")),
        tag("td", _shown(found.e2e_s.value, None, ms)),
        tag("td", "-" if request.n_completion_tokens is None else request.n_completion_tokens),
        tag("td", request.finish_reason or "-", class_="l"),
        tag("td", request.outcome + judged, class_="l"),
        tag("td", raw_link(run.path, entry.file, entry.line, beside), class_="l mono"),
    ]
    return tag("tr", cells, id=entry.anchor, class_=None if request.outcome == "completed" else "failed")


def _shown(value: float | None, bounds: tuple[float, float] | None, shown: Any) -> Markup:
    if value is not None:
        return number(value, shown(value))
    if bounds is not None:
        return join([f"{shown(bounds[0])}..{shown(bounds[1])}"])
    return Markup("-")


def raw_link(folder: Path, file: str, line: int | None, beside: Path) -> Markup:
    """A file of a folder with the line, linked from where the report lies."""
    return tag("a", file if line is None else f"{file}:{line}", href=href(folder / file, beside))


def href(path: Path, beside: Path) -> str:
    """A relative link from the folder ``beside`` to a path."""
    return quote(relpath(path.resolve(), beside.resolve()))
