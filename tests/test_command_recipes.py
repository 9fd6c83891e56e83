"""Recipes for command lines and for servers of others: whole or inherited, one thing varied, no silent confounder."""

from pathlib import Path
from typing import Any

import pytest

from infra.launching.arm_kinds import flag
from infra.launching.recipes import ARMS, ArmError, CommandArm, ExternalArm, arm_names, load_arm

COMMANDS = [name for name in arm_names() if isinstance(load_arm(name), CommandArm)]
STUDY = ("study-baseline", "study-draft", "study-eagle3", "study-ngram", "study-fp8kv")


def command(name: str, folder: Path = ARMS) -> CommandArm:
    arm = load_arm(name, folder)
    assert isinstance(arm, CommandArm)
    return arm


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_arm_is_a_whole_command_line_on_loopback(name: str) -> None:
    arm = command(name)
    line = arm.command_line("127.0.0.1", 31000)
    assert line[: len(arm.program)] == arm.program
    assert line[-4:] == ("--host", "127.0.0.1", "--port", "31000")
    assert not any("{" in word and "}" in word and '"' not in word for word in line)  # every placeholder is written in
    assert arm.target.path in line
    assert (arm.draft is None) or any(arm.draft.path in word for word in line)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_arm_keeps_its_baselines_memory_fraction_and_number_of_sequences(name: str) -> None:
    arm = command(name)
    if arm.baseline is not None:
        for key in (
            "mem-fraction-static",
            "max-running-requests",
            "gpu-memory-utilization",
            "max-num-seqs",
            "n-gpu-layers",
        ):
            assert arm.args.get(key) == command(arm.baseline).args.get(key)


def test_the_case_study_is_five_arms_of_one_target_at_one_memory_fraction() -> None:
    arms = [command(name) for name in STUDY]
    assert {(arm.target.path, arm.args["tp-size"], arm.args["attention-backend"]) for arm in arms} == {
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", 2, "flashinfer")
    }
    assert {arm.args["mem-fraction-static"] for arm in arms} == {0.82}
    assert {arm.args["max-running-requests"] for arm in arms} == {48}
    assert [arm.args.get("speculative-algorithm") for arm in arms] == [None, "STANDALONE", "EAGLE3", "NGRAM", None]
    assert arms[-1].args["kv-cache-dtype"] == "fp8_e5m2"
    assert arms[1].draft is not None
    assert arms[1].draft.path == "Qwen/Qwen2.5-1.5B-Instruct"
    assert {(arm.gpus.count, arm.gpus.memory_mib) for arm in arms if arm.gpus} == {(2, 24467)}


@pytest.mark.parametrize("backend", ["cuda", "vulkan"])
def test_an_mtp_arm_has_a_matched_arm_that_differs_in_the_head_alone(backend: str) -> None:
    arm = command(f"llamacpp-{backend}-mtp")
    off = command(f"llamacpp-{backend}-mtp-off")
    assert (arm.baseline, arm.backend, arm.target) == (off.name, backend, off.target)
    assert off.speculative is False


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("llamacpp")])
def test_a_llamacpp_arm_names_backend_offloaded_layers_and_quantisation(name: str) -> None:
    arm = command(name)
    assert arm.backend in ("cuda", "vulkan", "cpu")
    assert isinstance(arm.args["n-gpu-layers"], int)
    assert arm.target.quantisation == "Q4_K_M"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ("--key",)),
        (False, ()),
        (2, ("--key", "2")),
        (0.85, ("--key", "0.85")),
        ("a b", ("--key", "a b")),
        (("a", 1), ("--key", "a", "1")),
        ({"method": "ngram", "n": 4}, ("--key", '{"method": "ngram", "n": 4}')),
    ],
)
def test_a_value_becomes_the_words_of_its_flag(value: Any, words: tuple[str, ...]) -> None:
    assert flag("key", value) == words


def test_a_draft_within_a_table_is_written_in() -> None:
    words = command("vllm-draft").command_line("h", 1)
    config = words[words.index("--speculative-config") + 1]
    assert '"model": "meta-llama/Llama-3.2-1B-Instruct"' in config


