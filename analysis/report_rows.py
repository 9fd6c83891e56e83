"""Which requests of a large run have a row in the page, and how the data of all of them is stored.

Nobody reads twenty thousand rows, and they would be half of the page. Above a bound, a table shows the requests that
did not complete, the slowest by each time, and others evenly over the run, so that sorting by a column still brings the
worst of all to its top; what is left out is said. Every request stays in the page's data, which the charts draw.
"""

from collections.abc import Sequence
from typing import Any

from analysis.report_gather import Entry, RunView

TOTAL_ROWS, FEWEST_ROWS = 3_000, 300  # over all runs of a page, and of one run
SLOWEST_BY = ("ttft_s", "tpot_s", "e2e_s")
DISTINCT_SHARE = 4  # texts are stored once where a column has at most a quarter as many different ones as rows


def rows_each(n_runs: int) -> int:
    """How many rows of one run the page holds."""
    return max(FEWEST_ROWS, TOTAL_ROWS // max(1, n_runs))


def shown(run: RunView, most: int) -> frozenset[int]:
    """The numbers of the requests that have a row: all of them where they are at most ``most``."""
    if len(run.entries) <= most:
        return frozenset(entry.number for entry in run.entries)
    failed = [entry.number for entry in run.entries if entry.request.outcome != "completed"]
    kept = dict.fromkeys(_evenly(failed, most // 3))
    for name in SLOWEST_BY:
        kept |= dict.fromkeys(_slowest(run.measured, name, most // 6))
    rest = [entry.number for entry in as_sent(run.entries) if entry.number not in kept]
    return frozenset(kept) | frozenset(_evenly(rest, most - len(kept)))


def left_out(run: RunView, numbers: frozenset[int], most: int) -> str | None:
    """Which requests of a run have no row and where they are, in words; None where every one has its row."""
    if len(numbers) == len(run.entries):
        return None
    failed = [entry.number for entry in run.entries if entry.request.outcome != "completed"]
    rows = f"{len(numbers)} of {len(run.entries)} requests have a row here: "
    if failed:
        rows += f"{sum(number in numbers for number in failed)} of the {len(failed)} that did not complete, "
    return (
        f"{rows}the {most // 6} slowest by each of TTFT, TPOT and E2E, and others evenly over the run. Every measured"
        " request is in the charts, where its mark leads to its numbers and its raw record. `python -m analysis export"
        " RUN --to csv` writes a table of all."
    )


def as_sent(entries: Sequence[Entry]) -> list[Entry]:
    """In the order sent; those of which it is not known last."""
    return sorted(entries, key=lambda entry: entry.request.sent_at_unix_s or float("inf"))


def column(values: Sequence[Any]) -> Any:
    """A column as the page's script reads it: its values; or, where few texts come again and again, the distinct ones
    (``of``) with the place of each row's (``at``, which is left out where there is but one)."""
    if not all(value is None or isinstance(value, str) for value in values):
        return list(values)
    distinct = list(dict.fromkeys(values))
    if len(distinct) == 1:
        return {"of": distinct}
    if len(distinct) * DISTINCT_SHARE > len(values):
        return list(values)
    places = {value: place for place, value in enumerate(distinct)}
    return {"of": distinct, "at": [places[value] for value in values]}


def _slowest(entries: Sequence[Entry], name: str, most: int) -> list[int]:
    timed = [(getattr(entry.row.measures, name).value, entry.number) for entry in entries]
    known = sorted(((value, number) for value, number in timed if value is not None), reverse=True)
    return [number for _, number in known[:most]]


def _evenly(numbers: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the numbers, the first and the last among them."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[place * (len(numbers) - 1) // (most - 1)] for place in range(most)]
