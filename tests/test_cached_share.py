"""The share of cached prompt tokens, and groups that are not alike in it."""

import pytest

from analysis.cached_share import cached_share, shares_apart
from tests.run_factory import request


def answer(n_cached, domain="code", **changes):
    usage = {"prompt_tokens": 20} | ({} if n_cached is None else {"prompt_tokens_details": {"cached_tokens": n_cached}})
    return request(usage=usage, domain=domain, **changes)


def test_the_share_is_over_all_prompt_tokens_and_zero_is_a_share():
    assert cached_share([answer(5), answer(10)]) == pytest.approx(15 / 40)
    assert cached_share([answer(0)]) == 0.0


def test_one_silent_answer_makes_the_share_unknown():
    assert cached_share([answer(5), answer(None)]) is None
    assert cached_share([]) is None


def test_requests_that_failed_do_not_count():
    assert cached_share([answer(4), answer(20, outcome="truncated")]) == pytest.approx(0.2)


def test_groups_apart_by_more_than_the_tolerance_are_named_by_domain():
    cold = [answer(0), answer(0, domain="json")]
    warm = [answer(0), answer(19, domain="json")]
    assert shares_apart(cold, cold) == []
    found = shares_apart(cold, warm)
    assert len(found) == 2
    assert any("json: 95% against the baseline's 0%" in text for text in found)
    assert shares_apart(cold, [answer(None)]) == []
