"""Prompts of one run that were sent again and then met what their first sending had left behind.

Two witnesses. The share of prompt tokens that came from a cache, sending against sending; and the decode rate of the
same prompts, geometric mean of later over first, with Student's interval over prompts. The second sees what the first
cannot: a draft that learns from earlier answers (an n-gram trie) shows in no count of cached tokens. A ratio within the
tolerance is warm-up and left to the comparison, which prints it. Of many sendings the first and the last two are told
in words; ``check --json`` has all.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from analysis.cached_share import TOLERANCE, cached_share
from analysis.measures import Row
from analysis.paired import mean_interval

RATE_TOLERANCE = 1.25  # a ratio beyond it, or beyond its inverse, is no mere warm-up
FEWEST_PROMPTS = 5
FIRST, LAST = 1, 2  # sendings told in words


class Differing(NamedTuple):
    """What differs between sendings: in words for a person, and every sending that differs by itself."""

    seen: str
    sendings: tuple[str, ...]


def passes_differ(rows: Sequence[Row], *, silent_zero: bool = False) -> Differing | None:
    """What differs between sendings of the measured prompts; None where nothing is seen to."""
    by_sending: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_sending[row.request.repeat].append(row)
    if len(by_sending) < 2:
        return None
    # A search sends levels in another order than the plan has them.
    by_sending = dict(enumerate(sorted(by_sending.values(), key=_first_sent_s)))
    ours, shares = _shares(by_sending, silent_zero)
    rates = _rates(by_sending)
    cached = f"prompt tokens from a cache: {ours:.0%} when first sent, "
    seen = [*([cached + ", ".join(_some(shares))] if shares else []), *_some(rates)]
    return Differing("; ".join(seen), (*(cached + share for share in shares), *rates)) if seen else None


def _first_sent_s(rows: Sequence[Row]) -> float:
    """Unix time of the first of them that was sent."""
    return min((at for row in rows if (at := row.request.sent_at_unix_s) is not None), default=math.inf)


def _some(told: Sequence[str]) -> list[str]:
    """The first and the last ones, and how many stand between them."""
    if len(told) <= FIRST + LAST:
        return list(told)
    return [*told[:FIRST], f"({len(told) - FIRST - LAST} more sendings)", *told[-LAST:]]


def _shares(by_sending: dict[int, list[Row]], silent_zero: bool) -> tuple[float, list[str]]:
    """The share at the first sending, and in words each later one that is apart from it."""
    shares = {
        repeat: cached_share((row.request for row in rows), silent_zero=silent_zero)
        for repeat, rows in by_sending.items()
    }
    first, *later = sorted(shares)
    ours = shares[first]
    if ours is None:
        return 0.0, []
    known = [(repeat, share) for repeat in later if (share := shares[repeat]) is not None]
    apart = [f"{share:.0%} when sent again ({repeat + 1})" for repeat, share in known if abs(share - ours) > TOLERANCE]
    return ours, apart


def _rates(by_sending: dict[int, list[Row]]) -> list[str]:
    first, *later = sorted(by_sending)
    base = _logs(by_sending[first])
    found = []
    for repeat in later:
        ours = _logs(by_sending[repeat])
        ratios = [ours[key] - base[key] for key in base.keys() & ours.keys()]
        interval, _ = mean_interval(ratios)
        if len(ratios) < FEWEST_PROMPTS or interval is None:
            continue
        bound = math.log(RATE_TOLERANCE)
        if interval[0] > bound or interval[1] < -bound:
            ratio, low, high = (math.exp(one) for one in (math.fsum(ratios) / len(ratios), *interval))
            found.append(
                f"the same {len(ratios)} prompts decode at {ratio:.2f} times the rate when sent again ({repeat + 1}; "
                f"95 % interval over prompts [{low:.2f}, {high:.2f}])"
            )
    return found


def _logs(rows: Sequence[Row]) -> dict[tuple[str | None, str], float]:
    """Logarithm of the decode rate of each completed request that has one."""
    found = {}
    for row in rows:
        rate = row.measures.decode_tok_per_s.value
        if row.request.outcome == "completed" and rate is not None and rate > 0:
            found[row.request.level, row.request.prompt_id] = math.log(rate)
    return found
