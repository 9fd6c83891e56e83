"""``outputs``: one run judged, two runs compared, and a study's arms beside what the baseline does to itself."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.outputs import Known, judge_answers
from analysis.outputs_command import command
from tests.run_factory import numbered, planned, request
from tests.study_factory import At, make_study, same_text

JSON_CHECK = {"kind": "json_schema", "schema": {"type": "object", "required": ["name"]}}


def ask(*paths: Path) -> tuple[int, dict[str, Any], str]:
    code, report, lines = command(argparse.Namespace(run=list(paths)))
    json.dumps(report, allow_nan=False)
    assert not [line for line in lines if len(line) > 100 and "/" not in line]
    return code, report, " ".join(" ".join(lines).split())


def odd(at: At) -> str:
    """The arm says two prompts otherwise from character 8 on; the control one of them too."""
    other = at.prompt in {"arm": ("code_01", "json_01"), "control": ("json_01",)}.get(at.role, ())
    return same_text(at).replace("says", "SAYS") if other else same_text(at)


def test_a_study_s_arms_are_compared_with_the_baseline_beside_its_own_disagreement(tmp_path: Path) -> None:
    code, report, said = ask(make_study(tmp_path, text=odd, control=2))
    assert code == 0
    (fast,) = report["arms"]
    assert (fast["outputs_compared"], fast["outputs_equal"]) == (24, 16)
    assert fast["outputs_class"] == "differs more than the control"
    assert report["control"] == {
        "source": "control launches", "outputs_compared": 12, "outputs_equal": 10, "differing_prompts": ["json_01"],
        "n_length_differs": 0, "n_finish_reason_differs": 0,
    }  # fmt: skip
    prompts = {one["prompt_id"]: one for one in fast["prompts"]}
    assert prompts["code_01"]["first_divergence_char"] == 8
    assert prompts["code_01"]["first_divergence_token"] == (5, 5)
    assert (prompts["json_01"]["control_n_equal"], prompts["json_01"]["control_n_compared"]) == (0, 2)
    assert len(fast["pairs"]) == 24
    assert "16 of 24 answers equal: differs more than the control" in said


def test_task_checks_of_both_sides_stand_beside_by_domain(tmp_path: Path) -> None:
    def text(at: At) -> str:
        good, bad = '{"name": "Ada Lovela"}', '{"title": "Ada Lovel"}'
        return (bad if at.arm == "fast" else good) if at.prompt == "json_01" else same_text(at)

    _, report, said = ask(make_study(tmp_path, text=text, checks={"json_01": JSON_CHECK}))
    (fast,) = report["arms"]
    assert fast["judged_by_domain"]["json"]["arm"] == {"n_answers": 8, "n_judged": 4, "n_valid": 0, "n_cut": 0}
    assert fast["judged_by_domain"]["json"]["baseline"]["n_valid"] == 4
    assert "json: valid 0 of 4 judged (0 cut), the baseline's 4 of 4" in said


def test_lengths_and_finish_reasons_that_differ_are_counted(tmp_path: Path) -> None:
    def changes(at: At) -> Mapping[str, Any]:
        return {"finish_reason": "length"} if (at.arm, at.prompt) == ("fast", "code_01") else {}

    def text(at: At) -> str:
        return same_text(at)[:14] if (at.arm, at.prompt) == ("fast", "code_01") else same_text(at)

    _, report, _ = ask(make_study(tmp_path, text=text, changes=changes))
    (fast,) = report["arms"]
    code_01 = next(one for one in fast["prompts"] if one["prompt_id"] == "code_01")
    assert (code_01["n_length_differs"], code_01["n_finish_reason_differs"]) == (4, 4)
    assert (code_01["first_divergence_char"], code_01["first_divergence_token"]) == (14, (8, 8))


def test_an_arm_that_failed_has_no_outputs_and_says_why(tmp_path: Path) -> None:
    study = make_study(tmp_path, arms=("base", "bad"), failed={("bad", n): ("weights", "gone") for n in range(4)})
    code, report, said = ask(study)
    assert (code, report["arms"][0]["outputs_class"]) == (1, None)
    assert "bad: not compared: not measured: weights: gone" in said


def test_outputs_that_were_changed_after_the_seal_are_not_compared(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "runs" / "run-001" / "workers" / "0" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b"says", b"SAYS", 1))
    _, report, said = ask(study)
    assert report["arms"][0]["outputs_compared"] == 18
    assert "not used: run-001 is INVALID" in said


def test_runs_that_differ_by_accident_are_compared_with_the_keys_named(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        fraction = 0.85 if at.arm == "fast" else 0.82
        return {"arm": {"name": at.arm, "engine": "x", "args": {"mem_fraction_static": fraction}}}

    _, report, said = ask(make_study(tmp_path, manifest=manifest))
    assert report["arms"][0]["outputs_compared"] == 24
    assert "memory.mem_fraction_static: 0.82 against 0.85" in said


def test_two_runs_are_compared_with_the_token_at_which_they_part(tmp_path: Path) -> None:
    study = make_study(tmp_path, text=odd)
    _, report, said = ask(study / "runs" / "run-000", study / "runs" / "run-001")
    assert (report["outputs_compared"], report["outputs_equal"]) == (6, 4)
    parted = [one for one in report["prompts"] if not one["equal"]]
    assert {tuple(one["first_divergence_token"]) for one in parted} == {(5, 5)}
    assert "visible text differs at character 8, token 5" in said


def test_one_run_is_judged(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    code, report, _ = ask(study / "runs" / "run-000")
    assert code == 0
    assert report["run_id"] == "run-000"
    assert len(report["answers"]) == 6


def test_more_than_two_runs_or_a_study_beside_another_folder_is_a_plain_error(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    run = study / "runs" / "run-000"
    for paths in ((run, run, run), (study, run)):
        with pytest.raises(AnalysisError) as refused:
            ask(*paths)
        assert refused.value.exit_code == 2


def test_one_answer_is_judged_once_for_all_runs_and_by_its_own_check(tmp_path: Path) -> None:
    requests = numbered([request(prompt_id="json_01", output_text='{"name": 1}')])
    plans = [
        {line.plan_id: line.model_dump(mode="json")}
        for line in (planned(requests[0], 0, check=check) for check in (JSON_CHECK, JSON_CHECK | {"schema": False}))
    ]
    known = Known()
    assert [judge_answers(requests, plan, known)[0].ok for plan in plans] == [True, False]
    assert len(known) == 2
    judge_answers(requests, plans[0], known)
    assert len(known) == 2
