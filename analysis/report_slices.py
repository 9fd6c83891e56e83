"""Curves of a bounded number of points from columns of any length: one point for each equal slice of time.

A run of twenty thousand answers has some four million chunks. What a slice of time shows is gathered part by part, a
part being one answer's chunks, so that nothing is ever held of all chunks together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.columns import Floats, Ints

T = TypeVar("T")
Point = tuple[float, float]
Numbered = tuple[float, float, int]  # an instant, a value, and the number of the part it belongs to
Part = tuple[Floats, NDArray[Any]]  # instants and values
Parts = Callable[[], Iterable[T]]  # made anew each time they are gone through


@dataclass(frozen=True, kw_only=True, slots=True)
class Slices:
    """``most`` equal slices of the time from ``start`` to ``end``, in any unit."""

    start: float
    end: float
    most: int

    def places(self, at: Floats) -> Ints:
        """The slice of each instant, from 0 on."""
        if not self.end > self.start:
            return np.zeros(len(at), dtype=np.int64)
        places = ((at - self.start) / (self.end - self.start) * self.most).astype(np.int64)
        return np.minimum(self.most - 1, places)


def last_of_each(points: Sequence[Point], most: int) -> list[Point]:
    """The last point of each slice: what a step curve has reached there. Points come in the order of their instants."""
    if len(points) <= most:
        return list(points)
    slices = Slices(start=points[0][0], end=points[-1][0], most=most)
    places = slices.places(np.array([at for at, _ in points]))
    return list(dict(zip(places.tolist(), points, strict=True)).values())


def reached(parts: Parts[Part], most: int) -> list[Point]:
    """The running total of all parts' values, in time: every step where there are at most ``most``, else the last of
    each slice. Values are whole numbers, so that no order of adding changes a total."""
    n, slices = _extent((at for at, _ in parts()), most)
    if n <= most:
        steps = sorted(
            (at, value) for part in parts() for at, value in zip(*(one.tolist() for one in part), strict=True)
        )
        totals = np.cumsum([value for _, value in steps]).tolist()
        return [(at, total) for (at, _), total in zip(steps, totals, strict=True)]
    last, sums = np.full(most, -np.inf), np.zeros(most)
    for at, values in parts():
        places = slices.places(at)
        np.maximum.at(last, places, at)
        np.add.at(sums, places, values)
    seen = np.isfinite(last)
    return list(zip(last[seen].tolist(), np.cumsum(sums)[seen].tolist(), strict=True))


def largest_of_each(parts: Parts[tuple[Floats, Floats, int]], most: int) -> tuple[list[Numbered], int]:
    """Every value in time where there are at most ``most``, else the largest of each slice, the first of equal ones;
    and how many values there are."""
    n, slices = _extent((at for at, _, _ in parts()), most)
    if n <= most:
        own = ((at.tolist(), values.tolist(), number) for at, values, number in parts())
        return sorted((at, value, part[2]) for part in own for at, value in zip(part[0], part[1], strict=True)), n
    kept = [_largest(at, values, np.full(len(at), number), slices) for at, values, number in parts() if len(at)]
    columns = [np.concatenate(column) for column in zip(*kept, strict=True)]
    at, values, numbers = _largest(columns[0], columns[1], columns[2], slices)
    return list(zip(at.tolist(), values.tolist(), numbers.tolist(), strict=True)), n


def _largest(at: Floats, values: Floats, numbers: Ints, slices: Slices) -> tuple[Floats, Floats, Ints]:
    places = slices.places(at)
    order = np.lexsort((numbers, at, -values, places))
    behind = places[order]
    kept = order[np.concatenate(([True], behind[1:] != behind[:-1]))]
    return at[kept], values[kept], numbers[kept]


def _extent(columns: Iterable[Floats], most: int) -> tuple[int, Slices]:
    """How many instants there are, and the slices of the time that they span."""
    n, start, end = 0, np.inf, -np.inf
    for at in columns:
        if len(at):
            n, start, end = n + len(at), min(start, float(at.min())), max(end, float(at.max()))
    return n, Slices(start=start, end=end, most=most)
