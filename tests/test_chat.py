"""Chat and completion events folded: what was said, what was counted, and by whom."""

import json

import pytest

from infra.engines.fields import count_of, counts_in
from infra.wire.chat import ChatFacts, ChatFold
from infra.wire.counting import Chunk
from tests.stream_bytes import delta, read_events, usage_event, used


def fold(*values) -> ChatFacts:
    """Each value is one event in a segment of its own."""
    folding = ChatFold()
    for segment, value in enumerate(values):
        folding.event(value if isinstance(value, bytes) else json.dumps(value).encode(), segment)
    return folding.close()


def marks(facts: ChatFacts) -> list[tuple[int, int | None, int]]:
    return [tuple(chunk) for chunk in facts.chunks]


def test_a_role_only_event_is_no_token():
    facts = fold(delta(role="assistant", content=""), delta(role="assistant", content=None), delta(content="a"))
    assert marks(facts) == [(2, None, 1)]
    assert (facts.first_event_segment, facts.first_visible_segment) == (0, 2)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_in_both_spellings_bears_tokens_and_is_not_visible(field):
    facts = fold(delta(**{field: "hm"}), delta(**{field: None}, content="\n\n"))
    assert (facts.reasoning, facts.text) == ("hm", "\n\n")
    assert marks(facts) == [(0, None, 2), (1, None, 2)]
    assert facts.first_visible_segment == 1


def test_reasoning_sent_under_both_names_at_once_counts_once():
    assert fold(delta(reasoning="hm", reasoning_content="hm")).reasoning == "hm"


