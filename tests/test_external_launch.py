"""Servers that someone else runs: checked as ours are, restarted where asked, and never stopped."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from evidence.launch_folder import live_launch, open_launch
from evidence.records import Launch
from evidence.verify import verify
from infra.fake_engine import FakeEngine, running_fake_engine
from infra.launching import external
from infra.launching.launch import LaunchError, launching
from infra.launching.recipes import ExternalArm
from tests.played_engine import playing

RESTARTS = """
import json, sys, urllib.request
body = json.dumps({'restart': True}).encode()
request = urllib.request.Request(sys.argv[1] + '/fake/control', body, {'Content-Type': 'application/json'})
urllib.request.urlopen(request, timeout=5).read()
print('restarted it')
"""


def arm(url: str, **changes: Any) -> ExternalArm:
    fields: dict[str, Any] = {
        "kind": "external",
        "name": "theirs",
        "engine": "llama.cpp",
        "description": "a server of someone else's",
        "url": url,
        "speculative": False,
        "ready_timeout_s": 10.0,
    }
    return ExternalArm.model_validate(fields | changes)


def restart_of(fake: FakeEngine) -> tuple[str, ...]:
    return (sys.executable, "-c", RESTARTS, fake.url)


def only_launch(folder: Path) -> tuple[Launch, Path]:
    (path,) = folder.iterdir()
    return open_launch(path).launch, path


def failed(an_arm: ExternalArm, folder: Path, **more: Any) -> Launch:
    with pytest.raises(LaunchError), launching(an_arm, launch_root=folder, **more):
        pass
    launch, path = only_launch(folder)
    assert (launch.outcome, launch.evidence_grade, verify(path)) == ("failed", "reported only", ())
    return launch


def test_a_server_of_someone_elses_is_checked_cited_and_left_running(tmp_path: Path) -> None:
    with running_fake_engine() as fake:
        with launching(arm(fake.url), launch_root=tmp_path) as engine:
            assert (engine.url, engine.model, engine.launch.outcome) == (fake.url, "fake", "ready")
            assert live_launch([tmp_path], fake.url, "theirs") == engine.folder
            assert engine.launch.pid == os.getpid()  # the process that watches; the server's own is not known
        launch, path = only_launch(tmp_path)
        assert (launch.outcome, launch.exit_code, launch.command, verify(path)) == ("stopped", None, (), ())
        assert launch.resolved["slots.speculative"] is False
        assert fake.process.poll() is None
        assert live_launch([tmp_path], fake.url, "theirs") is None


def test_speculation_is_proven_for_it_too(tmp_path: Path) -> None:
    with running_fake_engine(fake={"drafted": 3, "accepted": [1]}) as fake:
        with launching(arm(fake.url, speculative=True), launch_root=tmp_path / "a") as engine:
            assert engine.launch.speculation == "proven"
        launch = failed(arm(fake.url), tmp_path / "b")
    assert "speculation is not asked for: /slots" in str(launch.symptom)


def test_a_restart_is_run_when_asked_and_shown_by_another_start_time(tmp_path: Path) -> None:
    with running_fake_engine() as fake:
        an_arm = arm(fake.url, restart=restart_of(fake), health="/health")
        with launching(an_arm, launch_root=tmp_path, restart=True) as engine:
            assert engine.launch.outcome == "ready"
            assert (engine.folder / "engine.log").read_text() == "restarted it\n"
            assert engine.launch.command == restart_of(fake)
            assert engine.launch.reproduce.endswith("launch theirs --restart")
        _, path = only_launch(tmp_path)
        assert verify(path) == ()
        noticed = json.loads((path / "seal.json").read_text())["noticed"]
    assert noticed == []


def test_a_restart_command_is_not_run_unless_asked(tmp_path: Path) -> None:
    with running_fake_engine() as fake, launching(arm(fake.url, restart=("false",)), launch_root=tmp_path) as engine:
        assert engine.launch.command == ()


def test_a_restart_that_leaves_the_same_process_is_no_restart(tmp_path: Path) -> None:
    with running_fake_engine() as fake:
        launch = failed(arm(fake.url, restart=("true",)), tmp_path, restart=True)
    assert "the restart command ran, and the same process still answers" in str(launch.symptom)


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        (None, "the arm has no restart command"),
        (("sh", "-c", "echo no such unit; exit 5"), "the restart command ended with 5\nno such unit"),
        (("no-such-program",), "the restart command cannot be run"),
        (("sleep", "60"), "the restart command did not end within 1 s"),
    ],
)
def test_a_restart_that_fails_is_the_symptom(restart: tuple[str, ...] | None, said: str, tmp_path: Path) -> None:
    with running_fake_engine() as fake:
        launch = failed(arm(fake.url, restart=restart, ready_timeout_s=1.0), tmp_path, restart=True)
    assert said in str(launch.symptom)


def test_a_restart_that_nothing_shows_is_noticed(tmp_path: Path) -> None:
    answer = (Path(__file__).parent / "fixtures" / "streams" / "sglang_chat_spec.sse").read_text()
    replies = {
        "/v1/chat/completions": [[200, "text/event-stream", answer]],
        "/v1/models": [[200, "application/json", '{"data":[{"id":"m"}]}']],
    }
    with playing(replies) as server:
        an_arm = arm(server.url, engine="other", restart=("true",))
        with launching(an_arm, launch_root=tmp_path, restart=True) as engine:
            assert engine.launch.speculation_proof["says"] is None
        _, path = only_launch(tmp_path)
    (noticed,) = json.loads((path / "seal.json").read_text())["noticed"]
    assert "nothing that the server says shows that its process is another one" in noticed


def test_speculation_of_an_engine_that_is_not_known_cannot_be_proven(tmp_path: Path) -> None:
    with running_fake_engine(fake={"drafted": 3}) as fake:
        launch = failed(arm(fake.url, engine="other", speculative=True), tmp_path)
    assert "speculation is asked for and not proven: nothing is known of" in str(launch.symptom)


def test_nobody_there_is_a_failure_at_once(tmp_path: Path) -> None:
    launch = failed(arm("http://127.0.0.1:9"), tmp_path)
    assert "nobody listens" in str(launch.symptom)


def test_several_models_want_a_name(tmp_path: Path) -> None:
    two = {"/v1/models": [[200, "application/json", '{"data":[{"id":"a"},{"id":"b"}]}']]}
    with playing(two) as server:
        launch = failed(arm(server.url, engine="other"), tmp_path)
    assert "it lists a, b; name one as served_name" in str(launch.symptom)


def test_a_sick_health_path_is_not_ready(tmp_path: Path) -> None:
    with playing({"/health": [[503, "text/plain", "loading"]]}) as server:
        launch = failed(arm(server.url, engine="other", health="/health"), tmp_path)
    assert launch.symptom == "/health: HTTP 503"


def test_a_server_that_goes_away_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "WATCH_EVERY_S", 0.05)
    with running_fake_engine() as fake, launching(arm(fake.url), launch_root=tmp_path) as engine:
        fake.kill()
        assert engine.wait() == 1
    launch, _ = only_launch(tmp_path)
    assert (launch.outcome, launch.exit_code) == ("died", None)
    assert "connection refused" in str(launch.symptom)
