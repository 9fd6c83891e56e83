"""The gevent transport, in processes of its own: kept, closed and broken connections, and a user that is killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.load_runs import load_command
from tests.locust_runs import ROOT, ended, run_locust, start_locust


def play(case: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gevent_transport", case],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_a_connection_the_server_keeps_is_used_again():
    found = play("kept")
    assert [one["reused"] for one in found["sent"]] == [False, True, True]
    assert {one["outcome"] for one in found["sent"]} == {"completed"}


def test_a_server_that_closes_after_each_answer_gets_a_new_connection_and_each_request_once():
    found = play("closed_after_each")
    assert [one["reused"] for one in found["sent"]] == [False, False, False]
    assert {one["outcome"] for one in found["sent"]} == {"completed"}
    assert found["n_requests"] == 3


def test_a_request_the_server_worked_on_before_it_closed_is_its_failure_and_not_sent_again():
    found = play("worked_then_closed")
    assert found["sent"][1]["outcome"] == "truncated"
    assert found["n_requests"] == 2


def test_a_kept_connection_that_breaks_at_once_is_dialled_anew_and_the_record_says_so():
    found = play("dropped_at_reuse")
    assert found["sent"][1] | {"notes": []} == {
        "outcome": "completed",
        "reused": False,
        "sent_before": True,
        "killed": False,
        "notes": [],
    }


def test_when_the_second_sending_fails_the_first_is_what_is_on_record():
    found = play("dropped_and_gone")
    assert found["sent"][1]["outcome"] == "truncated"
    assert found["sent"][1]["reused"] is True
    assert any("could not be sent again" in note for note in found["sent"][1]["notes"])


def test_a_killed_user_hands_over_what_it_had_as_cancelled():
    found = play("killed")
    assert [(one["outcome"], one["killed"]) for one in found["sent"]] == [("cancelled", True)]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--master",), "--master"),
        (("--users", "5"), "--users 5"),
        (("--seed", str(10**30)), "--seed"),
        (("--passes", "0"), "--passes"),
        (("--extra-body", '{"temperature": 1}'), "temperature"),
        (("--extra-body", "[1]"), "one JSON object"),
        (("--header", "no equals"), "--header"),
        (("--header", "Host=x"), "Host"),
        (("--metrics-url", "ftp://x"), "--metrics-url"),
        (("--metrics-url", "http://"), "--metrics-url"),
        (("--users", "0"), "--users 0"),
        (("--tags", "x"), "--tags"),
        (("--json",), "--json"),
        (("--extra-body", '{"a": NaN}'), "--extra-body"),
        (("--header", "X-Key= sk-secret-value"), "--header"),
    ],
)
def test_an_option_that_would_give_wrong_numbers_or_none_is_refused_before_a_folder_is_made(tmp_path, option, said):
    refused = run_locust("http://127.0.0.1:9", Path("scenarios/smoke.toml"), tmp_path / "runs", *option)
    assert refused.exit_code == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_options_that_a_level_decides_are_refused_all_at_once_and_each_is_said_once(tmp_path):
    file = Path("scenarios/smoke-concurrency.toml")
    more = ("-u", "5", "-r", "2", "-t", "10s")
    refused = ended(start_locust(load_command("sweep", "http://127.0.0.1:9", file, tmp_path / "runs", *more)))
    assert refused.exit_code == 2
    for option in ("--users", "--spawn-rate", "--run-time"):
        assert refused.stderr.count(option) == 1
    assert "will be ignored" not in refused.stderr


def test_an_arm_that_is_none_is_refused_whether_the_server_answers_or_not(tmp_path):
    file = Path("scenarios/smoke.toml")
    refused = run_locust("http://127.0.0.1:9", file, tmp_path / "runs", name=("--arm", "cpu-f32-draf"))
    assert refused.exit_code == 2
    assert "there is no such arm. Choose one of: cpu-f32-draft," in refused.stderr
    assert not (tmp_path / "runs").exists()


def is_empty(group: int) -> bool:
    """Whether nobody is left in this process group; one that has ended may wait a moment to be taken note of."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("locustfile", "scenario", "option", "said"),
    [
        ("sequential", "smoke", (), "leave --master, --worker and --processes out"),
        ("sweep", "smoke", (), "locustfiles/sequential.py"),
        ("sweep", "smoke-concurrency", (), "nothing answers at http://127.0.0.1:9"),
        ("arrivals", "smoke-arrivals", ("--users", "5"), "--users 5"),
        ("arrivals", "none", (), "none.toml"),
        ("sweep", "smoke-concurrency", ("--header", "no equals"), "--header"),
    ],
)
def test_a_refused_start_ends_the_workers_that_were_forked_for_it(tmp_path, locustfile, scenario, option, said):
    file = Path(f"scenarios/{scenario}.toml")
    command = load_command(locustfile, "http://127.0.0.1:9", file, tmp_path / "runs", "--processes", "2", *option)
    process = start_locust(command)
    refused = ended(process)
    assert refused.exit_code == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "runs").exists()
    assert is_empty(process.pid)


def test_a_key_with_a_line_break_is_refused_and_never_shown(tmp_path):
    file, secret = Path("scenarios/smoke.toml"), "sk-not-to-be-shown\r"
    done = run_locust("http://127.0.0.1:9", file, tmp_path / "runs", OPENAI_API_KEY=secret)
    assert done.exit_code == 2
    assert "OPENAI_API_KEY" in done.stderr
    assert "not-to-be-shown" not in done.stderr + done.stdout
