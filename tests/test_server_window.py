"""What the scrapes of a run can show of it, and what they cannot."""

import pytest
from run_factory import request
from server_factory import URL, body, judged, scrape, scrapes, served

from analysis.server import group_acceptance
from analysis.timings import request_timings


def test_a_run_with_both_ends_at_rest_has_counters_and_agrees():
    side = judged(scrapes(body(0), body(2)))
    assert side.no_window is None
    assert (side.acceptance.source, side.acceptance.state) == ("counters", "value")
    assert side.acceptance.as_json()["n_verify_steps"] == 40
    assert side.findings == ()
    assert [check.name for check in side.checks if check.state == "fail"] == []


def test_counters_never_stand_in_for_a_server_that_restarted():
    side = judged(scrapes(body(2), body(4, tokens_predicted_total=12)))
    assert [finding.code for finding in side.findings] == ["restart"]
    assert side.acceptance.state == "unmeasured"
    assert group_acceptance(side, "code", None)["rate"] is None
    assert group_acceptance(side, "all", None)["state"] == "unmeasured"


def test_a_restart_seen_only_by_a_scrape_between_is_a_restart():
    side = judged([scrape("before", body(0)), scrape("during", body(4)), scrape("after", body(2))])
    assert [finding.code for finding in side.findings] == ["restart"]


def test_two_processes_behind_one_address_are_several_servers():
    taken = [scrape("before", body(0)), scrape("during", body(2), start="78"), scrape("after", body(2))]
    assert [finding.code for finding in judged(taken).findings] == ["several_servers"]


def test_a_scrape_between_that_failed_breaks_nothing():
    taken = [
        scrape("before", body(0)),
        scrape("during", None, http_status=None, error="timed out"),
        scrape("after", body(2)),
    ]
    assert judged(taken).findings == ()


@pytest.mark.parametrize(
    ("taken", "says"),
    [
        ([], "nothing was scraped"),
        ([scrape("before", body(0))], "no scrape after"),
        ([scrape("after", body(2))], "no scrape before"),
        ([scrape("before", "{}", http_status=501, error="HTTP 501"), scrape("after", body(2))], "HTTP 501"),
        ([scrape("before", body(0)), scrape("after", body(2)[:-4], complete=False)], "whole"),
        ([scrape("before", body(0)), scrape("after", body(2)[:-4])], "no newline"),
        ([scrape("before", body(0)), scrape("after", body(2) + "x one\n")], "x one"),
    ],
)
def test_without_two_whole_scrapes_acceptance_comes_from_the_requests_and_the_lack_is_said(taken, says):
    side = judged(taken)
    assert says in (side.metrics_missing or "")
    assert (side.acceptance.source, side.acceptance.state) == ("timings", "value")
    states = {check.name: check.state for check in side.checks}
    assert states["generated tokens"] == "not observable"


def test_neither_counters_nor_timings_is_unmeasured_and_names_both():
    side = judged([], [request()])
    assert side.acceptance.state == "unmeasured"
    assert "nothing was scraped" in (side.acceptance.why or "")
    assert "timings" in (side.acceptance.why or "")


def test_an_engine_without_a_reader_says_so():
    side = judged([scrape("before", body(0)), scrape("after", body(2))], [request()], adapter=None)
    assert "no reader" in (side.metrics_missing or "")


def test_servers_that_share_the_load_are_added():
    other = "http://127.0.0.1:8081/metrics"
    both = [scrape("before", body(0)), scrape("before", body(0), start="78", url=other)]
    both += [scrape("after", body(2)), scrape("after", body(2), start="78", url=other)]
    requests = [served(), served(plan_id="m0001", sequence=1)]
    side = judged(both, requests)
    assert side.acceptance.as_json()["n_drafted"] == 240
    assert {c.name: c.state for c in side.checks}["generated tokens"] == "pass"


def test_one_process_at_two_addresses_is_counted_once():
    other = "http://localhost:8080/metrics"
    both = [scrape(role, b, url=u) for role, b in (("before", body(0)), ("after", body(2))) for u in (URL, other)]
    assert judged(both).acceptance.as_json()["n_drafted"] == 120


def test_a_domain_has_its_own_acceptance_and_no_verify_steps():
    requests = [served(), served(plan_id="m0001", sequence=1, domain="prose", accepted=0)]
    side = judged(scrapes(body(0), body(2)), requests)
    prose = group_acceptance(side, "prose", None)
    assert (prose["state"], prose["source"], prose["n_drafted"], prose["n_accepted"]) == ("zero", "timings", 120, 0)
    assert prose["n_verify_steps"] is None
    assert "verify steps" in prose["reasons"]["n_verify_steps"]
    assert group_acceptance(side, "all", None)["source"] == "counters"
    assert group_acceptance(side, "json", None)["state"] == "unmeasured"


def test_speculation_off_is_absent_in_run_and_domain():
    plain = served()
    timings = {k: v for k, v in plain.server_fields["timings"].items() if not k.startswith("draft")}
    side = judged(scrapes(body(0), body(1)), [served(server_fields={"timings": timings})], speculative=False)
    assert side.acceptance.state == "absent"
    assert group_acceptance(side, "code", None)["state"] == "absent"


def test_counters_that_moved_between_idle_check_and_window_are_someone_elses():
    taken = [
        *[scrape("idle-check", body(0))] * 3,
        scrape("before", body(0, n_decode_total=1)),
        scrape("after", body(2)),
    ]
    states = {check.name: check.state for check in judged(taken).checks}
    assert states["at rest before the window"] == "fail"
    few = [scrape("idle-check", body(0)), scrape("before", body(0)), scrape("after", body(2))]
    assert {c.name: c.state for c in judged(few).checks}["at rest before the window"] == "not observable"


def test_cold_is_proven_only_when_every_request_proves_it():
    warm = served(plan_id="m0001", server_fields={"timings": {"cache_n": 24, "prompt_n": 19}})
    silent = served(plan_id="m0002", server_fields={})
    assert judged(scrapes(body(0), body(2))).cold_proven
    assert not judged(scrapes(body(0), body(2)), [served(), warm]).cold_proven
    assert "m0001" in judged([], [served(), warm]).cold_why
    assert not judged([], [served(), silent]).cold_proven
    assert not judged([], []).cold_proven


def test_the_servers_time_per_token_is_each_requests_own_with_its_coverage():
    found = request_timings([served(), request()])
    assert found["tpot_s"]["median"] == pytest.approx(1.915 / 136)
    assert found["tpot_s"]["coverage"] == "1 of 2 completed requests"
    assert found["ttft_s"]["median"] is None
    assert found["ttft_s"]["why"]["median"]
    assert request_timings([])["tpot_s"]["why"]["median"]