def test_tool_calls_alone_bear_tokens():
    call = {"index": 0, "id": "call_17", "function": {"name": "add", "arguments": ""}}
    facts = fold(
        delta(role="assistant", content=None),
        delta(tool_calls=[call]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
        delta("tool_calls"),
    )
    assert json.loads(facts.tool_calls_text or "") == [{"name": "add", "arguments": '{"a":1}'}]
    assert marks(facts) == [(1, None, 3), (2, None, 5), (3, None, 2)]
    assert (facts.first_visible_segment, facts.finish_reason) == (None, "tool_calls")


def test_completions_carry_text_in_the_choice():
    facts = fold({"choices": [{"index": 0, "text": "a"}]}, {"choices": [{"text": "b", "finish_reason": "stop"}]})
    assert (facts.text, facts.finish_reason) == ("ab", "stop")


def test_finish_reason_may_come_with_the_last_text_or_alone():
    assert fold(delta("length", content="a")).finish_reason == "length"
    assert fold(delta(content="a"), delta("stop"), usage_event(1)).finish_reason == "stop"
    assert fold(delta(content="a"), delta("")).finish_reason is None


def test_usage_is_found_on_the_last_content_event_on_its_own_and_twice():
    for events in (
        [delta(content="a"), delta("stop", usage=2, content="b")],
        [delta(content="ab"), delta("stop"), usage_event(2)],
        [delta(content="ab"), delta("stop", usage=2), usage_event(2)],
        [delta(content="ab"), delta("stop"), usage_event(2), {"choices": [], "usage": None}],
    ):
        facts = fold(*events)
        assert (facts.n_completion_tokens, facts.token_source, facts.inconsistent) == (2, "usage", None)
        assert facts.n_prompt_tokens == 5


def test_the_last_usage_wins_and_one_that_shrinks_is_named_with_both_numbers():
    assert fold(usage_event(2), usage_event(3)).n_completion_tokens == 3
    facts = fold(usage_event(5), usage_event(3))
    assert facts.n_completion_tokens == 3
    assert facts.inconsistent == "usage.completion_tokens shrank from 5 to 3"


@pytest.mark.parametrize("count", [None, "2", True, -1, 2.0])
def test_usage_that_counts_nothing_is_kept_and_counts_nothing(count):
    usage = {"completion_tokens": count}
    facts = fold(delta("stop", content="a"), {"choices": [], "usage": usage})
    assert (facts.n_completion_tokens, facts.token_source, facts.usage) == (None, None, usage)
    facts = fold(usage_event(2), {"choices": [], "usage": usage})
    assert facts.n_completion_tokens == 2


def test_zero_tokens_are_a_count():
    facts = fold(delta(role="assistant", content=""), delta("stop"), usage_event(0))
    assert (facts.n_completion_tokens, facts.chunks, facts.text) == (0, (), "")


def test_continuous_usage_counts_each_event():
    facts = fold(delta(role="assistant", content="", usage=0), delta(usage=1, content="a"), delta(usage=4, content="b"))
    assert facts.count_source == "usage"
    assert marks(facts) == [(1, 1, 1), (2, 4, 1)]


def test_an_empty_event_bears_a_token_when_the_count_rises_with_it():
    facts = fold(
        delta(usage=1, content=""), delta(usage=1, content=""), delta(usage=2, content=""), delta(usage=3, content="a")
    )
    assert marks(facts) == [(0, 1, 0), (2, 2, 0), (3, 3, 1)]
    assert facts.first_visible_segment == 3


def test_usage_on_the_last_text_alone_counts_the_whole_and_not_the_event():
    facts = fold(delta(content="a"), delta("stop", usage=7, content="b"))
    assert marks(facts) == [(0, None, 1), (1, 7, 1)]
    facts = fold(delta(content="a"), delta("stop", usage=7))
    assert marks(facts) == [(0, None, 1)]


def test_the_end_mark_that_has_no_text_is_placed_at_the_finish_event():
    def timed(n, finish=None, **fields):
        return {**delta(finish, **fields), "timings": {"predicted_n": n}}

    last = {**usage_event(3), "timings": {"predicted_n": 3}}
    facts = fold(timed(1, content="a"), timed(2, content="b"), delta("stop"), last)
    assert facts.count_source == "timings"
    assert marks(facts) == [(0, 1, 1), (1, 2, 1), (2, 3, 0)]
    assert facts.inconsistent is None
    facts = fold(timed(1, content="a"), timed(2, "stop"))
    assert marks(facts) == [(0, 1, 1), (1, 2, 0)]
    assert (facts.n_completion_tokens, facts.token_source) == (2, "timings")


def test_token_ids_are_the_best_count():
    def with_ids(ids, finish=None, usage=None, **fields):
        value = delta(finish, usage, **fields)
        value["choices"][0]["token_ids"] = ids
        return value

    facts = fold(with_ids([7], usage=1, content="a"), with_ids([8, 9], usage=3, content=""), with_ids([2], "stop", 4))
    assert facts.count_source == "token_ids"
    assert marks(facts) == [(0, 1, 1), (1, 3, 0), (2, 4, 0)]
    facts = fold(with_ids([7], content="a"), with_ids([8], "stop"))
    assert (facts.n_completion_tokens, facts.token_source) == (2, "token_ids")


def test_counts_that_disagree_are_named_with_both_numbers():
    event = delta(content="a")
    event["choices"][0]["token_ids"] = [1, 2, 3]
    assert fold(event, usage_event(2)).inconsistent == "3 token_ids came, but usage.completion_tokens is 2"
    timed = {**delta(content="a"), "timings": {"predicted_n": 4}}
    expected = "timings.predicted_n is 4, but usage.completion_tokens is 2"
    assert fold(timed, usage_event(2)).inconsistent == expected
    assert fold(delta(content="a"), {**usage_event(2), "timings": {"predicted_n": 1}}).inconsistent is not None
    assert fold(delta(usage=9, content="a"), usage_event(2)).inconsistent is not None


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"error": {"message": "too long", "type": "BadRequest", "code": 400}}, "BadRequest", "too long"),
        ({"error": {"message": "no", "code": 504}}, "504", "no"),
        ({"error": "out of memory"}, "error", "out of memory"),
        ({"error": {"odd": 1}}, "error", '{"odd": 1}'),
        ({"object": "error", "message": "no", "type": "BadRequest"}, "BadRequest", "no"),
        ({"detail": "Not Found"}, "error", "Not Found"),
        ({"choices": [{"index": 0, "delta": {}, "error": {"message": "m", "code": 1}}]}, "1", "m"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_error_objects_are_found_first_or_later(error, kind, message, later):
    facts = fold(*([delta(content="a")] if later else []), error, usage_event(1))
    assert facts.error == (kind, message)
    assert facts.n_completion_tokens == 1


@pytest.mark.parametrize("error", [None, False, "", {}])
def test_an_empty_error_is_none(error):
    assert fold({**delta(content="a"), "error": error}).error is None


def test_an_event_named_error_is_one_whatever_it_holds():
    for payload in (b'{"m": 1}', b"plain words"):
        folding = ChatFold()
        folding.event(payload, 0, "error")
        assert folding.close().error == ("error", payload.decode())


@pytest.mark.parametrize(
    "payload",
    [b": OPENROUTER PROCESSING", b"{", b"[1]", b"null", b"NaN", b'{"a": 1e999}', b'{"a": 1E+0999}',
     b'{"choices": 3}', b'{"choices": [1]}',
     b'{"choices": [{"delta": "x"}]}', b'{"choices": [{"delta": {"content": ["x"]}}]}', b"[" * 100_000,
     b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}",
     b'{"choices": [{"delta": {"tool_calls": 1}}]}'],
)  # fmt: skip
def test_an_event_that_cannot_be_read_is_counted_and_the_rest_is_read(payload):
    facts = fold(delta(content="a"), payload, delta(content="b"))
    assert (facts.n_malformed_events, facts.text, facts.n_events) == (1, "ab", 3)
    assert facts.problems


