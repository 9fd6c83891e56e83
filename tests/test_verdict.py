"""Every row of the verdict's table, each as a sentence; the facts are given, the reasons are derived."""

from dataclasses import replace

import pytest

from analysis.facts import Finding, Floor, RunFacts, Unknown
from analysis.identity import arm_contradicted, model_differs
from analysis.lateness import Late
from analysis.verdict import REMEDIES, by_scope, judge, overall
from tests.run_factory import manifest, request

GOOD = RunFacts(sealed=True, planned=92, started=92, ended=92, measured_started=90, measured_completed=90)


def seen(facts: RunFacts) -> set[tuple[str, str, str]]:
    return {(reason.code, reason.severity, reason.scope) for reason in judge(facts)}


def test_a_whole_run_has_no_reason_and_is_valid() -> None:
    assert judge(GOOD) == ()
    assert overall(judge(GOOD)) == "VALID"
    assert set(by_scope(()).values()) == {"VALID"}


def test_a_folder_without_a_seal_is_not_a_result() -> None:
    assert ("not_sealed", "INVALID", "run") in seen(replace(GOOD, sealed=False))


def test_a_closed_folder_with_nothing_missing_is_degraded() -> None:
    assert seen(replace(GOOD, recovered=True)) == {("recovered", "DEGRADED", "run")}


def test_a_killed_run_stays_invalid_after_it_was_closed() -> None:
    facts = replace(GOOD, recovered=True, started=40, ended=39, measured_started=38, measured_completed=37)
    assert {("plan_incomplete", "INVALID", "run"), ("unfinished", "INVALID", "run")} <= seen(facts)


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("hash_problems", "hash_differs"),
        ("schema_problems", "schema_violated"),
        ("count_problems", "counts_do_not_balance"),
    ],
)
def test_a_damaged_folder_is_invalid_as_a_whole(field: str, code: str) -> None:
    facts = replace(GOOD, **{field: ("workers/0/requests.jsonl line 3",)})
    assert seen(facts) == {(code, "INVALID", "run")}
    assert "requests.jsonl line 3" in judge(facts)[0].seen


def test_a_half_written_end_is_named_with_its_bytes() -> None:
    facts = replace(GOOD, torn_bytes={"workers/0/health.jsonl": 17})
    assert seen(facts) == {("torn", "DEGRADED", "run")}
    assert "workers/0/health.jsonl (17 bytes)" in judge(facts)[0].seen


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        (code, Finding(code=code, scope="run", seen="x"))
        for code in ("restart", "foreign_traffic", "several_servers", "window_not_closed")
    ],
)
def test_an_unusable_window_is_invalid_as_a_whole(code: str, finding: Finding) -> None:
    reasons = judge(replace(GOOD, findings=(finding,)))
    assert [(reason.code, reason.severity, reason.scope) for reason in reasons] == [(code, "INVALID", "run")]
    assert set(by_scope(reasons).values()) == {"INVALID"}


@pytest.mark.parametrize(
    ("failed", "severity"),
    [
        ({"http_error": 1}, "DEGRADED"),
        ({"http_error": 1, "cancelled": 1}, "DEGRADED"),
        ({"http_error": 1, "cancelled": 2}, "INVALID"),
    ],
)
def test_up_to_two_lost_requests_degrade_and_three_of_ninety_invalidate(failed: dict[str, int], severity: str) -> None:
    facts = replace(GOOD, measured_completed=90 - sum(failed.values()), measured_failed=failed)
    assert seen(facts) == {("requests_failed", severity, "latency"), ("requests_failed", severity, "rate")}
    assert by_scope(judge(facts))["outputs"] == "VALID"


def test_three_lost_of_three_hundred_are_one_percent_and_no_more() -> None:
    facts = replace(
        GOOD, planned=302, started=302, ended=302, measured_started=300, measured_completed=297,
        measured_failed={"truncated": 3},
    )  # fmt: skip
    assert {severity for _, severity, _ in seen(facts)} == {"DEGRADED"}


def test_both_of_two_requests_failing_is_no_measurement_though_two_are_tolerated() -> None:
    facts = replace(
        GOOD, planned=2, started=2, ended=2, measured_started=2, measured_completed=0,
        measured_failed={"connect_refused": 2},
    )  # fmt: skip
    assert ("nothing_measured", "INVALID", "run") in seen(facts)


