"""Where a ratio crosses 1 over the levels of a sweep: up to which load, or context, an arm pays.

Between two levels the logarithm of the ratio is taken as linear in the logarithm of the setting (users, tokens or
requests a second), and so are the ends of its interval. The break-even is where that line meets 1; its interval is all
settings at which the interpolated interval still holds 1. Ends interpolated in this way are on the wide side: the
standard error of a weighted sum is at most the weighted sum of the standard errors, however the levels hang together
(they share launches and prompts). That the line between two levels is straight is an assumption which the interval does
not hold; ``between`` names the measured levels next to the crossing that leave out 1 on either side, and between them
it lies whatever the line. A crossing is stated only where levels on both sides of it leave out 1, and where
there is one; nothing is said beyond the levels that were measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from analysis.errors import AnalysisError
from analysis.paired import Bounds

State = Literal["crossing", "pays at every level", "pays at no level", "not resolved"]
PROMPTS_ONLY = "prompts only"


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioAt:
    """A level's ratio, above 1 better. ``interval`` is None where none exists, and ``why``."""

    level: str
    setting: float  # above zero
    ratio: float
    interval: Bounds | None
    scope: str  # "launches", or "prompts only"
    why: str | None = None

    @property
    def side(self) -> int:
        """1: the interval lies above 1, -1: below, 0: it holds 1, or there is none."""
        if self.interval is None:
            return 0
        return 1 if self.interval[0] > 1 else -1 if self.interval[1] < 1 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """``at``, ``interval`` and ``between`` in the unit of the setting; ``pays`` says on which side the arm is ahead."""

    state: State
    at: float | None
    interval: Bounds | None
    between: Bounds | None
    pays: Literal["below", "above"] | None
    scope: str | None
    n_levels: int
    said: str

    def as_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "at": self.at,
            "interval": None if self.interval is None else list(self.interval),
            "between": None if self.between is None else list(self.between),
            "pays": self.pays,
            "scope": self.scope,
            "n_levels": self.n_levels,
            "said": self.said,
        }


def break_even(points: Sequence[RatioAt], *, unit: str) -> BreakEven:
    """From the levels in any order. Raises AnalysisError on a setting or a ratio that is not a positive number."""
    for one in points:
        if not all(math.isfinite(value) and value > 0 for value in (one.setting, one.ratio)):
            raise AnalysisError(
                f"level {one.level} has the ratio {one.ratio!r} at {one.setting!r} {unit}",
                "leave out levels without a number, and say so",
                value=one,
            )
    levels = sorted(points, key=lambda one: one.setting)
    twice = [a.level for a, b in pairwise(levels) if a.setting == b.setting]
    if twice:
        raise AnalysisError(f"the setting of {twice[0]} occurs twice", "give each level once", value=twice[0])
    scopes = {one.scope for one in levels}
    scope = PROMPTS_ONLY if PROMPTS_ONLY in scopes else next(iter(scopes), None)
    if len(levels) < 2:
        found = f"{len(levels)} level{'' if len(levels) == 1 else 's'} with a ratio"
        return _none(levels, scope, f"{found}: a crossing needs two")
    bare = [one for one in levels if one.interval is None]
    if bare:
        why = f" ({bare[0].why})" if bare[0].why else ""
        return _none(levels, scope, f"no interval at {_named(bare)}{why}{_hint(levels, unit)}")
    span = f"{levels[0].setting:g} to {levels[-1].setting:g} {unit}; beyond is not known"
    sides = [one.side for one in levels]
    if all(side == 1 for side in sides):
        return _whole("pays at every level", levels, scope, f"ahead at every level measured, {span}")
    if all(side == -1 for side in sides):
        return _whole("pays at no level", levels, scope, f"behind at every level measured, {span}")
    told = [side for side in sides if side]
    turns = sum(a != b for a, b in pairwise(told))
    if turns != 1:
        return _none(levels, scope, _unresolved(levels, told, turns) + _hint(levels, unit))
    return _crossed(levels, scope, unit, falling=told[0] == 1)


def _crossed(levels: Sequence[RatioAt], scope: str | None, unit: str, *, falling: bool) -> BreakEven:
    """Between levels on one side of 1 and levels on the other."""
    at = _crossings([(one.setting, math.log(one.ratio)) for one in levels])
    nearer, farther = (0, 1) if falling else (1, 0)
    begins, ends = (
        _crossings([(one.setting, math.log(one.interval[place])) for one in levels if one.interval is not None])
        for place in (nearer, farther)
    )
    bounds = (min(*begins, *at), max(*ends, *at))
    pays: Literal["below", "above"] = "below" if falling else "above"
    within = f"[{bounds[0]:.3g}, {bounds[1]:.3g}]"
    first, second = (1, -1) if falling else (-1, 1)
    between = (
        max(one.setting for one in levels if one.side == first),
        min(one.setting for one in levels if one.side == second),
    )
    measured = f"measured {'ahead' if falling else 'behind'} at {between[0]:g} and {'behind' if falling else 'ahead'}"
    if len(at) == 1:
        said = f"ahead {pays} {at[0]:.3g} {unit} {within} on a straight line between levels"
    else:
        said = f"ahead {pays} {within} {unit}; within it the ratio goes from one side of 1 to the other {len(at)} times"
    said += f"; {measured} at {between[1]:g}"
    if scope == PROMPTS_ONLY:
        said = f"{PROMPTS_ONLY}: {said}"
    return BreakEven(
        state="crossing",
        at=at[0] if len(at) == 1 else None,
        interval=bounds,
        between=between,
        pays=pays,
        scope=scope,
        n_levels=len(levels),
        said=said,
    )


def _unresolved(levels: Sequence[RatioAt], told: Sequence[int], turns: int) -> str:
    if turns:
        return f"the ratio goes from one side of 1 to the other {turns} times"
    if not told:
        return "the interval holds 1 at every level"
    return f"the interval holds 1 at {_named([one for one in levels if not one.side])}, and no level lies beyond it"


def _crossings(points: Sequence[tuple[float, float]]) -> list[float]:
    """Where a line through (setting, log ratio) meets 0; a level that lies on it counts once."""
    found: list[float] = []
    for (x, y), (next_x, next_y) in pairwise(points):
        if y == 0 or y * next_y > 0:
            continue
        share = y / (y - next_y)
        found.append(math.exp(math.log(x) + share * (math.log(next_x) - math.log(x))))
    return found


def _none(levels: Sequence[RatioAt], scope: str | None, why: str) -> BreakEven:
    return _whole("not resolved", levels, scope, f"not resolved: {why}")


def _whole(state: State, levels: Sequence[RatioAt], scope: str | None, said: str) -> BreakEven:
    if scope == PROMPTS_ONLY and state != "not resolved":
        said = f"{PROMPTS_ONLY}: {said}"
    return BreakEven(
        state=state, at=None, interval=None, between=None, pays=None, scope=scope, n_levels=len(levels), said=said
    )


def _hint(levels: Sequence[RatioAt], unit: str) -> str:
    """Where the point estimates alone would cross, which is no result."""
    at = _crossings([(one.setting, math.log(one.ratio)) for one in levels])
    return "" if not at else f"; the ratios alone would cross 1 near {', '.join(f'{one:.3g}' for one in at)} {unit}"


def _named(levels: Sequence[RatioAt]) -> str:
    names = [one.level for one in levels]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
