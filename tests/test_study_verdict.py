"""The verdict of a study: its runs' own, and what only the study as a whole can show."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.study_check import check_study_folder
from analysis.study_check_view import command, entry_fields
from analysis.study_loading import load_study
from evidence.errors import EvidenceError
from tests.study_factory import At, make_study


def ask(study: Path) -> tuple[int, dict[str, Any], str]:
    code, report, lines = command(argparse.Namespace(run=study))
    json.dumps(report, allow_nan=False)
    assert not [line for line in lines if len(line) > 100 and "/" not in line]
    return code, report, " ".join(" ".join(lines).split())


def codes(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["code"], one["severity"]) for one in report["reasons"]}


def test_a_whole_study_of_valid_runs_is_valid(tmp_path: Path) -> None:
    code, report, said = ask(make_study(tmp_path))
    assert (code, report["verdict"], report["reasons"], report["sealed"]) == (0, "VALID", [], True)
    assert report["counts"] == {"done": 9}
    assert {one["verdict"] for one in report["runs"]} == {"VALID"}
    assert "Nothing limits what this study can show." in said


def test_an_arm_that_did_not_start_degrades_and_does_not_invalidate(tmp_path: Path) -> None:
    study = make_study(tmp_path, arms=("base", "bad"), failed={("bad", n): ("weights", "gone") for n in range(4)})
    code, report, said = ask(study)
    assert (code, report["verdict"]) == (0, "DEGRADED")
    assert codes(report) == {("cell_failed", "DEGRADED")}
    assert "bad (arm), pair 0: weights: gone" in said


def test_a_byte_changed_in_a_run_is_found_through_the_study(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "runs" / "run-001" / "workers" / "0" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n_prompt_tokens":20', b'"n_prompt_tokens":21', 1))
    code, report, said = ask(study)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert ("hash_differs", "INVALID") in codes(report)
    assert "run-001:" in said


def test_a_run_sealed_anew_is_found_by_the_study_s_own_seal_and_barred(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    file = study / "runs" / "run-001" / "seal.json"
    file.write_bytes(file.read_bytes().replace(b'"noticed":[]', b'"noticed":["all well"]', 1))
    code, report, _ = ask(study)
    assert code == 1
    assert ("hash_differs", "INVALID") in codes(report)
    material, _ = check_study_folder(study)
    assert [one.run.manifest.run_id for one in material.cells if one.barred] == ["run-001"]


def test_a_launch_log_changed_by_hand_bars_the_run_that_stands_on_it(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    (study / "launches" / "launch-003" / "engine.log").write_bytes(b"all well\n")
    code, _, said = ask(study)
    assert code == 1
    assert "launches/launch-003/engine.log" in said
    material, _ = check_study_folder(study)
    assert [one.index for one in material.cells if one.barred] == [3]


def test_a_study_without_its_seal_is_no_result(tmp_path: Path) -> None:
    code, report, _ = ask(make_study(tmp_path, seal=False))
    assert (code, report["verdict"], report["sealed"]) == (1, "INVALID", False)
    assert codes(report) == {("not_sealed", "INVALID")}


def test_a_run_that_belongs_to_another_arm_or_launch_does_not_stand_for_the_cell(tmp_path: Path) -> None:
    study = make_study(tmp_path, seal=False)
    file = study / "study.json"
    swapped = file.read_bytes().replace(b"runs/run-001", b"runs/run-00X").replace(b"runs/run-003", b"runs/run-001")
    file.write_bytes(swapped.replace(b"runs/run-00X", b"runs/run-003"))
    _, report, said = ask(study)
    assert ("cell_mismatch", "INVALID") in codes(report)
    assert "cell 1: its run says that it measured 'base', not 'fast'" in said
    assert "cell 3: its run cites launch-001, not launches/launch-003" in said


def test_one_run_in_two_cells_is_one_run(tmp_path: Path) -> None:
    study = make_study(tmp_path, seal=False)
    file = study / "study.json"
    file.write_bytes(file.read_bytes().replace(b"runs/run-004", b"runs/run-001"))
    _, report, said = ask(study)
    assert "runs/run-001 is the run of 2 cells" in said
    assert ("cell_mismatch", "INVALID") in codes(report)


def test_a_run_outside_the_study_s_folder_is_not_read(tmp_path: Path) -> None:
    study = make_study(tmp_path, seal=False)
    file = study / "study.json"
    file.write_bytes(file.read_bytes().replace(b'"runs/run-001"', b'"../../elsewhere"'))
    (lost,) = load_study(study).not_measured
    assert "lies outside the study's folder" in lost.symptom


def test_a_run_that_cannot_be_read_is_named_and_the_rest_stands(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    (study / "runs" / "run-001" / "manifest.json").write_bytes(b"{")
    code, report, said = ask(study)
    assert code == 1
    assert ("cell_unreadable", "INVALID") in codes(report)
    assert "manifest" in said
    assert len(report["runs"]) == 8


def test_a_study_without_a_control_or_with_one_launch_is_degraded(tmp_path: Path) -> None:
    _, report, _ = ask(make_study(tmp_path / "a", control=0))
    assert codes(report) == {("no_control", "DEGRADED")}
    _, report, _ = ask(make_study(tmp_path / "b", launches=1))
    assert codes(report) == {("one_launch", "DEGRADED")}


def test_a_baseline_that_was_never_measured_leaves_nothing_to_compare(tmp_path: Path) -> None:
    study = make_study(tmp_path, control=0, failed={("base", n): ("weights", "gone") for n in range(4)})
    code, report, _ = ask(study)
    assert code == 1
    assert ("baseline_not_measured", "INVALID") in codes(report)


def test_what_limits_a_run_is_said_of_that_run_in_its_scope(tmp_path: Path) -> None:
    def manifest(at: At) -> Mapping[str, Any]:
        return {"calibration": {"client_floor_s": {"ttft_s": 0.02}}} if at.pair == 2 else {}

    code, report, _ = ask(make_study(tmp_path, manifest=manifest))
    assert (code, report["verdict"]) == (0, "DEGRADED")
    assert {(one["code"], one["scope"], one["run_id"]) for one in report["reasons"]} == {
        ("client_floor", "latency", "run-005"),
        ("client_floor", "latency", "run-006"),
    }


def test_an_interrupted_attempt_left_in_the_folder_is_named(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    (study / "runs" / "run-old").mkdir()
    _, report, _ = ask(study)
    assert report["verdict"] == "VALID"
    assert report["notes"] == ["runs that no cell names (interrupted attempts): runs/run-old"]


def test_a_list_gives_a_study_its_verdict_and_counts(tmp_path: Path) -> None:
    found = entry_fields(make_study(tmp_path))
    assert (found["verdict"], found["n_completed"], found["codes"]) == ("VALID", 54, ())


def test_a_folder_without_a_study_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"has no study\.json"):
        ask(tmp_path)
