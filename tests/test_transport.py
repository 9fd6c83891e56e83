"""The gevent transport, in processes of its own: kept, closed and broken connections, and a user that is killed."""

import json
import subprocess
import sys

import pytest

from tests.locust_runs import ROOT, environment


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
        (("--processes", "2"), "--processes"),
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
    argv = [
        *(sys.executable, "-m", "locust", "-f", "locustfiles/sequential.py", "--headless", "--label", "x"),
        *("--host", "http://127.0.0.1:9", "--scenario", "scenarios/smoke.toml", "--run-dir", str(tmp_path / "runs")),
        *option,
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_key_with_a_line_break_is_refused_and_never_shown(tmp_path):
    argv = [
        *(sys.executable, "-m", "locust", "-f", "locustfiles/sequential.py", "--headless", "--label", "x"),
        *("--host", "http://127.0.0.1:9", "--scenario", "scenarios/smoke.toml", "--run-dir", str(tmp_path / "runs")),
    ]
    env = environment(OPENAI_API_KEY="sk-not-to-be-shown\r")
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "OPENAI_API_KEY" in done.stderr
    assert "not-to-be-shown" not in done.stderr + done.stdout
