"""Where an arm stops paying, and the highest level that holds the objectives."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.break_even import RatioAt, break_even
from analysis.errors import AnalysisError
from analysis.slo_level import Attained, binomial_interval, highest_level
from analysis.sweep_ratio import launch_ratio


def at(setting, ratio, half=0.02, scope="launches"):
    bounds = None if half is None else (ratio * math.exp(-half), ratio * math.exp(half))
    return RatioAt(level=f"users={setting:g}", setting=setting, ratio=ratio, interval=bounds, scope=scope)


def test_a_ratio_that_falls_through_1_breaks_even_between_its_two_levels():
    found = break_even([at(1, 1.5), at(4, 1.2), at(16, 0.8)], unit="users")
    share = math.log(1.2) / (math.log(1.2) - math.log(0.8))
    assert found.state == "crossing" and found.pays == "below"
    assert found.at == pytest.approx(4 * 4**share)
    assert found.interval is not None and 4 < found.interval[0] < found.at < found.interval[1] < 16
    assert found.between == (4, 16) and "measured ahead at 4 and behind at 16" in found.said


def test_the_order_of_the_levels_does_not_matter_and_a_rising_ratio_pays_above():
    levels = [at(1024, 0.9), at(4096, 1.1), at(16384, 1.4)]
    rising, shuffled = break_even(levels, unit="tokens"), break_even(levels[::-1], unit="tokens")
    assert rising == shuffled and rising.pays == "above" and 1024 < (rising.at or 0) < 4096


def test_wider_intervals_give_a_wider_break_even():
    narrow = break_even([at(1, 1.5, 0.01), at(16, 0.7, 0.01)], unit="users").interval
    wide = break_even([at(1, 1.5, 0.2), at(16, 0.7, 0.2)], unit="users").interval
    assert narrow is not None and wide is not None and wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_level_whose_interval_holds_1_lies_within_the_break_evens_interval():
    found = break_even([at(1, 1.5), at(4, 1.001, 0.05), at(16, 0.7)], unit="users")
    assert found.interval is not None and found.interval[0] < 4 < found.interval[1]


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([at(1, 1.5)], "a crossing needs two"),
        ([at(1, 1.5), at(2, 0.8, None)], "no interval at users=2"),
        ([at(1, 1.02, 0.1), at(2, 0.99, 0.1)], "the interval holds 1 at every level"),
        ([at(1, 1.5), at(2, 0.99, 0.1)], "no level lies beyond it"),
        ([at(1, 1.5), at(2, 0.8), at(4, 1.5)], "goes from one side of 1 to the other 2 times"),
    ],
)
def test_what_the_levels_do_not_settle_is_not_resolved_and_says_why(levels, said):
    found = break_even(levels, unit="users")
    assert found.state == "not resolved" and found.at is None and found.interval is None and said in found.said


def test_an_arm_ahead_or_behind_everywhere_is_not_called_beyond_the_levels_measured():
    assert break_even([at(1, 1.5), at(8, 1.2)], unit="users").state == "pays at every level"
    behind = break_even([at(1, 0.5), at(8, 0.9)], unit="users")
    assert behind.state == "pays at no level" and "1 to 8 users; beyond is not known" in behind.said


def test_one_launch_speaks_of_its_prompts_only():
    found = break_even([at(1, 1.5, scope="prompts only"), at(8, 0.7, scope="prompts only")], unit="users")
    assert found.scope == "prompts only" and found.said.startswith("prompts only: ")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_is_no_positive_number_is_refused(bad):
    with pytest.raises(AnalysisError, match="leave out"):
        break_even([RatioAt(level="users=1", setting=1, ratio=bad, interval=None, scope="launches")], unit="users")


def test_a_setting_that_occurs_twice_is_refused():
    with pytest.raises(AnalysisError, match="each level once"):
        break_even([at(2, 1.1), at(2, 1.2)], unit="users")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6), st.floats(0.001, 0.3))
def test_a_stated_crossing_always_lies_within_its_interval_and_the_levels(ratios, half):
    found = break_even([at(2.0**place, ratio, half) for place, ratio in enumerate(ratios)], unit="users")
    if found.state == "crossing":
        assert found.interval is not None
        low, high = found.interval
        assert 1 <= low <= high <= 2.0 ** (len(ratios) - 1)
        assert found.at is None or low <= found.at <= high


def held(setting, good, n=100, launch=0, **changes):
    return Attained(level=f"users={setting}", setting=setting, launch=launch, n_sent=n, n_good=good, **changes)


def test_the_highest_level_is_the_last_before_one_that_fails():
    found = highest_level([held(1, 100), held(2, 99), held(4, 70), held(8, 100)])
    assert found.level == "users=2"
    assert "users=4 does not (70.0% met them)" in found.said and "users=8 above it would hold" in found.said


def test_a_level_must_hold_in_every_launch():
    found = highest_level([held(1, 100), held(1, 60, launch=1)])
    assert found.level is None and found.levels[0].holds == "fails" and found.levels[0].share == (0.6, 1.0)


def test_a_share_that_so_few_requests_cannot_tell_from_the_attainment_is_marked_as_close():
    assert highest_level([held(1, 10, n=11)]).levels[0].close is not None
    assert highest_level([held(1, 1000, n=1000)]).levels[0].close is None


def test_undecided_requests_leave_a_level_open_where_they_would_decide_it():
    found = highest_level([held(1, 85, n_undecided=10), held(2, 50, n_undecided=10)])
    assert [one.holds for one in found.levels] == ["not known", "fails"] and found.level is None


def test_a_rate_that_was_not_held_fails_however_good_its_requests_were():
    found = highest_level([held(1, 100), held(2, 100, rate_missed="the client sent 1.2 of 2 requests a second")])
    assert found.level == "users=1" and "the client sent 1.2 of 2" in found.said


def test_without_objectives_nothing_is_known():
    assert highest_level([held(1, 0, why="no objective is set")]).said == "not known: no objective is set"
    assert highest_level([]).said == "no level was measured"


def test_the_binomial_interval_is_clopper_and_pearsons():
    low, high = binomial_interval(8, 10)
    assert (low, high) == (pytest.approx(0.4439, abs=1e-4), pytest.approx(0.9748, abs=1e-4))
    assert binomial_interval(0, 10)[0] == 0.0 and binomial_interval(10, 10)[1] == 1.0


def test_launches_give_an_interval_and_one_launch_gives_none():
    several = launch_ratio({0: [(100.0, 150.0)], 1: [(100.0, 140.0)], 2: [(100.0, 145.0)]})
    assert several.ratio == pytest.approx((1.5 * 1.4 * 1.45) ** (1 / 3)) and several.verdict == "higher"
    one = launch_ratio({0: [(100.0, 150.0), (100.0, 150.0)]})
    assert one.ratio == pytest.approx(1.5) and one.interval is None and one.scope == "prompts only"
    assert one.verdict == "not resolved" and launch_ratio({}).ratio is None
