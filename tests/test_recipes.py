"""The arms: strict recipes that differ from their baseline in what they name, and in nothing else."""

from pathlib import Path
from typing import Any

import pytest

from infra.launching.embedded import SettingError, fill, settings
from infra.launching.models import FILES
from infra.launching.recipes import ARMS, ArmError, EmbeddedArm, arm_names, differences, load_arm
from infra.launching.resolved import compare_resolved

EMBEDDED = (
    *("cpu-f32", "cpu-f32-badpair", "cpu-f32-draft", "cpu-f32-kvq8", "cpu-f32-ngram"),
    *("cpu-q4", "cpu-q4-selfdraft"),
)
COMMANDS = (
    *("llamacpp-cpu", "llamacpp-cuda", "llamacpp-cuda-draft", "llamacpp-cuda-kvq8", "llamacpp-cuda-mtp"),
    *("llamacpp-cuda-mtp-off", "llamacpp-cuda-ngram", "llamacpp-vulkan-mtp", "llamacpp-vulkan-mtp-off"),
    *(
        "sglang-baseline",
        "sglang-draft",
        "sglang-eagle3",
        "sglang-fp8kv",
        "sglang-mtp",
        "sglang-mtp-off",
        "sglang-ngram",
    ),
    *(f"sglang-q32-shape-{name}" for name in ("baseline", "ngram", "standalone", "tp2-baseline")),
    *(f"sglang-q32-shape-tp2-{name}" for name in ("nccl-baseline", "nccl-ngram", "ngram")),
    *(f"sglang-q32-shape-tp2-{name}" for name in ("nop2p-baseline", "nop2p-ngram")),
    *(f"sglang-smol-tp-shape-{name}" for name in ("baseline", "ngram", "tp2-baseline", "tp2-ngram")),
    *(f"sglang-smollm2-{name}" for name in ("badvocab", "baseline", "eagle3-random", "fp8kv", "ngram", "permuted")),
    *(f"sglang-smollm2-{name}" for name in ("pool4k", "pool4k-fp8kv", "pool8k-fp8kv")),
    *(f"sglang-smollm2-standalone-{name}" for name in ("distilled", "self")),
    *("study-baseline", "study-draft", "study-eagle3", "study-fp8kv", "study-ngram"),
    *("vllm-baseline", "vllm-draft", "vllm-eagle3", "vllm-fp8kv", "vllm-mtp", "vllm-mtp-off", "vllm-ngram"),
)
STOCK = (*EMBEDDED, *COMMANDS)
BASELINES = [
    *("cpu-f32", "llamacpp-cpu", "llamacpp-cuda", "llamacpp-cuda-mtp-off", "llamacpp-vulkan-mtp-off"),
    *("sglang-baseline", "sglang-mtp-off"),
    *("sglang-q32-shape-baseline", "sglang-smol-tp-shape-baseline", "sglang-smollm2-baseline"),
    *("study-baseline", "vllm-baseline", "vllm-mtp-off"),
]
SPECULATING = ("ngram", "draft", "badpair", "eagle3", "mtp", "standalone", "badvocab", "permuted")


def test_the_stock_arms_are_these() -> None:
    assert arm_names() == STOCK
    assert [name for name in STOCK if load_arm(name).baseline is None] == BASELINES


@pytest.mark.parametrize("name", STOCK)
def test_speculation_is_asked_for_exactly_where_the_name_says_so(name: str) -> None:
    asked = any(word in name for word in SPECULATING) and not name.endswith("-off")
    assert load_arm(name).speculative is asked


def resolved(arm: EmbeddedArm) -> dict[str, Any]:
    """Every setting of the engine as it would start, its defaults too; the model's path is the model's name."""
    import xllamacpp

    arguments: dict[str, Any] = {**arm.model_dump(mode="json")["args"], "model.path": FILES[arm.target]}
    if arm.draft is not None:
        arguments["speculative.draft.mparams.path"] = FILES[arm.draft]
    return settings(fill(xllamacpp.CommonParams(), arguments))


def load_embedded(name: str) -> EmbeddedArm:
    arm = load_arm(name)
    assert isinstance(arm, EmbeddedArm)
    return arm


@pytest.mark.engine
@pytest.mark.parametrize("name", [name for name in EMBEDDED if name != "cpu-f32"])
def test_every_resolved_setting_but_the_varied_ones_equals_the_baselines(name: str) -> None:
    arm = load_embedded(name)
    assert arm.baseline is not None
    assert arm.varied is not None
    baseline = load_embedded(arm.baseline)
    as_engine_keys = {"target": "model.path", "draft": "speculative.draft.mparams.path"}
    difference = differences(resolved(arm), resolved(baseline))
    assert difference.keys() == {as_engine_keys.get(key, key) for key in arm.varied.keys}
    assert compare_resolved(resolved(baseline), resolved(arm), arm.varied.keys) == ()


