"""Client and server counted the same, or the difference is named; what cannot be compared says so."""

import pytest
from run_factory import request
from server_factory import body, judged, scrape, scrapes, served

SPEC = scrapes(body(0), body(2))


def check(side, name):
    (found,) = [c for c in side.checks if c.name == name]
    return found


def fails(side):
    return {c.name for c in side.checks if c.state == "fail"}


def test_every_check_has_a_name_of_its_own_and_says_what_was_seen_or_why_not():
    side = judged(SPEC)
    names = [c.name for c in side.checks]
    assert len(names) == len(set(names)) == 21
    for found in side.checks:
        assert found.seen if found.state != "not observable" else found.why


@pytest.mark.parametrize(
    ("field", "name"), [("n_completion_tokens", "generated tokens"), ("n_prompt_tokens", "prompt tokens")]
)
def test_one_token_more_on_the_server_is_foreign_traffic_and_one_less_a_difference(field, name):
    for change, code in ((-1, "foreign_traffic"), (1, "counts_differ")):
        side = judged(SPEC, [served(**{field: getattr(served(), field) + change})])
        assert name in fails(side)
        assert code in [finding.code for finding in side.findings]


def test_someone_elses_whole_request_is_foreign_traffic():
    side = judged(scrapes(body(0), body(4)))
    assert "foreign_traffic" in [finding.code for finding in side.findings]
    assert side.findings[0].scope == "run"


def test_cached_prompt_tokens_count_as_prompt():
    after = body(2, prompt_tokens_total=31, prompt_tokens_cached_total=12)
    assert check(judged(scrapes(body(0), after)), "prompt tokens").state == "pass"


@pytest.mark.parametrize("outcome", ["cancelled", "truncated", "timeout_stalled", "no_usage", "error_in_stream"])
def test_a_request_cut_short_makes_sums_unobservable_and_blames_nobody(outcome):
    cut = request(plan_id="m0001", sequence=1, outcome=outcome, n_completion_tokens=None)
    side = judged(scrapes(body(0), body(4)), [served(), cut])
    assert check(side, "generated tokens").state == "not observable"
    assert check(side, "drafts summed").state == "not observable"
    assert "foreign_traffic" not in [finding.code for finding in side.findings]


def test_a_request_that_never_reached_the_engine_does_not_hide_foreign_traffic():
    refused = request(plan_id="m0001", sequence=1, outcome="http_error", n_completion_tokens=None, chunks=())
    side = judged(scrapes(body(0), body(4)), [served(), refused])
    assert "foreign_traffic" in [finding.code for finding in side.findings]


def test_a_request_without_an_end_makes_sums_unobservable():
    assert check(judged(SPEC, n_unfinished=1), "generated tokens").state == "not observable"


def test_a_client_that_counts_more_than_the_server_fails_though_requests_were_cut():
    cut = request(plan_id="m0001", sequence=1, outcome="cancelled", n_completion_tokens=None)
    side = judged(SPEC, [served(n_completion_tokens=138), cut])
    assert check(side, "generated tokens").state == "fail"


def test_rounded_counters_are_compared_within_their_rounding_and_say_so():
    before = body(5)
    inside = body(5, tokens_predicted_total="1.23471e+06")  # 140, within 5 and 5 of the 137 that were made
    found = check(judged(scrapes(before, inside)), "generated tokens")
    assert found.state == "pass"
    assert "rounded" in found.seen
    outside = body(5, tokens_predicted_total="1.23473e+06")
    assert check(judged(scrapes(before, outside)), "generated tokens").state == "fail"


def test_drafts_of_the_requests_sum_to_the_counters():
    assert check(judged(SPEC), "drafts summed").state == "pass"
    side = judged(SPEC, [served(accepted=95)])
    assert check(side, "drafts summed").state == "fail"
    assert ("check_failed", "acceptance") in [(f.code, f.scope) for f in side.findings]


def test_without_timings_drafts_cannot_be_summed():
    assert check(judged(SPEC, [served(server_fields={})]), "drafts summed").state == "not observable"


@pytest.mark.parametrize(
    ("old", "new"), [('"2"} 26', '"2"} 33'), ('"2"} 26', '"2"} 25'), ('"0"} 38', '"0"} 41'), ('"1"} 32', '"1"} 39')]
)
def test_positions_must_fall_sum_to_accepted_and_start_within_the_steps(old, new):
    after = body(2).replace(old, new)
    assert after != body(2)
    assert "accepted by position" in fails(judged(scrapes(body(0), after)))


def test_positions_are_not_observable_without_speculation():
    assert check(judged(scrapes(body(0), body(1))), "accepted by position").state == "not observable"


def test_a_first_token_before_the_prompt_was_worked_through_is_impossible():
    early = served(headers_after_s=0.1, first_event_after_s=0.1, first_token_after_s=0.1, first_visible_after_s=0.1)
    side = judged(SPEC, [early])  # the server worked 0.18 s on the prompt
    assert "time to first token" in fails(side)
    assert check(judged(SPEC), "time to first token").state == "pass"


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": 121},
        {"n_completion_tokens": 136},
        {"n_prompt_tokens": 44},
        {"usage": {"prompt_tokens_details": {"cached_tokens": 3}}},
    ],
)
def test_a_requests_own_counts_must_agree(changes):
    assert "per-request counts" in fails(judged([], [served(**changes)]))


