"""Time covered by intervals: their union, in which an overlap counts once. Nanoseconds, whole numbers, numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ns = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Union:
    """Intervals that neither touch nor overlap, in order. ``covered`` is the length of all before each, and of all."""

    starts: Ns
    ends: Ns
    covered: Ns

    @property
    def total_ns(self) -> int:
        return int(self.covered[-1])

    def before(self, instants: Ns) -> Ns:
        """How much is covered before each instant."""
        if not len(self.starts):
            return np.zeros(len(instants), dtype=np.int64)
        place = np.searchsorted(self.starts, instants, side="right")
        last = np.maximum(place - 1, 0)
        begun = np.minimum(instants, self.ends[last]) - self.starts[last]
        return np.where(place == 0, 0, self.covered[last] + begun)

    def within(self, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """How much of each range is covered."""
        if not ranges:
            return []
        both = np.array(ranges, dtype=np.int64)
        return [int(n) for n in self.before(both[:, 1]) - self.before(both[:, 0])]


def union(starts: Ns, ends: Ns) -> Union:
    """The union of the intervals [start, end), given in any order."""
    if not len(starts):
        none = np.zeros(0, dtype=np.int64)
        return Union(none, none, np.zeros(1, dtype=np.int64))
    order = np.argsort(starts, kind="stable")
    begin, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate(([True], begin[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    first, last = begin[opens], reach[closes]
    return Union(first, last, np.concatenate(([0], np.cumsum(last - first))))
