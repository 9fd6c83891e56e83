"""A search decides by the objectives of a level's requests; by the same rules the report judges them by."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.goodput import goodput
from analysis.measures import Row, measure
from infra.wire.decode_time import first_tokens
from locustfiles._objectives import Objectives, met
from locustfiles._search import Search
from scenarios.schema import Limits
from tests.evidence_samples import ended

LIMITS = Limits(ttft_slo_s=0.1, tpot_slo_s=0.02)
COUNTS = st.one_of(st.none(), st.integers(0, 9))


def one(ttft_s: float = 0.05, tpot_s: float = 0.01, n: int = 5, **changes: Any) -> Any:
    """A request of n tokens, the first of which came alone."""
    last_s = ttft_s + tpot_s * (n - 1)
    fields = {
        "first_token_after_s": ttft_s,
        "last_token_after_s": last_s,
        "n_completion_tokens": n,
        "chunks": ((ttft_s, 0, 1, 3), (last_s, 1, n, 5)),
    }
    return ended(0, **(fields | changes))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (one(), "met"),
        (one(ttft_s=0.11), "not met"),
        (one(tpot_s=0.021), "not met"),
        (one(outcome="truncated"), "not met"),
        (one(n=1), "met"),
        (one(chunks=((0.05, 0, None, 3), (0.09, 1, None, 5))), "undecided"),
        (one(tpot_s=0.05, chunks=((0.05, 0, None, 3), (0.09, 1, None, 5))), "not met"),
    ],
)
def test_a_request_meets_both_objectives_or_it_does_not(request_, expected):
    assert met(request_, LIMITS) == expected


@settings(max_examples=300, deadline=None)
@given(
    first_s=st.floats(0.0, 0.2),
    window_s=st.floats(0.0, 0.3),
    n=st.one_of(st.none(), st.integers(0, 12)),
    counts=st.tuples(COUNTS, COUNTS, COUNTS),
    same=st.booleans(),
    outcome=st.sampled_from(["completed", "http_error"]),
)
def test_whatever_the_report_decides_the_search_decides_too(first_s, window_s, n, counts, same, outcome):
    last_s = first_s + window_s
    chunks = tuple(
        (at, segment, count, 2)
        for at, segment, count in zip(
            (first_s, first_s if same else last_s, last_s), (0, 0 if same else 1, 2), counts, strict=True
        )
    )
    request_ = one(
        first_token_after_s=first_s, last_token_after_s=last_s, n_completion_tokens=n, chunks=chunks, outcome=outcome
    )
    row = Row(request=request_, measures=measure(request_, max_draft_tokens=None))
    found = goodput([row], window_s=1.0, ttft_slo_s=LIMITS.ttft_slo_s, tpot_slo_s=LIMITS.tpot_slo_s)
    ours = met(request_, LIMITS)
    if found.n_good:
        assert ours == "met"
    elif found.n_bad or found.n_failed:
        assert ours == "not met"
    else:
        assert ours != "met"


def test_nine_of_ten_hold_and_eight_do_not_and_a_rate_that_was_missed_never_does():
    objectives = Objectives(LIMITS)
    for request_ in [one()] * 9 + [one(ttft_s=0.5)]:
        objectives.take(request_)
    assert objectives.met(n_sent=10, held_rate=True).holds
    assert not objectives.met(n_sent=10, held_rate=False).holds
    assert not objectives.met(n_sent=11, held_rate=True).holds  # one that has no record is not met
    objectives.clear()
    assert not objectives.met(n_sent=0, held_rate=True).holds


def test_the_first_tokens_are_counted_without_reading_on_behind_their_segment():
    marks = iter([(0.1, 0, 1, 1), (0.1, 0, 3, 1), (0.2, 1, 4, 1), (0.3, 2, 5, 1)])
    assert first_tokens(marks, 0.1) == 3
    assert list(marks) == [(0.3, 2, 5, 1)]


@pytest.mark.parametrize("n", range(1, 12))
def test_a_search_finds_the_highest_that_holds_in_few_visits(n):
    for highest in range(-1, n):
        search = Search(n)
        while (index := search.next()) is not None:
            search.judged(index, index <= highest)
        assert search.best == (None if highest < 0 else highest)
        assert len(search.visited) == len(set(search.visited)) <= n.bit_length()
