"""A run's server side for SGLang and vLLM: windows, acceptance and checks by rule, several addresses, refusals."""

import json

import pytest
from engine_bodies import text, valued
from run_factory import make_run, request
from server_factory import URL, engine_scrape, engine_scrapes, judged

from analysis.loading import load_run
from analysis.server import group_acceptance
from analysis.summary import summarise
from analysis.timings import histogram_timings, request_timings, server_timings

VL_START, VL_ONE, VL_ZERO = (text(f"vllm_v0.33.0_{n}_") for n in (1, 2, 3))
MULTI = [text(f"vllm_v0.33.0_multiproc_{n}_") for n in (1, 2, 3)]
SG_START, SG_ONE, SG_IDLE, SG_ZERO = (text(f"sglang_v0.5.23_{n}") for n in (0, 2, 3, 4))
OTHER = "http://127.0.0.1:8081/metrics"


def chunks(n_tokens: int, n_steps: int, first_s: float, last_s: float):
    """The first token by itself, then equal steps."""
    step_s = (last_s - first_s) / n_steps
    steps = range(1, n_steps + 1)
    rest = [(first_s + step_s * step, step, 1 + (n_tokens - 1) * step // n_steps, 3) for step in steps]
    return ((first_s, 0, 1, 3), *rest)


def vllm_request(**changes):
    """91 tokens in 36 steps, 30 of them drafted, as the rendered body counts them."""
    told = {
        "num_spec_steps": 30, "num_draft_tokens": 90, "num_accepted_draft_tokens": 54,
        "acceptance_histogram": [6, 6, 6, 12],
    }  # fmt: skip
    fields = {
        "chunks": chunks(91, 36, 0.05, 1.78), "chunk_semantics": "verify_step", "n_completion_tokens": 91,
        "n_prompt_tokens": 43, "usage": {"completion_tokens": 91, "prompt_tokens_details": {"cached_tokens": 16}},
        "server_fields": {"metrics": {"speculative_decoding": told, "mean_itl_ms": 19.1}},
    }  # fmt: skip
    return request(**(fields | changes))


def sglang_request(**changes):
    """137 tokens in 40 verify steps, 12 prompt tokens from a cache."""
    details = {"spec_verify_ct": 40, "spec_num_correct_drafts": 96, "spec_num_proposed_drafts": 440}
    fields = {
        "chunks": chunks(137, 40, 0.05, 1.96), "chunk_semantics": "verify_step", "n_completion_tokens": 137,
        "n_prompt_tokens": 43, "usage": {"completion_tokens": 137, "prompt_tokens_details": {"cached_tokens": 12}},
        "server_fields": {"sglext": {"spec_tokens_details": details}},
    }  # fmt: skip
    return request(**(fields | changes))


def vllm(scrapes, requests=None, **options):
    return judged(scrapes, [vllm_request()] if requests is None else requests, adapter="vllm", **options)


def sglang(scrapes, requests=None, **options):
    return judged(scrapes, [sglang_request()] if requests is None else requests, adapter="sglang", **options)


def states(side):
    return {check.name: check.state for check in side.checks}


def check(side, name):
    (found,) = [c for c in side.checks if c.name == name]
    return found


def fails(side):
    return {c.name for c in side.checks if c.state == "fail"}


@pytest.mark.parametrize(("before", "after"), [(VL_START, VL_ONE), (MULTI[0], MULTI[1])])
def test_a_vllm_run_agrees_with_its_counters_in_everything_that_can_be_compared(before, after):
    side = vllm(engine_scrapes(before, after))
    assert fails(side) == set()
    assert side.findings == ()
    passed = {name for name, state in states(side).items() if state == "pass"}
    assert passed >= {
        "at rest before the window", "generated tokens", "requests counted", "prompt tokens", "cached prompt tokens",
        "drafts summed", "accepted by position", "time to first token", "inter-token time",
        "verify steps of each request", "rate within the engine's step time",
    }  # fmt: skip
    assert side.acceptance.as_json()["length"] == 2.8
    assert "37.2%" in check(side, "cached prompt tokens").seen


def test_an_sglang_run_agrees_with_its_counters_in_everything_that_can_be_compared():
    side = sglang(engine_scrapes(SG_START, SG_ONE))
    assert fails(side) == set()
    passed = {name for name, state in states(side).items() if state == "pass"}
    assert passed >= {
        "generated tokens", "requests counted", "prompt tokens", "cached prompt tokens", "drafts summed",
        "inter-token time", "verify steps of each request", "rate within the engine's step time",
    }  # fmt: skip
    assert states(side)["requests in flight"] == "not observable"
    assert "30 s" in (check(side, "requests in flight").why or "")
    assert group_acceptance(side, "code", None)["n_verify_steps"] == 40


def test_a_real_sglang_baseline_of_thirty_requests_agrees_token_by_token():
    before, after = (text(f"sglang_v0.5.17_base.passA.{end}") for end in ("before", "after"))
    lengths = [222] * 29 + [6664 - 29 * 222]
    requests = [
        request(
            plan_id=f"m{i:04d}", sequence=i, n_completion_tokens=n, n_prompt_tokens=46 if i else 1371 - 29 * 46,
            chunks=chunks(n, n - 1, 0.03, 0.03 + 0.0018 * n), usage={"completion_tokens": n},
        )
        for i, n in enumerate(lengths)
    ]  # fmt: skip
    side = sglang(engine_scrapes(before, after), requests, version="0.5.17", speculative=False)
    assert states(side)["generated tokens"] == states(side)["requests counted"] == "pass"
    assert states(side)["inter-token time"] == "pass"
    assert side.acceptance.state == "absent"
    told = histogram_timings(side)
    assert (told["tpot_s"]["unit_of_observation"], told["tpot_s"]["n"]) == ("token", 6634)
    assert told["ttft_s"]["quantile_intervals"]["p50"][0] == 0.0


def test_somebody_elses_request_is_seen_by_the_request_counter_though_tokens_cannot_be_compared():
    cut = request(plan_id="m0001", sequence=1, outcome="truncated", n_completion_tokens=None)
    after = valued(VL_ONE, 'vllm:request_success_total{engine="0",finished_reason="stop"', 4.0)
    side = vllm(engine_scrapes(VL_START, after), [vllm_request(), cut])
    assert states(side)["generated tokens"] == "not observable"
    assert "foreign_traffic" in [finding.code for finding in side.findings]


def test_counts_that_are_a_whole_multiple_name_the_likely_cause():
    doubled = valued(VL_ONE, "vllm:generation_tokens_total", 182.0)
    side = vllm(engine_scrapes(VL_START, doubled))
    assert "exactly 2 times" in check(side, "generated tokens").seen


def test_workers_behind_a_router_are_added_and_the_addition_is_said():
    other = [valued(body, "process_start_time_seconds", 1.7e9 + 1) for body in (VL_START, VL_ONE)]
    both = [*engine_scrapes(VL_START, VL_ONE), *engine_scrapes(*other, url=OTHER)]
    side = vllm(both, [vllm_request(), vllm_request(plan_id="m0001", sequence=1)])
    assert side.acceptance.as_json()["n_drafted"] == 180
    assert states(side)["generated tokens"] == "pass"
    assert any("2 servers are added" in note for note in side.notes)


@pytest.mark.parametrize("bodies", [(VL_START, VL_ONE), tuple(MULTI[:2])])
def test_one_server_at_two_addresses_is_taken_once(bodies):
    side = vllm([*engine_scrapes(*bodies), *engine_scrapes(*bodies, url=OTHER)])
    assert side.acceptance.as_json()["n_drafted"] == 90
    assert any("taken once" in note for note in side.notes)
    assert states(side)["generated tokens"] == "pass"


def test_a_routers_own_metrics_are_left_out_and_said():
    router = "# TYPE smg_http_requests_total counter\nsmg_http_requests_total 5\n"
    side = vllm([*engine_scrapes(router, router, url=OTHER), *engine_scrapes(VL_START, VL_ONE)])
    assert side.acceptance.as_json()["n_drafted"] == 90
    assert any("left out" in note for note in side.notes)
    assert states(side)["at rest before the window"] == "pass"
    alone = vllm(engine_scrapes(router, router))
    assert "no URL shows any series" in (alone.no_window or "")


def test_a_mixture_of_models_is_said():
    other = [
        valued(body.replace("Qwen/Qwen3-8B", "Other/7B"), "process_start_time_seconds", 1.7e9 + 1)
        for body in (VL_START, VL_ONE)
    ]
    side = vllm([*engine_scrapes(VL_START, VL_ONE), *engine_scrapes(*other, url=OTHER)])
    assert any("mixture" in note and "Other/7B" in note for note in side.notes)


def test_levels_that_were_scraped_apart_have_windows_of_their_own():
    def at(level, before, after):
        return [engine_scrape("before", before, level=level), engine_scrape("after", after, level=level)]

    requests = [vllm_request(level="1"), vllm_request(level="2", plan_id="m0001", n_completion_tokens=21)]
    side = vllm([*at("1", VL_START, VL_ONE), *at("2", VL_ONE, VL_ZERO)], requests)
    assert group_acceptance(side, "all", "1")["n_drafted"] == 90
    assert group_acceptance(side, "all", "2")["state"] == "zero"
    assert side.acceptance.as_json()["n_drafted"] == 150


def test_a_mean_time_to_first_token_of_microseconds_is_refused():
    name = "vllm:time_to_first_token_seconds"
    after = valued(VL_ONE, f"{name}_bucket", 1.0)
    after = valued(after, f"{name}_sum", 7.3e-05)
    side = vllm(engine_scrapes(VL_START, after))
    assert states(side)["time to first token"] == "fail"
    assert "73 us" in check(side, "time to first token").seen
    told = histogram_timings(side)["ttft_s"]
    assert told["mean"] is None
    assert "refused" in told["why"]
    assert side.findings == ()  # the client's own latencies stand


def test_a_first_token_sooner_than_the_servers_is_impossible():
    early = vllm_request(chunks=chunks(91, 36, 0.01, 1.78))
    assert "time to first token" in fails(vllm(engine_scrapes(VL_START, VL_ONE), [early]))


def test_whole_intervals_observed_once_a_token_are_found_out_by_the_clients_clock():
    """The same name, another meaning: n=3 in 27 ms is 3 x 9 ms, or 3 x 27 ms under Ray's wrapper."""
    name = "sglang:inter_token_latency_seconds"
    after = "\n".join(line for line in SG_ONE.split("\n") if f"{name}_bucket" not in line)
    after = valued(after, f"{name}_sum", 1.91 * 3.4)
    side = sglang(engine_scrapes(SG_START, after), version="0.5.17")
    assert states(side)["inter-token time"] == "fail"
    assert "once a token" in check(side, "inter-token time").seen
    assert histogram_timings(side)["inter_token_s"]["mean"] is None


def test_a_step_time_stands_beside_the_time_per_token_under_its_own_name():
    told = server_timings(vllm(engine_scrapes(VL_START, VL_ONE)), [vllm_request()])
    assert told["histograms"]["tpot_s"]["unit_of_observation"] == "request"
    assert told["histograms"]["inter_token_s"]["unit_of_observation"] == "step"
    assert told["tpot_s"]["median"] == pytest.approx(0.0191)
    assert told["tpot_s"]["series"] == "metrics.mean_itl_ms"
    assert request_timings([request()])["tpot_s"]["median"] is None


def test_a_server_that_should_speculate_and_did_not_is_a_finding_for_the_whole_run():
    before, after = (text(f"sglang_v0.5.17_base.passA.{end}") for end in ("before", "after"))
    side = sglang(engine_scrapes(before, after), [sglang_request()])
    assert [(f.code, f.scope) for f in side.findings if "inactive" in f.seen] == [("check_failed", "run")]


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"spec_correct_drafts_histogram": [0, 40]}, "accepted drafts"),
        ({"spec_correct_drafts_histogram": [39]}, "39 steps"),
        ({"spec_num_correct_drafts": 441}, "441 accepted"),
        ({"spec_verify_ct": 30}, "137 tokens"),
    ],
)
def test_a_requests_own_account_of_its_steps_must_add_up(details, says):
    told = {"spec_verify_ct": 40, "spec_num_correct_drafts": 96, "spec_num_proposed_drafts": 440} | details
    side = sglang([], [sglang_request(server_fields={"sglext": {"spec_tokens_details": told}})])
    assert says in check(side, "verify steps of each request").seen


