"""The curves of a large run: the same points as a plain loop over every chunk finds."""

import random
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pytest

from analysis.report_series import _arrivals
from analysis.report_slices import largest_of_each, last_of_each, reached
from evidence.records import ChunkMark, Request
from tests.run_factory import request

Numbered = tuple[float, float, int]


def place(at: float, start: float, end: float, most: int) -> int:
    return min(most - 1, int((at - start) / (end - start) * most)) if end > start else 0


def plain_last(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    if len(points) <= most:
        return list(points)
    return list({place(at, points[0][0], points[-1][0], most): (at, value) for at, value in points}.values())


def plain_reached(steps: Iterable[tuple[float, int]], most: int) -> list[tuple[float, float]]:
    total, points = 0.0, []
    for at, value in sorted(steps):
        total += value
        points.append((at, total))
    return plain_last(points, most)


def plain_largest(points: Iterable[Numbered], most: int) -> list[Numbered]:
    ordered = sorted(points)
    if len(ordered) <= most:
        return ordered
    best: dict[int, Numbered] = {}
    for point in ordered:
        own = place(point[0], ordered[0][0], ordered[-1][0], most)
        if own not in best or point[1] > best[own][1]:
            best[own] = point
    return list(best.values())


def parts_of(draw: random.Random, n_parts: int) -> list[list[Numbered]]:
    """Instants and values on a coarse grid, so that many are equal; some parts are empty."""
    return [
        [(draw.randrange(60) / 8, float(draw.randrange(1, 6)), number) for _ in range(draw.choice((0, 1, 40)))]
        for number in range(n_parts)
    ]


@pytest.mark.parametrize("most", [1, 7, 50, 10_000])
@pytest.mark.parametrize("n_parts", [0, 1, 30])
def test_points_of_many_parts_are_those_of_a_plain_loop(n_parts: int, most: int) -> None:
    draw = random.Random(100 * n_parts + most)
    for _ in range(20):
        parts = parts_of(draw, n_parts)
        every = [point for part in parts for point in part]
        columns = [(np.array([p[0] for p in part]), np.array([p[1] for p in part])) for part in parts]
        numbered = [(at, values, number) for number, (at, values) in enumerate(columns)]
        assert largest_of_each(partial(list, numbered), most) == (plain_largest(every, most), len(every))
        whole = [(at, values.astype(np.uint8)) for at, values in columns]
        assert reached(partial(list, whole), most) == plain_reached([(at, int(v)) for at, v, _ in every], most)
        ordered = sorted((at, value) for at, value, _ in every)
        assert last_of_each(ordered, most) == plain_last(ordered, most)


def plain_arrivals(one: Request, at_s: float) -> list[tuple[float, int]]:
    found, before = [], 0
    for after_s, _, tokens, _ in one.chunks:
        if tokens is not None and tokens > before:
            found.append((at_s + after_s, tokens - before))
            before = tokens
    rest = (one.n_completion_tokens or 0) - before
    if rest > 0:
        found.append((at_s + (one.end_after_s or 0.0), rest))
    return found


def test_tokens_come_with_the_chunks_that_count_them_and_the_rest_at_the_end() -> None:
    draw = random.Random(7)
    for _ in range(60):
        # No count, one that falls, one beyond a byte; or none at all.
        share, n_marks = draw.choice((0.0, 0.7)), draw.randrange(1, 9)
        counts = [draw.randrange(400) if draw.random() < share else None for _ in range(n_marks)]
        marks: tuple[ChunkMark, ...] = tuple((0.1 * n, n, count, 2) for n, count in enumerate(counts, start=1))
        one = request(chunks=marks, n_completion_tokens=draw.randrange(600), end_after_s=9.5)
        at, came = _arrivals(one, 3.0)
        assert list(zip(at.tolist(), came.tolist(), strict=True)) == plain_arrivals(one, 3.0)
