"""How much of a run's windows GPU samples cover."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.gpu_coverage import coverage, in_words
from evidence.gpu_records import GpuReading, GpuSample


def at(*times: float, missing: str | None = None, **reading: object) -> list[GpuSample]:
    gpus = () if missing else (GpuReading(index=0, **reading),)
    common = {"run_id": "r", "source": "nvml", "host": None, "at_monotonic_s": None, "took_s": 0.0, "interval_s": 1.0}
    return [GpuSample(at_unix_s=t, gpus=gpus, missing=missing, **common) for t in times]


def test_a_sampler_bound_to_the_window_covers_it() -> None:
    found = coverage(at(*range(10, 21)), [(10.0, 20.0)])
    assert (found.n_samples, found.n_inside, found.inside_ratio, found.covered_ratio) == (11, 11, 1.0, 1.0)
    assert found.largest_gap_s == 1.0
    assert found.n_windows_without == 0


def test_samples_beside_the_windows_are_counted_as_that() -> None:
    found = coverage(at(*range(100)), [(40.0, 44.5), (200.0, 210.0)])
    assert (found.n_inside, found.inside_ratio) == (5, 0.05)
    assert (found.n_windows, found.n_windows_without, found.largest_gap_s) == (2, 1, 10.0)
    assert found.covered_ratio == pytest.approx(4.5 / 14.5)
    assert "5 of 100 samples lie inside the run's windows (5%)" in in_words(found)


def test_a_gap_within_a_window_is_seen() -> None:
    found = coverage(at(0, 1, 2, 7, 8), [(0.0, 8.0)])
    assert found.largest_gap_s == 5.0
    assert found.covered_ratio == pytest.approx(0.5)


def test_overlapping_windows_count_a_sample_once() -> None:
    found = coverage(at(1, 2, 3), [(0.0, 2.5), (1.5, 3.5)])
    assert (found.n_windows, found.n_inside) == (1, 3)


def test_no_samples_is_none_with_the_reason_and_never_zero_percent() -> None:
    found = coverage(at(1.0, missing="NVML does not start"), [(0.0, 2.0)])
    assert (found.inside_ratio, found.covered_ratio, found.missing) == (None, None, "NVML does not start")
    assert in_words(found) == "GPU: no samples: NVML does not start"
    assert coverage([], [(0.0, 2.0)]).missing == "no sample was taken"


def test_what_no_reading_tells_is_named() -> None:
    found = coverage(at(1, 2, missing=None, power_w=5.0), [(0.0, 3.0)])
    assert found.not_told == {}
    lacking = [
        one.model_copy(update={"gpus": (GpuReading(index=0, missing={"energy_j": "old card"}),)}) for one in at(1)
    ]
    assert coverage(lacking, [(0.0, 3.0)]).not_told == {"energy_j": "old card"}


def test_samples_without_a_window_say_so() -> None:
    assert "no window to lay them against" in in_words(coverage(at(1), []))


times = st.lists(st.floats(0, 100), max_size=30)
windows = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=5)


@given(times, windows)
def test_shares_stay_between_none_and_all(when: list[float], spans: list[tuple[float, float]]) -> None:
    found = coverage(at(*when), spans)
    for ratio in (found.inside_ratio, found.covered_ratio):
        assert ratio is None or -1e-9 <= ratio <= 1 + 1e-9
    assert found.n_inside <= found.n_samples
