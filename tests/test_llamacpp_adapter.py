"""llama.cpp's series and timings in four states: captured bodies, and changes of one value at a time."""

import re
from pathlib import Path

import pytest

from infra.engines import llamacpp
from infra.engines.adapter import idle_key, read_snapshot
from infra.engines.llamacpp_request import cold_proof, pooled_acceptance, request_acceptance
from infra.engines.readings import Absent, Measured, Unmeasured, state_of, value_or_none
from infra.engines.window import Snapshot, Window

FIXTURES = Path(__file__).parent / "fixtures" / "exposition"
HEADERS = {"Content-Type": "text/plain; version=0.0.4", "Process-Start-Time-Unix": "778650279"}


def body(number: int, **changes: object) -> str:
    """A captured body, with single values changed by the end of the series' name."""
    (path,) = FIXTURES.glob(f"llamacpp_b11434_{number}_*.prom")
    text = path.read_text()
    for name, value in changes.items():
        text, n = re.subn(rf"^(llamacpp:{name}) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert n == 1, name
    return text


def shot(text: str, start: str | None = "778650279") -> Snapshot:
    headers = {k: v for k, v in HEADERS.items() if k == "Content-Type"}
    return read_snapshot(llamacpp.LlamaCpp(), text, headers | ({"Process-Start-Time-Unix": start} if start else {}))


def window(before: str, after: str, *during: str) -> Window:
    return llamacpp.LlamaCpp().window(shot(before), shot(after), [shot(d) for d in during])


def test_one_request_gives_the_counts_it_is_known_to_have_had():
    found = llamacpp.acceptance(window(body(0), body(2)), speculative=True, n_requests=1)
    assert found.state == "value"
    assert (found.n_drafted, found.n_accepted, found.n_verify_steps) == (Measured(120), Measured(96), Measured(40))
    assert found.rate == Measured(96 / 120)
    assert found.length == Measured(1 + 96 / 40)
    assert found.tokens_per_target_step == Measured(136 / 40)  # 137 tokens, the first from prefill
    assert llamacpp.per_position(window(body(0), body(2))) == (38, 32, 26)


def test_steps_cut_at_the_end_never_put_the_tokens_of_a_step_above_the_acceptance_length():
    whole = llamacpp.acceptance(window(body(0), body(2)), speculative=True, n_requests=1)
    for n_tokens in (100, 120):  # 137 were made: accepted drafts that no answer kept
        cut = llamacpp.acceptance(
            window(body(0), body(2, tokens_predicted_total=n_tokens)), speculative=True, n_requests=1
        )
        assert cut.tokens_per_target_step == Measured((n_tokens - 1) / 40)
        assert cut.n_target_steps == whole.n_verify_steps == Measured(40)
        assert cut.tokens_per_target_step.value <= cut.length.value


def test_zero_accepted_is_not_missing():
    found = llamacpp.acceptance(window(body(2), body(4)), speculative=True, n_requests=1)
    assert found.state == "zero"
    assert (found.n_drafted, found.n_accepted, found.rate) == (Measured(60), Measured(0), Measured(0))
    assert found.length == Measured(1)
    assert found.as_json()["rate"] == 0


def test_zero_counters_with_speculation_off_are_absent_not_zero():
    found = llamacpp.acceptance(window(body(0), body(1)), speculative=False, n_requests=1)
    assert found.state == "absent"
    assert isinstance(found.n_drafted, Absent)
    assert found.as_json()["n_drafted"] is None


def test_nothing_drafted_with_speculation_on_is_unmeasured():
    found = llamacpp.acceptance(window(body(2), body(3)), speculative=True, n_requests=0)
    assert found.state == "unmeasured"
    assert found.n_drafted == Measured(0)
    assert found.as_json()["rate"] is None
    assert "nothing was drafted" in (found.why or "")


def test_zero_counters_of_a_server_that_does_not_say_are_unmeasured_and_say_so():
    found = llamacpp.acceptance(window(body(0), body(1)), speculative=None, n_requests=1)
    assert found.state == "unmeasured"
    assert "not known" in (found.why or "")


def test_counters_that_move_against_the_servers_word_are_shown_with_the_contradiction():
    found = llamacpp.acceptance(window(body(0), body(2)), speculative=False, n_requests=1)
    assert found.state == "value"
    assert "counters moved" in (found.why or "")


def test_series_that_are_not_there_are_absent():
    old = "\n".join(line for line in body(1).split("\n") if "spec_decode" not in line)
    found = llamacpp.acceptance(window(old, old), speculative=None, n_requests=0)
    assert found.state == "absent"
    assert "no series" in (found.why or "")


def test_more_accepted_than_drafted_is_no_rate_and_shows_both():
    strange = body(2, spec_decode_num_accepted_tokens_total=130)
    found = llamacpp.acceptance(window(body(0), strange), speculative=True, n_requests=1)
    assert found.state == "unmeasured"
    assert "130" in (found.why or "")
    assert "120" in (found.why or "")


@pytest.mark.parametrize(
    "name", ["tokens_predicted_total", "prompt_seconds_total", "spec_decode_num_drafts_total", "n_decode_total"]
)
def test_any_counter_that_falls_is_a_restart_and_never_a_number(name):
    broken = window(body(2), body(4, **{name: "0.001"}))
    assert [b.code for b in broken.broken] == ["restart"]
    assert name in (broken.why or "")
    assert isinstance(broken.delta(llamacpp.GENERATED_TOKENS).reading, Unmeasured)
    found = llamacpp.acceptance(broken, speculative=True, n_requests=1)
    assert found.state == "unmeasured"
    assert set(found.as_json()["reasons"]) >= {"rate", "n_drafted", "n_accepted", "length"}


def test_a_falling_position_is_a_restart_though_every_total_grew():
    after = body(4).replace('{position="1"} 32', '{position="1"} 31')
    assert [b.code for b in window(body(2), after).broken] == ["restart"]


def test_positions_that_are_gone_are_a_restart():
    after = "\n".join(line for line in body(4).split("\n") if "per_pos" not in line)
    assert "gone" in (window(body(2), after).why or "")


def test_a_changed_start_stamp_is_a_restart_though_every_counter_grew():
    broken = llamacpp.LlamaCpp().window(shot(body(0), "1"), shot(body(2), "2"))
    assert [b.code for b in broken.broken] == ["restart"]


def test_a_restart_between_two_scrapes_is_seen_by_those_in_between():
    assert not window(body(0), body(2), body(4)).valid
    assert window(body(0), body(4), body(2), body(3)).valid


def test_a_start_stamp_that_comes_back_is_two_servers_behind_one_address():
    broken = llamacpp.LlamaCpp().window(shot(body(0), "1"), shot(body(3), "1"), [shot(body(2), "2")])
    assert [b.code for b in broken.broken] == ["several_servers"]
    assert not llamacpp.LlamaCpp().window(shot(body(0), None), shot(body(2), "1")).valid


def test_a_high_water_mark_and_the_gauges_may_fall():
    assert window(body(2), body(3, n_tokens_max=1)).valid


def test_a_counter_that_is_typed_gauge_gives_no_delta():
    gauge = body(2).replace("spec_decode_num_drafts_total counter", "spec_decode_num_drafts_total gauge")
    assert [b.code for b in window(gauge, gauge).broken] == ["not_a_counter"]


def test_a_series_new_in_the_window_is_another_build_but_positions_may_appear():
    fewer = "\n".join(line for line in body(0).split("\n") if "n_decode_total" not in line)
    assert [b.code for b in window(fewer, body(2)).broken] == ["series_differ"]
    assert window(body(0), body(2)).valid


def test_counts_above_a_million_carry_the_rounding_of_their_print():
    delta = window(body(4), body(5)).delta(llamacpp.GENERATED_TOKENS)
    assert delta.reading == Measured(1234570 - 158)
    assert delta.uncertainty == 5  # half of 10, the worth of the sixth digit
    found = llamacpp.acceptance(window(body(4), body(5)), speculative=True, n_requests=1)
    assert found.state == "value"
    assert found.rate_uncertainty > 0
    assert "rounded" in (found.why or "")


def test_a_delta_within_the_rounding_is_not_a_measured_zero():
    found = llamacpp.acceptance(window(body(5), body(5)), speculative=True, n_requests=1)
    assert found.state == "unmeasured"
    assert found.as_json()["n_drafted"] is None
    assert "too coarse" in (found.why or "")


@pytest.mark.parametrize(
    ("value", "half"), [(999999, 0), (1e6, 5), (1.23457e6, 5), (1234567, 0), (3.45679e7, 50), (0, 0)]
)
def test_rounding_of_a_count(value, half):
    assert llamacpp.rounding(llamacpp.DRAFTED, value) == half


def test_seconds_are_always_rounded_and_positions_never():
    assert llamacpp.rounding(llamacpp.GENERATED_SECONDS, 9902.51) == pytest.approx(0.005)
    assert llamacpp.rounding(llamacpp.ACCEPTED_PER_POSITION, 1_000_000) == 0


def test_nan_is_no_delta():
    delta = window(body(2, prompt_tokens_total="NaN"), body(2, prompt_tokens_total="NaN")).delta(llamacpp.PROMPT_TOKENS)
    assert isinstance(delta.reading, Unmeasured)


def test_idle_is_judged_on_counters_and_process_not_on_gauges():
    def key(text, start=None):
        return idle_key(llamacpp.LlamaCpp(), shot(text, start))

    assert key(body(2)) == key(body(3))
    assert key(body(2)) != key(body(2, n_decode_total=45))
    assert key(body(2), "1") != key(body(2), "2")


def timings(**changes):
    fields = {
        "cache_n": 0,
        "prompt_n": 40,
        "predicted_n": 12,
        "predicted_ms": 517.8,
        "draft_n": 12,
        "draft_n_accepted": 8,
    }
    return {"timings": {k: v for k, v in (fields | changes).items() if v is not None}}


def test_a_request_tells_its_acceptance_and_no_verify_steps():
    found = request_acceptance(timings(), speculative=True)
    assert (found.state, found.rate) == ("value", Measured(8 / 12))
    assert isinstance(found.length, Absent)
    assert found.tokens_per_target_step == Measured(11 / 3)


def test_a_request_with_all_drafts_rejected_is_zero():
    assert request_acceptance(timings(draft_n_accepted=0), speculative=True).state == "zero"


@pytest.mark.parametrize(("speculative", "state"), [(True, "unmeasured"), (False, "absent"), (None, "unmeasured")])
def test_no_drafts_in_timings_is_off_or_nothing_drafted_by_the_configuration(speculative, state):
    found = request_acceptance(timings(draft_n=None, draft_n_accepted=None), speculative=speculative)
    assert found.state == state


@pytest.mark.parametrize(
    "odd", [{"draft_n": "12"}, {"draft_n": 0}, {"draft_n": True}, {"draft_n_accepted": None}, {"draft_n_accepted": -1}]
)
def test_timings_that_cannot_be_read_are_never_zero(odd):
    assert value_or_none(request_acceptance(timings(**odd), speculative=True).rate) is None


def test_an_answer_without_timings_is_absent():
    assert request_acceptance({}, speculative=True).state == "absent"
    assert request_acceptance({"timings": None}, speculative=True).state == "absent"


def test_a_group_sums_counts_and_a_request_without_drafts_adds_zero():
    quiet = timings(draft_n=None, draft_n_accepted=None, predicted_n=5)
    found = pooled_acceptance([timings(), quiet, timings(draft_n=4, draft_n_accepted=0)], speculative=True)
    assert (found.n_drafted, found.n_accepted, found.rate) == (Measured(16), Measured(8), Measured(0.5))
    assert found.tokens_per_target_step == Measured((29 - 3) / (29 - 3 - 8))


def test_a_group_with_one_unreadable_request_has_no_rate():
    found = pooled_acceptance([timings(), {}], speculative=True)
    assert found.state == "unmeasured"
    assert "1 of 2" in (found.why or "")
    assert pooled_acceptance([{}, {}], speculative=True).state == "absent"
    assert pooled_acceptance([], speculative=True).state == "unmeasured"


def test_cold_is_proven_by_a_zero_refuted_by_a_count_and_open_without_either():
    usage = {"prompt_tokens_details": {"cached_tokens": 0}}
    assert cold_proof(timings(), usage).proven is True
    assert cold_proof(timings(), None).proven is True
    assert cold_proof(timings(cache_n=24), None).proven is False
    assert cold_proof(timings(cache_n=24), usage).proven is False
    assert "disagree" in cold_proof(timings(cache_n=24), usage).why
    nothing = cold_proof({}, {"prompt_tokens_details": None})
    assert nothing.proven is None
    assert state_of(nothing.n_cached) == "absent"
