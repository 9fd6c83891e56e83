"""Whole responses, from raw segments to facts and an outcome: made ones, captured ones, and all in any pieces."""

import dataclasses
import gzip
import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.records import ErrorFacts, Outcome, Request
from infra.wire.faults import WireFault
from infra.wire.stamps import Segment, kernel_to_user_s, offsets_s, stamp_source
from infra.wire.stream import StreamFacts, chunk_semantics, events, read_stream
from tests.stream_bytes import (
    DONE,
    GOOD,
    HEAD,
    HEAD_CLOSE,
    LAST,
    captured,
    chunk,
    chunked,
    cut,
    delta,
    event,
    read,
    read_events,
    usage_event,
)  # fmt: skip

NO_TYPE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ALL = [*GOOD, "[DONE]"]


def body(text: bytes, *, content_type: bytes = b"text/event-stream", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, content_type, len(text), text)


def test_a_good_stream_is_completed_and_every_instant_has_its_segment():
    facts = read_events(*GOOD)
    assert (facts.outcome, facts.error, facts.problems) == ("completed", None, ())
    assert (facts.text, facts.finish_reason, facts.n_completion_tokens) == ("Hello", "stop", 2)
    assert (facts.headers_segment, facts.first_event_segment) == (0, 1)
    assert (facts.first_token_segment, facts.first_visible_segment, facts.last_token_segment) == (2, 2, 3)
    assert (facts.done_segment, facts.end_segment) == (6, 7)
    assert (facts.n_events, facts.coalesced_events, facts.n_comments) == (6, 0, 0)
    assert (facts.http_status, facts.http_framing, facts.http_complete, facts.reusable) == (200, "chunked", True, True)
    assert facts.model_served == "m"


def test_several_events_in_one_segment_are_counted_as_coalesced():
    pieces = chunked(*GOOD)
    assert read([b"".join(pieces)]).coalesced_events == 5
    facts = read([pieces[0], b"".join(pieces[1:4]), *pieces[4:]])
    assert (facts.coalesced_events, facts.first_token_segment, facts.last_token_segment) == (2, 1, 1)


def test_an_event_over_many_segments_belongs_to_the_one_that_completed_it():
    pieces = chunked(*GOOD)
    third = [pieces[2][i : i + 20] for i in range(0, len(pieces[2]), 20)]
    facts = read([*pieces[:2], *third, *pieces[3:]])
    last_of_it = 2 + len(third) - 1 - (len(third[-1]) <= 2)  # the CRLF that ends a chunk is no part of its event
    assert (facts.outcome, facts.first_token_segment) == ("completed", last_of_it)


# ---- what the case must be called: (pieces, how it ended, outcome) ----

CUT = [*chunked(*GOOD)[:4]]
NO_CODING = HEAD_CLOSE + b"".join(event(value) for value in GOOD)
GZIP = body(gzip.compress(DONE)).replace(b"Content-Type", b"Content-Encoding: gzip\r\nContent-Type")
BAD_KEY = body(b'{"error":{"message":"bad key","type":"auth"}}', status=b"401 Unauthorized")
NO_MODEL = body(b'{"object":"error","message":"no model","type":"NotFound"}', status=b"404 X")
AS_TEXT = body(b"".join(map(event, ALL)), content_type=b"text/plain")
DISAGREE = {**usage_event(2), "timings": {"predicted_n": 3}}
TWO = [delta(content="a"), delta("stop")]