def test_a_local_model_is_written_absolute_because_the_engine_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "Qwen3-8B-Q4_K_M.gguf").write_bytes(b"GGUF")
    words = command("llamacpp-cuda").command_line("h", 1)
    assert words[words.index("--model") + 1] == str(tmp_path / "models" / "Qwen3-8B-Q4_K_M.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ARMS.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text())
    return tmp_path


def changed(folder: Path, name: str, old: str, new: str) -> ArmError:
    path = folder / f"{name}.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ArmError) as caught:
        load_arm(name, folder)
    return caught.value


@pytest.mark.parametrize(
    ("name", "old", "new", "key"),
    [
        ("sglang-ngram", '"NGRAM"', '"NGRAM"\n"mem-fraction-static" = 0.85', "mem-fraction-static"),
        ("sglang-ngram", "speculative = true", "speculative = false", "speculative"),
        ("sglang-ngram", '"NGRAM"', '"NGRAMS"', "args"),
        ("sglang-ngram", "inherits = true", "inherits = true\nturbo = 1", "turbo"),
        ("sglang-ngram", "inherits = true", "", "ready_timeout_s"),
        ("sglang-ngram", '"NGRAM"', '"NGRAM"\nport = 1', "args.port"),
        ("sglang-ngram", '"NGRAM"', '"NGRAM"\n"api-key" = "k"', "args.api-key"),
        (
            "sglang-ngram",
            "inherits = true",
            'inherits = true\nenvironment = { HF_TOKEN = "hf" }',
            "environment.HF_TOKEN",
        ),
        ("sglang-ngram", "inherits = true", "inherits = true\nready_timeout_s = -1.0", "ready_timeout_s"),
        ("sglang-ngram", "inherits = true", 'inherits = "yes"', "inherits"),
        ("sglang-draft", 'draft = { path = "meta-llama/Llama-3.2-1B-Instruct" }\n', "", "draft"),
        ("sglang-draft", '"speculative-algorithm" = "STANDALONE"\n', "", "draft"),
        ("sglang-baseline", '"max-running-requests" = 48\n', "", "args.max-running-requests"),
        ("sglang-baseline", '"mem-fraction-static" = 0.80\n', "", "args.mem-fraction-static"),
        ("sglang-baseline", '"model-path" = "{target}"', '"model-path" = "m"', "args"),
        (
            "sglang-baseline",
            '"model-path" = "{target}"',
            '"model-path" = "{target}"\nrevision = "{target_revision}"',
            "target.revision",
        ),
        ("vllm-eagle3", 'method = "eagle3"', 'method = "eagle4"', "args"),
        ("vllm-ngram", 'method = "ngram"', 'method = "draft_model"', "draft"),
        ("vllm-baseline", '"gpu-memory-utilization" = 0.85\n', "", "args.gpu-memory-utilization"),
        ("llamacpp-cuda", 'backend = "cuda"\n', "", "backend"),
        ("llamacpp-cuda", ', quantisation = "Q4_K_M"', "", "target.quantisation"),
        ("llamacpp-cuda", '"n-gpu-layers" = 99\n', "", "args.n-gpu-layers"),
        ("llamacpp-cpu", '"n-gpu-layers" = 0', '"n-gpu-layers" = 99', "args.n-gpu-layers"),
        ("llamacpp-cuda-draft", '"spec-type" = "draft-simple"\n', "", "draft"),
        ("llamacpp-cuda-draft", '"spec-draft-n-max" = 8', '"draft-max" = 8', "args.draft-max"),
        ("llamacpp-cuda-ngram", '"ngram-simple"', '"none"', "speculative"),
    ],
)
def test_a_recipe_that_is_wrong_is_refused_by_its_key(folder: Path, name: str, old: str, new: str, key: str) -> None:
    assert changed(folder, name, old, new).key == key


def test_a_secret_is_not_repeated_in_the_refusal(folder: Path) -> None:
    error = changed(folder, "sglang-ngram", '"NGRAM"', '"NGRAM"\n"api-key" = "sk-planted-123456"')
    assert "sk-planted" not in str(error)


def test_a_silent_confounder_is_no_consequence_of_what_is_varied(folder: Path) -> None:
    follows = 'setting = "n-gram speculation", follows = ["max_running_requests"],'
    error = changed(folder, "sglang-ngram", 'setting = "n-gram speculation",', follows)
    assert (error.key, error.value) == ("varied.follows", "max_running_requests")


def test_a_baseline_changes_with_what_inherits_from_it(folder: Path) -> None:
    path = folder / "sglang-baseline.toml"
    path.write_text(path.read_text().replace('"tp-size" = 1', '"tp-size" = 4'))
    assert command("sglang-ngram", folder).args["tp-size"] == 4


def test_inheriting_from_what_inherits_is_refused(folder: Path) -> None:
    error = changed(folder, "sglang-fp8kv", 'baseline = "sglang-baseline"', 'baseline = "sglang-ngram"')
    assert (error.key, error.value) == ("baseline", "sglang-ngram")


def test_a_recipe_of_ones_own_is_named_by_its_file_and_has_a_stock_baseline(tmp_path: Path) -> None:
    text = (ARMS / "sglang-ngram.toml").read_text().replace('"sglang-ngram"', '"mine"')
    (tmp_path / "mine.toml").write_text(text)
    arm = load_arm(str(tmp_path / "mine.toml"))
    assert (arm.name, arm.baseline) == ("mine", "sglang-baseline")
    with pytest.raises(ArmError, match="there is no such file"):
        load_arm(str(tmp_path / "other.toml"))


EXTERNAL = """
kind = "external"
name = "theirs"
engine = "vllm"
description = "a server of someone else's"
url = "http://gpu-host:8000"
speculative = false
ready_timeout_s = 60.0
restart = ["ssh", "gpu-host", "systemctl", "--user", "restart", "vllm"]
health = "/health"
"""


def test_a_server_of_someone_elses_is_an_arm_with_a_url(tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text(EXTERNAL)
    arm = load_arm("theirs", tmp_path)
    assert isinstance(arm, ExternalArm)
    assert (arm.url, arm.health) == ("http://gpu-host:8000", "/health")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('url = "http://gpu-host:8000"', 'url = "http://gpu-host:8000/v1"', "url"),
        ('url = "http://gpu-host:8000"', 'url = "gpu-host"', "url"),
        ('url = "http://gpu-host:8000"', "", "url"),
        ('health = "/health"', 'health = "health"', "health"),
        ('restart = ["ssh", "gpu-host", "systemctl", "--user", "restart", "vllm"]', "restart = []", "restart"),
        ('restart = ["ssh", "gpu-host", "systemctl", "--user", "restart", "vllm"]', 'restart = "now"', "restart"),
        ('engine = "vllm"', 'engine = "ollama"', "engine"),
        ("speculative = false", 'speculative = "no"', "speculative"),
        ('health = "/health"', "port = 1", "port"),
    ],
)
def test_a_wrong_external_arm_is_refused_by_its_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    (tmp_path / "theirs.toml").write_text(EXTERNAL)
    assert changed(tmp_path, "theirs", old, new).key == key


def test_credentials_in_a_url_are_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text(EXTERNAL)
    error = changed(tmp_path, "theirs", "http://gpu-host", "http://me:planted@gpu-host")
    assert error.key == "url"
    assert "planted" not in str(error)


@pytest.mark.parametrize("value", ["nan", "inf", "2026-01-01", '"\\u0000"', "[[1]]", "{ a = { b = 1 } }"])
def test_a_value_that_no_command_line_has_is_refused(folder: Path, value: str) -> None:
    error = changed(folder, "sglang-baseline", '"page-size" = 1', f'"page-size" = 1\nodd = {value}')
    assert error.path == folder / "sglang-baseline.toml"
