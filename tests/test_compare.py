"""``compare``: a study's arms against its baseline, or runs paired by hand; what is refused, left out and named."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import compare
from analysis.errors import AnalysisError
from analysis.report_decision import decide
from analysis.tables import running, wrapped
from evidence.errors import EvidenceError
from tests.run_factory import make_run, request
from tests.study_factory import At, make_study, same_text, steady
from tests.test_comparison import CONTRACT

JSON_CHECK = {"kind": "json_schema", "schema": {"type": "object", "required": ["name"]}}


def ask(*argv: str | Path) -> tuple[int, dict[str, Any], list[str]]:
    parser = argparse.ArgumentParser()
    compare.add_arguments(parser)
    code, report, lines = compare.command(parser.parse_args([str(one) for one in argv]))
    json.dumps(report, allow_nan=False)
    assert not [line for line in lines if len(line) > 100 and "/" not in line]  # a path is not broken
    return code, report, lines


def arm(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in report["arms"] if one["arm"] == name)


def text_of(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def nearly_the_same(at: At) -> float:
    """Launches that differ by half a per mille or so, in every arm."""
    launch = (at.pair * 2 + 3 * at.pair * (at.arm == "same")) % 4
    return steady(at._replace(arm="base", role="baseline")) * (1 + 0.0005 * launch)


def test_a_study_gives_every_key_of_each_arm_with_the_interval_over_launches(tmp_path: Path) -> None:
    code, report, lines = ask(make_study(tmp_path, arms=("base", "fast", "slow")))
    assert code == 0
    assert {"baseline", "control", "arms"} <= set(report)
    assert report["baseline"] == "base"
    for one in (*report["arms"], report["control"]):
        assert set(CONTRACT) <= set(one)
    fast, slow = report["arms"]
    assert (fast["n_pairs"], fast["n_launches"], fast["scope"]) == (24, 4, "launches")
    assert fast["ratio"] == pytest.approx(1.5, rel=0.02)
    assert fast["interval"][0] < fast["ratio"] < fast["interval"][1]
    assert (fast["verdict"], slow["verdict"]) == ("faster", "slower")
    assert set(fast["by_domain"]) == {"code", "json", "prose"}
    assert (fast["outputs_equal"], fast["outputs_compared"], fast["outputs_class"]) == (24, 24, "identical")
    assert "hardware: client, Test CPU, 2 cores" in text_of(lines)
    assert "240 prompt tokens" not in text_of(lines)
    assert "120 prompt tokens a launch (server's count)" in text_of(lines)


def test_the_control_stands_beside_the_arms_with_its_own_ratio_interval_and_disagreement(tmp_path: Path) -> None:
    def text(at: At) -> str:
        return same_text(at).replace("s", "z") if at.role == "control" and at.prompt == "code_01" else same_text(at)

    _, report, lines = ask(make_study(tmp_path, control=3, text=text))
    control = report["control"]
    assert (control["n_launches"], control["outputs_compared"], control["outputs_equal"]) == (3, 18, 15)
    assert control["outputs_class"] == "differs from itself"
    assert control["interval"] is not None
    assert report["own_disagreement"] == {
        "source": "control launches", "outputs_compared": 18, "outputs_equal": 15,
    }  # fmt: skip
    assert arm(report, "fast")["beyond_control"] is True
    assert "15 of 18 equal" in text_of(lines)


def test_an_arm_differs_more_than_the_control_only_where_the_control_agrees(tmp_path: Path) -> None:
    def text(at: At) -> str:
        own = at.role == "control" or at.arm == "fast"
        return same_text(at).replace("says", "SAYS") if own and at.prompt == "code_01" else same_text(at)

    _, report, _ = ask(make_study(tmp_path, control=4, text=text))
    assert arm(report, "fast")["outputs_class"] == "as the control differs"
    assert arm(report, "fast")["by_domain"]["json"]["outputs_class"] == "identical"
    assert arm(report, "fast")["by_domain"]["code"]["outputs_class"] == "as the control differs"


def test_without_a_control_the_baseline_s_launches_among_themselves_are_named_as_the_measure(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path, control=0))
    assert report["control"] is None
    assert report["why"]["control"] == "the study has no control launch"
    assert report["own_disagreement"]["source"] == "the baseline's launches against each other"
    assert report["own_disagreement"]["outputs_compared"] == 18
    assert "the study has no control launch" in text_of(lines)


def test_one_launch_is_prompts_only_and_claims_nothing_of_the_system(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path, launches=1))
    fast = arm(report, "fast")
    assert (fast["scope"], fast["interval"], fast["mde"]) == ("prompts only", None, None)
    assert fast["verdict"] == "not resolved"
    said = text_of(lines)
    assert "fast: prompts only: ratio 1." in said
    assert "one launch says nothing about the system" in said
    assert "would stay unseen" in said or "least detectable difference is not known" in said


def test_what_would_stay_unseen_stands_beside_no_difference_and_not_resolved(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path / "a", arms=("base", "same"), rate=nearly_the_same))
    assert arm(report, "same")["verdict"] == "no difference"
    assert f"a difference below {arm(report, 'same')['mde']:.2%}".rstrip("%") in text_of(lines)
    assert "would stay unseen (power 80 %)" in text_of(lines)

    def rate(at: At) -> float:
        return steady(at) * (1 + 0.1 * ((at.pair % 2) - 0.5) * (at.arm == "noisy"))

    _, report, lines = ask(make_study(tmp_path / "b", arms=("base", "noisy"), rate=rate))
    assert arm(report, "noisy")["verdict"] == "not resolved"
    assert "would stay unseen (power 80 %)" in text_of(lines)


def test_the_margin_that_makes_a_difference_none_can_be_set_and_must_be_a_share(tmp_path: Path) -> None:
    study = make_study(tmp_path, arms=("base", "same"), rate=nearly_the_same)
    assert arm(ask(study, "--margin", "0.0001")[1], "same")["verdict"] == "not resolved"
    with pytest.raises(SystemExit) as stop:
        ask(study, "--margin", "nan")
    assert stop.value.code == 2


@pytest.mark.parametrize(("gate", "code"), [("1.2", 0), ("1.6", 1)])
def test_a_gate_asks_the_interval_of_every_arm(tmp_path: Path, gate: str, code: int) -> None:
    study = make_study(tmp_path)
    found, report, lines = ask(study, "--min-ratio", gate)
    assert (found, report["gate"]["met"]) == (code, code == 0)
    assert report["gate"]["arms"][0]["outputs_class"] == "identical"
    assert ("NOT met" in text_of(lines)) == bool(code)


def test_a_gate_is_not_met_by_an_arm_that_did_not_run_nor_by_one_launch(tmp_path: Path) -> None:
    lost = {("bad", pair): ("weights", "no such file") for pair in range(4)}
    code, report, _ = ask(make_study(tmp_path / "a", arms=("base", "fast", "bad"), failed=lost), "--min-ratio", "1.1")
    assert code == 1
    assert [one["met"] for one in report["gate"]["arms"]] == [True, False]
    code, report, _ = ask(make_study(tmp_path / "b", launches=1), "--min-ratio", "1.1")
    assert code == 1
    assert "one launch" in report["gate"]["arms"][0]["because"]


def test_an_arm_that_failed_is_not_measured_with_stage_symptom_and_folder(tmp_path: Path) -> None:
    lost = {("bad", pair): ("first_answer", "vocabularies differ:\n49152 and 50000") for pair in range(4)}
    code, report, lines = ask(make_study(tmp_path, arms=("base", "fast", "bad"), failed=lost))
    assert code == 0
    bad = arm(report, "bad")
    assert bad["ratio"] is bad["interval"] is bad["verdict"] is None
    assert bad["not_measured"]["stage"] == "first_answer"
    assert bad["not_measured"]["symptom"] == "vocabularies differ:\n49152 and 50000"
    assert bad["not_measured"]["cause"] is None
    assert Path(bad["not_measured"]["folder"]).is_dir()
    assert len(bad["not_run"]) == 4
    assert "bad: not measured: first_answer: vocabularies differ" in text_of(lines)


def test_a_pair_whose_cell_failed_is_left_out_and_named(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path, failed={("fast", 2): ("ready", "died")}))
    fast = arm(report, "fast")
    assert (fast["n_launches"], fast["n_pairs"]) == (3, 18)
    assert [(one["pair"], one["stage"]) for one in fast["not_run"]] == [(2, "ready")]
    assert "pair 2: failed, ready: died" in text_of(lines)


def test_a_baseline_cell_that_failed_takes_its_pair_from_every_arm(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path, failed={("base", 1): ("ready", "died")}))
    assert arm(report, "fast")["n_launches"] == 3
    assert "the baseline measured nothing in it" in text_of(lines)
    assert report["baseline_not_run"][0]["pair"] == 1


def test_a_dropped_cell_is_said_to_be_dropped(tmp_path: Path) -> None:
    _, report, lines = ask(make_study(tmp_path, dropped=[("base", 3), ("fast", 3)]))
    assert arm(report, "fast")["n_launches"] == 3
    assert arm(report, "fast")["not_run"][0]["state"] == "dropped"
    assert "the budget of 5 minutes would be passed" in text_of(lines)


def test_a_planned_study_has_no_ratio_and_no_estimate_among_measurements(tmp_path: Path) -> None:
    code, report, lines = ask(make_study(tmp_path, status="planned", seal=False))
    assert code == 1
    assert (report["arms"], report["control"], report["planned"]) == ([], None, ["fast"])
    assert "planned, not measured: fast" in text_of(lines)


def test_prompts_that_differ_between_the_runs_are_refused_by_name(tmp_path: Path) -> None:
    def run(at: At) -> Mapping[str, Any]:
        return {"texts": {"json_02": "Another question."}} if at.arm == "fast" else {}

    code, report, lines = ask(make_study(tmp_path, arms=("base", "fast", "slow"), run=run))
    fast = arm(report, "fast")
    assert code == 1
    assert fast["ratio"] is fast["verdict"] is None
    assert fast["comparable"]["keys"] == ["workload"]
    assert "workload" in fast["refused"]
    assert "prompts with another text: json_02" in fast["refused"]
    assert arm(report, "slow")["verdict"] == "slower"
    assert "fast: refused: not comparable with base" in text_of(lines)


def test_a_setting_that_differs_by_accident_refuses_with_both_values(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        fraction = 0.85 if at.arm == "fast" else 0.82
        return {"arm": {"name": at.arm, "engine": "x", "args": {"mem_fraction_static": fraction}}}

    code, report, _ = ask(make_study(tmp_path, manifest=manifest))
    assert code == 1
    assert "memory.mem_fraction_static: 0.82 against 0.85" in arm(report, "fast")["refused"]


def test_launches_of_one_arm_on_two_engine_versions_are_refused(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        return {"model": {"asked": "tiny", "file_sha256": ("ab" if at.pair < 2 else "ef") * 32, "quantisation": "F32"}}

    code, report, _ = ask(make_study(tmp_path, manifest=manifest))
    assert code == 1
    assert "base, pairs 0 and 2: checkpoint" in arm(report, "fast")["refused"]


def test_a_study_that_went_on_on_another_machine_is_compared_and_says_so(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        cpu = "Other CPU" if at.pair > 1 else "Test CPU"
        return {"hardware": {"server_cpu_model": cpu, "server_cores": 2, "server_on_this_host": False}}

    code, report, lines = ask(make_study(tmp_path, manifest=manifest))
    assert (code, arm(report, "fast")["verdict"]) == (0, "faster")
    assert any("hardware.server_cpu_model" in one for one in arm(report, "fast")["comparable"]["over_launches"])
    assert "over launches: base, pairs 0 and 2" in text_of(lines)


def test_a_run_edited_by_hand_enters_no_comparison_and_is_named(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "runs" / "run-001" / "workers" / "0" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n_prompt_tokens":20', b'"n_prompt_tokens":21', 1))
    _, report, lines = ask(study)
    fast = arm(report, "fast")
    assert fast["n_launches"] == 3
    assert [(one["run_id"], one["scope"]) for one in fast["excluded"]] == [("run-001", "run")]
    assert "not used: run-001 is INVALID" in text_of(lines)
    assert "hash_differs" in text_of(lines)


def test_a_run_invalid_for_latency_alone_keeps_its_rates(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        return {"calibration": {"client_floor_s": {"ttft_s": 0.08}}} if (at.arm, at.pair) == ("fast", 0) else {}

    _, report, lines = ask(make_study(tmp_path, manifest=manifest))
    fast = arm(report, "fast")
    assert fast["n_launches"] == 4
    assert [(one["run_id"], one["scope"]) for one in fast["excluded"]] == [("run-001", "latency")]
    assert fast["distributions"]["fast"]["ttft_s"]["n"] == 18
    assert fast["distributions"]["fast"]["decode_tok_per_s"]["n"] == 24
    assert "no latency number from this run: run-001 is INVALID for latency: client_floor" in text_of(lines)


def test_a_run_invalid_for_rate_gives_latencies_and_no_rate(tmp_path: Path) -> None:
    def changes(at: At) -> Mapping[str, Any]:
        uncounted = {"n_completion_tokens": None, "token_source": None}
        return uncounted if (at.arm, at.pair) == ("fast", 0) else {}

    _, report, _ = ask(make_study(tmp_path, changes=changes))
    fast = arm(report, "fast")
    assert fast["n_launches"] == 3
    assert fast["distributions"]["fast"]["ttft_s"]["n"] == 24
    assert {one["scope"] for one in fast["excluded"]} == {"rate"}


def test_an_arm_without_a_completed_request_has_no_number_and_a_reason(tmp_path: Path) -> None:
    def changes(at: At) -> Mapping[str, Any]:
        return {"outcome": "http_error", "finish_reason": None} if at.arm == "fast" else {}

    code, report, lines = ask(make_study(tmp_path, changes=changes))
    fast = arm(report, "fast")
    assert code == 1
    assert fast["ratio"] is fast["interval"] is None
    assert (fast["verdict"], fast["n_pairs"]) == ("not resolved", 0)
    assert "nothing_measured" in fast["why"]["ratio"]
    assert "fast: no ratio: run-001 is INVALID" in text_of(lines)


def test_a_run_of_another_schema_version_is_not_read_and_is_named(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "runs" / "run-001" / "manifest.json"
    file.write_bytes(file.read_bytes().replace(b'"schema_version":1', b'"schema_version":2', 1))
    _, report, _ = ask(study)
    fast = arm(report, "fast")
    assert fast["n_launches"] == 3
    (lost,) = fast["not_run"]
    assert lost["stage"] == "read"
    assert "version 2" in lost["symptom"] or "version of this program" in lost["symptom"]


def test_a_study_of_another_version_or_with_a_nan_is_refused_as_unreadable(tmp_path: Path) -> None:
    study = make_study(tmp_path / "a", seal=False)
    file = study / "study.json"
    whole = file.read_bytes()
    for old, new in ((b'"schema_version":1', b'"schema_version":2'), (b'"took_s":10.0', b'"took_s":NaN')):
        file.write_bytes(whole.replace(old, new, 1))
        with pytest.raises(EvidenceError) as refused:
            ask(study)
        assert refused.value.exit_code == 2


def test_a_study_record_changed_after_its_seal_is_compared_with_nothing(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "study.json"
    file.write_bytes(file.read_bytes().replace(b'"role":"control"', b'"role":"baseline"', 1))
    code, report, lines = ask(study)
    assert (code, report["arms"]) == (1, [])
    assert "hash_mismatch" in report["refused"]
    assert "Nothing is compared" in text_of(lines)


def test_a_study_with_one_arm_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="no other arm") as refused:
        ask(make_study(tmp_path, arms=("base",)))
    assert refused.value.exit_code == 2


def test_a_study_without_its_seal_is_preliminary(tmp_path: Path) -> None:
    code, report, lines = ask(make_study(tmp_path, seal=False))
    assert (code, report["study"]["sealed"]) == (0, False)
    assert "Preliminary: the study has no seal" in text_of(lines)


def test_unequal_lengths_leave_per_token_measures_alone(tmp_path: Path) -> None:
    def text(at: At) -> str:
        return same_text(at)[:14] if (at.arm, at.prompt) == ("fast", "code_01") else same_text(at)

    _, report, lines = ask(make_study(tmp_path, text=text))
    fast = arm(report, "fast")
    assert fast["e2e_ratio"] is None
    assert fast["n_lengths_differ"] == 4
    assert fast["ratio"] == pytest.approx(1.5, rel=0.02)
    assert "4 differ in length" in text_of(lines)


def test_a_ratio_over_equal_or_valid_answers_only_says_so(tmp_path: Path) -> None:
    def text(at: At) -> str:
        if at.arm == "fast" and at.prompt == "code_01":
            return same_text(at).replace("says", "SAYS")
        if at.prompt.startswith("json"):
            return '{"name": "Ada Lovela"}' if at.prompt == "json_01" or at.arm == "base" else '{"title": "Ada Lov"}'
        return same_text(at)

    checks = {"json_01": JSON_CHECK, "json_02": JSON_CHECK}
    study = make_study(tmp_path, text=text, checks=checks)
    fast = arm(ask(study)[1], "fast")
    assert (fast["n_judged"], fast["n_valid"]) == (8, 4)
    assert fast["by_domain"]["json"]["baseline_n_valid"] == 8
    _, report, lines = ask(study, "--only", "equal")
    fast = arm(report, "fast")
    assert (fast["subset"], fast["n_prompts"]) == ("pairs whose answers are equal", 4)
    assert "over pairs whose answers are equal" in text_of(lines)
    _, report, lines = ask(study, "--only", "valid")
    assert arm(report, "fast")["coverage"]["n_prompts"] == 1
    assert "valid 4 of 8 judged, the baseline's 8 of 8" in text_of(lines)


def test_no_pair_of_equal_answers_is_no_ratio_and_exits_with_1(tmp_path: Path) -> None:
    code, report, _ = ask(make_study(tmp_path, text=lambda at: f"{at.arm} {same_text(at)}"), "--only", "equal")
    assert code == 1
    assert arm(report, "fast")["ratio"] is None
    assert "outside the pairs asked for" in arm(report, "fast")["because"]


def test_percentiles_stand_above_their_floors_only(tmp_path: Path) -> None:
    prompts = [f"code_{n:02d}" for n in range(1, 19)]
    _, report, lines = ask(make_study(tmp_path, prompts=prompts, control=0))
    spread = arm(report, "fast")["distributions"]["fast"]["ttft_s"]
    assert (spread["n"], spread["p95"]) == (72, None)
    assert spread["p90"] is not None
    assert spread["why"]["p95"] == "p95 needs 130 values, there are 72"
    assert "p95 needs 130 values, there are 72" in text_of(lines)


def test_a_rate_that_drifts_with_order_is_shown(tmp_path: Path) -> None:
    prompts = [f"code_{n:02d}" for n in range(1, 9)]
    study = make_study(tmp_path, prompts=prompts, rate=lambda at: steady(at) * (1 - 0.02 * at.place))
    _, report, lines = ask(study)
    order = arm(report, "fast")["order"]
    assert order["baseline"]["seen"] is True
    assert order["baseline"]["per_request"] < -0.015
    assert order["ratio"]["seen"] is False
    shown = next(line for line in lines[lines.index("Order and warm-up") :] if line.startswith("base "))
    assert "seen" in shown
    assert "not seen" not in shown


def test_a_first_pass_slower_than_later_ones_says_that_the_warm_up_did_not_suffice(tmp_path: Path) -> None:
    study = make_study(tmp_path, passes=2, rate=lambda at: steady(at) * (1.0 if at.nth else 0.8))
    _, report, lines = ask(study)
    warm = arm(report, "fast")["order"]["warm_up"]["arm"]
    assert warm["first_ratio"] == pytest.approx(0.8, rel=0.02)
    assert warm["sufficed"] is False
    assert "NOT enough" in text_of(lines)


def test_acceptance_cycle_cost_and_break_even_stand_beside_a_speculative_arm(tmp_path: Path) -> None:
    def changes(at: At) -> Mapping[str, Any]:
        return {"timings": {"draft_n": 8, "draft_n_accepted": 4}} if at.arm == "fast" else {}

    study = make_study(tmp_path, arms=("base", "fast", "slow"), changes=changes, speculative=("fast",))
    _, report, lines = ask(study)
    fast, slow = report["arms"]
    assert (fast["acceptance"]["state"], fast["acceptance"]["rate"]) == ("value", 0.5)
    assert fast["acceptance"]["by_domain"]["code"]["n_drafted"] == 64
    cost = fast["cycle_cost"]
    assert cost["tokens_per_step"] == pytest.approx(9 / 5)
    assert cost["cost"] == pytest.approx(9 / 5 / fast["other_ratios"]["total_token_ratio"])
    assert cost["cost_interval"] is not None
    assert cost["pays"] is True
    assert (slow["cycle_cost"], slow["why"]["cycle_cost"]) == (None, "the arm does not speculate")
    assert slow["acceptance"]["state"] == "absent"
    assert "break-even" in text_of(lines)
    (family,) = report["draft_cost"]["families"].values()
    assert "not separable" in family["parts"]["why"]


def test_long_names_leave_every_table_readable_at_100_columns(tmp_path: Path) -> None:
    def text(at: At) -> str:
        return same_text(at) + "!!" * (at.arm != "a-baseline-with-a-name-of-forty-characters")

    arms = ("a-baseline-with-a-name-of-forty-characters", "an-arm-with-a-name-that-goes-on-for-forty-characters")
    prompts = [f"a-domain-of-many-characters_{n:02d}" for n in range(12)]
    study = make_study(
        tmp_path,
        arms=arms,
        prompts=prompts,
        text=text,
        passes=2,
        launches=3,
        speculative=arms[1:],
        changes=lambda at: {"timings": {"draft_n": 8, "draft_n_accepted": 4}} if at.arm in arms[1:] else {},
        rate=lambda at: steady(at) * (1 + 0.3 * (at.pair == 1) * (at.place % 3)),
    )
    _, report, lines = ask(study, "--min-ratio", "0.5")
    assert report["arms"][0]["cycle_cost"]["cost"] is not None
    assert report["arms"][0]["outputs_equal"] == 0
    assert max(len(line) for line in lines) <= 100


def test_runs_named_by_hand_are_paired_in_the_order_given(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    runs = [study / "runs" / f"run-{n:03d}" for n in (0, 3, 5, 1, 4, 6)]
    code, report, lines = ask("--base", *runs[:3], "--against", *runs[3:])
    fast = arm(report, "fast")
    assert (code, report["study"], report["control"]) == (0, None, None)
    assert (fast["n_launches"], fast["scope"], fast["verdict"]) == (3, "launches", "faster")
    assert "Runs paired in the order given, baseline base" in text_of(lines)
    code, report, _ = ask("--base", *runs[:3], "--against", runs[4], runs[3], runs[5])
    assert code == 1
    assert "workload" in report["arms"][0]["comparable"]["keys"]


def test_runs_of_one_launch_are_one_launch_however_many_there_are(tmp_path: Path) -> None:
    requests = [request(prompt_id=f"code_0{n}", chunks=[(0.1, 0, 1, 5), (0.3 + n / 100, 1, 2, 5)]) for n in (1, 2, 3)]
    base = [make_run(tmp_path, requests, run_id=f"run-b{n}", launch_id="launch-1") for n in range(3)]
    other = [make_run(tmp_path, requests, run_id=f"run-a{n}", launch_id=f"launch-{n + 2}") for n in range(3)]
    _, report, lines = ask("--base", *base, "--against", *other)
    (entry,) = report["arms"]
    assert (entry["scope"], entry["n_launches"], entry["n_requests"]) == ("prompts only", 1, 9)
    assert "pairs 0, 1, 2 are one launch" in text_of(lines)


def test_servers_that_tell_no_launch_apart_are_one_launch(tmp_path: Path) -> None:
    requests = [request(prompt_id=f"code_0{n}") for n in (1, 2, 3)]
    runs = [make_run(tmp_path, requests, run_id=f"run-{n}", arm=None, label="theirs") for n in range(4)]
    _, report, _ = ask("--base", *runs[:2], "--against", *runs[2:])
    assert report["arms"][0]["scope"] == "prompts only"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "either the folder of one study, or runs"),
        (["--base", "run-a"], "either the folder of one study, or runs"),
        (["study-x", "--base", "run-a", "--against", "run-b"], "either the folder of one study, or runs"),
        (["--base", "run-a", "run-b", "--against", "run-c"], "--base names 2 runs and --against 1"),
        (["--base", "run-a", "--against", "run-a"], "named more than once"),
        (["run-a", "run-b"], "two runs are compared by --base run-a --against run-b"),
        (["run-a", "run-b", "run-c"], r"give one of: compare STUDY; compare --base RUN... --against RUN..."),
    ],
)
def test_what_cannot_be_paired_is_said_plainly(argv: list[str], said: str) -> None:
    with pytest.raises(AnalysisError, match=said) as refused:
        ask(*argv)
    assert refused.value.exit_code == 2


def test_a_folder_that_is_no_study_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"has no study\.json"):
        ask(tmp_path)


def test_a_run_in_the_place_of_a_study_is_said_to_need_another_one(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"is a run and no study; name the run to compare it with: compare --base"):
        ask(make_run(tmp_path, [request()]))


def test_a_baseline_that_differs_from_itself_is_said_plainly_by_one_launch_too(tmp_path: Path) -> None:
    def slow_control(at: At) -> float:
        return steady(at) * (0.68 + 0.02 * (sum(map(ord, at.prompt)) % 3) if at.role == "control" else 1.0)

    _, report, lines = ask(make_study(tmp_path, rate=slow_control, launches=1, control=1))
    said = f"The baseline differed from itself by {1 - report['control']['ratio']:.0%}".replace("%", " %")
    assert report["control"]["scope"] == "prompts only"
    assert f"{said} (ratio" in text_of(lines) and "no difference of that size means anything here" in text_of(lines)
    assert f"{said} (ratio" in decide(report)[0].limits[0]
    _, _, lines = ask(make_study(tmp_path / "other", control=3))
    assert "differed from itself" not in text_of(lines)


def test_a_symptom_of_several_lines_is_shown_without_their_breaks() -> None:
    assert running("first\nsecond\x1b") == "first second\\x1b"
    assert wrapped("first\nsecond") == ["first second"]
