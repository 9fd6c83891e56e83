"""Every pair behind a comparison: the same request in a baseline's run and in the other of the same paired launch.

A pair's own ratio is the only thing computed here; a mark of the paired plot stands for one.
"""

from collections.abc import Sequence
from typing import Any

from analysis.report_comparison import CONTROL
from analysis.report_gather import Entry
from analysis.report_html import Markup, details, join, scroller, slug, tag
from analysis.report_study import Paired, StudyView, pairs_of

Cell = list[tuple[Entry | None, Entry | None]]


def pair_tables(view: StudyView, arms: Sequence[str]) -> Markup:
    """Each arm's pairs by domain and prompt: a ratio a launch, each side linked to its request."""
    return join([_pair_table(view, arm) for arm in (None, *arms)])


def _pair_table(view: StudyView, arm: str | None) -> Markup | None:
    name = CONTROL if arm is None else arm
    launches = view.paired(arm)
    cells = _cells(launches)
    if not cells:
        return None
    titles = ["prompt", *(f"launch {paired.pair}: baseline, {name}, ratio" for paired in launches)]
    head = [tag("th", title, scope="col", class_=None if place else "l") for place, title in enumerate(titles)]
    bodies = []
    for domain in sorted({domain for domain, _ in cells}):
        rows = [
            tag(
                "tr",
                tag("td", prompt, class_="l"),
                [tag("td", [_pair(*pair) for pair in by_launch.get(paired.pair, [])]) for paired in launches],
            )
            for (of, prompt), by_launch in sorted(cells.items())
            if of == domain
        ]
        group = tag("tr", tag("th", domain, colspan=len(titles), scope="colgroup", class_="l"), class_="group")
        bodies.append(tag("tbody", group, rows, id=slug("pairs", name, domain)))
    whole = scroller(tag("table", tag("thead", tag("tr", head)), bodies), f"pairs of {name}")
    return tag("div", details(f"Every pair of {name}", whole), id=slug("pairs", name, "all"))


def _cells(launches: Sequence[Paired]) -> dict[tuple[str, str], dict[int, Cell]]:
    """The pairs by domain and prompt, and by launch."""
    cells: dict[tuple[str, str], dict[int, Cell]] = {}
    for paired in launches:
        for base, other in pairs_of(paired):
            either = base or other
            if either is not None:
                key = (either.request.domain, either.request.prompt_id)
                cells.setdefault(key, {}).setdefault(paired.pair, []).append((base, other))
    return cells


def _pair(base: Entry | None, other: Entry | None) -> Markup:
    rates = [None if entry is None else _rate(entry) for entry in (base, other)]
    sides = [
        tag("a", "-" if rate is None else f"{rate:.2f}", href=f"#{entry.anchor}") if entry is not None else "-"
        for entry, rate in zip((base, other), rates, strict=True)
    ]
    ratio = rates[1] / rates[0] if rates[0] and rates[1] else None
    return tag("span", sides[0], " ", sides[1], " ", tag("b", "-" if ratio is None else f"{ratio:.3f}"), class_="pair")


def _rate(entry: Entry) -> float | None:
    return entry.row.measures.decode_tok_per_s.value if entry.request.outcome == "completed" else None


def pairs_data(view: StudyView, arms: Sequence[str]) -> list[dict[str, Any]]:
    """The pairs for the paired plot: by arm, [launch, baseline's request, the arm's request]."""
    found = []
    for arm in (None, *arms):
        rows = [
            [paired.pair, base.number, other.number]
            for paired in view.paired(arm)
            for base, other in pairs_of(paired)
            if base is not None and other is not None and _rate(base) and _rate(other)
        ]
        if rows:
            found.append({"arm": CONTROL if arm is None else arm, "pairs": rows})
    return found
