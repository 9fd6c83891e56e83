"""Does a level hold the objectives of ``[limits]``? Asked while a search is under way, of the level's own records.

The level holds where the share of its requests that met every objective is at least ``ATTAINMENT``: a request that did
not complete has not met them, and one whose answer is not decidable counts as not met, and is named. The rules are
those of the report on the run, which is where a result is read; this only decides which level comes next.
"""

from typing import Literal, NamedTuple

from evidence.records import Request
from scenarios.schema import Limits

ATTAINMENT = 0.9
SHORTEST_WINDOW_S = 0.0005  # below it no time between tokens is resolved
Met = Literal["met", "not met", "undecided"]


class Judged(NamedTuple):
    """``said`` is for a notice."""

    holds: bool
    said: str


class Objectives:
    """Counts the requests of one level after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts: dict[Met, int] = {}
        self.clear()

    def clear(self) -> None:
        """A level begins."""
        self._counts = {"met": 0, "not met": 0, "undecided": 0}

    def take(self, record: Request) -> None:
        self._counts[met(record, self._limits)] += 1

    def met(self, *, n_sent: int, held_rate: bool) -> Judged:
        """Of the level that has ended. ``held_rate``: the requests were sent at the rate asked for."""
        n_met, n_undecided = self._counts["met"], self._counts["undecided"]
        share = n_met / n_sent if n_sent else 0.0
        said = f"{n_met} of {n_sent} requests met the objectives"
        if n_undecided:
            said += f", {n_undecided} are undecided (tokens of the first chunk unknown)"
        if not held_rate:
            said += "; the rate was not held, more requests were due than may be in flight"
        holds = n_sent > 0 and share >= ATTAINMENT and held_rate
        return Judged(holds, f"{'holds' if holds else 'does not hold'}: {said} ({ATTAINMENT:.0%} asked)")


def met(record: Request, limits: Limits) -> Met:
    """Of one request. The TPOT is that of the tokens after the first received segment."""
    if record.outcome != "completed":
        return "not met"
    found = {_below(record.first_token_after_s, limits.ttft_slo_s), _tpot_met(record, limits.tpot_slo_s)}
    if "not met" in found:
        return "not met"
    return "undecided" if "undecided" in found else "met"


def _tpot_met(record: Request, limit_s: float | None) -> Met:
    first_s, last_s, n = record.first_token_after_s, record.last_token_after_s, record.n_completion_tokens
    if limit_s is None or n == 1:
        return "met"
    if first_s is None or last_s is None or n is None:
        return "undecided"
    n_first = _first_tokens(record, first_s)
    if n_first is not None and n_first == n:
        return "met"  # nothing came after the first segment
    if last_s - first_s < SHORTEST_WINDOW_S or n == 0:
        return "undecided"
    if n_first is None:
        shortest_s = (last_s - first_s) / (n - 1)  # at most n - 1 tokens came after the first
        return "not met" if shortest_s > limit_s else "undecided"
    return "undecided" if n_first > n else _below((last_s - first_s) / (n - n_first), limit_s)


def _first_tokens(record: Request, first_s: float) -> int | None:
    """The server's count at the end of the segment that brought the first token; None where it sent none, or 0."""
    segment: int | None = None
    count: int | None = None
    for after_s, at_segment, n_tokens, _ in record.chunks:
        if segment is None and after_s >= first_s:
            segment = at_segment
        if segment is not None:
            if at_segment != segment:
                break
            count = n_tokens
    return count or None


def _below(value: float | None, limit: float | None) -> Met:
    if limit is None:
        return "met"
    if value is None:
        return "undecided"
    return "met" if value <= limit else "not met"
