"""What a paired ratio amounts to: a verdict by a stated rule, the least difference that could have been seen, and the
other ratios people quote, each under its own name.

The rule, on the crossed interval (``analysis.paired``) and a margin fixed before the data:

    faster         the interval lies above 1
    slower         the interval lies below 1
    no difference  it contains 1, and two one-sided t tests (TOST; Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987) put
                   the ratio within 1/(1+margin) and 1+margin
    not resolved   anything else; always with one launch, however many requests it had

Least detectable effect (power 80 %, two-sided 5 %): (t(.975, K-1) + t(.80, K-1)) s / sqrt(K), with s the standard
deviation of K independent log ratios: approximate, since it leaves out the non-central t. It is a log ratio, so
0.03 stands for about 3 %. ``mde`` takes the launches' log ratios as its K values; ``mde_prompts`` takes the prompts'.
``mde_crossed`` takes the error and the degrees of freedom of the crossed interval, so that it is never within it: what
a table shows beside that interval. Smaller differences may be there and stay unseen.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.paired import NO_SPREAD, Crossed, mean_interval, t_quantile, t_upper
from analysis.pairing import Pair, Table

Verdict = Literal["faster", "slower", "no difference", "not resolved"]
MARGIN = 0.02  # of the ratio; a difference within it is called none
ALPHA = 0.05  # of each one-sided test
POWER = 0.80


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A verdict with the rule's own numbers. ``tost_p`` is None where no spread over launches was seen."""

    verdict: Verdict
    because: str
    margin: float
    tost_p: float | None
    within_margin: bool | None
    mde: float | None
    mde_why: str | None
    mde_prompts: float | None
    mde_crossed: float | None


def judge(found: Crossed, *, margin: float = MARGIN) -> Judged:
    """Apply the rule above. ``margin`` is a part of the ratio, 0.02 for 2 %."""
    by_launch = least_detectable(found.launch_means)
    by_prompt = least_detectable(found.prompt_means)
    tost_p = equivalence_p(found, margin)
    within = None if tost_p is None else tost_p < ALPHA
    verdict, because = _verdict(found, within, margin)
    return Judged(
        verdict=verdict,
        because=because,
        margin=margin,
        tost_p=tost_p,
        within_margin=within,
        mde=by_launch,
        mde_why=None if by_launch is not None else "it needs two launches that differ",
        mde_prompts=by_prompt,
        mde_crossed=_crossed(found),
    )


def least_detectable(log_ratios: Sequence[float]) -> float | None:
    """The least detectable effect of K independent log ratios, None below two or without spread."""
    count = len(log_ratios)
    if count < 2:
        return None
    spread = statistics.stdev(log_ratios)
    return None if spread <= NO_SPREAD else detectable(spread, count)


def _crossed(found: Crossed) -> float | None:
    if found.interval is None or found.variance is None or found.df is None:
        return None
    return _reach(found.df) * math.sqrt(found.variance)


def detectable(spread: float, count: int) -> float:
    """The least detectable effect for a standard deviation and a number of launches: what a plan can promise."""
    return _reach(count - 1) * spread / math.sqrt(count)


def _reach(df: float) -> float:
    return t_quantile(1 - ALPHA / 2, df) + t_quantile(POWER, df)


def equivalence_p(found: Crossed, margin: float) -> float | None:
    """The larger p of the two one-sided tests that the ratio lies within the margin; None without an interval."""
    if found.interval is None or found.variance is None or found.df is None or margin <= 0:
        return None
    error, bound = math.sqrt(found.variance), math.log1p(margin)
    return max(t_upper((bound - one) / error, found.df) for one in (found.mean_log, -found.mean_log))


def _verdict(found: Crossed, within: bool | None, margin: float) -> tuple[Verdict, str]:
    if found.n_launches == 1:
        return "not resolved", "one launch: launches differ from each other, and how much was not seen"
    if found.interval is None:
        return "not resolved", found.why or "no interval"
    low, high = found.interval
    if low > 1:
        return "faster", "the interval lies above 1"
    if high < 1:
        return "slower", "the interval lies below 1"
    if within:
        return "no difference", f"the interval contains 1 and both one-sided tests put the ratio within {margin:.1%}"
    return "not resolved", f"the interval contains 1 and reaches beyond the margin of {margin:.1%}"


def other_ratios(table: Table) -> dict[str, Any]:
    """The estimates beside the paired geometric mean: each answers another question, none replaces it.

    ``total_token_ratio`` is what capacity follows: all decode tokens over all decode time, arm over baseline; with its
    interval over launches for this fixed suite. ``why`` gives the reason of a null.
    """
    ours = [one.base.value for one in table.pairs if one.base.value is not None]
    theirs = [one.arm.value for one in table.pairs if one.arm.value is not None]
    by_launch = [_total_ratio([one for one in table.pairs if one.base.launch == launch]) for launch in table.launches]
    known = [math.log(one) for one in by_launch if one is not None]
    bounds, why = mean_interval(known) if len(known) == len(by_launch) else (None, "a launch has no token counts")
    total = _total_ratio(table.pairs)
    whys = {
        "total_token_ratio": None if total is not None else "token counts or decode times are not known of every pair",
        "total_token_interval": None if bounds is not None else why,
    }
    return {
        "ratio_of_medians": statistics.median(theirs) / statistics.median(ours),
        "median_of_ratios": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
        "ratio_of_means": math.fsum(theirs) / math.fsum(ours),
        "total_token_ratio": total,
        "total_token_interval": None if bounds is None else [math.exp(bounds[0]), math.exp(bounds[1])],
        "why": {name: said for name, said in whys.items() if said is not None},
    }


def _total_ratio(pairs: Sequence[Pair]) -> float | None:
    sums = [0.0, 0.0, 0.0, 0.0]
    for one in pairs:
        for place, side in ((0, one.base), (2, one.arm)):
            if side.decode_tokens is None or side.decode_s is None:
                return None
            sums[place] += side.decode_tokens
            sums[place + 1] += side.decode_s
    if min(sums, default=0.0) <= 0:
        return None
    return (sums[2] / sums[3]) / (sums[0] / sums[1])
