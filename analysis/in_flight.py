"""How many requests were under way at each instant, and the part of a level in which its load stood.

A closed loop's user sends its next request a moment after its last one ended, so the count dips by one for an instant
at every turn: a dip of at most ``TURN_S`` does not end a steady window.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.columns import Floats, Ints
from analysis.run_clock import RunClock
from evidence.records import Request, Started

STEADY_SHARE = 0.9
TURN_S = 0.1
RULE = (
    f"the longest interval of the level with at least {STEADY_SHARE:g} of its users under way; dips of up to"
    f" {TURN_S:g} s, in which users turn to their next request, do not end it"
)
OPEN_RULE = "from the level's first request to its last: what follows is drain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Steady:
    """The steady window on the run's clock, or None and why there is none."""

    begin_s: float | None
    end_s: float | None
    rule: str
    why: str | None

    @property
    def window_s(self) -> float | None:
        return None if self.begin_s is None or self.end_s is None else self.end_s - self.begin_s

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spans:
    """When each request was sent and over, in seconds of one clock.

    Those that were begun and never sent were not under way; ``tried`` holds when, for they belong to the level too.
    """

    begins: Floats
    ends: Floats
    tried: tuple[float, ...] = ()

    @property
    def first_s(self) -> float:
        return min(float(self.begins.min()), *self.tried, math.inf)

    @property
    def last_s(self) -> float:
        return max(float(self.ends.max()), *self.tried, -math.inf)

    @property
    def last_begun_s(self) -> float:
        return max(float(self.begins.max()), *self.tried, -math.inf)

    def mean_within(self, begin_s: float, end_s: float) -> float:
        """The time-mean of requests under way: the integral of their number over the window."""
        inside = np.minimum(self.ends, end_s) - np.maximum(self.begins, begin_s)
        return float(np.maximum(inside, 0.0).sum() / (end_s - begin_s))


def spans_of(requests: Sequence[Request], clock: RunClock, unended: Sequence[Started] = ()) -> Spans | None:
    """None where nothing was sent. ``unended`` were started, and no line says how they ended."""
    found = [(at, at + request.took_s) for request in requests if (at := clock.sent_s(request)) is not None]
    if not found:
        return None
    columns = np.array(found, dtype=np.float64)
    tried = [at for one in requests if clock.sent_s(one) is None and (at := clock.begun_s(one)) is not None]
    tried += [clock.started_s(one) for one in unended]
    return Spans(begins=columns[:, 0], ends=columns[:, 1], tried=tuple(tried))


def steps(spans: Spans) -> tuple[Floats, Ints]:
    """(instants, requests under way from each of them on until the next)."""
    at = np.concatenate((spans.begins, spans.ends))
    change = np.concatenate((np.ones(len(spans.begins), dtype=np.int64), -np.ones(len(spans.ends), dtype=np.int64)))
    order = np.lexsort((-change, at))  # where one ends as another begins, the beginning counts first
    return at[order], np.cumsum(change[order])


def steady_window(spans: Spans | None, users: int | None) -> Steady:
    """By ``RULE``; of an open loop, which has no users, by ``OPEN_RULE``."""
    if spans is None:
        return Steady(begin_s=None, end_s=None, rule=RULE, why="no request of the level was sent")
    if users is None:
        begin_s, end_s = spans.first_s, spans.last_begun_s
        if end_s <= begin_s:
            return Steady(begin_s=None, end_s=None, rule=OPEN_RULE, why="fewer than two requests were sent")
        return Steady(begin_s=begin_s, end_s=end_s, rule=OPEN_RULE, why=None)
    least = max(1, int(np.ceil(STEADY_SHARE * users - 1e-9)))
    at, under_way = steps(spans)
    full = (under_way >= least).astype(np.int8)
    rises = np.flatnonzero(np.diff(np.concatenate(([0], full))) == 1)
    falls = np.flatnonzero(np.diff(np.concatenate((full, [0]))) == -1) + 1
    if not len(rises):
        most = int(under_way.max())
        why = f"{least} of {users} users were never under way at once, at most {most} were"
        return Steady(begin_s=None, end_s=None, rule=RULE, why=why)
    begins = at[rises]
    ends = at[np.minimum(falls, len(at) - 1)]
    apart = np.flatnonzero(begins[1:] - ends[:-1] > TURN_S)
    firsts, lasts = np.concatenate(([0], apart + 1)), np.concatenate((apart, [len(begins) - 1]))
    lengths = ends[lasts] - begins[firsts]
    longest = int(np.argmax(lengths))
    if lengths[longest] <= 0:
        return Steady(begin_s=None, end_s=None, rule=RULE, why="the steady interval has no length")
    return Steady(begin_s=float(begins[firsts[longest]]), end_s=float(ends[lasts[longest]]), rule=RULE, why=None)
