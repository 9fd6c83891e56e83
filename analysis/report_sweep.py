"""The section of a sweep: what it answers, throughput against latency, every number by level, the tables behind them.

The tables are those of ``sweep``, from the same functions; each number carries its exact value and its place in
``sweep --json``, a quantile leads to the request whose value it is, and a level to the requests of its launches.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import sweep_server_tables, sweep_tables
from analysis.report_gather import Entry, RunView
from analysis.report_html import Markup, Whys, join, number, slug, table, tag
from analysis.report_page import figure
from analysis.sweep_cells import Grid
from analysis.sweep_levels import FROM_SCHEDULE
from analysis.sweep_server import server_readings
from analysis.sweep_view import ARRIVALS, RATIOS, answers, load_legend, scheduled

Fields = Mapping[str, Any]
KEYS = "Arrow keys move from mark to mark, up and down between arms; Enter goes to the level's row."
TAILS = ("median", "p90", "p95", "p99")
CHARTED = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s", "decode": "decode_tok_per_s"}


class HtmlCells:
    """Cells for the page; ``analysis.sweep_cells`` says what each is for."""

    def __init__(self, section: str, runs: Sequence[RunView]) -> None:
        self.whys = Whys(section)
        self._section = section
        self._runs = {run.id: run for run in runs}
        self._named: set[str] = set()

    def number(self, value: float, shown: str, path: str, mark: str | None = None) -> str:
        said = number(value, shown, f"sweep.{path}")
        return said if mark is None else join([said, self.whys.mark(mark)])

    def dash(self, why: str | None) -> str:
        return self.whys.dash(why)

    def words(self, said: str, mark: str | None = None) -> str:
        return said if mark is None else join([said, self.whys.mark(mark)])

    def level(self, one: Fields) -> str:
        """The first time with its anchor and the way to its requests; later a link to that row."""
        anchor = level_anchor(one)
        if anchor in self._named or "launches" not in one:
            return tag("a", str(one["level"]), href=f"#{anchor}")
        self._named.add(anchor)
        links = [
            tag("a", str(run["pair"]) if one["n_launches"] > 1 else "requests",
                href=f"#{slug('requests', self._runs[run['run_id']].index)}",
                title=f"requests of launch {run['pair']}")
            for run in one["launches"]
            if run["run_id"] in self._runs
        ]  # fmt: skip
        return tag("td", str(one["level"]), [[" ", link] for link in links], class_="l", id=anchor)

    def quantile(self, one: Fields, metric: str, value: float, shown: str, path: str) -> str:
        said = number(value, shown, f"sweep.{path}")
        entry = None if metric in FROM_SCHEDULE else self._entry(one, metric, value)
        return said if entry is None else tag("a", said, href=f"#{entry.anchor}", title=entry.request.plan_id)

    def _entry(self, one: Fields, metric: str, value: float) -> Entry | None:
        for launch in one["launches"]:
            run = self._runs.get(launch["run_id"])
            for entry in () if run is None else run.measured:
                if entry.request.level == one["level"] and getattr(entry.row.measures, metric).value == value:
                    return entry
        return None


def level_anchor(one: Fields) -> str:
    """Where a level of an arm stands in the page."""
    return slug("level", one["role"], one["arm"], one["level"])


def sweep_section(report: Fields, runs: Sequence[RunView]) -> Markup | None:
    """Everything of a sweep; None where the runs have no levels."""
    levels, arms = report["levels"], report["arms"]
    if not levels:
        return None
    cells = HtmlCells("sweep", runs)
    load = sweep_tables.load(levels, cells)
    against = sweep_tables.against(arms, cells)
    several = len({(one["arm"], one["role"]) for one in levels}) > 1
    who = "; each line an arm" if several else ""
    body: list[Markup | None] = [
        _answers(report),
        figure("curve", f"Throughput of the server against latency of a request; each mark a level{who}. {KEYS}"),
        figure("sweep", f"One number by level{who}. {KEYS}"),
        _break_even(arms),
        _grid(load, "Load and throughput", load_legend(report)),
        _grid(against, "Arms against the baseline", RATIOS),
        _grid(sweep_tables.latencies(levels, cells), "Latency by the client's clock", scheduled(report)),
        _grid(sweep_tables.arrivals(levels, cells), "Arrivals", ARRIVALS),
        _grid(sweep_server_tables.server(levels, cells), "The server's own side", ""),
        _grid(sweep_tables.energy(levels, cells), "Energy a token by level", ""),
        cells.whys.list(),
    ]
    return join([part for part in body if part is not None])


def _answers(report: Fields) -> Markup | None:
    """The highest level that holds the objectives and the break-even of each arm, in sentences."""
    said = answers(report)
    return tag("ul", [tag("li", tag("b", who), ": ", what) for who, what in said], class_="decision") if said else None


def _break_even(arms: Sequence[Fields]) -> Markup | None:
    if not any(one["throughput"]["ratio"] or one["decode"]["ratio"] for arm in arms for one in arm["levels"]):
        return None
    caption = (
        "Ratio to the baseline at the same level, with its interval. Filled marks: the interval leaves out 1. The band"
        f" is the interval of the break-even. {KEYS}"
    )
    return figure("breakeven", caption)


def _grid(grid: Grid, caption: str, legend: str) -> Markup | None:
    if not grid.rows:
        return None
    shown = table(grid.titles, grid.rows, left=grid.left, caption=caption)
    return join([shown, tag("p", legend, class_="note") if legend else None])


def sweep_data(report: Fields) -> dict[str, Any] | None:
    """What the charts draw: the same numbers, by level and arm."""
    levels = report["levels"]
    if not levels:
        return None
    places = {key: place for place, key in enumerate(dict.fromkeys((one["arm"], one["role"]) for one in levels))}
    return {
        "kind": report["kind"],
        "unit": report["unit"],
        "objectives": report["objectives"],
        "levels": [_level(one, places[one["arm"], one["role"]]) for one in levels],
        "arms": [_arm(one, places.get((one["arm"], one["role"]), len(places))) for one in report["arms"]],
    }


def _level(one: Fields, series: int) -> dict[str, Any]:
    runs = one["launches"]
    read = [server_readings(run["server"]) for run in runs]

    def most(name: str) -> float | None:
        return max((value for found in read if (value := found[name].value) is not None), default=None)

    queues = [found["queue_s"].value for found in read if found["queue_s"].value is not None]
    joules = [run["energy"]["joules_per_token"] for run in runs if run["energy"] is not None]
    steps = [v for run in runs if (v := run["acceptance"].get("tokens_per_target_step")) is not None]
    return {
        "arm": one["arm"],
        "role": one["role"],
        "series": series,
        "level": one["level"],
        "setting": one["setting"],
        "href": level_anchor(one),
        "tok": one["full_output_tok_per_s"],
        "steady": one["steady_output_tok_per_s"],
        **{name: {at: one[metric][at] for at in TAILS} for name, metric in CHARTED.items()},
        "good": None if one["good_share"] is None else one["good_share"][0],
        "queue": _mean(queues),
        "waiting": most("waiting_max"),
        "kv": most("kv_share"),
        "steps": _mean(steps),
        "joules": _mean(joules),
    }


def _arm(one: Fields, series: int) -> dict[str, Any]:
    return {
        "arm": one["arm"],
        "role": one["role"],
        "series": series,
        "break_even": one["break_even"],
        "points": [
            {
                "level": level["level"],
                "setting": level["setting"],
                "href": slug("level", one["role"], one["arm"], level["level"]),
                "throughput": _ratio(level["throughput"], None),
                "decode": _ratio(level["decode"], level["decode"]["prompt_sampling_interval"]),
            }
            for level in one["levels"]
        ],
    }


def _ratio(found: Fields, instead: Sequence[float] | None) -> dict[str, Any]:
    return {
        "ratio": found["ratio"],
        "interval": found["interval"] or instead,
        "launches": found["interval"] is not None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
