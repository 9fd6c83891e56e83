"""Prompts lengthened to an exact number of tokens, with counters of several kinds."""

import ast
import itertools
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompts.filler import pieces
from prompts.lengthen import Lengthener, LengthError

TASK = "Write a function that adds two numbers."
DOMAINS = ["code", "prose", "json", "law"]
COUNTERS: dict[str, Callable[[str], int]] = {
    "words and signs": lambda text: len(re.findall(r"\w+|[^\w\s]", text)),
    "four characters a token": lambda text: -(-len(text) // 4),
    "pieces of words": lambda text: sum(-(-len(word) // 5) for word in re.findall(r"\s*\w+|[^\w\s]|\n", text)),
    "bytes": lambda text: len(text.encode()),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(COUNTERS)), st.sampled_from(DOMAINS), st.integers(80, 3000), st.integers())
def test_a_length_is_met_exactly_whatever_counts_and_the_task_ends_the_text(
    name: str, domain: str, target: int, seed: int
) -> None:
    counter = COUNTERS[name]
    text = Lengthener().lengthened(TASK, domain, target, lambda text: counter(text) + 9, seed=str(seed), head="[ab]\n")
    assert counter(text) + 9 == target
    assert text.startswith("[ab]\n")
    assert text.endswith(TASK)


def test_the_first_tokens_above_the_bare_prompt_are_met_too() -> None:
    bare = COUNTERS["words and signs"](TASK)
    for target in range(bare, bare + 60):
        text = Lengthener().lengthened(TASK, "json", target, COUNTERS["words and signs"], seed="s")
        assert COUNTERS["words and signs"](text) == target


def test_the_same_arguments_give_the_same_text_whatever_was_made_before() -> None:
    counter, used = COUNTERS["words and signs"], Lengthener()
    for target in (90, 1500, 4000):
        used.lengthened(TASK, "prose", target, counter, seed="earlier")
    fresh = Lengthener().lengthened(TASK, "prose", 2000, counter, seed="s")
    assert used.lengthened(TASK, "prose", 2000, counter, seed="s") == fresh
    assert used.lengthened(TASK, "prose", 2000, counter, seed="t") != fresh


def test_a_long_text_takes_few_calls_and_fewer_once_the_tokenizer_is_known() -> None:
    calls: list[int] = []
    lengthener = Lengthener()
    for target in (32_000, 32_000, 16_000):
        n = [0]

        def count(text: str, n: list[int] = n) -> int:
            n[0] += 1
            return COUNTERS["pieces of words"](text)

        lengthener.lengthened(TASK, "prose", target, count, seed=str(target))
        calls.append(n[0])
    assert max(calls) <= 14


def test_what_cannot_be_met_is_an_error_with_what_was_wanted_and_reached() -> None:
    with pytest.raises(
        LengthError, match=r"^5 tokens: the prompt alone is longer \(8 reached\); write 8 or more"
    ) as caught:
        Lengthener().lengthened(TASK, "prose", 5, COUNTERS["words and signs"], seed="s")
    assert (caught.value.target, caught.value.reached) == (5, 8)
    with pytest.raises(LengthError, match=r"no choice of words comes out exactly .* \(100 reached\)"):
        Lengthener().lengthened(TASK, "code", 101, lambda text: len(text) // 40 * 4, seed="s")


def test_filler_is_what_its_domain_says_and_long_enough_without_a_repeat() -> None:
    code = list(itertools.islice(pieces("code", "s"), 400))
    ast.parse("".join(code))
    records = list(itertools.islice(pieces("json", "s"), 2500))
    assert all(isinstance(json.loads(record), dict) for record in records)
    prose = list(itertools.islice(pieces("law", "s"), 400))
    assert all(paragraph[0].isupper() and paragraph.endswith(".\n\n") for paragraph in prose)
    for made in (code, records, prose):
        assert len(set(made)) == len(made)
        assert "$" not in "".join(made)
    assert len("".join(prose)) > 32_000 * 5