@pytest.mark.engine
def test_the_engine_reads_back_what_the_baseline_writes() -> None:
    found = resolved(load_embedded("cpu-f32"))
    assert found["cpuparams.n_threads"] == found["cpuparams_batch.n_threads"] == 1
    assert (found["flash_attn_type"], found["cache_type_k"], found["speculative.types"]) == ("enabled", "f16", ["none"])
    assert found["hostnames"] == ["127.0.0.1"]
    assert found["model_alias"] == ["SmolLM2-135M-Instruct"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("n_ctxx", 1, "the engine has no setting 'n_ctxx' here"),
        ("speculative.nothing.n_max", 1, "the engine has no setting 'nothing' here"),
        ("__class__", 1, "the engine has no setting"),
        ("n_ctx", "4096", "is str, the engine wants int"),
        ("n_ctx", True, "is bool, the engine wants int"),
        ("cache_type_k", "q9_9", "choose one of: f32, f16, q4_0"),
        ("speculative.types", ["ngram"], "choose one of: none, draft_simple"),
    ],
)
def test_an_argument_that_the_engine_does_not_have_is_refused_by_key_and_value(key: str, value: Any, said: str) -> None:
    import xllamacpp

    with pytest.raises(SettingError) as caught:
        fill(xllamacpp.CommonParams(), {key: value})
    assert caught.value.key == key
    assert said in str(caught.value)


def test_an_unknown_arm_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ArmError) as caught:
        load_arm("nosuch")
    assert str(caught.value) == f"arm = 'nosuch': there is no such arm. Choose one of: {', '.join(STOCK)}"


def test_the_arms_most_like_a_mistyped_one_are_named_first() -> None:
    with pytest.raises(ArmError) as caught:
        load_arm("cpu-f32-draf")
    listed = str(caught.value).partition("Choose one of: ")[2].split(", ")
    assert listed[0] == "cpu-f32-draft"
    assert sorted(listed) == sorted(STOCK)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is no recipe"),
        ("../arms/cpu-f32", "is no recipe. Name an arm, or a recipe's file: its name ends in .toml"),
        ("{here}/text", "is no recipe"),
        ("{here}/nosuch.toml", "{here}/nosuch.toml: there is no such file. Name a recipe's file"),
        ("{here}/loop.toml", "there is no such file"),
        ("{here}/latin.toml", "{here}/latin.toml: line 2: byte 0xe9 is not UTF-8. Save it as UTF-8"),
        ("{here}/huge.toml", "{here}/huge.toml: is larger than 1 MiB. Name a recipe's file"),
        ("{here}/deep.toml", "Mend the TOML"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_in_words_that_say_why(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "text").write_text("not a recipe")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    (tmp_path / "latin.toml").write_bytes(b'kind = "embedded"\nname = "caf\xe9"\n')
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(1 << 33)
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    with pytest.raises(ArmError) as caught:
        load_arm(name.format(here=tmp_path))
    assert said.format(here=tmp_path) in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cpu-f32", "cpu-f32-ngram", "cpu-f32-draft"):
        (tmp_path / f"{name}.toml").write_text((ARMS / f"{name}.toml").read_text())
    return tmp_path


def changed(folder: Path, old: str, new: str, name: str = "cpu-f32-ngram") -> ArmError:
    path = folder / f"{name}.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ArmError) as caught:
        load_arm(name, folder)
    assert caught.value.path == path
    return caught.value


def test_a_setting_that_differs_by_accident_is_refused_by_key(folder: Path) -> None:
    error = changed(folder, "n_ctx = 4096", "n_ctx = 2048")
    assert (error.key, error.value) == ("n_ctx", 2048)
    assert "differs from cpu-f32 (4096) and is not varied on purpose" in str(error)


def test_a_setting_left_out_by_accident_is_refused_by_key(folder: Path) -> None:
    error = changed(folder, "cache_ram_mib = 0\n", "")
    assert (error.key, error.value) == ("cache_ram_mib", None)


def test_a_varied_key_that_does_not_vary_is_refused(folder: Path) -> None:
    error = changed(folder, '"speculative.types",', '"speculative.types", "n_ctx",')
    assert (error.key, error.value) == ("varied.keys", "n_ctx")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('engine = "llama.cpp embedded"', 'engine = "vllm"', "engine"),
        ("ready_timeout_s = 60.0", "ready_timeout_s = 0.0", "ready_timeout_s"),
        ("ready_timeout_s = 60.0", 'ready_timeout_s = "60"', "ready_timeout_s"),
        ("environment = {}", "environment = { A = 1 }", "environment.A"),
        ("environment = {}", "enviroment = {}", "environment"),
        ('target = "smollm2-135m-f32"', 'target = "mine"', "target"),
        ('kind = "embedded"', "", "kind"),
        ('kind = "embedded"', 'kind = "docker"', "kind"),
        ('name = "cpu-f32-ngram"', 'name = "cpu-f32-n-gram"', "name"),
        ("[args]", "[args]\nport = 8080", "args.port"),
        ("[args]", '[args]\n"model.path" = "x.gguf"', "args.model.path"),
        ('target = "smollm2-135m-f32"', 'target = "smollm2-135m-f32"\ndraft = "smollm2-135m-q4_1"', "draft"),
        ('baseline = "cpu-f32"\n', "", "varied"),
        ('baseline = "cpu-f32"', 'baseline = "cpu-f32-ngram"', "baseline"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_file_and_key(folder: Path, old: str, new: str, key: str) -> None:
    assert changed(folder, old, new).key == key


def test_a_draft_type_without_a_draft_is_refused(folder: Path) -> None:
    assert changed(folder, 'draft = "smollm2-135m-q4_1"\n', "", "cpu-f32-draft").key == "draft"


def test_toml_that_cannot_be_read_is_refused_by_file(folder: Path) -> None:
    assert "Mend the TOML" in str(changed(folder, "[args]", "[args"))


def test_a_baseline_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "cpu-f32.toml").unlink()
    with pytest.raises(ArmError, match="arm = 'cpu-f32'"):
        load_arm("cpu-f32-ngram", folder)
