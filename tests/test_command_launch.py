"""Launches of command lines: ready is proven, nothing of an engine outlives its launch, a failure is evidence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from evidence.launch_folder import open_launch
from evidence.records import Launch
from evidence.verify import verify
from infra.launching.floor import FloorError
from infra.launching.launch import LaunchError, launching
from infra.launching.ports import free_port
from infra.launching.recipes import CommandArm, Diagnostic, Varied
from tests.played_engine import playing

ROOT = Path(__file__).parents[1]
FIXTURES = Path(__file__).parent / "fixtures"
PLAYED = (sys.executable, str(Path(__file__).with_name("played_engine.py")))
FAKE = (sys.executable, "-m", "infra.fake_engine")
INFO = json.loads((FIXTURES / "launch" / "sglang_0.5.17_ngram.server_info.json").read_text())
LOG = (FIXTURES / "launch" / "start-failure.missing-module.log").read_text()
SSE = "text/event-stream"
SGLANG_ANSWER = (FIXTURES / "streams" / "sglang_chat_spec.sse").read_text()
MODEL = "Qwen/Qwen2.5-32B-Instruct-AWQ"


def left_behind() -> list[psutil.Process]:
    """Children of this process that no other test keeps for its own."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if not any("warm_locust" in word for word in one.cmdline())]


def arm(**changes: Any) -> CommandArm:
    """An arm of the fake engine, which answers as llama.cpp does."""
    fields: dict[str, Any] = {
        "kind": "command",
        "name": "played",
        "engine": "llama.cpp",
        "description": "an engine that is played",
        "program": FAKE,
        "target": {"path": "none"},
        "speculative": False,
        "args": {"model": "fake", "ttft-s": 0.01, "gap-s": 0.001},
        "environment": {"PYTHONPATH": str(ROOT)},
        "ready_timeout_s": 20.0,
    }
    return CommandArm.model_validate(fields | changes)


def played(engine: str, script: dict[str, Any], **changes: Any) -> CommandArm:
    args = {"script": json.dumps(script), **changes.pop("args", {})}
    return arm(engine=engine, program=PLAYED, served_name=MODEL, args=args, **changes)


def routes(info: dict[str, Any], metrics: str, **more: Any) -> dict[str, Any]:
    body = (FIXTURES / "exposition" / metrics).read_text()
    found = {
        "/v1/chat/completions": [[200, SSE, SGLANG_ANSWER]],
        "/server_info": [[200, "application/json", json.dumps(info)]],
        "/metrics": [[200, "text/plain; version=0.0.4", body]],
    }
    return found | more


def only_launch(folder: Path) -> tuple[Launch, Path]:
    (path,) = folder.iterdir()
    return open_launch(path).launch, path


def failed(an_arm: CommandArm, folder: Path, **more: Any) -> Launch:
    with pytest.raises(LaunchError) as caught, launching(an_arm, launch_root=folder, **more):
        pass
    launch, path = only_launch(folder)
    assert (launch.outcome, verify(path)) == ("failed", ())
    assert launch.symptom is not None
    assert launch.symptom in str(caught.value)
    assert left_behind() == []
    return launch


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_command_is_ready_after_a_verified_answer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    said: list[str] = []
    with launching(arm(), launch_root=tmp_path, say=said.append) as engine:
        assert (engine.launch.outcome, engine.launch.speculation, engine.model) == ("ready", "not asked", "fake")
        assert engine.launch.url == engine.url
        assert engine.launch.speculation_proof["why"].startswith("/slots: ")
        assert engine.launch.resolved["slots.speculative"] is False
        assert engine.launch.resolved["asked.ttft-s"] == 0.01
        assert engine.launch.resolved["resolved.sources"] == ["command line", "/props", "/slots"]
        assert engine.launch.model["served"] == "fake"
        assert engine.exit_code is None
        assert engine.launch.pid is not None
    launch, path = only_launch(tmp_path)
    assert (launch.outcome, launch.stage, launch.exit_code, verify(path)) == ("stopped", "ready", 0, ())
    assert said == ["process", "listening", "first_answer", "ready"]
    assert launch.command[-4:] == ("--host", "127.0.0.1", "--port", launch.url.rpartition(":")[2])
    assert launch.reproduce.startswith("env PYTHONPATH=")
    assert "warden" not in " ".join(launch.command)  # the engine's own command line, as one would type it
    assert left_behind() == []