def test_more_tokens_a_step_than_the_draft_window_allows_is_refused():
    narrow = valued(SG_ONE, "sglang:spec_num_draft_tokens", 3.0)
    side = sglang(engine_scrapes(SG_START, narrow))
    assert "rate within the engine's step time" in fails(side)


def test_more_cached_than_prompt_tokens_is_impossible():
    usage = {"completion_tokens": 91, "prompt_tokens_details": {"cached_tokens": 44}}
    assert "cached prompt tokens" in fails(vllm(engine_scrapes(VL_START, VL_ONE), [vllm_request(usage=usage)]))


def test_requests_the_server_holds_beyond_this_clients_are_seen():
    busy = valued(VL_START, "vllm:num_requests_running", 6.0)
    during = [engine_scrape("during", busy, send_unix_s=1e9 + i, receive_unix_s=1e9 + i) for i in range(6)]
    base = engine_scrapes(VL_START, VL_ONE)
    ours = vllm_request(sent_at_unix_s=1e9 - 1, end_after_s=60.0, last_token_after_s=1.78)
    side = vllm([*base[:-1], *during, base[-1]], [ours])
    assert states(side)["requests in flight"] == "fail"
    calm = [one.model_copy(update={"body": valued(VL_START, "vllm:num_requests_running", 1.0)}) for one in during]
    assert states(vllm([*base[:-1], *calm, base[-1]], [ours]))["requests in flight"] == "pass"


