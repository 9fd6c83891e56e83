"""Numbers derived from one record, each recomputed here by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures import Measures, chunk_gaps_s, measure
from evidence.records import Request
from tests.run_factory import request


def measured(record: Request, max_draft_tokens: int | None = 0) -> Measures:
    return measure(record, max_draft_tokens=max_draft_tokens)


def test_each_number_of_a_plain_stream_by_hand() -> None:
    record = request(
        chunks=[(0.5, 0, 1, 4), (0.6, 1, 2, 4), (0.7, 2, 3, 4), (0.9, 3, 5, 4)],
        first_visible_after_s=0.6,
        end_after_s=1.0,
    )
    got = measured(record)
    assert got.n_first_tokens.value == 1
    assert got.ttft_s.value == 0.5
    assert got.ttfv_s.value == 0.6
    assert got.e2e_s.value == 1.0
    assert got.tpot_s.value == pytest.approx((0.9 - 0.5) / (5 - 1))
    assert got.decode_tok_per_s.value == pytest.approx(4 / 0.4)
    assert got.tpot_common_s.value == pytest.approx((1.0 - 0.5) / 4)
    assert got.study_rate_tok_per_s.value == pytest.approx(5 / (1.0 - 0.6))
    assert got.tpot_bounds_s.bounds == (got.tpot_s.value, got.tpot_s.value)
    assert got.gap_median_s.value == pytest.approx(0.1)
    assert got.gap_max_s.value == pytest.approx(0.2)


def test_all_chunks_of_the_first_segment_count_as_first_tokens() -> None:
    record = request(chunks=[(0.2, 0, 1, 3), (0.2, 0, 2, 3), (0.2, 0, 3, 3), (0.7, 1, 8, 9)])
    got = measured(record)
    assert got.n_first_tokens.value == 3
    assert got.decode_tok_per_s.value == pytest.approx((8 - 3) / 0.5)


def test_a_role_event_before_the_first_token_does_not_start_the_window() -> None:
    record = request(
        chunks=[(0.1, 0, 0, 0), (0.4, 1, 2, 5), (0.8, 2, 4, 5)], first_token_after_s=0.4, first_visible_after_s=0.4
    )
    got = measured(record)
    assert got.n_first_tokens.value == 2
    assert got.tpot_s.value == pytest.approx(0.4 / 2)


def test_one_read_with_everything_gives_no_rate_instead_of_millions_of_tokens_a_second() -> None:
    got = measured(request(chunks=[(0.2, 0, 1, 3), (0.2, 0, 40, 90)]))
    assert got.tpot_s.value is None
    assert got.decode_tok_per_s.value is None
    assert "one segment" in (got.decode_tok_per_s.why or "")


def test_a_window_too_short_to_resolve_gives_no_rate() -> None:
    got = measured(request(chunks=[(0.2, 0, 1, 3), (0.20001, 1, 512, 90)]))
    assert got.decode_tok_per_s.value is None
    assert "0.0005" in (got.decode_tok_per_s.why or "")


def test_all_tokens_in_the_first_segment_give_no_rate_though_the_stream_went_on() -> None:
    got = measured(request(chunks=[(0.2, 0, 4, 9), (0.3, 1, 4, 0)]))
    assert got.tpot_s == (None, "all 4 tokens came with the first segment")


@pytest.mark.parametrize("tokens", [0, 1])
def test_one_token_or_none_has_no_time_per_token_and_it_is_not_zero(tokens: int) -> None:
    got = measured(request(chunks=[(0.2, 0, tokens, 1)], n_completion_tokens=tokens))
    assert (got.tpot_s.value, got.tpot_common_s.value, got.decode_tok_per_s.value) == (None, None, None)
    assert str(tokens) in (got.tpot_s.why or "")


def test_a_last_token_before_the_first_gives_no_negative_time() -> None:
    got = measured(request(chunks=[(0.5, 0, 1, 3), (0.6, 1, 9, 3)], last_token_after_s=0.4))
    assert got.tpot_s.value is None
    assert "before the first" in (got.tpot_s.why or "")


def test_no_token_count_leaves_the_latencies_and_no_rate() -> None:
    record = request(chunks=[(0.5, 0, None, 3), (0.6, 1, None, 3)], n_completion_tokens=None, token_source=None)
    got = measured(record)
    assert got.ttft_s.value == 0.5
    assert got.e2e_s.value is not None
    assert got.tpot_s.why == "no authoritative token count"
    assert got.study_rate_tok_per_s.why == "no authoritative token count"


def test_an_unknown_first_chunk_gives_the_interval_of_the_draft_limit() -> None:
    """N = 512, g = 5, 7.1 s: 71.3 to 72.0 tokens a second."""
    record = request(chunks=[(1.0, 0, None, 3), (8.1, 1, None, 9)], n_completion_tokens=512)
    got = measured(record, max_draft_tokens=5)
    assert got.tpot_s.value is None
    assert got.tpot_bounds_s.bounds == pytest.approx((7.1 / 511, 7.1 / 506))
    assert got.decode_bounds_tok_per_s.bounds == pytest.approx((506 / 7.1, 511 / 7.1))
    low, high = got.decode_bounds_tok_per_s.bounds or (0.0, 0.0)
    assert (round(low, 1), round(high, 1)) == (71.3, 72.0)


def test_several_uncounted_chunks_in_the_first_segment_widen_the_interval() -> None:
    record = request(chunks=[(1.0, 0, None, 3), (1.0, 0, None, 3), (3.0, 1, None, 9)], n_completion_tokens=20)
    assert measured(record, max_draft_tokens=4).tpot_bounds_s.bounds == pytest.approx((2 / 18, 2 / 10))


def test_an_unknown_first_chunk_without_a_draft_limit_says_what_is_lacking() -> None:
    record = request(chunks=[(1.0, 0, None, 3), (8.1, 1, None, 9)], n_completion_tokens=512)
    got = measured(record, max_draft_tokens=None)
    assert got.tpot_bounds_s.bounds is None
    assert "draft limit" in (got.tpot_bounds_s.why or "")


def test_an_answer_shorter_than_the_draft_limit_has_no_upper_bound() -> None:
    record = request(chunks=[(1.0, 0, None, 3), (2.0, 1, None, 9)], n_completion_tokens=5)
    assert measured(record, max_draft_tokens=5).tpot_bounds_s.bounds is None


def test_chunks_of_one_segment_have_no_gap_between_them() -> None:
    record = request(chunks=[(0.1, 0, 1, 1), (0.1, 0, 2, 1), (0.4, 1, 3, 1)])
    assert chunk_gaps_s(record) == pytest.approx([0.3])


def test_nothing_received_has_reasons_everywhere() -> None:
    never = {"sent_at_unix_s": None, "sent_at_monotonic_s": None, "end_after_s": None}
    record = request(chunks=[], outcome="connect_refused", first_token_after_s=None, n_completion_tokens=None, **never)
    got = measured(record)
    for pair in (got.ttft_s, got.ttfv_s, got.e2e_s, got.tpot_s, got.decode_tok_per_s, got.gap_median_s):
        assert pair.value is None
        assert pair.why


def test_a_request_that_was_sent_has_an_end_and_one_that_never_was_took_no_time() -> None:
    with pytest.raises(ValueError, match="a request that was sent has an end_after_s"):
        request(chunks=[], outcome="timeout_headers", end_after_s=None)
    unsent = {"sent_at_unix_s": None, "sent_at_monotonic_s": None, "end_after_s": None}
    with pytest.raises(ValueError, match="was never sent"):
        _ = request(chunks=[], outcome="connect_refused", **unsent).took_s


@given(
    gaps=st.lists(st.floats(0.0, 0.5), min_size=0, max_size=12),
    steps=st.lists(st.integers(0, 6) | st.none(), min_size=13, max_size=13),
    draft=st.none() | st.integers(0, 8),
)
def test_every_pair_is_a_finite_positive_number_or_a_reason(
    gaps: list[float], steps: list[int | None], draft: int | None
) -> None:
    marks, at_s, total = [], 0.1, 0
    for index, gap in enumerate([0.0, *gaps]):
        at_s += gap
        step = steps[index]
        total += step or 0
        marks.append((at_s, index, None if step is None else total, 3))
    got = measured(request(chunks=marks, n_completion_tokens=total), draft)
    for pair in (got.tpot_s, got.decode_tok_per_s, got.tpot_common_s, got.study_rate_tok_per_s):
        assert (pair.value is None) != (pair.why is None)
        assert pair.value is None or (math.isfinite(pair.value) and pair.value > 0)
    for interval in (got.tpot_bounds_s, got.decode_bounds_tok_per_s):
        assert (interval.bounds is None) != (interval.why is None)
        assert interval.bounds is None or 0 < interval.bounds[0] <= interval.bounds[1] < math.inf
