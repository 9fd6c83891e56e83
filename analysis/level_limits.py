"""What limits the single levels of a load run, as reasons of its verdict: one for each kind of limit.

All degrade but one: a send lag that is not the one from the schedule was written by nobody who measured it.

steady window   absent, below nine tenths of the time asked for, or below two answers' length
open loop       fewer than 95 % of the scheduled rate; a p99 send lag above a tenth of the median TTFT; the cap hit
level           not sent whole, cut short before it was drained, or without its line in levels.jsonl
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.facts import LevelFacts, Scope
from evidence.quantiles import FLOORS

LEAST_RATE = 0.95  # of the rate an open loop was to send at, over the same arrivals
LAG_SHARE = 0.1  # of the median TTFT
INVALIDATE = frozenset({"schedule_differs"})
STEADY_SHARE = 0.9  # of the steady time asked for
STEADY_ANSWERS = 2.0  # a steady window shorter than so many median answers is mostly ramp and drain
SHOWN = 3

LEVEL_REMEDIES: dict[str, str] = {
    "level_not_recorded": "a level without its line was cut short or lost: repeat the run",
    "level_incomplete": "let every level send its plan: a part of it is another mix",
    "drain_incomplete": "requests of a level that was not drained run into the next: raise the time limit, or repeat",
    "no_steady_window": "plan more requests a level, several for each user, or fewer users",
    "steady_window_short": "plan more requests a level, or a longer steady_s: one turn of each user is mostly ramp",
    "rate_not_achieved": "lower the rate, or send with more workers: what was measured is a lower rate than asked for",
    "send_lag": "latencies from the schedule hold the client's own lag: send with more workers, or at a lower rate",
    "cap_hit": "raise max_in_flight, or lower the rate: requests at the cap waited in this client, not in the server",
    "schedule_differs": "send lags and instants contradict plan and level records: restore them, or repeat the run",
    "cached_shares_differ": "use cache policy `cold` (it salts prompts), or prompts of their own for each level",
}
OPEN_LOOP_REMEDIES: dict[str, str] = {
    "no_steady_window": "plan more arrivals a level, over the time of several answers",
    "steady_window_short": "plan more arrivals a level, over the time of several answers: this one is mostly the first"
    " and the last of them",
}
CUT_REMEDIES: dict[str, str] = {
    "level_incomplete": "let the run finish: it was stopped, and a part of a level is another mix",
    "drain_incomplete": "let the run finish: its stop cut these requests off",
}
_WORDS: dict[str, str] = {
    "level_not_recorded": "levels.jsonl has no line of",
    "level_incomplete": "levels that did not send their plan",
    "drain_incomplete": "requests were still under way when it was cut short",
    "no_steady_window": "levels without a steady window",
    "steady_window_short": "levels with a short steady window",
    "rate_not_achieved": "the rate was not achieved",
    "send_lag": "requests were sent late",
    "cap_hit": "requests waited because max_in_flight were under way",
    "schedule_differs": "send lags are not those from the schedule",
}


class Limit(NamedTuple):
    """One kind of limit, with the levels it holds at in words."""

    code: str
    scope: Scope
    seen: str
    remedy: str


def level_limits(levels: Sequence[LevelFacts], *, was_stopped: bool = False) -> Iterator[Limit]:
    """Every kind of limit that holds at a level, with the remedy that fits; ``was_stopped``: a signal ended the run."""
    fitting = LEVEL_REMEDIES | (OPEN_LOOP_REMEDIES if any(one.open_loop for one in levels) else {})
    fitting |= CUT_REMEDIES if was_stopped else {}
    found: tuple[tuple[str, Scope, list[tuple[str, str]]], ...] = (
        ("level_not_recorded", "run", [(one.label, "") for one in levels if one.no_record]),
        ("level_incomplete", "run", [(one.label, _left(one)) for one in levels if one.n_left or one.stopped]),
        ("drain_incomplete", "latency", [(one.label, "") for one in levels if one.undrained]),
        ("no_steady_window", "rate", [(one.label, one.steady_missing) for one in levels if one.steady_missing]),
        ("steady_window_short", "rate", [(one.label, why) for one in levels if (why := _short(one))]),
        ("rate_not_achieved", "latency", [(one.label, why) for one in levels if (why := _slow(one))]),
        ("send_lag", "latency", [(one.label, why) for one in levels if (why := _late(one))]),
        ("cap_hit", "latency", [(one.label, f"{one.n_cap_hits} requests") for one in levels if one.n_cap_hits]),
        ("schedule_differs", "run", [(one.label, why) for one in levels if (why := one.schedule_differs)]),
    )
    for code, scope, at in found:
        if at:
            said = "; ".join(f"{label} ({what})" if what else label for label, what in at[:SHOWN])
            more = f" and {len(at) - SHOWN} more" if at[SHOWN:] else ""
            yield Limit(code, scope, f"{_WORDS[code]}: {said}{more}", fitting[code])


def _left(level: LevelFacts) -> str:
    return f"{level.n_left} requests not sent" if level.n_left else "stopped"


def _slow(level: LevelFacts) -> str | None:
    if level.achieved_ratio is None or level.achieved_ratio >= LEAST_RATE:
        return None
    return f"{level.achieved_ratio:.1%} of the scheduled rate"


def _late(level: LevelFacts) -> str | None:
    lag_s, ttft_s = level.lag_p99_s, level.ttft_median_s
    if lag_s is None or not ttft_s or lag_s <= LAG_SHARE * ttft_s:
        return None
    many = level.n_lags >= FLOORS[99] or level.lag_max_s is None
    said = f"p99 {lag_s:.4f} s" if many else f"up to {level.lag_max_s:.4f} s in {level.n_lags} arrivals"
    return f"{said} beside a median TTFT of {ttft_s:.4f} s"


def _short(level: LevelFacts) -> str | None:
    """Below nine tenths of the time asked for, or below two answers' length: each user then hardly sent twice."""
    window_s, asked_s, answer_s = level.steady_s, level.steady_asked_s, level.e2e_median_s
    if window_s is None:
        return None
    if asked_s is not None and window_s < STEADY_SHARE * asked_s:
        return f"{window_s:.3g} s of {asked_s:.3g} s asked for"
    if asked_s is None and answer_s is not None and window_s < STEADY_ANSWERS * answer_s:
        return f"{window_s:.3g} s, and an answer takes {answer_s:.3g} s"
    return None
