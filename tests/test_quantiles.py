"""Nearest rank and the floors below which a tail is not printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.quantiles import distribution, nearest_rank


def test_the_median_of_an_even_count_is_a_value_that_was_seen() -> None:
    assert nearest_rank([1.0, 2.0, 3.0, 10.0], 50) == 2.0


def test_ranks_follow_the_ceiling_by_hand() -> None:
    ordered = [float(value) for value in range(1, 11)]
    assert [nearest_rank(ordered, percent) for percent in (1, 10, 11, 50, 51, 90, 91, 99, 100)] == [
        1, 1, 2, 5, 6, 9, 10, 10, 10,
    ]  # fmt: skip


def test_an_exact_product_takes_no_step_up_by_rounding() -> None:
    ordered = [float(value) for value in range(1, 201)]
    assert nearest_rank(ordered, 95) == 190.0  # 0.95 * 200 is 190.00000000000003 nowhere: integers are used


@pytest.mark.parametrize(("percent", "floor"), [(90, 64), (95, 130), (99, 662)])
def test_a_tail_appears_exactly_at_its_floor(percent: int, floor: int) -> None:
    below, at = distribution(map(float, range(floor - 1))), distribution(map(float, range(floor)))
    assert getattr(below, f"p{percent}") is None
    assert below.why_none(percent) == f"p{percent} needs {floor} values, there are {floor - 1}"
    assert getattr(at, f"p{percent}") == float(-(-percent * floor // 100) - 1)
    assert at.why_none(percent) is None


def test_one_value_is_its_own_median() -> None:
    assert distribution([3.5]).median == 3.5


def test_no_value_has_no_median_and_says_why() -> None:
    empty = distribution([])
    assert (empty.n, empty.median, empty.why_none(50)) == (0, None, "no value in this group")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300), st.integers(1, 100))
def test_a_quantile_is_a_value_with_enough_values_at_or_below_it(values: list[float], percent: int) -> None:
    quantile = nearest_rank(sorted(values), percent)
    assert quantile in values
    assert 100 * sum(value <= quantile for value in values) >= percent * len(values)
    assert 100 * sum(value < quantile for value in values) < percent * len(values)
