"""Whole studies: run, interrupted, carried to another place, taken up again, compared; two at once; cold by restart."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analysis.bundle import bundle, unpack
from analysis.loading import load_run
from evidence.launch_folder import open_launch
from evidence.reading import open_run
from evidence.study_folder import StudyFolder, open_study
from evidence.study_records import Cell
from study.run import Asked, StudyRun
from tests.locust_runs import ROOT, environment
from tests.study_arms import SPECULATES, write_arm, write_study


def study(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "study", *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def ended(process: subprocess.Popen[str], timeout_s: float = 120) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=timeout_s)
    return process.returncode, stdout, stderr


def only_study(runs: Path) -> StudyFolder:
    (path,) = runs.glob("study-*")
    return open_study(path)


def ports(*found: StudyFolder) -> list[str]:
    """The address of every launch that came to be asked something."""
    files = [file for one in found for file in sorted((one.path / "launches").glob("*/launch.json"))]
    launches = [open_launch(file.parent).launch for file in files]  # one that was stopped at once has no record
    return [launch.url for launch in launches if launch.url is not None]


def test_a_study_is_interrupted_carried_away_in_a_bundle_and_ended_elsewhere_while_another_one_runs(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    arms = [write_arm(here, "fake-plain"), write_arm(here, "fake-drafts", baseline="fake-plain", changes=SPECULATES)]
    window = "profile = { steps = 5, after_requests = 1 }"  # which no timed launch opens
    file = write_study(here, arms, telemetry=window)
    runs = here / "runs"
    first, other = study("run", file, "--run-dir", runs), study("run", file, "--run-dir", here / "other")
    deadline = time.monotonic() + 120
    done: list[Cell] = []
    while time.monotonic() < deadline and not done and first.poll() is None:
        for path in runs.glob("study-*/study.json"):
            done = [cell for cell in open_study(path.parent).study.cells if cell.state == "done"]
        time.sleep(0.05)
    assert done, ended(first)
    first.send_signal(signal.SIGTERM)
    code, _, stderr = ended(first)
    assert (code, "--resume" in stderr) == (1, True), stderr
    broken_off = only_study(runs)
    assert broken_off.seal is None

    carried = bundle(broken_off.path, tmp_path)
    unpack(carried.path, there / "runs")
    for name in (*arms, "tiny.toml", "study.toml"):
        shutil.copy(here / name, there / name)
    code, stdout, stderr = ended(study("run", there / "study.toml", "--run-dir", there / "runs", "--resume"))
    assert code == 0, stderr
    assert "is not exported and verified yet" in stderr
    whole = open_study(Path(stdout.strip().splitlines()[-1]))
    assert (whole.problems, whole.seal is None) == ((), False)
    assert [cell.state for cell in whole.study.cells] == ["done"] * 2
    assert whole.study.cells[done[0].index] == done[0]
    for cell in whole.study.cells:
        manifest = open_run(whole.path / str(cell.run_dir)).manifest
        assert "profile" not in json.dumps(manifest.scenario) and whole.study.scenario["telemetry"]["profile"]
    assert "taken up again on " in whole.study.noticed[-1]
    assert set(whole.study.arms_sha256) == {"fake-plain", "fake-drafts"}

    code, _, stderr = ended(other)
    assert code == 0, stderr
    both = ports(whole, only_study(here / "other"))
    assert len(both) >= 9 and len(set(both)) == len(both)

    code, _, stderr = ended(study("run", there / "study.toml", "--run-dir", there / "runs", "--resume"))
    assert (code, "no unfinished study" in stderr) == (1, True)


def test_an_arm_changed_since_stops_a_study_that_is_taken_up(tmp_path):
    arms = [
        write_arm(tmp_path, "fake-plain"),
        write_arm(tmp_path, "fake-drafts", baseline="fake-plain", changes=SPECULATES),
    ]
    file = write_study(tmp_path, arms)
    from study.run import StudyStopped

    begun = StudyRun.begin(Asked(file=file, run_dir=tmp_path / "runs"))
    with pytest.raises(StudyStopped, match="is being run by another process"):
        StudyRun.begin(Asked(file=file, run_dir=tmp_path / "runs", resume=True))
    begun._writer.close()
    write_arm(tmp_path, "fake-drafts", baseline="fake-plain", changes=SPECULATES | {"ttft-s": 0.02})
    with pytest.raises(StudyStopped, match=r"another arms \(fake-drafts\)"):
        StudyRun.begin(Asked(file=file, run_dir=tmp_path / "runs", resume=True))


@pytest.mark.engine
def test_what_only_a_restart_clears_is_cold_in_a_fresh_launch_and_the_first_cell_of_it_alone(tmp_path):
    recipe = (ROOT / "infra" / "arms" / "cpu-q4.toml").read_text(encoding="utf-8")
    for was, now in (
        ('name = "cpu-q4"', 'name = "q4-table"'),
        ('baseline = "cpu-f32"', 'baseline = "cpu-q4"'),
        ('keys = ["target"]', 'keys = ["speculative.types"]'),
        ('"speculative.types" = ["none"]', '"speculative.types" = ["ngram-mod"]'),
    ):
        assert was in recipe
        recipe = recipe.replace(was, now, 1)
    (tmp_path / "q4-table.toml").write_text(recipe, encoding="utf-8")
    file = write_study(
        tmp_path, ["cpu-q4", "q4-table.toml"], mix="domains = { code = 1, json = 1 }", cache='policy = "cold"'
    )
    code, stdout, stderr = ended(study("run", file, "--run-dir", tmp_path / "runs"))
    assert code == 0, stderr
    found = open_study(Path(stdout.strip().splitlines()[-1]))
    for cell in found.study.cells:
        assert cell.run_dir is not None
        run = open_run(found.path / cell.run_dir)
        resets = json.loads(run.server["resets.json"].read_bytes())
        if cell.arm == "cpu-q4":
            assert (resets["replies"][0]["state"], resets["fresh_launch"]) == ("per request", None)
            continue
        assert resets["needs_restart"] == "the n-gram table is shared by all requests and slots"
        assert (resets["replies"][0]["state"], resets["fresh_launch"]["proven"]) == ("restarted", True)
        assert resets["fresh_launch"]["launch_id"] == run.manifest.launch_id
        assert resets["warmup_is_priming"] is True
        assert sorted(request.requests_since_reset for request in run.requests) == [0, 1, 2]
        assert "cold_not_proven" not in [reason.code for reason in load_run(run.path).reasons]


@pytest.mark.engine
def test_settings_that_differ_without_being_named_stop_the_study_before_anything_is_measured(tmp_path):
    file = write_study(tmp_path, ["cpu-f32-kvq8", "cpu-q4"])
    code, _, stderr = ended(study("run", file, "--run-dir", tmp_path / "runs"))
    assert code == 1
    assert "settings that must match do not" in stderr
    assert "cache_type_k" in stderr
    found = only_study(tmp_path / "runs")
    assert list((found.path / "runs").iterdir()) == []
    assert [one.verdict for one in found.study.preflights] == ["good", "good"]


def test_a_planned_study_is_checked_and_not_run(tmp_path):
    file = write_study(tmp_path, ["study-baseline", "study-ngram"], launches=3, status="planned")
    code, stdout, stderr = ended(study("check", file))
    assert code == 0, stderr
    assert "planned" in stdout
    code, _, stderr = ended(study("run", file, "--run-dir", tmp_path / "runs"))
    assert code == 1
    assert 'status = "planned"' in stderr
    assert not (tmp_path / "runs").exists()
