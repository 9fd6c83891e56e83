"""The section on where the GPU's time went: shares by kernel class, from profiler traces that a run holds.

The numbers are those of ``trace --json``. A run's traces lie in its folder; a report of ``trace --json`` kept beside
the folder as ``RUN.trace.json`` is taken in their place. Traces that are too large to be read for a page are named, and
the command that reads them. A collective share comes from a trace or isn't stated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.profiled import traces_of
from analysis.report_html import Child, Markup, Whys, join, number, prose, slug, table, tag
from analysis.report_page import figure
from analysis.report_requests import href
from analysis.tables import ms
from analysis.trace import trace
from analysis.trace_classes import CLASSES
from evidence.errors import EvidenceError

Fields = Mapping[str, Any]
MOST_BYTES = 64 << 20  # of all trace files of a run, compressed as they lie there
SHOWN = (*CLASSES, "idle")
NOTE = (
    "Shares of the profiled window, in which every instant counts once and is given to the first class that ran in it."
    " A profiled server is slower: kernel times stand, and no latency or rate of a profiled launch does."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """The section, and what its charts draw: of each run the shares of its ranks."""

    section: Markup | None
    data: list[list[dict[str, Any]]]


def traces_section(runs: Sequence[tuple[str, Path]], beside: Path) -> Traced:
    """The traces of each run by its shown name and folder; no section where no run has any."""
    parts: list[Markup] = []
    drawn: list[list[dict[str, Any]]] = []
    for name, path in runs:
        found = _found(path)
        if found is not None:
            parts.append(_of_run(name, path, found, drawn, beside))
    section = join([*parts, tag("p", NOTE, class_="note")]) if parts else None
    return Traced(section=section, data=drawn)


def _found(path: Path) -> Fields | str | None:
    """What the traces of a run say, or why nothing; None where it has none."""
    files = traces_of(path)
    kept = path.with_name(f"{path.name}.trace.json")
    if kept.is_file():
        return _kept(kept)
    return _read(files, path) if files else None


def _of_run(name: str, path: Path, found: Fields | str, drawn: list[list[dict[str, Any]]], beside: Path) -> Markup:
    links = [[" ", tag("a", file.name, href=href(file, beside))] for file in traces_of(path)]
    title = tag("h3", name)
    if isinstance(found, str):
        return join([title, tag("p", prose(found), links, class_="warn")])
    chart = None
    bars = _bars(found["ranks"])
    if bars:
        drawn.append(bars)
        chart = figure("shares", "Shares of the window by kernel class, each rank a bar.", data_place=len(drawn) - 1)
    return join([title, *_faults(found), chart, _table(found["ranks"], name), _said(found, links)])


def _kept(file: Path) -> Fields | str:
    """A report of ``trace --json``, or why it cannot be taken."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        return f"{file.name} cannot be read ({error}); make it anew with: analysis trace --json --run RUN"
    if not isinstance(found, Mapping) or not isinstance(found.get("ranks"), list):
        return f"{file.name} is no report of trace --json; take it away, or make it anew"
    return found


def _read(files: Sequence[Path], run: Path) -> Fields | str:
    size = sum(file.stat().st_size for file in files)
    if size > MOST_BYTES:
        return (
            f"{len(files)} traces of {size / 2**20:.0f} MiB are not read for this page: run `python -m analysis trace"
            f" --json --run {run.name}` and keep what it prints beside the folder as {run.name}.trace.json."
        )
    try:
        return trace(files, run=run)
    except (EvidenceError, AnalysisError) as error:
        return f"the traces could not be read: {error}"


def _faults(found: Fields) -> list[Markup]:
    return [
        tag("p", tag("b", str(one["code"])), prose(f": {one['seen']}; {one['remedy']}"), class_="warn")
        for one in found.get("failures") or ()
    ]


def _who(rank: Fields, ranks: Sequence[Fields]) -> str:
    """Rank and GPU; the file too where two of them are called alike."""
    said = f"rank {rank['rank'] if rank['rank'] is not None else 'unknown'}, GPU {rank['device']}"
    alike = [one for one in ranks if (one["rank"], one["device"]) == (rank["rank"], rank["device"])]
    return said if len(alike) < 2 else f"{Path(str(rank['file'])).name.partition('.')[0]}, {said}"


def _bars(ranks: Sequence[Fields]) -> list[dict[str, Any]]:
    """Shares by class of the ranks whose traces were read whole."""
    return [
        {"who": _who(rank, ranks), "shares": [[name, rank["classes"][name]["share"]] for name in SHOWN]}
        for rank in ranks
        if all(rank["classes"][name]["share"] is not None for name in SHOWN)
    ]


def _table(ranks: Sequence[Fields], name: str) -> Markup:
    whys = Whys(slug("trace", name))
    rows: list[list[Child]] = []
    for rank in ranks:
        shares = [rank["classes"][one]["share"] for one in SHOWN]
        collective, passes = rank["collective"], rank["passes"]
        each = passes["gpu_busy_s_per_pass"]
        rows.append(
            [
                _who(rank, ranks),
                rank["n_kernels"],
                number(rank["window"]["span_s"], ms(rank["window"]["span_s"])),
                *[
                    whys.dash("the trace was not read whole") if share is None else number(share, f"{share:.1%}")
                    for share in shares
                ],
                whys.dash(collective["why"])
                if collective["share"] is None
                else number(collective["share"], f"{collective['share']:.1%}"),
                passes["n"],
                whys.dash(passes["why"]) if each is None else number(each, ms(each)),
            ]
        )
    titles = ["rank", "kernels", "window ms", *SHOWN, "collective alone", "passes", "busy ms a pass"]
    return join([table(titles, rows, caption=f"Time shares by kernel class, {name}"), whys.list()])


def _said(found: Fields, links: Sequence[Child]) -> Markup:
    notes = [str(one) for one in found.get("notes") or ()]
    return tag("p", prose(" ".join(notes)), " Traces:" if links else None, links, class_="note")
