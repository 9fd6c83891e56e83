"""The paired interval: by hand, at its edges, and covering what it says in simulation."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.errors import AnalysisError
from analysis.paired import crossed
from analysis.pairing import Observation, pair

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]
SEED = 20261129


def test_the_interval_by_hand() -> None:
    table = [[0.10, 0.20, 0.30], [0.12, 0.26, 0.28]]
    found = crossed(table)
    means_r, means_p = [0.20, 0.22], [0.11, 0.23, 0.29]
    grand = 0.21
    var_r = sum((m - grand) ** 2 for m in means_r) / 1
    var_p = sum((m - grand) ** 2 for m in means_p) / 2
    residual = sum((table[r][p] - means_r[r] - means_p[p] + grand) ** 2 for r in range(2) for p in range(3)) / 2
    a, b = var_r / 2, var_p / 3
    v = max(a + b - residual / 6, a, b)
    df = v**2 / (a**2 / 1 + b**2 / 2)
    half = float(stats.t.ppf(0.975, df)) * math.sqrt(v)
    assert found.ratio == pytest.approx(math.exp(grand))
    assert found.df == pytest.approx(df)
    assert found.interval == pytest.approx((math.exp(grand - half), math.exp(grand + half)))
    fixed = float(stats.t.ppf(0.975, 1)) * math.sqrt(var_r / 2)
    assert found.fixed_suite == pytest.approx((math.exp(grand - fixed), math.exp(grand + fixed)))
    assert found.scope == "launches"


def test_the_variance_is_never_below_that_of_launches_or_of_prompts() -> None:
    """With a large residual the plain estimate falls below both parts: here to less than nothing."""
    found = crossed([[0.3, -0.3], [-0.3, 0.3]])
    assert found.var_launch_means == pytest.approx(0)
    assert not found.guarded or found.variance == max(found.var_launch_means / 2, found.var_prompt_means / 2)
    raised = crossed([[0.5, -0.3, 0.0], [-0.4, 0.4, 0.1]])
    assert raised.guarded
    assert raised.var_launch_means is not None
    assert raised.var_prompt_means is not None
    assert raised.variance == pytest.approx(max(raised.var_launch_means / 2, raised.var_prompt_means / 3))


def test_one_launch_has_no_interval_over_launches_however_many_prompts() -> None:
    found = crossed([[0.01 * p for p in range(90)]])
    assert found.scope == "prompts only"
    assert found.interval is None
    assert found.fixed_suite is None
    assert "one launch" in (found.why or "")
    assert found.prompt_sampling is not None


def test_one_prompt_has_the_fixed_suite_s_interval_only() -> None:
    found = crossed([[0.1], [0.12], [0.11]])
    assert found.interval is None
    assert "one prompt" in (found.why or "")
    assert found.fixed_suite is not None
    assert found.prompt_sampling is None


def test_values_without_any_spread_have_no_interval_of_width_zero() -> None:
    found = crossed([[0.1, 0.1], [0.1, 0.1], [0.1, 0.1]])
    assert (found.interval, found.fixed_suite, found.prompt_sampling) == (None, None, None)
    assert "no spread" in (found.why or "")


def test_an_interval_wider_than_any_use_is_not_stated() -> None:
    found = crossed([[5.0, -5.0], [-5.0, 9.0]])
    assert found.interval is None
    assert "too few" in (found.why or "")


@pytest.mark.parametrize("table", [[], [[]], [[0.1, 0.2], [0.1]], [[0.1, math.nan]], [[math.inf]]])
def test_tables_that_are_not_complete_are_refused(table: list[list[float]]) -> None:
    with pytest.raises(AnalysisError):
        crossed(table)


@given(
    st.integers(1, 5).flatmap(
        lambda prompts: st.lists(st.lists(st.floats(-1, 1), min_size=prompts, max_size=prompts), min_size=1, max_size=5)
    )
)
def test_any_table_gives_an_interval_around_the_ratio_or_a_reason(table: list[list[float]]) -> None:
    found = crossed(table)
    for bounds, why in (
        (found.interval, found.why),
        (found.fixed_suite, found.fixed_suite_why),
        (found.prompt_sampling, found.prompt_sampling_why),
    ):
        assert (bounds is None) != (why is None)
        if bounds is not None:
            assert 0 < bounds[0] <= found.ratio <= bounds[1] < math.inf


@given(st.floats(-0.5, 0.5), st.permutations(range(4)), st.permutations(range(3)))
def test_a_common_factor_shifts_the_ratio_and_order_does_not_matter(
    shift: float, prompts: list[int], launches: list[int]
) -> None:
    table = [[0.1, 0.3, 0.2, 0.4], [0.15, 0.25, 0.22, 0.43], [0.05, 0.31, 0.18, 0.39]]
    plain = crossed(table)
    moved = crossed([[table[r][p] + shift for p in prompts] for r in launches])
    assert moved.ratio == pytest.approx(plain.ratio * math.exp(shift))
    assert plain.variance is not None
    assert moved.variance == pytest.approx(plain.variance)


# ---- coverage of nominal 95 %, seeded: prompts, launches and residuals drawn, the true ratio 1


def simulate(n_prompts: int, n_launches: int, prompt_sd: float, launch_sd: float, n: int) -> list[Table]:
    """Tables of log ratios; ``launch_sd`` is that of a launch of one arm, so a pair's is larger by sqrt 2."""
    draws = np.random.default_rng(SEED)
    return [
        draws.normal(0, prompt_sd, (1, n_prompts))
        + draws.normal(0, launch_sd * math.sqrt(2), (n_launches, 1))
        + draws.normal(0, 0.002, (n_launches, n_prompts))
        for _ in range(n)
    ]


