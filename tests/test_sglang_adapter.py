"""SGLang's series and answers: real captures of 0.5.17, rendered bodies of 0.5.19 and 0.5.23, and one value changed."""

import json

import pytest
from engine_bodies import counter, numbers, reader, shot, text, valued, window

from infra.engines import sglang_request
from infra.engines.adapter import idle_key
from infra.engines.meaning import growth
from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.sglang import SGLang

SG = reader("sglang", "0.5.17")
STARTUP, PREFILL = text("sglang_v0.5.23_0"), text("sglang_v0.5.23_1")
ONE, IDLE, ZERO = (text(f"sglang_v0.5.23_{n}") for n in (2, 3, 4))
COUNTS = ("n_drafted", "n_accepted", "n_verify_steps")


def real(name: str) -> tuple[str, str]:
    return text(f"sglang_v0.5.17_{name}.before"), text(f"sglang_v0.5.17_{name}.after")


def acceptance(before: str, after: str, *during: str, speculative: bool | None = True):
    return SG.acceptance([window(SG, before, after, *during)], speculative=speculative)


@pytest.mark.parametrize("name", ["ngram.passA", "ngram.passC"])
def test_a_real_pass_of_ngram_has_the_steps_and_tokens_it_is_known_to_have_had(name):
    found = acceptance(*real(name))
    assert numbers(found, "state", *COUNTS) == ("value", 32340, 3493, 2940)
    assert found.length == Measured(1 + 3493 / 2940)
    assert found.tokens_per_target_step == Measured((6463 - 30) / 2940)
    assert round((6463 - 30) / 2940, 3) == 2.188


def test_the_gauge_of_a_single_request_is_not_its_acceptance():
    before, after = real("ngram.req_code_01")
    assert "spec_accept_length" in after
    assert "} 3.3\n" in after
    found = acceptance(before, after)
    assert found.tokens_per_target_step == Measured(200 / 132)
    assert found.n_verify_steps == Measured(132)


def test_the_rate_is_by_window_slots_and_says_so():
    said = acceptance(*real("ngram.passA")).as_json()
    assert (said["drafted_are"], said["accepted_are"]) == ("window_slots", "derived")
    assert said["ratios"]["rate"] == {
        "numerator": "accepted (decode tokens - verify steps)",
        "numerator_n": 3493,
        "denominator": "window_slots",
        "denominator_n": 32340,
    }
    assert said["ratios"]["tokens_per_target_step"]["numerator_n"] == 6433
    assert said["ratios"]["length"]["denominator_n"] == 2940


@pytest.mark.parametrize("speculative", [None, False])
def test_gauges_at_zero_without_a_verify_counter_are_absent_and_no_zero(speculative):
    before, after = real("base.passA")
    assert "sglang:spec_accept_length{" in after
    found = acceptance(before, after, speculative=speculative)
    assert (found.state, found.source) == ("absent", None)
    assert found.as_json()["rate"] is None


def test_configured_but_inactive_is_said_of_a_server_that_worked_without_a_verify_call():
    found = acceptance(*real("base.passA"), speculative=True)
    assert found.state == "unmeasured"
    assert "configured but inactive" in (found.why or "")


def test_before_any_decode_the_zero_gauges_measure_nothing():
    for after in (STARTUP, PREFILL):
        found = acceptance(STARTUP, after, speculative=None)
        assert found.state == "unmeasured"
    assert acceptance(STARTUP, PREFILL, speculative=False).state == "absent"


def test_one_request_gives_the_counts_it_is_known_to_have_had():
    found = acceptance(STARTUP, ONE)
    assert numbers(found, *COUNTS) == (440, 96, 40)
    assert (found.rate, found.length) == (Measured(96 / 440), Measured(3.4))


def test_an_older_version_is_read_alike():
    old = reader("sglang", "0.5.19")
    body = text("sglang_v0.5.19_2")
    found = old.acceptance([window(old, STARTUP, body)], speculative=True)
    assert numbers(found, *COUNTS) == (440, 96, 40)


def test_a_stale_gauge_is_never_a_value_for_a_window_without_steps():
    assert "} 3.4\n" in IDLE
    found = acceptance(ONE, IDLE)
    assert found.state == "unmeasured"
    assert (found.rate, found.n_verify_steps) != (Measured(0), None)
    assert found.as_json()["length"] is None


def test_zero_accepted_is_not_missing():
    found = acceptance(IDLE, ZERO)
    assert numbers(found, "state", *COUNTS, "rate", "length") == ("zero", 693, 0, 63, 0, 1)


