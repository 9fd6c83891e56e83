"""Means from sums and counts, quantiles as intervals, and what the buckets or their own sums exclude."""

import json
import math

import pytest
from engine_bodies import reader, window
from hypothesis import given
from hypothesis import strategies as st

from infra.engines.histogram import latency, quantile_interval
from infra.engines.meaning import Nowhere
from infra.engines.readings import Absent, Measured, Unmeasured

VL = reader("vllm", "0.33.0")
NAME = "vllm:time_to_first_token_seconds"
INF = math.inf


def body(total_s: float, *buckets: tuple[str, float], count: float | None = None) -> str:
    lines = [f"# TYPE {NAME} histogram", *(f'{NAME}_bucket{{engine="0",le="{le}"}} {n}' for le, n in buckets)]
    n_all = (buckets[-1][1] if buckets else 0.0) if count is None else count
    return "\n".join([*lines, f'{NAME}_count{{engine="0"}} {n_all}', f'{NAME}_sum{{engine="0"}} {total_s}', ""])


def read(total_s: float, *buckets: tuple[str, float], count: float | None = None):
    zero = body(0.0, *((le, 0.0) for le, _ in buckets), count=0.0)
    return latency(VL.meaning.ttft, [window(VL, zero, body(total_s, *buckets, count=count))])


def test_a_mean_is_the_sum_over_the_count():
    found = read(0.6, ("0.1", 1), ("0.5", 2), ("+Inf", 2))
    assert (found.mean_s, found.n) == (Measured(0.3), Measured(2))
    json.dumps(found.as_json(), allow_nan=False)


def test_a_quantile_is_an_interval_and_never_a_number_past_the_last_finite_edge():
    found = read(80.0, ("1", 0), ("10", 0), ("+Inf", 5))
    assert found.interval_s(50) == (10.0, None)
    assert found.as_json()["quantile_intervals"]["p99"] == [10.0, None]


def test_a_floor_of_the_first_bucket_is_an_interval_that_begins_at_zero():
    assert read(1.0, ("0.3", 9), ("+Inf", 9)).interval_s(99) == (0.0, 0.3)


def test_with_nothing_but_infinity_there_is_no_quantile():
    found = read(1.0, ("+Inf", 9))
    assert isinstance(found.interval_s(50), str)
    assert found.mean_s == Measured(1 / 9)


@pytest.mark.parametrize(
    ("total_s", "buckets", "count", "says"),
    [
        (9.0, (("0.1", 9), ("+Inf", 9)), None, "allow"),  # nine below 0.1 s cannot sum to nine seconds
        (0.1, (("0.1", 0), ("1", 9), ("+Inf", 9)), None, "allow"),
        (-1.0, (("0.1", 9), ("+Inf", 9)), None, "negative"),
        (1.0, (("0.1", 5), ("1", 3), ("+Inf", 5)), None, "fall"),
        (1.0, (("1", 5), ("+Inf", 5)), 8.0, "count says 8"),
    ],
)
def test_a_sum_that_its_own_buckets_exclude_is_refused(total_s, buckets, count, says):
    found = read(total_s, *buckets, count=count)
    assert isinstance(found.mean_s, Unmeasured)
    assert says in found.mean_s.why
    assert isinstance(found.interval_s(50), str)
    assert found.as_json()["mean"] is None


def test_no_observation_is_unmeasured_and_no_series_is_absent():
    assert isinstance(read(0.0, ("1", 0), ("+Inf", 0)).mean_s, Unmeasured)
    assert isinstance(latency(VL.meaning.tpot, [window(VL, body(0.0), body(0.0))]).mean_s, Absent)
    assert latency(Nowhere(why="none"), []).mean_s == Absent(why="none")


@given(st.lists(st.floats(0.001, 30), min_size=1, max_size=40), st.integers(1, 100))
def test_the_interval_always_holds_the_nearest_rank(values, percent):
    edges = [0.01, 0.1, 1.0, 10.0, INF]
    buckets = [(edge, float(sum(value <= edge for value in values))) for edge in edges]
    found = quantile_interval(buckets, percent)
    assert not isinstance(found, str)
    low, high = found
    true = sorted(values)[-(-percent * len(values) // 100) - 1]
    assert low < true
    assert high is None or true <= high
