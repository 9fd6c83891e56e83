"""Does a level hold the objectives of ``[limits]``? Asked while a search is under way, of the level's own records.

The level holds where the share of its requests that met every objective is at least ``ATTAINMENT``: a request that did
not complete has not met them, and one whose answer is not decidable counts as not met, and is named. The rule is
that of the report on the run, which is where a result is read, but for the bounds of a TPOT that is not known
(``evidence/objectives.py``); this only decides which level comes next.
"""

from typing import NamedTuple

from evidence import objectives
from evidence.objectives import ATTAINMENT, Met
from evidence.records import Request
from infra.wire.decode_time import first_tokens, tpot_bounds_s
from scenarios.schema import Limits


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
    first_s, n_tokens = record.first_token_after_s, record.n_completion_tokens
    n_first = None if first_s is None else first_tokens(record.chunks, first_s)
    return objectives.met(
        ttft_s=first_s,
        tpot_bounds_s=tpot_bounds_s(
            first_s=first_s, last_s=record.last_token_after_s, n_first=n_first, n_tokens=n_tokens
        ),
        first_is_all=n_tokens is not None and n_tokens in (1, n_first),
        ttft_slo_s=limits.ttft_slo_s,
        tpot_slo_s=limits.tpot_slo_s,
    )
