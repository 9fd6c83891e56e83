"""vLLM's series and answers: rendered bodies of 0.33 with and without a multiprocess registry, one value changed."""

import pytest
from engine_bodies import counter, numbers, reader, shot, text, valued, window

from analysis.conservation import by_position
from infra.engines import vllm_request
from infra.engines.meaning import growth
from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.window import same_server

VL = reader("vllm", "0.33.0")
OFF, START, ONE, ZERO = (text(f"vllm_v0.33.0_{n}_") for n in range(4))
MULTI = tuple(text(f"vllm_v0.33.0_multiproc_{n}_") for n in (1, 2, 3))
COUNTS = ("n_drafted", "n_accepted", "n_verify_steps")


def acceptance(before: str, after: str, speculative: bool | None = None):
    return VL.acceptance([window(VL, before, after)], speculative=speculative)


@pytest.mark.parametrize(("before", "after"), [(START, ONE), MULTI[:2]])
def test_one_request_gives_the_counts_it_is_known_to_have_had(before, after):
    found = acceptance(before, after)
    assert numbers(found, "state", *COUNTS) == ("value", 90, 54, 30)
    assert (found.rate, found.length) == (Measured(0.6), Measured(1 + 54 / 30))
    assert found.tokens_per_target_step == Measured(90 / 36)  # six steps carried no draft
    assert by_position(VL, [window(VL, before, after)]) == (24, 18, 12)


@pytest.mark.parametrize(("before", "after"), [(ONE, ZERO), MULTI[1:]])
def test_zero_accepted_is_not_missing(before, after):
    found = acceptance(before, after)
    assert numbers(found, "state", *COUNTS, "rate", "length") == ("zero", 60, 0, 20, 0, 1)


def test_absent_series_mean_off_and_zero_ones_mean_nothing_drafted():
    assert acceptance(OFF, OFF).state == "absent"
    assert acceptance(START, START).state == "unmeasured"
    assert acceptance(START, START).as_json()["n_drafted"] == 0
    assert "says that it speculates" in (acceptance(OFF, OFF, speculative=True).why or "")


def test_without_speculation_the_tokens_per_step_are_still_measured():
    drop = [line for line in ONE.split("\n") if "spec_decode" not in line]
    start = [line for line in START.split("\n") if "spec_decode" not in line]
    found = acceptance("\n".join(start), "\n".join(drop), speculative=False)
    assert found.state == "absent"
    assert found.tokens_per_target_step == Measured(2.5)


def test_the_inter_token_histogram_is_a_step_time_and_never_the_time_per_token():
    found = window(VL, START, ONE)
    step, token = VL.inter_token([found]), VL.tpot([found])
    assert (step.observes, step.n) == ("step", Measured(36))
    assert round(step.as_json()["mean"], 4) == 0.0478
    assert (token.series, token.observes) == ("vllm:request_time_per_output_token_seconds", "request")
    assert round(token.as_json()["mean"], 5) == 0.01912


def test_answers_of_one_token_are_taken_out_of_the_time_per_token():
    tpot, lengths = "vllm:request_time_per_output_token_seconds", "vllm:request_generation_tokens_bucket{"
    body = ONE
    for series in (tpot + "_count", tpot + "_bucket", lengths):
        body = valued(body, series, lambda value: value + 1)
    found = VL.tpot([window(VL, START, body)])
    assert found.n == Measured(1)
    assert round(found.as_json()["mean"], 5) == 0.01912
    assert "taken out" in found.note


def test_engines_add_and_created_stamps_do_not():
    name = "vllm:generation_tokens_total"
    body = counter(name, engine_0=5, engine_1=7)
    assert window(VL, counter(name, engine_0=0, engine_1=0), body).delta(name).reading == Measured(12)
    assert growth(VL.meaning.generated, [window(VL, START, ONE)]).reading == Measured(91)


def test_aborted_and_failed_requests_are_no_finished_ones():
    assert VL.finished([window(VL, START, ONE)]).reading == Measured(1)
    aborted = valued(ONE, 'vllm:request_success_total{engine="0",finished_reason="abort"', 4.0)
    assert VL.finished([window(VL, START, aborted)]).reading == Measured(1)


def test_another_process_start_is_a_restart_though_every_counter_grew():
    later = valued(ONE, "process_start_time_seconds", 1.79595999139e09)
    assert [b.code for b in window(VL, START, later).broken] == ["restart"]


def test_a_counter_that_falls_is_a_restart_where_a_registry_shows_no_process():
    assert shot(VL, MULTI[0]).identity is None
    assert [b.code for b in window(VL, MULTI[2], MULTI[1]).broken][:1] == ["restart"]