def test_a_cell_is_cold_by_its_first_request_and_a_request_by_itself():
    cold = {"completion_tokens": 91, "prompt_tokens_details": {"cached_tokens": 0}}
    later = vllm_request(plan_id="m0001", sent_at_unix_s=1_800_000_001.0)
    requests = [later, vllm_request(usage=cold, sent_at_unix_s=1_800_000_000.0)]
    assert vllm([], requests, cold_per="cell").cold_proven
    assert not vllm([], requests, cold_per="request").cold_proven
    assert "m0001" in vllm([], requests).cold_why


def test_a_request_without_its_instant_is_not_taken_for_the_cells_first():
    cold = {"completion_tokens": 91, "prompt_tokens_details": {"cached_tokens": 0}}
    requests = [vllm_request(usage=cold, sent_at_unix_s=None), vllm_request(sent_at_unix_s=1_800_000_000.0)]
    side = vllm([], requests, cold_per="cell")
    assert not side.cold_proven
    assert side.cold_why == "1 of 2 requests have no instant of sending: which came first is not known"


def test_the_share_of_cached_tokens_is_over_prompts_whose_length_is_known():
    silent = vllm_request(plan_id="m0001", n_prompt_tokens=None)
    found = check(vllm(engine_scrapes(VL_START, VL_ONE), [vllm_request(), silent]), "cached prompt tokens")
    assert "37.2%" in found.seen  # 16 of 43, not 32 of 43


