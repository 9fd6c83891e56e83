"""The highest level that holds the objectives: at which load the server still serves as was asked.

A level holds where the share of its requests that met every objective (failed ones have not) is at least the
attainment asked for, in every launch. How sure that is follows from the number of requests: where the exact binomial
interval (Clopper & Pearson, Biometrika 26, 1934) of a launch's share holds the attainment, the level is called by the
share and marked as close. A level of the open loop at which the client did not send at the rate asked for never holds.

The answer is the highest level below which no level fails: a level that holds above one that fails is named, and does
not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import special

from evidence.objectives import ATTAINMENT

CONFIDENCE = 0.95
Holds = Literal["holds", "fails", "not known"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attained:
    """One level in one launch. ``n_undecided`` are neither good nor bad: their TPOT is an interval."""

    level: str
    setting: float | None  # None: a trace has no setting
    launch: int
    n_sent: int
    n_good: int
    n_undecided: int = 0
    why: str | None = None  # why there is no goodput at all
    rate_missed: str | None = None  # open loop: the client did not send as asked


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelHeld:
    """A level over its launches; ``close`` names what the number of requests cannot tell apart."""

    level: str
    setting: float | None
    holds: Holds
    share: tuple[float, float] | None  # fewest and most over launches and undecided requests
    close: str | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "setting": self.setting,
            "holds": self.holds,
            "share": None if self.share is None else list(self.share),
            "close": self.close,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Highest:
    """``level`` is None where none holds or nothing is known, and ``said`` says which."""

    level: str | None
    setting: float | None
    attainment: float
    levels: tuple[LevelHeld, ...]
    said: str

    def as_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "setting": self.setting,
            "attainment": self.attainment,
            "levels": [one.as_json() for one in self.levels],
            "said": self.said,
        }


def highest_level(found: Sequence[Attained], *, attainment: float = ATTAINMENT) -> Highest:
    """Over the levels of one arm, each in all its launches."""
    names = dict.fromkeys(one.level for one in sorted(found, key=lambda one: (one.setting is None, one.setting or 0.0)))
    levels = tuple(_held([one for one in found if one.level == name], attainment) for name in names)
    best: LevelHeld | None = None
    stopped: LevelHeld | None = None
    above: list[str] = []
    for one in levels:
        if one.holds != "holds":
            stopped = stopped or one
        elif stopped is None:
            best = one
        else:
            above.append(one.level)
    return Highest(
        level=None if best is None else best.level,
        setting=None if best is None else best.setting,
        attainment=attainment,
        levels=levels,
        said=_said(levels, best, stopped, above, attainment),
    )


def _said(
    levels: Sequence[LevelHeld], best: LevelHeld | None, stopped: LevelHeld | None, above: Sequence[str], share: float
) -> str:
    if not levels:
        return "no level was measured"
    if all(one.holds == "not known" for one in levels):
        return f"not known: {levels[0].why}"
    if best is None:
        assert stopped is not None
        said = (
            f"no level holds {share:.0%}: {stopped.level} {'is not known' if stopped.holds == 'not known' else 'fails'}"
        )
        said += "" if stopped.why is None else f" ({stopped.why})"
    else:
        said = f"{best.level} holds {share:.0%}"
        if stopped is None:
            said += ", the highest measured; beyond is not known"
        else:
            said += f"; {stopped.level} {'is not known' if stopped.holds == 'not known' else 'does not'}"
            said += "" if stopped.why is None else f" ({stopped.why})"
        if best.close is not None:
            said += f"; close: {best.close}"
    if above:
        said += f"; {', '.join(above)} above it would hold and {'does' if len(above) == 1 else 'do'} not count"
    return said


def _held(found: Sequence[Attained], attainment: float) -> LevelHeld:
    first = found[0]
    why = next((one.why for one in found if one.why is not None), None)
    if why is None and not all(one.n_sent for one in found):
        why = "no request was sent"
    if why is not None:
        return LevelHeld(level=first.level, setting=first.setting, holds="not known", share=None, close=None, why=why)
    fewest = min(one.n_good / one.n_sent for one in found)
    most = max((one.n_good + one.n_undecided) / one.n_sent for one in found)
    sure = all(one.n_good / one.n_sent >= attainment for one in found)
    lost = any((one.n_good + one.n_undecided) / one.n_sent < attainment for one in found)
    missed = next((one.rate_missed for one in found if one.rate_missed is not None), None)
    holds: Holds = "fails" if missed is not None or lost else "holds" if sure else "not known"
    open_ = f"{sum(one.n_undecided for one in found)} requests are undecided (tokens of the first chunk unknown)"
    close = next((said for one in found if (said := _close(one, attainment)) is not None), None)
    return LevelHeld(
        level=first.level,
        setting=first.setting,
        holds=holds,
        share=(fewest, most),
        close=close if holds != "not known" and missed is None else None,
        why=missed or (open_ if holds == "not known" else f"{fewest:.1%} met them" if lost else None),
    )


def _close(one: Attained, attainment: float) -> str | None:
    low, high = binomial_interval(one.n_good, one.n_sent)
    if not low <= attainment <= high:
        return None
    return f"{one.n_good} of {one.n_sent} in launch {one.launch} [{low:.0%}, {high:.0%}]"


def binomial_interval(n_good: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share."""
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(n_good, n - n_good + 1, tail)) if n_good else 0.0
    high = float(special.betaincinv(n_good + 1, n - n_good, 1 - tail)) if n_good < n else 1.0
    return low, high
