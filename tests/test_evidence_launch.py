"""The launch folder: rewritten whole at each stage, found while it lives, sealed when the engine has ended."""

import json
import os
import subprocess
import time
from pathlib import Path

import evidence_samples as sample
import pytest

from evidence.errors import EvidenceError
from evidence.launch_folder import LaunchWriter, live_launch, open_launch
from evidence.recover import recover
from evidence.verify import verify

URL = "http://127.0.0.1:8080"


def test_a_launch_is_rewritten_at_each_stage_and_sealed_at_the_end(tmp_path: Path) -> None:
    writer = LaunchWriter.create(tmp_path, sample.launch())
    writer.log_path.write_text("loading\n")
    assert open_launch(writer.path).launch.stage == "command"
    writer.update(sample.launch(stage="weights", pid=1))
    assert open_launch(writer.path).launch.stage == "weights"
    with pytest.raises(EvidenceError, match="the engine has not ended"):
        writer.seal()
    writer.update(sample.launch(stage="ready", outcome="stopped", ended_at_unix_s=1_700_000_009.0, exit_code=0))
    writer.notice("SIGTERM")
    seal = writer.seal()
    assert set(seal.files) == {"launch.json", "engine.log", "writer.json", "noticed.jsonl"}
    assert seal.noticed == ("SIGTERM",)
    assert verify(writer.path) == ()
    assert not list(writer.path.glob("*.partial"))
    with pytest.raises(EvidenceError, match="nothing may be added"):
        writer.update(sample.launch())


def test_a_launch_that_exists_or_has_another_id_is_refused(tmp_path: Path) -> None:
    writer = LaunchWriter.create(tmp_path, sample.launch())
    with pytest.raises(EvidenceError, match="File exists"):
        LaunchWriter.create(tmp_path, sample.launch())
    with pytest.raises(EvidenceError, match="a record of launch 'other'"):
        writer.update(sample.launch(launch_id="other"))
    writer.close()


def test_a_log_that_changed_after_the_seal_is_found(tmp_path: Path) -> None:
    writer = LaunchWriter.create(tmp_path, sample.launch())
    writer.update(sample.launch(outcome="failed", symptom="out of memory", ended_at_unix_s=1.0))
    writer.seal()
    writer.log_path.write_text("nothing happened\n")
    assert [(problem.code, problem.file) for problem in verify(writer.path)] == [("hash_mismatch", "engine.log")]


def test_a_live_launch_is_found_by_its_url_and_arm_while_its_engine_lives(tmp_path: Path) -> None:
    engine = subprocess.Popen(["sleep", "60"])
    try:
        now = time.time()
        ready = sample.launch(
            pid=engine.pid, url=URL, outcome="ready", stage="ready", started_at_unix_s=now, ready_at_unix_s=now
        )
        writer = LaunchWriter.create(tmp_path, ready)
        assert live_launch([tmp_path, tmp_path / "absent"], URL, "cpu-f32") == writer.path
        assert live_launch([tmp_path], "http://localhost:8080/", "cpu-f32") == writer.path
        assert live_launch([tmp_path], URL) == writer.path
        assert live_launch([tmp_path], URL, "cpu-q4") is None
        assert live_launch([tmp_path], "http://127.0.0.1:8081", "cpu-f32") is None
        writer.close()  # the launcher was killed, the engine goes on
        assert live_launch([tmp_path], URL, "cpu-f32") == writer.path
        with pytest.raises(EvidenceError, match=f"its engine, process {engine.pid}, still runs"):
            recover(writer.path)
    finally:
        engine.kill()
        engine.wait()
    assert live_launch([tmp_path], URL, "cpu-f32") is None


def test_a_process_that_was_given_the_engines_number_later_is_not_the_engine(tmp_path: Path) -> None:
    started_long_ago = sample.launch(pid=os.getpid(), url=URL, started_at_unix_s=1.0, ready_at_unix_s=2.0)
    writer = LaunchWriter.create(tmp_path, started_long_ago)
    assert live_launch([tmp_path], URL, "cpu-f32") == writer.path  # while its launcher lives, that one knows
    writer.close()
    assert live_launch([tmp_path], URL, "cpu-f32") is None


def test_a_launch_whose_launcher_was_killed_can_be_closed(tmp_path: Path) -> None:
    writer = LaunchWriter.create(tmp_path, sample.launch(stage="weights"))
    with pytest.raises(EvidenceError, match="still being written"):
        recover(writer.path)
    writer.close()
    seal = recover(writer.path)
    assert seal.recovered
    assert seal.noticed == ("the launcher ended at stage 'weights' without saying how the engine ended",)
    assert [problem.code for problem in verify(writer.path)] == ["recovered"]


def test_a_launch_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    writer = LaunchWriter.create(tmp_path, sample.launch())
    writer.close()
    (writer.path / "launch.json").write_bytes(b'{"schema_version": 3}')
    with pytest.raises(EvidenceError, match="schema version 3"):
        open_launch(writer.path)
    (writer.path / "launch.json").write_bytes(b"{")
    assert recover(writer.path).recovered
    assert {problem.code for problem in verify(writer.path)} == {"manifest_unreadable", "recovered"}


def test_keys_given_to_the_engine_are_neither_in_the_record_nor_in_the_sealed_log(tmp_path: Path) -> None:
    key = "planted-key-0123456789"
    record = sample.launch(
        command=("serve", "--api-key", key, "--port", "1"),
        reproduce=f"HF_TOKEN={key} serve --api-key {key} --port 1",
        resolved={"api_key": [key], "port": 1},
        arm={"name": "x", "environment": {"VLLM_API_KEY": key}},
    )
    writer = LaunchWriter.create(tmp_path, record, secrets=(key,))
    filler = "x" * ((1 << 20) - 5)  # the key lies across the border of two blocks
    writer.log_path.write_text(f"{filler}{key} and again {key}\n")
    writer.update(record.model_copy(update={"ended_at_unix_s": 1.0, "symptom": f"bad key {key}"}))
    seal = writer.seal()
    for file in writer.path.iterdir():
        assert key.encode() not in file.read_bytes(), file
    kept = json.loads((writer.path / "launch.json").read_bytes())
    assert kept["command"] == ["serve", "--api-key", "[redacted]", "--port", "1"]
    assert kept["resolved"] == {"api_key": ["[redacted]"], "port": 1}
    assert writer.log_path.stat().st_size == len(filler) + len(f"{key} and again {key}\n")
    assert seal.noticed == ("engine.log: a secret was overwritten with asterisks",)
    assert verify(writer.path) == ()