def test_a_counter_that_is_new_within_one_process_is_another_build():
    fewer = "\n".join(line for line in START.split("\n") if "spec_decode" not in line)
    assert [b.code for b in window(VL, fewer, ONE).broken][:1] == ["series_differ"]


def test_two_addresses_of_one_server_are_known_by_process_or_by_equal_counts():
    first, again = window(VL, START, ONE), window(VL, START, ONE)
    assert same_server(first, again)
    shared, other = window(VL, *MULTI[:2]), window(VL, *MULTI[1:])
    assert same_server(shared, window(VL, *MULTI[:2]))
    assert not same_server(shared, other)


def test_a_histogram_named_total_is_never_read_as_a_counter():
    assert "vllm:iteration_tokens_total" not in VL.counters
    found = window(VL, START, ONE).delta("vllm:iteration_tokens_total")
    assert isinstance(found.reading, Absent)


SPEC = {
    "mean_acceptance_length": 2.8, "draft_acceptance_rate": 0.6, "num_spec_steps": 30, "num_draft_tokens": 90,
    "num_accepted_draft_tokens": 54, "num_spec_tokens": 3, "acceptance_histogram": [6, 6, 6, 12],
}  # fmt: skip
USAGE = {"completion_tokens": 91, "prompt_tokens": 43}


def request(told, usage=USAGE, speculative: bool | None = True):
    return VL.request_acceptance({"metrics": {"speculative_decoding": told}}, usage, speculative=speculative)


def test_a_request_tells_drafted_steps_and_all_steps_follow_from_its_tokens():
    found = request(SPEC)
    assert numbers(found, *COUNTS) == (90, 54, 30)
    assert (found.length, found.tokens_per_target_step) == (Measured(2.8), Measured(90 / 36))
    assert vllm_request.histogram({"metrics": {"speculative_decoding": SPEC}}) == [6, 6, 6, 12]


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (None, "unmeasured"),
        ({}, "unmeasured"),
        (SPEC | {"num_draft_tokens": 0, "num_accepted_draft_tokens": 0}, "unmeasured"),
        (SPEC | {"num_accepted_draft_tokens": 0}, "zero"),
        (SPEC | {"num_draft_tokens": 90.5}, "unmeasured"),
    ],
)
def test_what_a_request_does_not_tell_is_never_zero(told, state):
    assert request(told).state == state


def test_an_answer_without_metrics_names_the_flag():
    found = VL.request_acceptance({}, USAGE, speculative=True)
    assert found.state == "absent"
    assert "--per-request-spec-decode-metrics" in (found.why or "")


def test_requests_are_pooled_by_counts():
    fields = {"metrics": {"speculative_decoding": SPEC}}
    rejected = SPEC | {"num_accepted_draft_tokens": 0, "num_draft_tokens": 10, "num_spec_steps": 5}
    none = {"metrics": {"speculative_decoding": rejected}}
    found = VL.pooled_acceptance([(fields, USAGE), (none, {"completion_tokens": 11})], speculative=True)
    assert numbers(found, *COUNTS) == (100, 54, 35)
    assert found.tokens_per_target_step == Measured(100 / 46)


def test_steps_cut_at_the_end_never_put_the_tokens_of_a_step_above_the_acceptance_length():
    cut = {"completion_tokens": 71}  # 70 decode tokens less 54 accepted would leave 16 steps, and 30 verified
    fields = {"metrics": {"speculative_decoding": SPEC}}
    for found in (request(SPEC, cut), VL.pooled_acceptance([(fields, cut)], speculative=True)):
        assert (found.tokens_per_target_step, found.n_target_steps) == (Measured(70 / 30), Measured(30))
        assert found.tokens_per_target_step.value <= found.length.value


def test_cached_tokens_of_null_are_unknown_and_an_old_version_says_why():
    silent = reader("vllm", "0.11.0").cold_proof({}, {"prompt_tokens_details": None})
    assert silent.proven is None
    assert "writes 0 as null" in silent.why
    assert VL.cold_proof({}, {"prompt_tokens_details": {"cached_tokens": 0}}).proven is True


def test_cached_prompt_tokens_fall_back_on_the_name_of_older_versions():
    assert growth(VL.meaning.cached, [window(VL, START, ONE)]).reading == Measured(16)
    old = ["\n".join(line for line in body.split("\n") if "prompt_tokens_cached" not in line) for body in (START, ONE)]
    assert growth(VL.meaning.cached, [window(VL, *old)]).reading == Measured(16)


def test_a_nan_is_no_count():
    bad = valued(ONE, "vllm:generation_tokens_total", "NaN")
    assert isinstance(growth(VL.meaning.generated, [window(VL, START, bad)]).reading, Unmeasured)