@pytest.mark.parametrize(
    ("tokens", "reason", "state"),
    [
        (512, "length", "pass"),
        (512, "stop", "pass"),
        (137, "stop", "pass"),
        (137, "length", "fail"),
        (513, "length", "fail"),
    ],
)
def test_length_is_said_at_the_limit_and_the_limit_is_kept(tokens, reason, state):
    side = judged([], [served(n_completion_tokens=tokens, finish_reason=reason)])
    assert check(side, "max_tokens").state == state


@pytest.mark.parametrize(
    "changes",
    [
        {"end_after_s": 1.0},
        {"first_event_after_s": 0.1},
        {"last_token_after_s": 0.1},
        {"chunks": ((0.3, 0, 1, 1), (0.2, 1, 2, 1))},
        {"chunks": ((0.2, 1, 1, 1), (0.3, 0, 2, 1))},
        {"chunks": ((0.2, 0, 2, 1), (0.3, 1, 1, 1))},
    ],
)
def test_instants_and_counts_never_run_backwards(changes):
    assert "order of instants" in fails(judged([], [served(**changes)]))


def test_a_stream_that_came_in_one_piece_was_held_back():
    one_piece = tuple((0.2, 0, i + 1, 3) for i in range(137))
    assert "chunks arrive one after another" in fails(judged([], [served(chunks=one_piece)]))


def test_bursts_of_accepted_drafts_are_not_held_back():
    bursts = tuple((0.2 + (i // 4) / 100, i // 4, i + 1, 3) for i in range(137))  # 35 arrivals, 41 steps
    assert check(judged([], [served(chunks=bursts)]), "chunks arrive one after another").state == "pass"


def test_short_answers_say_nothing_about_buffering():
    assert check(judged([], [request()]), "chunks arrive one after another").state == "not observable"


def test_rows_are_those_of_the_plan_each_once():
    assert check(judged([]), "one row for each planned request").state == "pass"
    assert "one row for each planned request" in fails(judged([], [served(), served(sequence=1)]))
    assert "one row for each planned request" in fails(judged([], [served(plan_id="m0009")]))


def test_a_restart_makes_every_comparison_unobservable():
    side = judged([scrape("before", body(2)), scrape("after", body(0))])
    assert check(side, "generated tokens").state == "not observable"
    assert "prompt" in (check(side, "generated tokens").why or "")


def cut_short(**changes):
    return request(plan_id="m0001", sequence=1, **({"outcome": "cancelled", "n_completion_tokens": None} | changes))


def limited(max_tokens):
    return {f"m000{n}": {"plan_id": f"m000{n}", "phase": "measured", "max_tokens": max_tokens} for n in (0, 1)}


def test_what_a_failed_request_cannot_have_made_is_foreign_traffic_all_the_same():
    made = 274  # by the server in all; the client counted 137 of it
    after = body(2, tokens_predicted_total=made)
    for limit, state in ((136, "fail"), (137, "not observable")):
        side = judged(scrapes(body(0), after), [served(), cut_short()], plan=limited(limit))
        assert check(side, "generated tokens").state == state
        assert ("foreign_traffic" in [finding.code for finding in side.findings]) == (state == "fail")


def test_a_request_without_an_end_hides_no_more_than_it_was_allowed_to_make():
    after = body(2, tokens_predicted_total=137 + 21)
    for limit, state in ((10, "fail"), (11, "not observable")):  # it may have been sent twice
        side = judged(scrapes(body(0), after), n_unfinished=1, plan=limited(limit))
        assert check(side, "generated tokens").state == state


def test_a_failed_requests_known_prompt_bounds_the_prompt_tokens_and_an_unknown_one_does_not():
    after = body(2, prompt_tokens_total=100)
    for n_prompt, state in ((56, "fail"), (57, "not observable"), (None, "not observable")):
        side = judged(scrapes(body(0), after), [served(), cut_short(n_prompt_tokens=n_prompt)], plan=limited(512))
        assert check(side, "prompt tokens").state == state


def test_a_server_that_counts_fewer_tokens_than_chunks_of_text_is_not_believed():
    side = judged([], [served(n_completion_tokens=100)])
    assert check(side, "chunks within the tokens").state == "fail"
    assert ("check_failed", "rate") in [(f.code, f.scope) for f in side.findings]
    assert check(judged([], [served()]), "chunks within the tokens").state == "pass"


def test_chunks_after_the_first_segment_may_not_outnumber_the_tokens_left():
    marks = ((0.2, 0, 5, 3), (0.3, 1, 6, 3), (0.4, 2, 7, 3))
    for tokens, state in ((6, "fail"), (7, "pass")):
        side = judged([], [served(chunks=marks, n_completion_tokens=tokens, last_token_after_s=0.4)])
        assert check(side, "chunks within the tokens").state == state


@pytest.mark.parametrize(
    "changes", [{"reasoning_text": "hm"}, {"tool_calls_text": "{}"}, {"chunk_semantics": "unknown"}]
)
def test_chunks_that_may_part_one_token_are_not_held_against_the_count(changes):
    side = judged([], [served(n_completion_tokens=100, **changes)])
    assert check(side, "chunks within the tokens").state == "not observable"


def test_an_end_mark_without_text_is_no_chunk_of_text():
    marks = ((0.2, 0, 1, 3), (0.3, 1, 2, 3), (0.4, 2, 2, 0))
    side = judged([], [served(chunks=marks, n_completion_tokens=2, last_token_after_s=0.3)])
    assert check(side, "chunks within the tokens").state == "pass"