def test_a_draft_window_that_changed_leaves_the_length_and_no_rate():
    wider = valued(ONE, "sglang:spec_num_draft_tokens{", 8.0)
    found = acceptance(ONE, ZERO, wider)
    assert (found.state, found.length) == ("zero", Measured(1))
    assert isinstance(found.rate, Unmeasured)
    assert "changed" in (found.why or "")


def test_fewer_tokens_than_verify_steps_is_a_contradiction_and_shows_both():
    odd = valued(ZERO, "sglang:spec_verify_calls_total", 113.0)
    found = acceptance(IDLE, odd)
    assert found.state == "unmeasured"
    assert "63 decode tokens in 73 verify calls" in (found.why or "")


def test_another_start_is_a_restart_though_every_counter_grew():
    before, _ = real("base.passA")
    _, after = real("ngram.passC")
    found = window(SG, before, after)
    assert "restart" in [b.code for b in found.broken]
    assert SG.acceptance([found], speculative=True).state == "unmeasured"


def test_a_falling_counter_is_a_restart_where_nothing_identifies_the_process():
    assert [b.code for b in window(SG, ZERO, ONE).broken][:1] == ["restart"]


def test_tensor_parallel_ranks_repeat_and_data_parallel_ranks_add():
    name = "sglang:spec_verify_calls_total"
    two = {"dp_rank_0__tp_rank_0": 10, "dp_rank_0__tp_rank_1": 10, "dp_rank_1__tp_rank_2": 7, "dp_rank_1__tp_rank_3": 7}
    zero = counter(name, **dict.fromkeys(two, 0))
    assert window(SG, zero, counter(name, **two)).delta(name).reading == Measured(17)
    plain = {f"tp_rank_{rank}": 5 for rank in range(4)}
    assert window(SG, counter(name, **dict.fromkeys(plain, 0)), counter(name, **plain)).delta(name).reading == Measured(
        5
    )


def test_stream_modes_and_cache_sources_add():
    name = "sglang:generation_tokens_total"
    assert window(SG, counter(name, is_streaming_0=1), counter(name, is_streaming_0=4, is_streaming_1=6)).delta(
        name
    ).reading == Measured(9)


def test_the_total_over_priorities_is_taken_and_not_added_to_its_parts():
    body = '# TYPE sglang:num_requests_total counter\nsglang:num_requests_total{priority=""} 5\n'
    body += 'sglang:num_requests_total{priority="1"} 2\nsglang:num_requests_total{priority="2"} 3\n'
    assert window(SG, body.replace(" 5", " 0").replace(" 2\n", " 0\n").replace(" 3", " 0"), body).delta(
        "sglang:num_requests_total"
    ).reading == Measured(5)
    only = body.replace('sglang:num_requests_total{priority=""} 5\n', "")
    assert window(SG, only.replace("} 2", "} 0").replace("} 3", "} 0"), only).delta(
        "sglang:num_requests_total"
    ).reading == Measured(5)


def test_no_difference_of_a_gauge_is_ever_taken():
    delta = window(SG, ONE, ZERO).delta("sglang:spec_num_draft_tokens")
    assert isinstance(delta.reading, Unmeasured)
    assert "gauge" in delta.reading.why


def test_cached_tokens_that_never_came_are_a_zero_beside_prompts_that_did():
    without = "\n".join(line for line in ONE.split("\n") if "cached_tokens_total" not in line)
    assert growth(SG.meaning.cached, [window(SG, STARTUP, ONE)]).reading == Measured(12)
    assert growth(SG.meaning.cached, [window(SG, STARTUP, without)]).reading == Measured(0)
    assert isinstance(growth(SG.meaning.cached, [window(SG, STARTUP, STARTUP)]).reading, Absent | Unmeasured)


def test_time_per_token_is_by_request_where_the_version_has_it_and_by_token_before():
    new = SG.tpot([window(SG, STARTUP, ONE)])
    assert (new.series, new.observes) == ("sglang:request_time_per_output_token_seconds", "request")
    old = SG.tpot([window(SG, *real("base.passA"))])
    assert (old.series, old.observes, old.n) == ("sglang:inter_token_latency_seconds", "token", Measured(6634))


def test_under_rays_wrapper_the_inter_token_mean_is_no_time_per_token():
    ray = SGLang(version="0.5.17", deployment="ray")
    found = window(ray, *real("base.passA"))
    assert ray.inter_token([found]).observes == "interval once a token"
    assert isinstance(ray.tpot([found]).mean_s, Unmeasured)
    before, after = (
        body.replace("inter_token_latency_seconds_count{", 'inter_token_latency_seconds_count{WorkerId="a",')
        for body in real("base.passA")
    )
    assert SG.inter_token([window(SG, before, after)]).observes == "interval once a token"


