"""Drift with order and the test of warm-up: a drift put in is found, one that is not there is not."""

import math
import random

import pytest

from analysis.order_effects import drift, pair_points, points, spearman, warm_up
from analysis.pairing import Observation, pair


def launch(
    index: int, *, slope: float = 0.0, noise: float = 0.001, prompts: int = 30, arm: str = "base", seed: int = 0
) -> list[Observation]:
    """One launch of a blocked plan: the domains' rates differ by half, the drift is ``slope`` a request."""
    draws = random.Random(1000 * seed + index)
    found = []
    for order in range(prompts):
        domain = ("code", "prose", "json")[order * 3 // prompts]
        log_rate = math.log({"code": 50, "prose": 75, "json": 100}[domain]) + slope * order + draws.gauss(0, noise)
        found.append(
            Observation(
                arm=arm, launch=index, prompt_id=f"p{order}", domain=domain, value=math.exp(log_rate), order=order
            )
        )
    return found


def test_a_drift_put_in_is_found_in_size_and_sign() -> None:
    found = drift(points([o for index in range(4) for o in launch(index, slope=-0.002)]))
    assert found.seen
    assert found.unit == "launches"
    assert found.per_request == pytest.approx(-0.002, abs=0.0003)
    assert all(rho is not None and rho < -0.9 for rho in found.spearman.values())


def test_domains_sent_in_blocks_are_no_drift() -> None:
    """Steps between blocks leave zero outside the slope's interval as often as it says: one time in twenty."""
    found = [drift(points([o for r in range(4) for o in launch(r, seed=seed)])) for seed in range(200)]
    assert all(abs(one.per_request or 0) < 0.0003 for one in found)
    assert sum(one.seen for one in found) / 200 <= 0.10


def test_one_launch_says_that_it_takes_requests_as_independent() -> None:
    found = drift(points(launch(0, slope=-0.002)))
    assert (found.n_launches, found.unit) == (1, "requests")
    assert found.seen
    assert found.one_order


def test_a_drift_that_both_arms_share_cancels_in_the_pairs() -> None:
    base = [o for index in range(4) for o in launch(index, slope=-0.002, seed=1)]
    arm = [o for index in range(4) for o in launch(index, slope=-0.002, arm="arm", seed=2)]
    assert drift(points(base)).seen
    assert drift(points(arm)).seen
    assert not drift(pair_points(pair(base, arm).pairs)).seen


def test_too_few_requests_give_a_reason() -> None:
    found = drift(points(launch(0, prompts=2)))
    assert (found.per_request, found.interval) == (None, None)
    assert found.why
    assert drift([]).why


def test_spearman_sees_any_monotonous_drift_and_no_outlier() -> None:
    assert spearman([1, 2, 3, 4], [1, 2, 4, 1000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [5, 5, 5]) is None
    assert spearman([1, 2], [1, 2]) is None


def passes(launches: int, first: float) -> list[Observation]:
    draws = random.Random(7)
    return [
        Observation(
            arm="base",
            launch=index,
            prompt_id=f"p{p}",
            domain="code",
            value=50.0 * (first if turn == 0 else 1.0) * math.exp(draws.gauss(0, 0.002)),
            order=turn * 10 + p,
            repeat=turn,
        )
        for index in range(launches)
        for turn in range(3)
        for p in range(10)
    ]


def test_a_slow_first_pass_means_that_warm_up_did_not_suffice() -> None:
    found = warm_up(passes(4, first=0.9))
    assert found.sufficed is False
    assert found.unit == "launches"
    assert found.first_ratio == pytest.approx(0.9, abs=0.005)


def test_equal_passes_mean_that_it_did() -> None:
    assert warm_up(passes(4, first=1.0)).sufficed is True


def test_with_one_launch_the_test_is_over_prompts_and_says_so() -> None:
    found = warm_up(passes(1, first=0.9))
    assert (found.unit, found.sufficed) == ("prompts", False)


def test_one_pass_cannot_be_tested() -> None:
    found = warm_up(launch(0))
    assert found.sufficed is None
    assert "one pass" in (found.why or "")
