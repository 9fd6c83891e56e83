"""A whole study on the real engine: run, interrupted, taken up again, compared."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evidence.study_folder import open_study
from tests.locust_runs import ROOT, analysis, environment, scenario

pytestmark = pytest.mark.engine


def write_study(folder: Path, *, arms: list[str], launches: int, status: str = "to-run") -> Path:
    scenario(
        folder,
        mix="domains = { code = 1, json = 1 }",
        request="max_tokens = { code = 16, json = 16 }",
        limits="timeout_s = 120.0",
        cache='policy = "cold"\nper = "request"',
    )
    file = folder / "study.toml"
    file.write_text(
        f'name = "tiny"\nscenario = "tiny.toml"\nbaseline = "{arms[0]}"\narms = {json.dumps(arms)}\n'
        f'launches = {launches}\norder = "randomised"\nstatus = "{status}"\n',
        encoding="utf-8",
    )
    return file


def study(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "study", *arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_an_interrupted_study_is_taken_up_again_and_what_was_done_stays(tmp_path):
    file = write_study(tmp_path, arms=["cpu-q4", "cpu-q4-selfdraft"], launches=2)
    first = study("run", str(file), "--run-dir", str(tmp_path / "runs"))
    deadline = time.monotonic() + 120
    done: list = []
    while time.monotonic() < deadline and not done:
        for path in (tmp_path / "runs").glob("study-*/study.json"):
            done = [cell for cell in open_study(path.parent).study.cells if cell.state == "done"]
        time.sleep(0.1)
    assert done, first.communicate()
    first.send_signal(signal.SIGINT)
    _, stderr = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "--resume" in stderr

    second = study("run", str(file), "--run-dir", str(tmp_path / "runs"), "--resume")
    stdout, stderr = second.communicate(timeout=240)
    assert second.returncode == 0, stderr
    folder = Path(stdout.strip().splitlines()[-1])
    found = open_study(folder)
    assert found.problems == ()
    assert found.seal is not None
    assert [cell.state for cell in found.study.cells] == ["done"] * 4
    assert found.study.cells[done[0].index].run_dir == done[0].run_dir

    code, compared = analysis("compare", str(folder))
    assert code == 0, compared
    (arm,) = compared["arms"]
    assert (arm["arm"], arm["n_launches"], arm["n_pairs"]) == ("cpu-q4-selfdraft", 2, 4)
    assert arm["scope"] == "launches"
    low, high = arm["interval"]
    assert low < arm["ratio"] < high
    assert arm["outputs_equal"] == arm["outputs_compared"] == 4

    again = study("run", str(file), "--run-dir", str(tmp_path / "runs"), "--resume")
    _, stderr = again.communicate(timeout=60)
    assert again.returncode == 1
    assert "no unfinished study" in stderr


def test_settings_that_differ_without_being_named_stop_the_study_before_anything_is_measured(tmp_path):
    file = write_study(tmp_path, arms=["cpu-f32-kvq8", "cpu-q4"], launches=1)
    ran = study("run", str(file), "--run-dir", str(tmp_path / "runs"))
    _, stderr = ran.communicate(timeout=120)
    assert ran.returncode == 1
    assert "settings that must match do not" in stderr
    assert "cache_type_k" in stderr
    (path,) = (tmp_path / "runs").glob("study-*")
    assert list((path / "runs").iterdir()) == []


def test_a_planned_study_is_checked_and_not_run(tmp_path):
    file = write_study(tmp_path, arms=["study-baseline", "study-ngram"], launches=3, status="planned")
    checked = study("check", str(file))
    stdout, stderr = checked.communicate(timeout=60)
    assert checked.returncode == 0, stderr
    assert "planned" in stdout
    ran = study("run", str(file), "--run-dir", str(tmp_path / "runs"))
    _, stderr = ran.communicate(timeout=60)
    assert ran.returncode == 1
    assert 'status = "planned"' in stderr
    assert not (tmp_path / "runs").exists()
