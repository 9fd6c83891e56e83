"""The section on memory and capacity: logical bytes, the engine's own figures and the driver's readings, each apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import sweep_server_tables
from analysis.report_gather import RunView
from analysis.report_html import Markup, join, table, tag
from analysis.report_sweep import HtmlCells
from analysis.sweep_view import capacity_notes

Fields = Mapping[str, Any]
CAPTION = "Memory and capacity of each launch"
NOTE = (
    "logical: bytes a token by the model's configuration, and that times the tokens that the engine's cache holds."
    " engine: what the engine itself says it set aside, of one rank where it has several. driver: all sampled GPUs of"
    " the host, or those that the run names as its own, at the run's first sample and at the most. The three are"
    " different things and are never mixed."
)


def capacity_section(report: Fields, runs: Sequence[RunView]) -> Markup | None:
    """The table with its notes; None where nothing at all is known of any launch."""
    found = [one for one in report["capacity"] if _known(one)]
    if not found:
        return None
    cells = HtmlCells("capacity", runs)
    grid = sweep_server_tables.capacity(report["capacity"], cells)
    return join(
        [
            table(grid.titles, grid.rows, left=grid.left, caption=CAPTION),
            tag("p", NOTE, class_="note"),
            *[tag("p", said, class_="note") for said in capacity_notes(report)],
            cells.whys.list(),
        ]
    )


def _known(one: Fields) -> bool:
    return any(one[name] is not None for name in ("tokens", "engine_bytes", "driver_most_bytes"))
