"""Prompts of one run that were sent again and then met what their first sending had left behind.

Two witnesses. The share of prompt tokens that came from a cache, sending against sending; and the decode rate of the
same prompts, geometric mean of later over first, with Student's interval over prompts. The second sees what the first
cannot: a draft that learns from earlier answers (an n-gram trie) shows in no count of cached tokens. A ratio within the
tolerance is warm-up and left to the comparison, which prints it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from analysis.cached_share import TOLERANCE, cached_share
from analysis.measures import Row
from analysis.paired import mean_interval

RATE_TOLERANCE = 1.25  # a ratio beyond it, or beyond its inverse, is no mere warm-up
FEWEST_PROMPTS = 5


def passes_differ(rows: Sequence[Row], *, silent_zero: bool = False) -> str | None:
    """What differs between sendings of the measured prompts, in words; None where nothing is seen to."""
    by_sending: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_sending[row.request.repeat].append(row)
    if len(by_sending) < 2:
        return None
    seen = [*_shares(by_sending, silent_zero), *_rates(by_sending)]
    return "; ".join(seen) or None


def _shares(by_sending: dict[int, list[Row]], silent_zero: bool) -> list[str]:
    shares = {
        repeat: cached_share((row.request for row in rows), silent_zero=silent_zero)
        for repeat, rows in by_sending.items()
    }
    first, *later = sorted(shares)
    ours = shares[first]
    if ours is None:
        return []
    known = [(repeat, share) for repeat in later if (share := shares[repeat]) is not None]
    apart = [f"{share:.0%} when sent again ({repeat + 1})" for repeat, share in known if abs(share - ours) > TOLERANCE]
    return [f"prompt tokens from a cache: {ours:.0%} when first sent, {', '.join(apart)}"] if apart else []


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
