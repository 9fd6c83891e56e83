"""Prompts sent again: alike, faster by a cache, faster without one, and too few to tell."""

from dataclasses import replace

import pytest

from analysis.measures import Row, measure
from analysis.pass_facts import passes_differ
from tests.run_factory import request


def sent(n_prompts: int, *, again: float, cached: tuple[int, int] = (0, 0), n_sendings: int = 2) -> list[Row]:
    """Each prompt twice or more, later ones ``again`` times as fast as the first (a little more or less by prompt)."""
    rows = []
    for repeat in range(n_sendings):
        for n in range(n_prompts):
            one = request(prompt_id=f"code_{n:02}", repeat=repeat)
            usage = {**(one.usage or {}), "prompt_tokens_details": {"cached_tokens": cached[min(repeat, 1)]}}
            faster = again * (1 + 0.01 * n) if repeat else 1.0
            row = Row(request=one.model_copy(update={"usage": usage}), measures=measure(one, max_draft_tokens=0))
            rate = row.measures.decode_tok_per_s
            changed = type(rate)(None if rate.value is None else rate.value * faster, rate.why)
            rows.append(Row(request=row.request, measures=replace(row.measures, decode_tok_per_s=changed)))
    return rows


@pytest.mark.parametrize("again", [1.0, 1.1, 0.95])
def test_a_second_sending_that_is_a_little_faster_or_slower_is_warm_up(again: float) -> None:
    assert passes_differ(sent(8, again=again)) is None


def test_a_cache_that_grew_is_told_with_both_shares() -> None:
    n_prompt = request().n_prompt_tokens
    assert n_prompt
    found = passes_differ(sent(8, again=1.0, cached=(0, n_prompt)))
    assert found and found.seen == "prompt tokens from a cache: 0% when first sent, 100% when sent again (2)"


@pytest.mark.parametrize(("again", "shown"), [(3.0, "3.1"), (0.5, "0.5")])
def test_a_rate_that_moved_is_told_though_no_cache_shows(again: float, shown: str) -> None:
    found = passes_differ(sent(8, again=again))
    assert found and found.seen.startswith(f"the same 8 prompts decode at {shown}")


def test_few_prompts_and_single_sendings_tell_nothing() -> None:
    assert passes_differ(sent(4, again=3.0)) is None
    assert passes_differ([row for row in sent(8, again=3.0) if row.request.repeat == 0]) is None


def test_of_many_sendings_the_first_and_the_last_two_are_told_and_all_are_kept() -> None:
    n_prompt = request().n_prompt_tokens
    assert n_prompt
    found = passes_differ(sent(8, again=3.0, cached=(0, n_prompt), n_sendings=30))
    assert found
    assert len(found.sendings) == 2 * 29
    shares, *rates = found.seen.split("; the same ")
    assert shares == (
        "prompt tokens from a cache: 0% when first sent, 100% when sent again (2), (26 more sendings), "
        "100% when sent again (29), 100% when sent again (30)"
    )
    assert [word for rate in rates for word in ("(2;", "(29;", "(30;") if word in rate] == ["(2;", "(29;", "(30;"]
    assert "(26 more sendings)" in rates[0] and len(rates) == 3