def test_samples_of_the_host_outside_the_run_cover_nothing():
    one = vllm_request(sent_at_unix_s=100.0)
    assert states(vllm([], [one], telemetry_unix_s=[100.5, 500.0]))["telemetry coverage"] == "pass"
    assert states(vllm([], [one], telemetry_unix_s=[1.0, 500.0]))["telemetry coverage"] == "fail"
    assert states(vllm([], [one]))["telemetry coverage"] == "not observable"


def test_an_engine_without_an_adapter_still_tells_its_cached_tokens_by_usage():
    cold = {"completion_tokens": 91, "prompt_tokens_details": {"cached_tokens": 0}}
    side = judged([], [vllm_request(usage=cold)], adapter=None)
    assert side.cold_proven
    assert URL


def openmetrics(body: str) -> str:
    """The same counters in the other format: the family's name without ``_total``, and an end."""
    kept = []
    for line in body.split("\n"):
        if line.startswith("# TYPE ") and line.endswith("_total counter"):
            line = line.replace("_total counter", " counter")
        if "_created" not in line and "process_start" not in line and line:
            kept.append(line)
    return "\n".join([*kept, "# EOF", ""])


def test_openmetrics_is_read_alike():
    bodies = [
        openmetrics("\n".join(x for x in body.split("\n") if "iteration" not in x)) for body in (VL_START, VL_ONE)
    ]
    headers = {"Content-Type": "application/openmetrics-text; version=1.0.0"}
    taken = [engine_scrape(role, body, headers=headers) for role, body in zip(("before", "after"), bodies, strict=True)]
    side = vllm(taken)
    assert side.no_window is None
    assert side.acceptance.as_json()["n_accepted"] == 54
    assert states(side)["generated tokens"] == "pass"


@pytest.mark.parametrize("spoilt", ["twice", "cut", "a word"])
def test_a_spoilt_scrape_is_a_reason_and_acceptance_comes_from_the_answers(spoilt):
    line = next(x for x in VL_ONE.split("\n") if x.startswith("vllm:generation_tokens_total{"))
    bad = {"twice": VL_ONE + line + "\n", "cut": VL_ONE[:-3], "a word": VL_ONE.replace(line, line + "x")}[spoilt]
    side = vllm(engine_scrapes(VL_START, bad))
    assert side.no_window
    assert (side.acceptance.source, side.acceptance.as_json()["n_drafted"]) == ("speculative_decoding", 90)


def test_a_sealed_run_of_sglang_is_judged_and_summarised_from_its_folder(tmp_path):
    server = {"engine": "sglang", "version": "0.5.23", "url": "http://127.0.0.1:1", "speculative": True}
    taken = engine_scrapes(SG_START, SG_ONE)
    path = make_run(tmp_path, [sglang_request()], scrapes=taken, adapter="sglang", server=server, arm=None, label="x")
    run = load_run(path)
    # The plan of these folders allows 48 tokens; nothing else is held against the run.
    assert [r.seen[:10] for r in run.reasons if r.severity == "INVALID"] == ["max_tokens"]
    said = summarise(run)
    assert (said["acceptance"]["state"], said["acceptance"]["n_verify_steps"]) == ("value", 40)
    json.dumps(said, allow_nan=False)
    json.dumps(histogram_timings(run.server), allow_nan=False)