def test_a_failed_warm_up_is_said() -> None:
    assert seen(replace(GOOD, warmup_failed={"http_error": 1})) == {("warmup_failed", "DEGRADED", "latency")}


def test_without_any_token_count_rates_are_invalid_and_latencies_stand() -> None:
    facts = replace(GOOD, measured_completed=0, measured_failed={"no_usage": 90})
    verdicts = by_scope(judge(facts))
    assert ("no_token_counts", "INVALID", "rate") in seen(facts)
    assert (verdicts["rate"], verdicts["latency"], verdicts["run"]) == ("INVALID", "VALID", "VALID")


def test_a_completed_answer_without_a_count_invalidates_rates() -> None:
    assert seen(replace(GOOD, completed_without_count=1)) == {("no_token_counts", "INVALID", "rate")}


def test_an_unknown_first_chunk_degrades_rates() -> None:
    facts = replace(GOOD, first_chunk_unknown=4)
    assert seen(facts) == {("first_chunk_tokens_unknown", "DEGRADED", "rate")}
    assert "4 of 90" in judge(facts)[0].seen


def test_outputs_not_saved_invalidate_outputs_alone() -> None:
    verdicts = by_scope(judge(replace(GOOD, outputs_missing=("code_01",))))
    assert verdicts == {
        "run": "VALID",
        "latency": "VALID",
        "rate": "VALID",
        "acceptance": "VALID",
        "outputs": "INVALID",
    }


def test_an_unproven_cold_cache_invalidates_latency_and_rate() -> None:
    facts = replace(GOOD, cold_asked=True, cold_seen="24 of 58 prompt tokens of code_01 came from the cache")
    assert seen(facts) == {("cold_not_proven", "INVALID", "latency"), ("cold_not_proven", "INVALID", "rate")}
    assert seen(replace(facts, cold_proven=True)) == set()


@pytest.mark.parametrize("state", ["absent", "unmeasured"])
def test_missing_acceptance_degrades_a_speculative_arm_only(state: str) -> None:
    facts = replace(GOOD, acceptance_state=state, speculative=True)
    assert seen(facts) == {("acceptance_unmeasured", "DEGRADED", "acceptance")}
    assert seen(replace(facts, speculative=False)) == set()


@pytest.mark.parametrize("state", ["zero", "value"])
def test_zero_accepted_is_not_missing(state: str) -> None:
    assert seen(replace(GOOD, acceptance_state=state, speculative=True)) == set()


def test_an_engine_that_does_not_speculate_though_its_arm_says_so_is_invalid() -> None:
    facts = replace(
        GOOD, speculative=True, acceptance_state="value", speculation_refuted="/slots says speculative: false"
    )
    assert seen(facts) == {("does_not_speculate", "INVALID", "run")}


def test_forced_acceptance_is_invalid() -> None:
    assert seen(replace(GOOD, synthetic_acceptance="spec_synth_len = 3")) == {
        ("synthetic_acceptance", "INVALID", "run")
    }


def test_no_metrics_on_a_foreign_server_degrades_acceptance() -> None:
    facts = replace(GOOD, own_server=False, metrics_missing="HTTP 404 from http://h/metrics")
    assert seen(facts) == {("no_metrics", "DEGRADED", "acceptance")}
    assert "someone else" in judge(facts)[0].seen


@pytest.mark.parametrize(
    ("floor_s", "expected"),
    [
        (0.0100, set()),
        (0.0101, {("client_floor", "DEGRADED", "rate")}),
        (0.0501, {("client_floor", "INVALID", "rate")}),
    ],
)
def test_the_client_floor_is_judged_against_the_metric_it_concerns(
    floor_s: float, expected: set[tuple[str, str, str]]
) -> None:
    floor = Floor(metric="tpot_s", scope="rate", floor_s=floor_s, median_s=0.1)
    assert seen(replace(GOOD, floors=(floor,))) == expected


def test_a_stepped_wall_clock_degrades_and_the_error_of_reading_two_clocks_does_not() -> None:
    assert seen(replace(GOOD, clock_steps=(0.00004,))) == set()
    assert seen(replace(GOOD, clock_steps=(0.00004, -2.0))) == {("clock_stepped", "DEGRADED", "latency")}


