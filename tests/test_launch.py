"""Launches of the real engine: ready means proven, and however one ends its folder says so."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from evidence.launch_folder import live_launch, open_launch
from evidence.records import Launch
from evidence.verify import verify
from infra.fake_engine import running_fake_engine
from infra.launching.engine_log import EngineLog
from infra.launching.launch import LaunchError, launching
from infra.launching.ready import NotReady, first_answer, slots, speculates
from infra.launching.recipes import Arm, load_arm

Launcher = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "infra", "launch", *arguments, "--launch-dir", str(tmp_path)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    found: dict[str, Any] = json.loads(line)
    return found


def only_launch(folder: Path) -> tuple[Launch, Path]:
    (path,) = folder.iterdir()
    return open_launch(path).launch, path


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.engine
def test_a_launch_answers_on_loopback_until_sigterm_and_seals_its_folder(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher("cpu-q4", "--json")
    said = ready(process)
    assert (said["arm"], said["model"], said["speculation"]) == ("cpu-q4", "SmolLM2-135M-Instruct", "not asked")
    listening = [c.laddr for c in psutil.Process(said["pid"]).net_connections() if c.status == psutil.CONN_LISTEN]
    assert [(address.ip, f"http://127.0.0.1:{address.port}") for address in listening] == [("127.0.0.1", said["url"])]
    assert live_launch([tmp_path], said["url"], "cpu-q4") == Path(said["launch_dir"])
    assert first_answer(said["url"], said["model"], 10.0).n_completion_tokens == 8

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    assert gone(said["pid"])
    launch, path = only_launch(tmp_path)
    assert str(path) == said["launch_dir"]
    assert (launch.outcome, launch.stage, launch.exit_code, launch.symptom) == ("stopped", "ready", 0, None)
    assert (launch.url, launch.pid, launch.launch_id) == (said["url"], said["pid"], said["launch_id"])
    assert launch.model["quantisation"] == "Q4_1"
    assert (launch.resolved["n_ctx"], launch.resolved["n_ubatch"]) == (4096, 512)  # given, and the engine's default
    assert launch.versions["xllamacpp"]
    assert [line.removeprefix("cpu-q4: ") for line in err.splitlines() if line.startswith("cpu-q4: ")] == [
        *("process", "weights", "memory_pool", "listening", "first_answer", "ready"),
        "stopped",
    ]
    assert verify(path) == ()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "in_log"),
    [
        ("cpu-f32", "no implementations specified for speculative decoding"),
        ("cpu-f32-ngram", "adding speculative implementation 'ngram-simple'"),
        ("cpu-f32-draft", "adding speculative implementation 'draft-simple'"),
        ("cpu-f32-kvq8", "K (q8_0):"),
        ("cpu-q4-selfdraft", "adding speculative implementation 'draft-simple'"),
    ],
)
def test_an_arm_starts_and_is_what_it_says(name: str, in_log: str, tmp_path: Path) -> None:
    arm = load_arm(name)
    with launching(arm, launch_root=tmp_path) as engine:
        assert engine.launch.outcome == "ready"
        assert engine.launch.speculation == ("proven" if arm.speculative else "not asked")
        proof = engine.launch.speculation_proof
        assert [slot["speculative"] for slot in proof["slots"]] == [arm.speculative]
        log = (engine.folder / "engine.log").read_text()
        assert in_log in log
        assert str(Path.home()) not in log  # the engine knows its model files by name alone
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.exit_code, verify(path)) == ("stopped", 0, ())


@pytest.mark.engine
def test_a_draft_with_another_vocabulary_fails_the_launch_for_want_of_proof(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher("cpu-f32-badpair", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["url"] is None
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.stage, launch.speculation) == ("failed", "first_answer", "not proven")
    assert launch.evidence_grade == "trace held"
    assert launch.symptom is not None
    assert "the target and draft vocabs are not compatible" in launch.symptom
    assert '/slots: [{"id": 0, "speculative": false}]' in launch.symptom
    assert launch.draft is not None
    assert launch.draft["n_vocab"] == launch.model["n_vocab"]
    assert [found["outcome"] for found in launch.diagnostics] == ["listens"]
    assert launch.pid is not None
    assert gone(launch.pid)
    assert verify(path) == ()
    assert str(path) in err
    assert err.rstrip().endswith("to see it again: python -m infra launch cpu-f32-badpair")


@pytest.mark.engine
def test_a_port_in_use_fails_the_launch_in_the_engines_own_words(launcher: Launcher, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = launcher("cpu-q4", "--port", str(port))
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.stage, launch.exit_code) == ("failed", "process", 1)
    assert launch.symptom is not None
    assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in launch.symptom
    assert f"python -m infra launch cpu-q4 --port {port}" in err
    assert verify(path) == ()


@pytest.mark.engine
def test_the_engine_never_outlives_a_launcher_that_is_killed(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher("cpu-q4", "--json")
    said = ready(process)
    process.kill()
    assert gone(said["pid"])
    _, path = only_launch(tmp_path)
    assert [problem.code for problem in verify(path)] == ["seal_missing"]
    assert live_launch([tmp_path], said["url"]) is None


@pytest.mark.engine
def test_an_engine_that_dies_ends_the_launch_with_its_exit_code_and_last_lines(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = launcher("cpu-q4", "--json")
    said = ready(process)
    os.kill(said["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.exit_code, launch.stage) == ("died", -signal.SIGKILL, "ready")
    assert launch.symptom is not None
    assert launch.symptom.startswith("ended by itself, exit code -9\n")
    assert "stop processing" in launch.symptom  # the first answer's end is the last that it logged
    assert str(path) in err
    assert verify(path) == ()


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_engine_is_ready_stops_it_and_seals(
    launcher: Launcher, tmp_path: Path, number: signal.Signals
) -> None:
    process = launcher("cpu-q4")
    assert process.stderr is not None
    assert process.stderr.readline() == "cpu-q4: process\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.ready_at_unix_s) == ("stopped", None)
    assert launch.pid is not None
    assert gone(launch.pid)
    assert verify(path) == ()


def failed(arm: Arm, folder: Path) -> Launch:
    with pytest.raises(LaunchError) as caught, launching(arm, launch_root=folder):
        pass
    launch, path = only_launch(folder)
    assert (launch.outcome, verify(path)) == ("failed", ())
    assert caught.value.folder == path
    assert launch.symptom is not None
    assert launch.symptom in str(caught.value)
    return launch


@pytest.mark.engine
def test_an_engine_that_is_not_ready_in_time_fails_with_where_its_log_ended(tmp_path: Path) -> None:
    launch = failed(load_arm("cpu-q4").model_copy(update={"ready_timeout_s": 0.1}), tmp_path)
    assert launch.symptom is not None
    assert launch.symptom.startswith("not ready within 0.1 s; the log ends:\n")
    assert launch.exit_code is not None
    assert launch.exit_code < 0  # SIGTERM ends an engine that is still loading


@pytest.mark.engine
def test_an_argument_that_the_engine_does_not_have_fails_the_launch_by_its_key(tmp_path: Path) -> None:
    arm = load_arm("cpu-q4")
    launch = failed(arm.model_copy(update={"args": {**arm.args, "n_ctxx": 1}}), tmp_path)
    assert (launch.stage, launch.exit_code) == ("process", 2)
    assert launch.symptom == ("embedded: n_ctxx = 1: the engine has no setting 'n_ctxx' here; correct the recipe")


def test_an_engine_whose_launcher_is_gone_already_does_not_start() -> None:
    argv = [
        sys.executable,
        "-m",
        "infra.launching.embedded",
        "--models",
        ".",
        "--port",
        "0",
        "--parent",
        "1",
        "--arguments",
        "{}",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "embedded: the launcher is gone\n")


def test_an_unknown_arm_is_a_usage_error_and_leaves_no_folder(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher("cpu-f64")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, list(tmp_path.iterdir())) == (2, "", [])
    assert "there is no such arm. Choose one of: cpu-q4, cpu-f32, " in err


@pytest.mark.engine
def test_a_folder_that_cannot_be_written_is_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    argv = [sys.executable, "-m", "infra", "launch", "cpu-q4", "--launch-dir", str(tmp_path / "file")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error-first", "first answer: error_in_stream"),
        ("500", "first answer: http_error"),
        ("no-usage", "first answer: no_usage"),
        ("hang", "first answer: timeout_headers"),
    ],
)
def test_an_answer_that_is_not_complete_is_no_proof(fault: str, said: str) -> None:
    with running_fake_engine(fault=fault) as fake, pytest.raises(NotReady, match=said):
        first_answer(fake.url, "any", 0.5)


def test_a_server_without_slots_is_no_proof() -> None:
    with running_fake_engine(prefix="/llm") as fake, pytest.raises(NotReady, match="/slots lists no slots"):
        slots(fake.url.removesuffix("/llm"), 1.0)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ([True], True),
        ([False, False], False),
        ([True, False], None),
        ([None], None),
        (["true"], None),
    ],
)
def test_slots_that_disagree_or_do_not_say_prove_nothing(said: list[Any], answer: bool | None) -> None:
    assert speculates([{"id": number, "speculative": value} for number, value in enumerate(said)]) is answer


LOG = b"""embedded: resolved {"n_ctx": 4096}
0.00.007.865 I srv          init: loading model
0.00.008.031 I srv    load_model: loading model 'SmolLM2-135M-Instruct.F32.gguf'
0.00.607.377 I common_speculative_init_result: loading draft model 'SmolLM2-135M-Instruct.Q4_1.gguf'
0.00.957.094 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 4096, kv_unified = 'false'
0.00.957.133 I spec common_specu: adding speculative implementation 'draft-simple'
0.00.984.542 stray words of another thread
I srv          init: listening on http://127.0.0.1:41767
"""


def test_a_log_reads_the_same_whole_and_byte_by_byte() -> None:
    whole, bytewise = EngineLog(), EngineLog()
    whole.feed(LOG)
    for i in range(len(LOG)):
        bytewise.feed(LOG[i : i + 1])
    assert bytewise == whole
    assert whole.stages == ["weights", "draft", "memory_pool", "listening"]
    assert (whole.url, whole.resolved) == ("http://127.0.0.1:41767", {"n_ctx": 4096})
    assert (whole.implementations, whole.errors) == (["draft-simple"], [])


def test_an_allocation_that_failed_is_read_with_the_bytes_it_asked_for() -> None:
    log = EngineLog()
    log.feed(
        b"0.05.363.374 E ggml_aligned_malloc: insufficient memory (attempted to allocate 878906.25 MB)\n"
        b"0.05.363.396 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 921600000000\n"
        b"0.05.363.397 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU buffer of size 921600000000\n"
    )
    assert log.requested_bytes == 921600000000
    assert log.symptom().startswith("ggml_aligned_malloc: insufficient memory (attempted to allocate 878906.25 MB)")


def test_without_an_error_line_the_symptom_is_the_end_of_the_log() -> None:
    log = EngineLog()
    assert log.symptom() == "the engine's log is empty"
    log.feed(b"Traceback (most recent call last):\nImportError: no engine")
    assert log.symptom() == "Traceback (most recent call last):\nImportError: no engine"