def test_speculation_that_is_asked_for_is_proven_by_the_engines_own_word(tmp_path: Path) -> None:
    asked = {"model": "fake", "fake": '{"drafted": 3, "accepted": [3, 0]}'}
    with launching(arm(speculative=True, args=asked), launch_root=tmp_path) as engine:
        assert engine.launch.speculation == "proven"
        assert engine.launch.speculation_proof["says"] is True


def test_speculation_that_is_asked_for_and_off_fails_the_launch(tmp_path: Path) -> None:
    launch = failed(arm(speculative=True), tmp_path)
    assert (launch.stage, launch.speculation) == ("first_answer", "not proven")
    assert launch.symptom is not None
    assert launch.symptom.startswith("speculation is asked for and not proven: /slots: [{")


def test_speculation_that_nobody_asked_for_fails_the_launch(tmp_path: Path) -> None:
    launch = failed(arm(args={"model": "fake", "fake": '{"drafted": 3}'}), tmp_path)
    assert "speculation is not asked for: /slots" in str(launch.symptom)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error-first", "first answer: error_in_stream"),
        ("html", "first answer: not_a_stream"),
        ("no-usage", "no_usage"),
    ],
)
def test_an_engine_that_answers_wrongly_is_not_ready(fault: str, said: str, tmp_path: Path) -> None:
    launch = failed(arm(args={"model": "fake", "fault": fault}), tmp_path)
    assert (launch.stage, launch.evidence_grade) == ("listening", "trace held")
    assert said in str(launch.symptom)


def test_an_open_port_that_never_answers_is_not_ready(tmp_path: Path) -> None:
    launch = failed(arm(args={"model": "fake", "fault": "hang"}, ready_timeout_s=2.0), tmp_path)
    assert (launch.stage, launch.ready_at_unix_s) == ("listening", None)
    assert "first answer: timeout_headers" in str(launch.symptom)


def test_an_engine_that_never_listens_fails_with_where_its_log_ended(tmp_path: Path) -> None:
    silent = {"log": "loading\nand then nothing", "after": 60.0}
    launch = failed(played("other", silent, ready_timeout_s=1.0), tmp_path)
    assert launch.symptom == "not ready within 1.0 s; the log ends:\nloading\nand then nothing"
    assert (launch.stage, launch.exit_code) == ("process", -signal.SIGTERM)


def test_an_engine_that_is_loading_is_asked_again(tmp_path: Path) -> None:
    loading = [503, "application/json", '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}']
    slots = [[200, "application/json", '[{"id":0,"speculative":false}]']]
    replies = {"/v1/chat/completions": [loading, loading, [200, SSE, SGLANG_ANSWER]], "/slots": slots}
    with launching(played("llama.cpp", {"routes": replies}), launch_root=tmp_path) as engine:
        assert engine.launch.outcome == "ready"


def test_a_port_that_somebody_has_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with playing({}) as other:
        launch = failed(arm(), tmp_path, port=other.server_address[1])
        assert other.asked == []
    assert (launch.stage, launch.pid, launch.diagnostics) == ("command", None, ())
    assert f"port {other.server_address[1]} of 127.0.0.1 is in use" in str(launch.symptom)


def test_a_given_port_is_the_one_that_is_served(tmp_path: Path) -> None:
    port = free_port()
    with launching(arm(), launch_root=tmp_path, port=port) as engine:
        assert engine.url == f"http://127.0.0.1:{port}"


