"""Answers judged by their prompts' checks, and answers of two runs compared."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.outputs import Pair, by_domain, compare, first_divergence, judge_answers
from evidence.records import Request
from tests.run_factory import make_run, numbered, planned, request

JSON_CHECK = {"kind": "json_schema", "schema": {"type": "object", "required": ["name"]}}


def plan_of(requests: list[Request], checks: dict[str, Any] | None = None, text: str = "Say it.") -> dict[str, Any]:
    lines = [planned(one, at, text=text, check=(checks or {}).get(one.prompt_id)) for at, one in enumerate(requests)]
    return {line.plan_id: line.model_dump(mode="json") for line in lines}


def test_only_whole_answers_are_judged_and_the_others_are_counted() -> None:
    requests = numbered(
        [
            request(phase="warmup", domain="warmup", prompt_id="warmup_01"),
            request(prompt_id="json_01", domain="json", output_text='{"name": "Ada"}'),
            request(prompt_id="json_02", domain="json", output_text='{"title": "Ada"}'),
            request(prompt_id="json_03", domain="json", output_text='{"name": "A', finish_reason="length"),
            request(prompt_id="json_04", domain="json", output_text='{"na', outcome="truncated", finish_reason=None),
            request(prompt_id="json_05", domain="json", output_text="{}"),
        ]
    )
    checks = {f"json_0{n}": JSON_CHECK for n in (1, 2, 3, 4)}
    answers = judge_answers(requests, plan_of(requests, checks))
    assert [answer.ok for answer in answers] == [True, False, None, None, None]
    assert "max_tokens" in answers[2].why
    assert answers[3].why == "failed: truncated"
    json_domain, all_domains = by_domain(answers)
    assert (json_domain.n_answers, json_domain.n_judged, json_domain.n_valid) == (5, 2, 1)
    assert (json_domain.n_cut, json_domain.n_failed, json_domain.n_not_judged) == (1, 1, 1)
    assert (all_domains.domain, all_domains.n_answers) == ("all", 5)


def test_a_check_that_lacks_a_field_judges_nothing_and_names_it() -> None:
    requests = numbered([request(prompt_id="code_01")])
    (answer,) = judge_answers(requests, plan_of(requests, {"code_01": {"kind": "json_schema"}}))
    assert answer.ok is None
    assert "schema" in answer.why


def pair_of(one: Request, two: Request, **texts: str) -> Pair:
    ours, theirs = numbered([one]), numbered([two])
    (pair,) = compare(ours, plan_of(ours), theirs, plan_of(theirs, **texts))
    return pair


def test_equal_answers_are_identical() -> None:
    pair = pair_of(request(), request())
    assert (pair.equal, pair.first_divergence_char, pair.why) == (True, None, "identical")


def test_the_first_character_that_differs_is_found_beyond_wide_characters() -> None:
    pair = pair_of(request(output_text="中文 ab"), request(output_text="中文 ac", finish_reason="length"))
    assert (pair.equal, pair.first_divergence_char, pair.part) == (False, 4, "visible text")
    assert pair.finish_reason == ("stop", "length")


def test_an_answer_that_goes_on_parts_where_the_shorter_one_ends() -> None:
    pair = pair_of(request(output_text="abc"), request(output_text="abcdef"))
    assert (pair.first_divergence_char, pair.n_chars) == (3, (3, 6))


def test_equal_text_after_other_reasoning_is_not_identical() -> None:
    pair = pair_of(request(reasoning_text="so"), request(reasoning_text="no"))
    assert (pair.equal, pair.part) == (False, "reasoning")


def test_a_failed_answer_is_not_compared() -> None:
    pair = pair_of(request(), request(outcome="truncated"))
    assert pair.equal is None
    assert "second run: truncated" in pair.why


def test_answers_to_different_texts_under_one_id_are_not_compared() -> None:
    pair = pair_of(request(), request(), text="Say something else.")
    assert pair.equal is None
    assert "not the same request" in pair.why


def test_a_prompt_of_one_run_alone_stands_in_the_list_uncompared() -> None:
    ours, theirs = numbered([request(), request(prompt_id="code_02")]), numbered([request()])
    pairs = compare(ours, plan_of(ours), theirs, plan_of(theirs))
    assert [(pair.prompt_id, pair.equal) for pair in pairs] == [("code_01", True), ("code_02", None)]
    assert pairs[1].n_chars == (10, None)


@pytest.mark.parametrize(("one", "two", "where"), [("", "", None), ("", "a", 0), ("a", "", 0), ("ab", "ac", 1)])
def test_divergence_by_hand(one: str, two: str, where: int | None) -> None:
    assert first_divergence(one, two) == where


@given(st.text(), st.text())
def test_up_to_the_divergence_the_texts_agree_and_there_they_do_not(one: str, two: str) -> None:
    where = first_divergence(one, two)
    if where is None:
        assert one == two
    else:
        assert one[:where] == two[:where]
        assert one[where : where + 1] != two[where : where + 1]


def test_requests_whose_bodies_were_added_to_differently_are_not_the_same() -> None:
    ours = numbered([request()])
    (pair,) = compare(ours, plan_of(ours), ours, plan_of(ours), ({}, {"top_k": 1}))
    assert (pair.equal, pair.why) == (None, "not the same request: top_k differ")


def test_two_runs_with_no_request_in_common_are_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [
        make_run(tmp_path / name, [request(prompt_id=prompt, plan_id=f"{prompt}#0")])
        for name, prompt in (("a", "code_01"), ("b", "code_02"))
    ]
    assert main(["outputs", *map(str, runs)]) == 2
    assert "nothing to compare: " in capsys.readouterr().err