def test_many_malformed_events_are_all_counted_and_few_quoted():
    facts = fold(*[b"x%d" % n for n in range(50)])
    assert (facts.n_malformed_events, len(facts.problems)) == (50, 5)


def test_server_fields_are_kept_as_sent_and_sglext_comes_in_parts():
    facts = fold(
        {**delta(content="a"), "timings": {"predicted_n": 1}, "system_fingerprint": "f", "nothing": None},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "matched_stop": 2}]},
        {"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 5}}},
        {"choices": [], "sglext": {"cached_tokens_details": {"device": 3}}},
        {**usage_event(1), "timings": {"predicted_n": 1, "draft_n": 4}, "metrics": {"x": 1}},
    )
    assert facts.server_fields == {
        "timings": {"predicted_n": 1, "draft_n": 4},
        "system_fingerprint": "f",
        "matched_stop": 2,
        "sglext": {"spec_tokens_details": {"spec_verify_ct": 5}, "cached_tokens_details": {"device": 3}},
        "metrics": {"x": 1},
    }
    assert facts.model == "m"


def test_bytes_that_are_no_utf8_are_read_with_replacement_characters_and_counted():
    facts = fold(b'{"choices": [{"delta": {"content": "a\xe4\xb8"}}]}', delta(content="\ufffd"))
    assert (facts.text, facts.n_replacement_chars, facts.n_malformed_events) == ("a\ufffd\ufffd", 2, 0)
    assert facts.problems == ("event whose bytes are no UTF-8, read with U+FFFD",)


def test_halves_of_a_surrogate_pair_meet_and_a_lone_half_can_be_written():
    facts = fold(
        b'{"choices": [{"delta": {"content": "\\ud83e"}}]}',
        b'{"choices": [{"delta": {"content": "\\udee0!"}}]}',
        b'{"choices": [{"delta": {"content": "\\ud83e"}}], "odd": "\\ud83e", "error": "\\ud83e"}',
    )
    assert facts.text == "\U0001fae0!\ufffd"
    json.dumps([facts.text, facts.server_fields, facts.error], ensure_ascii=False).encode("utf-8")


def test_choices_beyond_the_first_are_left_out_and_noted():
    facts = fold({"choices": [{"index": 1, "delta": {"content": "b"}}]}, delta(content="a"))
    assert facts.text == "a"
    assert facts.problems == ("event with a choice beyond the first, not read",)


def test_nothing_is_read_after_done_but_it_is_noted():
    facts = fold(delta(content="a"), b"[DONE]", usage_event(1))
    assert (facts.done_segment, facts.usage) == (1, None)
    assert facts.problems == ("event after [DONE], not read",)


def test_a_finish_reason_may_be_an_object():
    facts = fold({"choices": [{"text": "", "finish_reason": {"type": "abort", "message": "m"}}], "usage": used(1)})
    assert facts.finish_reason == "abort"


def test_a_chunk_is_a_plain_tuple_of_segment_tokens_and_characters():
    assert Chunk(1, None, 3) == (1, None, 3)


def test_json_nested_as_deep_as_a_record_can_keep_is_read_and_brackets_alone_are_no_depth():
    deep = b'{"x": ' + b"[" * 63 + b"]" * 63 + b"}"
    wide = json.dumps({"y": [[n] for n in range(500)]}).encode()
    facts = fold(deep, wide, delta(content="[" * 500))
    assert facts.n_malformed_events == 0
    assert set(facts.server_fields) == {"x", "y"}


@pytest.mark.parametrize("error", ["abort", "error"])
def test_a_finish_reason_that_is_an_error_stays_and_a_different_one_is_noted(error):
    facts = fold(delta(content="a"), delta(error), delta("stop"), usage_event(1))
    assert facts.finish_reason == error
    assert facts.problems == (f"finish reason 'stop' after '{error}'",)
    assert read_events(delta(content="a"), delta(error), delta("stop"), usage_event(1)).outcome == "finish_error"
    assert fold(delta("stop"), delta(error)).finish_reason == error
    assert fold(delta(error), delta(error)).problems == ()


def test_a_count_beyond_what_a_double_holds_exactly_is_none():
    assert fold(delta(content="a"), usage_event(2**53)).n_completion_tokens == 2**53
    beyond = fold(delta(content="a"), usage_event(2**53 + 1))
    assert (beyond.n_completion_tokens, beyond.token_source) == (None, None)
    assert (count_of({"n": 2**53}, "n"), count_of({"n": 2**53 + 1}, "n")) == (2**53, None)
    assert counts_in([2**53 + 1]) is None
