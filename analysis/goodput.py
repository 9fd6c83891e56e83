"""Goodput: how many requests a second met their objectives; those that failed, or never ended, have not.

A request is good when it completed and met its objectives (``evidence/objectives.py`` says when it has). An answer of
one token is judged by its TTFT and counted apart. Where requests are undecided, goodput is two numbers.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from analysis.errors import AnalysisError
from analysis.measures import Row
from evidence.objectives import Met, met


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """``n_sent`` = good + bad + undecided + failed + unfinished.

    Rates and shares are (fewest, most), equal if none is open.
    """

    n_sent: int
    n_good: int
    n_bad: int
    n_undecided: int
    n_failed: int  # those that could not be sent among them
    n_unfinished: int  # started, and no line says how they ended
    n_by_ttft_alone: int  # answers of one token, within the others
    share: tuple[float, float] | None
    per_s: tuple[float, float] | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def goodput(
    rows: Iterable[Row],
    *,
    window_s: float | None,
    ttft_slo_s: float | None,
    tpot_slo_s: float | None,
    n_unfinished: int = 0,
) -> Goodput:
    """Count the measured requests of a window. An objective of None is none; with neither there is no goodput."""
    if window_s is not None and not window_s > 0:
        raise AnalysisError(f"a window of {window_s} s has no rate", "give the time in which the requests were sent")
    found: list[Met | Literal["failed"]] = []
    alone = 0
    for row in rows:
        if row.request.outcome != "completed":
            found.append("failed")
            continue
        alone += row.request.n_completion_tokens == 1
        found.append(_met(row, ttft_slo_s, tpot_slo_s))
    n_sent, n_good, n_undecided = len(found) + n_unfinished, found.count("met"), found.count("undecided")
    why = None
    if ttft_slo_s is None and tpot_slo_s is None:
        why = "no objective is set ([limits] ttft_slo_s, tpot_slo_s)"
    elif not n_sent:
        why = "no request was sent"
    ends = (n_good, n_good + n_undecided)
    return Goodput(
        n_sent=n_sent,
        n_good=n_good,
        n_bad=found.count("not met"),
        n_undecided=n_undecided,
        n_failed=found.count("failed"),
        n_unfinished=n_unfinished,
        n_by_ttft_alone=alone,
        share=None if why else (ends[0] / n_sent, ends[1] / n_sent),
        per_s=None if why or window_s is None else (ends[0] / window_s, ends[1] / window_s),
        why=why,
    )


def _met(row: Row, ttft_slo_s: float | None, tpot_slo_s: float | None) -> Met:
    n_tokens, measures = row.request.n_completion_tokens, row.measures
    return met(
        ttft_s=measures.ttft_s.value,
        tpot_bounds_s=measures.tpot_bounds_s.bounds,
        first_is_all=n_tokens is not None and n_tokens in (1, measures.n_first_tokens.value),
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
    )
