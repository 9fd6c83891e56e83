"""A study whose host is gone: closed as what it is, its measured cells whole."""

import argparse
import json
from pathlib import Path

import pytest

from analysis.recover_command import command
from analysis.study_check import check_study_folder
from evidence.errors import EvidenceError
from evidence.processes import FolderLock
from evidence.recover import recover
from evidence.study_folder import open_study
from tests.study_factory import make_study


def left_open(tmp_path: Path) -> Path:
    """Pair 1 of ``fast`` was running, its launch and run not sealed, and pair 1's baseline was still to come."""
    study = make_study(tmp_path, launches=2, control=0, seal=False)
    file = study / "study.json"
    record = json.loads(file.read_bytes())
    last, before = record["cells"][-1], record["cells"][-2]
    (study / last["run_dir"] / "seal.json").unlink()
    (study / last["launch_dir"] / "seal.json").unlink()
    (study / before["launch_dir"] / "seal.json").unlink()
    last |= {"state": "running", "run_dir": None, "launch_dir": None, "took_s": None, "ended_at_unix_s": None}
    before |= {"state": "planned", "run_dir": None, "launch_dir": None, "took_s": None, "ended_at_unix_s": None}
    file.write_text(json.dumps(record) + "\n")
    return study


def test_the_running_cell_is_lost_the_planned_one_dropped_and_the_rest_stands(tmp_path: Path) -> None:
    study = left_open(tmp_path)
    measured = [cell for cell in open_study(study).study.cells if cell.state == "done"]
    seal = recover(study, now_unix_s=1.8e9)
    found = open_study(study)
    assert found.seal == seal
    assert (seal.recovered, found.problems) == (True, ())
    assert [cell.state for cell in found.study.cells] == ["done", "done", "dropped", "failed"]
    assert [cell for cell in found.study.cells if cell.state == "done"] == measured
    assert found.study.cells[-1].symptom == "what ran the study ended during this cell"
    assert "2 of 4 cells lost" in " ".join(seal.noticed)


def test_folders_inside_are_closed_first_and_hashed_with_the_rest(tmp_path: Path) -> None:
    study = left_open(tmp_path)
    seal = recover(study)
    inside = {str(path.relative_to(study)) for path in study.glob("*/*/seal.json")}
    assert inside == {name for name in seal.files if name.endswith("/seal.json")}
    assert len(inside) == len([*study.glob("launches/*"), *study.glob("runs/*")])


def test_its_verdict_says_that_it_was_closed_afterwards_and_what_is_missing(tmp_path: Path) -> None:
    study = left_open(tmp_path)
    assert check_study_folder(study)[1].verdict == "INVALID"
    recover(study)
    _, judged = check_study_folder(study)
    assert judged.verdict == "DEGRADED"
    assert {one.code for one in judged.reasons} >= {"recovered", "cell_failed", "cell_dropped"}


def test_the_command_tells_no_requests_of_a_study(tmp_path: Path) -> None:
    code, report, lines = command(argparse.Namespace(run=left_open(tmp_path), shard=[]))
    assert (code, report["recovered"]) == (0, True)
    assert not [line for line in lines if "planned" in line]


def test_a_sealed_study_and_one_that_is_being_run_are_left_alone(tmp_path: Path) -> None:
    whole = make_study(tmp_path / "whole", launches=1, control=0)
    with pytest.raises(EvidenceError, match="is sealed already"):
        recover(whole)
    running = left_open(tmp_path / "running")
    lock = FolderLock(running)
    try:
        with pytest.raises(EvidenceError, match="is being run by") as refused:
            recover(running)
        assert refused.value.exit_code == 2
    finally:
        lock.release()


def test_a_folder_killed_before_its_first_file_and_a_strangers_are_named_and_left(tmp_path: Path) -> None:
    study = left_open(tmp_path)
    (study / "runs" / "run-unborn").mkdir()
    (study / "launches" / "notes").mkdir()
    (study / "launches" / "notes" / "a.txt").write_text("mine")
    outside = left_open(tmp_path / "another") / "runs" / "run-003"
    (study / "runs" / "run-elsewhere").symlink_to(outside)
    seal = recover(study)
    assert "left as found, neither a run nor a launch: notes, run-elsewhere, run-unborn" in seal.noticed
    assert not (outside / "seal.json").exists()
    assert open_study(study).problems == ()


def test_torn_seals_are_kept_as_damaged_and_made_anew(tmp_path: Path) -> None:
    study = left_open(tmp_path)
    run = next(iter(sorted((study / "runs").iterdir())))
    (run / "seal.json").write_bytes(b'{"id":')
    (study / "seal.json").write_bytes(b"")
    seal = recover(study)
    assert (run / "seal.json.damaged").read_bytes() == b'{"id":'
    assert "a seal that could not be read was kept as seal.json.damaged" in seal.noticed
    assert open_study(study).seal == seal
    with pytest.raises(EvidenceError, match="is sealed already"):
        recover(study)