def test_a_program_that_is_not_there_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with (
        pytest.raises(FloorError, match="no-such-engine is not on PATH"),
        launching(arm(program=("no-such-engine",)), launch_root=tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_makes_acceptance_up_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.0")
    launch = failed(arm(), tmp_path)
    assert "SGLANG_SIMULATE_ACC_LEN = 3.0 is set in this environment, not by the arm" in str(launch.symptom)


def test_acceptance_that_the_arm_itself_makes_up_stands_in_the_proof(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(ROOT), "SGLANG_SIMULATE_ACC_LEN": "3.0"}
    with launching(arm(environment=environment), launch_root=tmp_path) as engine:
        assert engine.launch.speculation_proof["synthetic"] == ["SGLANG_SIMULATE_ACC_LEN = 3.0"]


def test_a_worker_that_ignores_sigterm_does_not_outlive_its_engine(tmp_path: Path) -> None:
    slots = {"/slots": [[200, "application/json", '[{"id":0,"speculative":false}]']]}
    script = {"child": True, "routes": routes({}, "vllm_v0.33.0_0_no_spec.prom") | slots}
    with launching(played("llama.cpp", script), launch_root=tmp_path) as engine:
        log = (engine.folder / "engine.log").read_text()
        worker = int(log.partition("child ")[2].split()[0])
        assert psutil.pid_exists(worker)
    assert gone(worker)


def test_a_worker_does_not_outlive_an_engine_that_died(tmp_path: Path) -> None:
    launch = failed(played("other", {"child": True, "log": "RuntimeError is not one\n", "end": 3}), tmp_path)
    _, path = only_launch(tmp_path)
    worker = int((path / "engine.log").read_text().partition("child ")[2].split()[0])
    assert gone(worker)
    assert launch.exit_code == 3
    assert str(launch.symptom).endswith("the process ended with exit code 3")


def test_nothing_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "launches"
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'kind = "command"\nname = "mine"\nengine = "other"\ndescription = "a played engine"\n'
        f"program = {json.dumps(list(FAKE))}\ntarget = {{ path = 'none' }}\nspeculative = false\n"
        "ready_timeout_s = 20.0\n"
        f"environment = {{ PYTHONPATH = {json.dumps(str(ROOT))} }}\n[args]\nmodel = 'fake'\n"
    )
    argv = [sys.executable, "-m", "infra", "launch", str(recipe), "--launch-dir", str(folder), "--json"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        ours = psutil.Process(process.pid).children(recursive=True)
        assert len(ours) >= 2  # the warden and the engine
        scratch = [Path(word) for child in ours for word in child.cmdline() if "engine-" in Path(word).name]
        process.kill()
        assert all(gone(child.pid) for child in ours)
    assert len(scratch) == 1
    assert not scratch[0].exists()
    assert said["model"] == "fake"
    assert [problem.code for problem in verify(Path(said["launch_dir"]))] == ["seal_missing"]


def test_the_key_of_the_environment_reaches_the_server_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-secret-123456")
    asked = {"model": "fake", "api-key": "sk-planted-secret-123456"}
    with launching(arm(args=asked), launch_root=tmp_path) as engine:
        assert engine.launch.outcome == "ready"
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"sk-planted-secret" not in written


def test_a_secret_that_an_engine_prints_is_not_in_the_sealed_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-secret-123456")
    failed(played("other", {"log": "token planted-secret-123456 is what I was given\n", "end": 1}), tmp_path)
    _, path = only_launch(tmp_path)
    assert "planted-secret" not in (path / "engine.log").read_text()
    assert "planted-secret" not in (path / "launch.json").read_text()


def test_the_arguments_that_a_failed_engine_resolved_are_on_record(tmp_path: Path) -> None:
    log = "[2026-11-29 14:39:22] server_args=ServerArgs(model_path='m', mem_fraction_static=0.82, api_key='abcdef')\n"
    launch = failed(played("sglang", {"log": log, "end": 1}), tmp_path)
    assert (launch.resolved["mem_fraction_static"], launch.resolved["resolved.sources"]) == (0.82, ["log"])
    assert "abcdef" not in json.dumps(launch.resolved)


@pytest.mark.parametrize("body", ["[]", "null", "[" * 5000, '{"speculative_algorithm": NaN}', "<html></html>", ""])
def test_a_server_info_that_is_none_is_a_reason_and_no_crash(body: str, tmp_path: Path) -> None:
    some = routes({}, BASE, **{"/server_info": [[200, "application/json", body]]})
    launch = failed(played("sglang", {"routes": some}, speculative=True, ready_timeout_s=5.0), tmp_path)
    assert "speculation is asked for and not proven" in str(launch.symptom)


def test_sglang_is_proven_by_its_verify_counter_and_its_settings_are_on_record(tmp_path: Path) -> None:
    script = {"log": LOG.partition("[2026-11-29 14:40:01] Scheduler hit")[0], "routes": routes(INFO, NGRAM)}
    with launching(played("sglang", script, speculative=True), launch_root=tmp_path) as engine:
        launch = engine.launch
    assert (launch.speculation, launch.stage) == ("proven", "ready")
    assert launch.speculation_proof["n_verify_steps"] > 0
    assert launch.resolved["max_running_requests"] == 48
    assert launch.resolved["resolved.version"] == "0.5.17"
    assert launch.versions["sglang"] == "0.5.17"


NGRAM = "sglang_v0.5.17_ngram.passA.after.prom"
BASE = "sglang_v0.5.17_base.passA.after.prom"


def test_sglang_that_is_configured_and_has_verified_nothing_is_not_ready(tmp_path: Path) -> None:
    script = {"routes": routes(INFO, BASE)}
    launch = failed(played("sglang", script, speculative=True, ready_timeout_s=3.0), tmp_path)
    assert "configured (NGRAM), and no verify step can be counted" in str(launch.symptom)


def test_sglang_without_metrics_is_asked_for_one_answer_of_its_own_form(tmp_path: Path) -> None:
    said = json.dumps({"text": "x", "meta_info": {"spec_verify_ct": 5}})
    some = routes(INFO, NGRAM, **{"/generate": [[200, "application/json", said]]})
    del some["/metrics"]
    with launching(played("sglang", {"routes": some}, speculative=True), launch_root=tmp_path) as engine:
        assert engine.launch.speculation_proof["source"] == "/generate meta_info.spec_verify_ct"


def test_a_draft_that_sglang_loads_and_never_uses_fails_the_launch(tmp_path: Path) -> None:
    info = {**INFO, "speculative_algorithm": None, "speculative_draft_model_path": "/models/draft"}
    launch = failed(played("sglang", {"routes": routes(info, BASE)}), tmp_path)
    assert "a draft is loaded and never used: speculative_draft_model_path" in str(launch.symptom)


def test_a_varied_setting_that_the_server_did_not_take_fails_the_launch(tmp_path: Path) -> None:
    info = {**INFO, "speculative_algorithm": None}
    varied = Varied(setting="type of the KV cache", keys=("kv-cache-dtype",))
    an_arm = played(
        "sglang",
        {"routes": routes(info, BASE)},
        args={"kv-cache-dtype": "fp8_e5m2", "context-length": 1},
        varied=varied,
        baseline="x",
    )
    launch = failed(an_arm, tmp_path)
    assert launch.symptom == "kv-cache-dtype = 'fp8_e5m2' is what this arm varies, and the server reports 'auto'"
    assert launch.speculation_proof["not_kept"] == [["kv-cache-dtype", "fp8_e5m2", "auto"], ["context-length", 1, 4096]]


DIAGNOSTICS = (
    Diagnostic(name="half the context", args={"context-length": 4096}, stages=("memory_pool",)),
    Diagnostic(name="another script", args={"script": '{"after": 0}'}, within_s=10.0),
)


def test_sglangs_death_in_graph_capture_is_a_whole_record(tmp_path: Path) -> None:
    script = {"log": LOG, "end": -9}
    launch = failed(played("sglang", script, speculative=True, diagnostics=DIAGNOSTICS), tmp_path)
    _, path = only_launch(tmp_path)
    assert (launch.stage, launch.exit_code) == ("graph_capture", -9)
    assert launch.symptom == "ModuleNotFoundError: No module named 'deep_gemm'"
    assert launch.memory is None
    assert (path / "engine.log").read_text() == LOG
    assert [(found["name"], found["outcome"]) for found in launch.diagnostics] == [
        ("half the context", "not tried"),
        ("another script", "listens"),
    ]
    assert (path / "diagnostic-2.log").is_file()
    assert "--script" in launch.reproduce


def test_a_memory_failure_keeps_its_numbers_and_moves_the_stage_to_what_it_shows(tmp_path: Path) -> None:
    log = (
        "INFO 07-02 21:58:55 [gpu_model_runner.py:1] Starting to load model m...\n"
        "INFO 07-02 21:58:56 [gpu_model_runner.py:2] Model loading took 20.57 GiB memory and 13.6 seconds\n"
        "Traceback (most recent call last):\n"
        "ValueError: To serve at least one request with the models's max seq len (32768), (8.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (2.35 GiB).\n"
    )
    launch = failed(played("vllm", {"log": log, "end": 1}, diagnostics=DIAGNOSTICS[:1]), tmp_path)
    assert launch.stage == "memory_pool"
    assert launch.memory is not None
    assert launch.memory["requested_bytes"] == 8 << 30
    assert launch.memory["said"].startswith("ValueError: To serve at least one request")
    assert [found["outcome"] for found in launch.diagnostics] != ["not tried"]


def test_a_shorter_context_is_not_tried_after_a_failure_while_weights_load(tmp_path: Path) -> None:
    log = (
        "[2026-11-29 14:39:42] Load weight begin. avail mem=139.13 GB\n"
        "[2026-11-29 14:39:43] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "24.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.00 GiB in use.\n\n"
    )
    launch = failed(played("sglang", {"log": log, "end": -9}, diagnostics=DIAGNOSTICS[:1]), tmp_path)
    assert launch.stage == "weights"
    assert launch.memory is not None
    assert [launch.memory[key] for key in ("total_bytes", "in_use_bytes", "requested_bytes")] == [
        24 << 30,
        23 << 30,
        2 << 30,
    ]
    (found,) = launch.diagnostics
    assert (found["outcome"], found["log"]) == ("not tried", None)
    assert "before there was one" in found["symptom"]


def test_vllm_is_proven_by_its_draft_counter(tmp_path: Path) -> None:
    some = routes(
        {}, "vllm_v0.33.0_2_one_request.prom", **{"/version": [[200, "application/json", '{"version":"0.33.0"}']]}
    )
    with launching(played("vllm", {"routes": some}, speculative=True), launch_root=tmp_path) as engine:
        launch = engine.launch
    assert launch.speculation_proof["why"] == "30 drafts counted"
    assert launch.resolved["resolved.version"] == "0.33.0"
    assert launch.resolved["cache_config_info.block_size"] == "16"


def test_an_n_gram_that_found_nothing_is_configured_and_a_draft_model_that_drafted_nothing_is_not_active(
    tmp_path: Path,
) -> None:
    some = routes({}, "vllm_v0.33.0_1_spec_startup_zero.prom")
    ngram = {"speculative-config": {"method": "ngram", "num_speculative_tokens": 4}}
    with launching(
        played("vllm", {"routes": some}, speculative=True, args=ngram), launch_root=tmp_path / "a"
    ) as engine:
        assert "found nothing to draft" in engine.launch.speculation_proof["why"]
    draft = {"speculative-config": {"method": "draft_model", "num_speculative_tokens": 4}}
    launch = failed(played("vllm", {"routes": some}, speculative=True, args=draft), tmp_path / "b")
    assert "configured (draft_model), and no draft was counted" in str(launch.symptom)


def test_weights_that_lie_elsewhere_than_the_arm_says_fail_the_launch(tmp_path: Path) -> None:
    log = "0.00.230.480 I load_tensors:   CPU_Mapped model buffer size =   513.13 MiB\n"
    slots = {"/slots": [[200, "application/json", '[{"id":0,"speculative":false}]']]}
    script = {"log": log, "routes": routes({}, BASE) | slots}
    an_arm = played("llama.cpp", script, backend="vulkan", args={"n-gpu-layers": 99})
    launch = failed(an_arm, tmp_path)
    assert launch.symptom == "the arm offloads to vulkan, and the log has weights in CPU only"


def test_an_engine_that_dies_after_it_was_ready_says_so(tmp_path: Path) -> None:
    with launching(arm(), launch_root=tmp_path) as engine:
        assert engine.launch.pid is not None
        (child,) = psutil.Process(engine.launch.pid).children()
        os.kill(child.pid, signal.SIGSEGV)
        assert engine.wait() == -signal.SIGSEGV
    launch, _ = only_launch(tmp_path)
    assert (launch.outcome, launch.exit_code) == ("died", -signal.SIGSEGV)


CLI = (
    "import argparse, sys; from infra.launching.launch_cli import add_arguments, command; "
    "parser = argparse.ArgumentParser(); add_arguments(parser); sys.exit(command(parser.parse_args()))"
)


def test_the_command_compares_its_settings_with_a_launch_of_the_baseline(tmp_path: Path) -> None:
    script = {"routes": routes(INFO | {"mem_fraction_static": 0.82}, NGRAM)}
    with launching(played("sglang", script, speculative=True), launch_root=tmp_path / "base") as engine:
        baseline = engine.folder
    script = json.dumps({"routes": routes(INFO, NGRAM)})
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'kind = "command"\nname = "mine"\nengine = "sglang"\ndescription = "played"\nspeculative = true\n'
        f'program = {json.dumps([*PLAYED, "--script", script])}\ntarget = {{ path = "m" }}\nready_timeout_s = 20.0\n'
        f'served_name = "{MODEL}"\nenvironment = {{}}\n[args]\n"model-path" = "{{target}}"\n'
        '"speculative-algorithm" = "NGRAM"\n"max-running-requests" = 48\n"mem-fraction-static" = 0.3\n'
    )
    argv = [sys.executable, "-c", CLI, str(recipe), "--launch-dir", str(tmp_path), "--json", "--against", str(baseline)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    (difference,) = said["differences"]
    assert difference.startswith("mem_fraction_static: 0.3 against the baseline's 0.82 (a larger KV pool")
    assert f"against the baseline: {difference}" in err
    assert said["why_not_compared"] is None