def test_idle_is_judged_on_counters_not_on_gauges():
    assert "num_running_reqs" in ONE
    assert idle_key(SG, shot(SG, ONE)) == idle_key(SG, shot(SG, IDLE))
    assert idle_key(SG, shot(SG, ONE)) != idle_key(SG, shot(SG, ZERO))


def test_an_occupancy_of_nan_disturbs_nothing():
    assert "NaN" in text("sglang_v0.5.17_ngram.0_start")
    assert window(SG, text("sglang_v0.5.17_ngram.0_start"), real("ngram.passA")[1]).valid


DETAILS = {
    "spec_accept_rate": 0.18181818181818182, "spec_accept_length": 3.2, "spec_num_correct_drafts": 10,
    "spec_num_proposed_drafts": 55, "spec_verify_ct": 5, "spec_correct_drafts_histogram": [0, 3, 0, 1, 1],
}  # fmt: skip
USAGE = {"completion_tokens": 16, "prompt_tokens": 43, "prompt_tokens_details": {"cached_tokens": 12}}


def request(details=DETAILS, usage=USAGE, speculative=True):
    return SG.request_acceptance({"sglext": {"spec_tokens_details": details}}, usage, speculative=speculative)


def test_a_request_is_worked_out_from_its_counts_and_not_from_the_length_it_states():
    found = request()
    assert (found.length, found.tokens_per_target_step) == (Measured(3.0), Measured(3.0))
    assert (found.rate, found.source, found.drafted_are) == (Measured(10 / 55), "sglext", "window_slots")
    assert sglang_request.histogram({"sglext": {"spec_tokens_details": DETAILS}}) == [0, 3, 0, 1, 1]


def test_native_meta_info_and_the_old_names_are_read_alike():
    old = {
        "spec_verify_ct": 5, "spec_accepted_drafts": 10, "spec_proposed_drafts": 55, "completion_tokens": 16,
        "spec_accept_histogram": [0, 3, 0, 1, 1], "cached_tokens": 12,
    }  # fmt: skip
    found = SG.request_acceptance({"meta_info": old}, None, speculative=True)
    assert (found.source, found.length, found.tokens_per_target_step) == ("meta_info", Measured(3.0), Measured(3.0))
    assert SG.cold_proof({"meta_info": old}, None).n_cached == Measured(12)


def test_values_written_as_zero_for_missing_are_no_measurement():
    nothing = {
        "spec_verify_ct": 0,
        "spec_num_correct_drafts": 0,
        "spec_num_proposed_drafts": 0,
        "spec_accept_rate": 0.0,
    }
    assert request(nothing).state == "unmeasured"
    assert request(nothing, speculative=False).state == "absent"
    assert request(DETAILS | {"spec_num_correct_drafts": 0}).state == "zero"
    assert request(DETAILS | {"spec_num_correct_drafts": "10"}).state == "unmeasured"


def test_a_request_of_one_token_adds_nothing_and_hides_nobody():
    single = ({"sglext": {"spec_tokens_details": {"spec_verify_ct": 0}}}, {"completion_tokens": 1})
    found = SG.pooled_acceptance([({"sglext": {"spec_tokens_details": DETAILS}}, USAGE), single], speculative=True)
    assert numbers(found, *COUNTS) == (55, 10, 5)
    assert found.tokens_per_target_step == Measured(3.0)


def test_an_answer_without_details_is_absent():
    assert SG.request_acceptance({}, USAGE, speculative=True).state == "absent"


def test_cached_tokens_are_read_from_usage_and_null_is_not_zero():
    assert SG.cold_proof({}, USAGE).n_cached == Measured(12)
    assert SG.cold_proof({}, {"prompt_tokens_details": {"cached_tokens": 0}}).proven is True
    silent = SG.cold_proof({}, {"prompt_tokens_details": None})
    assert silent.proven is None
    assert "--enable-cache-report" in silent.why
    both = {"sglext": {"cached_tokens_details": {"device": 8, "host": 4}}}
    assert SG.cold_proof(both, USAGE).n_cached == Measured(12)


def test_details_are_asked_for_only_where_the_version_knows_them():
    asked = "return_spec_tokens_details"
    assert asked not in SG.request_extras(cold_per_request=True)
    assert asked not in reader("sglang").request_extras(cold_per_request=True)
    assert reader("sglang", "0.5.23").request_extras(cold_per_request=True)[asked] is True


def test_no_reading_ever_prints_a_bare_nan():
    for found in (acceptance(*real("ngram.passA")), acceptance(ONE, IDLE), request()):
        json.dumps(found.as_json(), allow_nan=False)