OUTCOMES = {
    "comments": ([HEAD, chunk(b":\n\n: ping\n\n"), *chunked(*GOOD)[1:]], "complete", "completed"),
    "done missing, last chunk there": (chunked(*GOOD, done=False), "complete", "completed"),
    "done missing, length kept": ([body(b"".join(map(event, GOOD)))], "complete", "completed"),
    "done there, connection ends the body": ([NO_CODING + DONE], "eof", "completed"),
    "http 1.0": ([(NO_CODING + DONE).replace(b"HTTP/1.1", b"HTTP/1.0", 1)], "eof", "completed"),
    "done missing, connection ends the body": ([NO_CODING], "eof", "truncated"),
    "closed early without coding": ([HEAD_CLOSE + event(delta(content="a"))], "eof", "truncated"),
    "closed early in chunked coding": (CUT, "eof", "truncated"),
    "closed after done in chunked coding": (chunked(*GOOD)[:-1], "eof", "truncated"),
    "length cut short": ([body(b"".join(map(event, [*GOOD, delta()])))[:-9]], "eof", "truncated"),
    "reset": (CUT, "reset", "truncated"),
    "stalled": (CUT, "timeout_stalled", "timeout_stalled"),
    "headers, then silence": ([HEAD], "timeout_stalled", "timeout_stalled"),
    "headers, then the end": ([HEAD], "eof", "truncated"),
    "headers without a type, then silence": ([NO_TYPE], "reset", "truncated"),
    "cancelled": (CUT, "cancelled", "cancelled"),
    "cancelled before headers": ([], "cancelled", "cancelled"),
    "cancelled when it was whole": (chunked(*GOOD), "cancelled", "completed"),
    "nothing at all": ([], "timeout_headers", "timeout_headers"),
    "half a header": ([HEAD[:20]], "timeout_stalled", "timeout_headers"),
    "closed before headers": ([], "eof", "truncated"),
    "reset before headers": ([], "reset", "truncated"),
    "not http": ([b"SSH-2.0-x\r\n"], "eof", "malformed"),
    "broken chunk": ([*CUT, b"zz\r\n"], "complete", "malformed"),
    "gzip": ([GZIP], "complete", "malformed"),
    "malformed event": (chunked(GOOD[0], b"data: : PROCESSING\n\n", *GOOD[1:]), "complete", "malformed"),
    "401": ([BAD_KEY], "complete", "http_error"),
    "404": ([NO_MODEL], "complete", "http_error"),
    "429": ([body(b"slow down", content_type=b"text/plain", status=b"429 Too Many")], "complete", "http_error"),
    "500 cut short": ([body(b"{}", status=b"500 X")[:-1]], "eof", "http_error"),
    "html": ([body(b"<!doctype html><p>data: x\n\n", content_type=b"text/html")], "complete", "not_a_stream"),
    "json": ([body(b'{"choices":[{"message":{}}]}', content_type=b"application/json")], "complete", "not_a_stream"),
    "json under the stream's type": ([body(b'{"choices":[]}\n\n')], "complete", "not_a_stream"),
    "json error": ([body(b'{"error":"busy"}', content_type=b"application/json")], "complete", "error_in_stream"),
    "nothing, of no stream": ([body(b"", content_type=b"text/plain")], "complete", "not_a_stream"),
    "plain text": ([body(b"hello", content_type=b"text/plain")], "complete", "not_a_stream"),
    "stream of no event": ([body(b": nothing\n\n")], "complete", "no_finish_reason"),
    "stream under another type": ([AS_TEXT], "complete", "completed"),
    "error first": (chunked({"error": {"message": "m"}}), "complete", "error_in_stream"),
    "error later": (chunked(*GOOD[:2], {"error": "oom"}, usage_event(1)), "complete", "error_in_stream"),
    "error, then closed without done": ([*CUT, chunk(event({"error": "died"}))], "eof", "error_in_stream"),
    "no finish reason": (chunked(delta(content="a"), usage_event(1)), "complete", "no_finish_reason"),
    "finish abort": (chunked(delta("abort", content="a"), usage_event(1)), "complete", "finish_error"),
    "finish error": (chunked(delta("error", content="a"), usage_event(1)), "complete", "finish_error"),
    "no usage": (chunked(*TWO), "complete", "no_usage"),
    "usage null": (chunked(*TWO, {"choices": [], "usage": None}), "complete", "no_usage"),
    "usage twice": (chunked(delta(content="a"), delta("stop", usage=1), usage_event(1)), "complete", "completed"),
    "usage shrinks": (chunked(*TWO, usage_event(3), usage_event(1)), "complete", "usage_inconsistent"),
    "counts disagree": (chunked(*TWO, DISAGREE), "complete", "usage_inconsistent"),
    "zero tokens": (chunked(GOOD[0], delta("stop"), usage_event(0)), "complete", "completed"),
    "one token": (chunked(GOOD[0], delta("length", content="a"), usage_event(1)), "complete", "completed"),
    "crlf events": ([HEAD, *(chunk(event(v, end=b"\r\n")) for v in ALL), LAST], "complete", "completed"),
    "cr events": ([HEAD, *(chunk(event(v, end=b"\r")) for v in ALL), LAST], "complete", "completed"),
    "no space": (chunked(*(event(v).replace(b"data: ", b"data:") for v in GOOD)), "complete", "completed"),
    "last event without a blank line": ([body((b"".join(map(event, GOOD)) + DONE).rstrip())], "complete", "completed"),
    "100 continue": ([b"HTTP/1.1 100 Continue\r\n\r\n", *chunked(*GOOD)], "complete", "completed"),
    "trailers": ([*chunked(*GOOD)[:-1], b"0\r\nX-T: 1\r\n\r\n"], "complete", "completed"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["as sent", "whole", "byte by byte"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_every_way_to_end_has_its_name(name, way):
    pieces, ended, outcome = OUTCOMES[name]
    raw = b"".join(pieces)
    pieces = {"as sent": pieces, "whole": [raw] if raw else [], "byte by byte": [bytes([b]) for b in raw]}[way]
    facts = read(pieces, ended)
    assert facts.outcome == outcome
    assert (facts.error is None) == (outcome == "completed")
    assert outcome in get_args(Outcome)
    if facts.error is not None:
        ErrorFacts(**dataclasses.asdict(facts.error))


def test_what_was_received_is_kept_whatever_the_outcome():
    for name in ("closed early in chunked coding", "stalled", "cancelled", "broken chunk", "reset"):
        pieces, ended, _ = OUTCOMES[name]
        assert (read(pieces, ended).text, read(pieces, ended).n_events) == ("Hello", 3)
    facts = read(OUTCOMES["closed early without coding"][0], "eof")
    assert (facts.text, facts.end_segment) == ("a", None)


def test_a_gzip_body_is_refused_with_its_reason():
    error = read(OUTCOMES["gzip"][0]).error
    assert error is not None and error.kind == "content_encoding" and "identity" in error.message


def test_an_http_error_says_what_the_server_said():
    assert read(OUTCOMES["401"][0]).error == WireFault(
        kind="auth", message="bad key", http_status=401, body='{"error":{"message":"bad key","type":"auth"}}'
    )
    error = read(OUTCOMES["429"][0]).error
    assert error is not None
    assert (error.kind, error.message, error.body) == ("http_429", "HTTP 429 Too Many", "slow down")


def test_a_body_in_place_of_a_stream_is_kept_up_to_64_kib():
    error = read([body(b"<html>" + b"x" * 100_000, content_type=b"text/html")]).error
    assert error is not None and error.body is not None and len(error.body) == 65536


def test_missing_done_and_an_unended_last_event_are_on_record():
    assert read(OUTCOMES["done missing, last chunk there"][0]).problems == ("[DONE] is missing",)
    facts = read(OUTCOMES["last event without a blank line"][0])
    assert facts.problems == ("the last event has no blank line after it",)
    cut_off = read([HEAD_CLOSE + event(delta(content="a")) + b'data: {"choi'], "eof")
    assert (cut_off.outcome, cut_off.n_malformed_events) == ("truncated", 0)
    assert cut_off.problems == ("12 bytes at the end are no whole event",)
    spoilt = read([body(b"".join(map(event, GOOD)) + DONE[:-1] + b"\ndata: {")])
    assert "event after [DONE], not read" in spoilt.problems


def test_utf8_split_over_segments_and_chunks_is_whole_again():
    one = event(delta(content="中🫠"))
    for at in range(1, len(one)):
        facts = read([HEAD, chunk(one[:at]), chunk(one[at:]), *chunked(*GOOD[3:])[1:]])
        assert (facts.outcome, facts.text, facts.n_replacement_chars) == ("completed", "中🫠", 0)


def test_utf8_that_never_completes_is_counted():
    facts = read_events(b'data: {"choices":[{"delta":{"content":"a\xe4\xb8"}}]}\n\n', *GOOD[1:])
    assert (facts.outcome, facts.text, facts.n_replacement_chars) == ("completed", "a\ufffdHello", 1)


def test_a_connection_that_closes_after_the_response_is_not_reusable():
    for pieces in ([NO_CODING + DONE], [HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + LAST]):
        assert not read(pieces, "eof").reusable


# ---- what a chunk stands for ----


def counted(*counts):
    return [delta(usage=n, content="x") for n in counts]


def test_chunks_are_tokens_only_when_every_one_raised_the_count_by_one():
    assert read_events(*counted(1, 2, 3), delta("stop"), usage_event(3)).chunk_semantics == "token"
    assert read_events(*counted(1, 3, 4), delta("stop"), usage_event(4)).chunk_semantics == "merged"
    assert read_events(*counted(2, 3), delta("stop"), usage_event(3)).chunk_semantics == "merged"
    assert read_events(*counted(1, 1, 2), delta("stop"), usage_event(2)).chunk_semantics == "merged"
    assert read_events(*GOOD).chunk_semantics == "unknown"
    assert read_events(delta("stop"), usage_event(0)).chunk_semantics == "unknown"


def test_chunks_are_verify_steps_only_when_the_server_counts_as_many():
    chunks = read_events(*counted(1, 5, 9)).chunks
    for fields in (
        {"sglext": {"spec_tokens_details": {"spec_verify_ct": 2}}},
        {"metrics": {"speculative_decoding": {"num_spec_steps": 2}}},
    ):
        assert chunk_semantics(chunks, fields) == "verify_step"
        assert chunk_semantics(chunks[:2], fields) == "merged"
    assert chunk_semantics(chunks, {"sglext": None, "metrics": {"speculative_decoding": None}}) == "merged"


# ---- captured streams ----


def test_sglang_with_continuous_usage_counts_the_tokens_of_every_chunk():
    facts = read(captured("sglang_chat_ngram_counted.jsonl"))
    assert (facts.outcome, facts.n_completion_tokens, facts.n_prompt_tokens) == ("completed", 201, 53)
    assert facts.chunks[0].cum_tokens == 1
    assert [c.cum_tokens for c in facts.chunks][:4] == [1, 11, 22, 34]
    assert facts.chunks[-1].cum_tokens == 201
    assert (facts.chunk_count_source, facts.chunk_semantics) == ("usage", "merged")
    assert (facts.first_event_segment, facts.first_token_segment) == (1, 2)
    assert facts.server_fields["matched_stop"] == 2
    assert not facts.reusable  # this capture's client asked to close


def test_sglang_without_it_counts_only_the_whole():
    facts = read(captured("sglang_chat_ngram_uncounted.jsonl"))
    assert (facts.outcome, facts.n_completion_tokens, facts.chunk_semantics) == ("completed", 116, "unknown")
    assert {c.cum_tokens for c in facts.chunks} == {None}


def test_sglang_speculation_details_are_kept_and_its_steps_recognised():
    facts = read_stream(cut(captured("sglang_chat_spec.sse")), ended="complete", framing="body")
    assert (facts.outcome, facts.n_completion_tokens) == ("completed", 16)
    assert facts.server_fields["sglext"]["spec_tokens_details"]["spec_verify_ct"] == 5
    assert "🫠" in facts.text


def test_sglang_error_inside_http_200_is_an_error_and_what_came_is_kept():
    facts = read_stream(cut(captured("sglang_chat_error_http200.sse")), ended="complete", framing="body")
    assert facts.outcome == "error_in_stream"
    assert facts.error is not None
    assert (facts.error.kind, facts.error.message) == ("GATEWAY_TIMEOUT", "Request is aborted due to timeout")
    assert (facts.text, facts.n_completion_tokens) == ('{"name": "Ada', 6)


def test_sglang_refusal_is_an_http_error_with_its_words():
    facts = read(captured("sglang_error_400.jsonl"))
    assert facts.error is not None
    assert (facts.outcome, facts.http_status, facts.error.kind) == ("http_error", 400, "BadRequest")
    assert facts.error.message.startswith("return_meta_info is not supported")


def test_llamacpp_third_characters_are_counted_and_the_one_without_text_is_placed():
    facts = read(captured("llamacpp_chat_emoji.http"))
    assert (facts.outcome, facts.text, facts.n_completion_tokens) == ("completed", "🍌" * 13, 40)
    assert [c.cum_tokens for c in facts.chunks] == [*range(3, 40, 3), 40]
    assert facts.chunks[-1].n_chars == 0
    assert (facts.chunk_count_source, facts.chunk_semantics) == ("timings", "merged")
    assert facts.server_fields["timings"]["draft_n_accepted"] == 34


def test_llamacpp_role_event_and_first_token_in_one_chunk():
    facts = read(captured("llamacpp_chat_one_token.http"))
    assert (facts.outcome, facts.text, facts.n_completion_tokens) == ("completed", "Hello", 1)
    assert (len(facts.chunks), facts.chunk_semantics) == (1, "token")
    assert "draft_n" not in facts.server_fields["timings"]


def test_llamacpp_completions_and_its_answer_without_a_stream_and_its_error():
    facts = read(captured("llamacpp_completions.http"))
    assert (facts.outcome, facts.n_completion_tokens, facts.chunk_semantics) == ("completed", 12, "token")
    assert [c.cum_tokens for c in facts.chunks] == list(range(1, 13))
    assert read(captured("llamacpp_chat_no_stream.http")).outcome == "not_a_stream"
    facts = read(captured("llamacpp_error_400.http"))
    assert facts.error is not None
    assert (facts.outcome, facts.error.kind) == ("http_error", "invalid_request_error")


# ---- the same bytes in other pieces ----


def without_segments(facts: StreamFacts) -> dict[str, object]:
    fields = {f.name: getattr(facts, f.name) for f in dataclasses.fields(facts)}
    fields = {k: v for k, v in fields.items() if not k.endswith("_segment") and k != "coalesced_events"}
    return {**fields, "chunks": [chunk[1:] for chunk in facts.chunks]}


SAMPLES = {
    **{name: (pieces, ended) for name, (pieces, ended, _) in OUTCOMES.items() if pieces},
    **{n: (captured(n), "complete") for n in ("llamacpp_chat_emoji.http", "sglang_chat_ngram_counted.jsonl")},
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_any_pieces_of_the_same_bytes_give_the_same_facts(name, data):
    pieces, ended = SAMPLES[name]
    raw = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    facts = read(parts, ended)
    assert without_segments(facts) == without_segments(read([raw], ended))
    order = [facts.headers_segment, facts.first_event_segment, facts.done_segment, facts.end_segment]
    known = [segment for segment in order if segment is not None]
    assert known == sorted(known)
    assert [c.segment for c in facts.chunks] == sorted(c.segment for c in facts.chunks)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["complete", "eof", "reset", "timeout_stalled", "cancelled"]))
def test_no_bytes_whatever_crash_the_reading(noise, ended):
    for pieces in ([noise], [HEAD_CLOSE, noise], [HEAD, chunk(noise or b"x"), LAST], [HEAD_CLOSE, b"data: " + noise]):
        facts = read(pieces, ended)
        assert facts.outcome in get_args(Outcome)
        json.dumps(dataclasses.asdict(facts), ensure_ascii=False, allow_nan=False).encode("utf-8")


# ---- the body alone, and helpers ----


def test_the_body_alone_is_read_like_the_body_in_http():
    whole = b"".join(map(event, GOOD)) + DONE
    facts = read_stream(cut([whole]), ended="complete", framing="body")
    assert (facts.outcome, facts.text, facts.http_status, facts.headers_segment) == ("completed", "Hello", 200, None)
    assert facts.end_segment == 0
    assert read_stream(cut([whole]), ended="eof", framing="body").outcome == "completed"
    assert read_stream(cut([whole[: -len(DONE)]]), ended="eof", framing="body").outcome == "truncated"
    assert read_stream(cut([whole]), ended="timeout_stalled", framing="body").outcome == "timeout_stalled"
    refused = read_stream(cut([b'{"error":"busy"}']), ended="complete", framing="body", http_status=503)
    assert (refused.outcome, refused.http_status) == ("http_error", 503)


def test_events_are_given_with_the_segment_that_completed_them():
    found = list(events(cut(chunked(*GOOD))))
    assert [(index, json.loads(data)) for index, data in found] == list(enumerate(GOOD, start=1))
    assert len(list(events(cut([event(GOOD[1]) + DONE]), framing="body"))) == 1


def test_a_caller_may_let_others_run_between_segments():
    calls = []
    read_stream(cut([bytes([b]) for b in b"".join(chunked(*GOOD))]), ended="complete", on_yield=lambda: calls.append(1))
    assert len(calls) == len(b"".join(chunked(*GOOD))) // 16


def test_stamps_of_one_kind_are_used_for_all_segments():
    both = [Segment(1_000_000_500, 700, b"a"), Segment(1_000_001_500, 1_900, b"b")]
    assert stamp_source(both) == "kernel"
    assert offsets_s(both, t0_monotonic_ns=100, wall_minus_monotonic_ns=1_000_000_000) == (4e-7, 1.4e-6)
    assert kernel_to_user_s(both, wall_minus_monotonic_ns=1_000_000_000) == (2e-7, 4e-7)
    mixed = [both[0], Segment(None, 1_900, b"b")]
    assert stamp_source(mixed) == "user"
    assert offsets_s(mixed, t0_monotonic_ns=100, wall_minus_monotonic_ns=0) == (6e-7, 1.8e-6)
    assert kernel_to_user_s(mixed, wall_minus_monotonic_ns=0) is None
    assert (stamp_source([]), offsets_s([], t0_monotonic_ns=0, wall_minus_monotonic_ns=0)) == (None, ())


def test_the_facts_have_what_the_record_of_a_request_takes_from_them():
    names = {f.name for f in dataclasses.fields(StreamFacts)}
    shared = {"http_status", "coalesced_events", "chunk_semantics", "usage", "token_source", "n_completion_tokens"}
    shared |= {"n_prompt_tokens", "finish_reason", "outcome", "error", "tool_calls_text", "model_served"}
    assert shared | {"server_fields"} <= names & set(Request.model_fields)


def test_a_last_event_without_a_blank_line_belongs_to_the_segment_that_brought_it():
    pieces, ended = SAMPLES["last event without a blank line"]
    facts = read([b"".join(pieces), b""], ended)
    assert facts.done_segment == facts.end_segment == 0