def coverage(tables: list[Table], covers: Callable[[Table], bool]) -> float:
    return sum(covers(table) for table in tables) / len(tables)


def by_crossed(table: Table) -> bool:
    bounds = crossed(table.tolist()).interval
    return bounds is not None and bounds[0] <= 1 <= bounds[1]


def as_independent(table: Table) -> bool:
    half = stats.t.ppf(0.975, table.size - 1) * table.std(ddof=1) / math.sqrt(table.size)
    return bool(abs(table.mean()) <= half)


def by_launches(table: Table) -> bool:
    bounds = crossed(table.tolist()).fixed_suite
    return bounds is not None and bounds[0] <= 1 <= bounds[1]


def by_bootstrap(table: Table) -> bool:
    """Hierarchical percentile bootstrap: launches and prompts drawn with replacement, crossed."""
    draws = np.random.default_rng(SEED)
    n_launches, n_prompts = table.shape
    launches = draws.multinomial(n_launches, [1 / n_launches] * n_launches, size=300) / n_launches
    prompts = draws.multinomial(n_prompts, [1 / n_prompts] * n_prompts, size=300) / n_prompts
    means = ((launches @ table) * prompts).sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return bool(low <= 0 <= high)


def test_where_launches_dominate_the_interval_covers_and_the_usual_ones_do_not() -> None:
    tables = simulate(90, 3, prompt_sd=0.002, launch_sd=0.01, n=600)
    assert 0.92 <= coverage(tables, by_crossed) <= 0.98
    assert coverage(tables, as_independent) < 0.30
    assert coverage(tables, by_bootstrap) < 0.85


@pytest.mark.parametrize(
    ("n_prompts", "n_launches", "prompt_sd"),
    [(90, 3, 0.002), (90, 5, 0.002), (90, 10, 0.002), (30, 3, 0.10), (30, 10, 0.10), (90, 5, 0.10)],
)
def test_the_interval_covers_near_its_nominal_level(n_prompts: int, n_launches: int, prompt_sd: float) -> None:
    tables = simulate(n_prompts, n_launches, prompt_sd, launch_sd=0.01, n=600)
    assert 0.925 <= coverage(tables, by_crossed) <= 0.98
    assert coverage(tables, as_independent) < 0.80


def test_where_prompts_dominate_the_interval_covers_and_launches_alone_do_not() -> None:
    tables = simulate(30, 3, prompt_sd=0.10, launch_sd=0.01, n=600)
    assert 0.92 <= coverage(tables, by_crossed) <= 0.985
    assert coverage(tables, as_independent) < 0.85
    assert coverage(tables, by_launches) < 0.90


# ---- pairing: which cells enter the table


def seen(launch: int, prompt_id: str, value: float | None, *, arm: str = "arm", **more: object) -> Observation:
    fields = {"domain": "code", "order": 0, "why": None if value is not None else "timeout_stalled"} | more
    return Observation(arm=arm, launch=launch, prompt_id=prompt_id, value=value, **fields)  # type: ignore[arg-type]  # fields by name


def test_a_prompt_counts_only_where_both_arms_completed_it_in_every_launch() -> None:
    base = [seen(r, p, 10.0) for r in (0, 1) for p in ("a", "b", "c")]
    arm = [seen(0, "a", 20.0), seen(0, "b", 20.0), seen(0, "c", 20.0), seen(1, "a", 20.0), seen(1, "b", None)]
    table = pair(base, arm)
    assert table.prompts == ("a",)
    assert table.log_ratios == ((math.log(2),), (math.log(2),))
    assert table.coverage.n_prompts_seen == 3
    assert table.coverage.left_out_prompts == {
        "b": "no value in launch 1 of the arm: timeout_stalled",
        "c": "not asked in launch 1 of the arm",
    }


def test_a_launch_that_one_arm_never_ran_has_no_pair_and_takes_no_prompt_with_it() -> None:
    base = [seen(r, p, 10.0) for r in (0, 1) for p in ("a", "b")]
    table = pair(base, [seen(0, "a", 11.0), seen(0, "b", 12.0), seen(2, "a", 11.0), seen(2, "b", None)])
    assert table.launches == (0,)
    assert table.prompts == ("a", "b")
    assert table.coverage.left_out_launches == {
        1: "the arm measured nothing in it",
        2: "the baseline measured nothing in it",
    }


def test_repeats_of_a_prompt_are_one_cell_of_the_table() -> None:
    base = [seen(0, "a", 10.0), seen(0, "a", 10.0, repeat=1), seen(0, "b", 10.0)]
    arm = [seen(0, "a", 20.0), seen(0, "a", 5.0, repeat=1), seen(0, "b", 10.0)]
    table = pair(base, arm)
    assert table.log_ratios == ((pytest.approx(0.0), 0.0),)
    assert len(table.pairs) == 3


def test_the_same_request_twice_in_a_launch_is_refused() -> None:
    with pytest.raises(AnalysisError, match="answers a twice"):
        pair([seen(0, "a", 1.0), seen(0, "a", 1.0)], [])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_has_no_ratio_is_refused(value: float) -> None:
    with pytest.raises(AnalysisError, match="which has no ratio"):
        pair([seen(0, "a", value)], [seen(0, "a", 1.0)])


def test_nothing_in_common_gives_an_empty_table() -> None:
    assert pair([seen(0, "a", 1.0)], [seen(0, "b", 1.0)]).empty
    assert pair([], [seen(0, "b", 1.0)]).empty
    assert pair([], []).empty