@pytest.mark.parametrize(
    ("n_late", "lag_s", "severity"),
    [(9, 0.029, None), (9, 0.04, "DEGRADED"), (9, 0.2, "INVALID"), (2, 0.2, "DEGRADED")],
)
def test_a_late_client_limits_what_it_moved_by_how_late_it_was(n_late, lag_s, severity) -> None:
    late = Late(n_late=n_late, n_requests=90, lag_s=lag_s, moved="TTFT", median_s=0.3)
    expected = set() if severity is None else {("client_late", severity, "latency")}
    assert seen(replace(GOOD, late_for_latency=late)) == expected


def test_a_request_sent_again_degrades_latencies() -> None:
    assert seen(replace(GOOD, n_sent_again=1)) == {("sent_again", "DEGRADED", "latency")}


@pytest.mark.parametrize("what", ["container_digest", "model_revision", "version"])
def test_an_unidentified_part_degrades_the_run(what: str) -> None:
    unknown = Unknown(what=what, seen="not said by the server")
    assert seen(replace(GOOD, unknown=(unknown,))) == {(f"{what}_unknown", "DEGRADED", "run")}


def test_the_heaviest_reason_comes_first_and_every_reason_has_a_remedy() -> None:
    reasons = judge(replace(GOOD, sealed=False, first_chunk_unknown=1, recovered=True, outputs_missing=("a",)))
    assert [reason.severity for reason in reasons] == sorted((r.severity for r in reasons), reverse=True)
    assert all(reason.remedy == REMEDIES[reason.code] and reason.seen for reason in reasons)


def test_a_server_that_says_otherwise_than_its_arm_makes_the_run_invalid() -> None:
    assert seen(replace(GOOD, arm_contradicted="the server says draft-simple")) == {
        ("arm_contradicted", "INVALID", "run")
    }


@pytest.mark.parametrize(
    ("asked", "says", "mode", "contradicted"),
    [
        (["none"], True, "draft-simple", True),
        (["ngram-simple"], True, "draft-simple", True),
        (["draft-simple"], True, "draft-simple", False),
        (["none"], False, None, False),
        (["ngram-simple"], True, None, False),
        (["none"], None, None, False),
    ],
)
def test_an_arm_is_contradicted_by_what_the_server_says_of_itself(asked, says, mode, contradicted) -> None:
    arm = {"name": "cpu-tiny", "engine": "llama.cpp embedded", "args": {"speculative.types": asked}}
    server = {"engine": "llama.cpp", "speculative": says, "speculative_mode": mode}
    found = arm_contradicted(manifest([], arm=arm, server=server), None)
    assert (found is not None) == contradicted


def test_a_model_that_was_not_asked_for_degrades_the_run() -> None:
    assert seen(replace(GOOD, model_differs="other")) == {("model_differs", "DEGRADED", "run")}


@pytest.mark.parametrize(
    ("asked", "listed", "named", "differs"),
    [
        ("tiny", None, ("tiny",), False),
        ("tiny", None, ("/models/Tiny.gguf",), False),
        ("org/Tiny-1.5", None, ("tiny-1.5",), False),
        ("tiny-1.5", None, ("tiny-1.0",), True),
        ("big", None, ("tiny",), True),
        ("big", "big", ("tiny",), False),
        ("tiny", "tiny", ("tiny", "small"), True),
        (None, None, ("tiny",), False),
        ("tiny", None, (None,), False),
    ],
)
def test_the_model_the_answers_name_is_held_against_the_one_asked(
    asked: str | None, listed: str | None, named: tuple[str | None, ...], differs: bool
) -> None:
    answers = [request(model_served=name) for name in named]
    found = model_differs(manifest([], model={"asked": asked, "served": listed}), answers)
    assert (found is not None) == differs


def test_requests_that_the_stop_cut_off_are_not_called_the_slow_part() -> None:
    facts = replace(GOOD, measured_completed=87, measured_failed={"cancelled": 3})

    def remedy(facts: RunFacts) -> str:
        return next(one.remedy for one in judge(facts) if one.code == "requests_failed")

    stopped = replace(facts, stopped="stopped by SIGTERM in the middle of users=2")
    assert "slow part" in remedy(facts)
    assert "slow part" not in remedy(stopped) and "its stop cut these requests off" in remedy(stopped)
    assert seen(stopped) == seen(facts)
    assert "slow part" in remedy(replace(stopped, measured_failed={"cancelled": 2, "http_error": 1}))
