"""Preflight: pairs that fit, pairs that an engine refuses late, and pairs that it lets through and must not run."""

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import model_folders as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.preflight import command as preflight

BIG = "48"


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, dict[str, Any]]:
    parser = argparse.ArgumentParser()
    preflight.add_arguments(parser)
    code = preflight.command(parser.parse_args([*map(str, words), "--json"]))
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else {"error": out.err}


def found(report: dict[str, Any], check: str) -> dict[str, Any]:
    return next(one for one in report["findings"] if one["check"] == check)


@pytest.fixture
def study_pair(tmp_path: Path) -> tuple[Path, Path]:
    """The case study's pair: one tokenizer, 152,064 and 151,936 rows."""
    vocabulary = make.tokens(151_665)
    config = make.qwen_32b() | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    target = make.folder(tmp_path / "Qwen2.5-32B-Instruct-AWQ", config=config, vocabulary=vocabulary)
    return target, make.folder(tmp_path / "Qwen2.5-1.5B", config=make.qwen_1_5b(), vocabulary=vocabulary)


@pytest.mark.parametrize(("engine", "code"), [("sglang", 1), ("vLLM", 1), ("llama.cpp", 0)])
def test_152064_against_151936_is_refused_where_the_engine_refuses_it(
    capsys: pytest.CaptureFixture[str], study_pair: tuple[Path, Path], engine: str, code: int
) -> None:
    target, draft = study_pair
    got, report = run(capsys, "--target", target, "--draft", draft, "--engine", engine, "--device-memory-gib", BIG)
    assert got == code, report["refused"]
    assert (report["sizes_equal"], report["id_maps_equal"]) == (False, True)
    sizes = found(report, "vocabulary sizes equal")
    assert "target 152,064, draft 151,936, difference 128" in sizes["seen"]
    said = {one["facts"]["engine"]: one["facts"]["says"] for one in report["findings"] if "would" in one["check"]}
    assert said == {"sglang": "refuses", "vllm": "refuses", "llama.cpp": "accepts"}
    assert "got target vocab_size=152064 and draft vocab_size=151936" in found(report, "SGLang would")["seen"]
    assert "Target model vocab_size=152064. Draft model vocab_size=151936" in found(report, "vLLM would")["seen"]


def test_enlarging_the_vocabulary_is_never_the_remedy(
    capsys: pytest.CaptureFixture[str], study_pair: tuple[Path, Path]
) -> None:
    target, draft = study_pair
    _, report = run(capsys, "--target", target, "--draft", draft, "--engine", "sglang")
    for one in report["findings"]:
        assert "pad" not in (one["remedy"] or "").lower()
    assert "do not edit or enlarge" in found(report, "vocabulary sizes equal")["remedy"]


def test_a_difference_of_129_is_more_than_llama_cpp_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | {"vocab_size": 400})
    draft = make.folder(tmp_path / "d", config=make.QWEN | {"vocab_size": 271})
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "llama.cpp")
    assert code == 1
    assert report["refused"] == ["vocabulary sizes equal", "llama.cpp would"]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llama.cpp"])
def test_equal_sizes_with_another_id_map_are_refused_on_every_engine_with_the_first_ids(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: str
) -> None:
    permuted = {f"t{i}": (i if i < 5 else 5 + (i - 4) % 55) for i in range(60)}
    target, draft = make.folder(tmp_path / "t"), make.folder(tmp_path / "d", vocabulary=permuted)
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", engine)
    assert code == 1
    assert (report["sizes_equal"], report["id_maps_equal"]) == (True, False)
    assert report["first_different_ids"][0] == {"id": 5, "target": "t5", "draft": "t59"}
    assert found(report, "vocabulary sizes equal")["verdict"] == "pass"
    assert found(report, "token-id maps equal")["verdict"] == "refuse"
    lets_through = found(report, "vLLM would")["facts"]["says"], found(report, "SGLang would")["facts"]["says"]
    assert lets_through == ("accepts", "accepts")


def test_ids_are_not_taken_to_lie_beyond_a_vocabulary_whose_size_is_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unsized = {key: value for key, value in make.QWEN.items() if key != "vocab_size"}
    target = make.folder(tmp_path / "t", config=unsized)
    draft = make.folder(tmp_path / "d", vocabulary=make.tokens(59))
    _, report = run(capsys, "--target", target, "--draft", draft, "--engine", "llama.cpp")
    maps = found(report, "token-id maps equal")
    assert maps["verdict"] == "refuse"
    assert "these are equal" not in maps["seen"]


def test_a_pair_that_fits_is_good(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target, draft = make.folder(tmp_path / "t"), make.folder(tmp_path / "d")
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "sglang", "--device-memory-gib", BIG)
    assert (code, report["verdict"], report["refused"]) == (0, "good", [])
    assert report["algorithm"] == "draft"


def test_a_draft_without_a_tokenizer_is_not_taken_on_its_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target, draft = make.folder(tmp_path / "t"), make.folder(tmp_path / "d", tokenizer=False)
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "sglang")
    assert code == 1
    assert report["id_maps_equal"] is None
    assert "neither tokenizer.json nor vocab.json is there" in found(report, "token-id maps equal")["seen"]


def test_vllm_told_to_map_between_vocabularies_is_a_caution(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from infra.preflight.memory_estimate import Devices
    from infra.preflight.subject import Subject

    subject = Subject(
        arm=None,
        engine="vllm",
        algorithm="draft",
        target=make.folder(tmp_path / "t"),
        draft=make.folder(tmp_path / "d", vocabulary={"other": 0}, config=make.QWEN | {"vocab_size": 7}),
        devices=Devices(memory_gib=1.0, overhead_gib=0.1),
        heterogeneous=True,
    )
    verdicts = {one.check: one.verdict for one in preflight.look(subject)}
    assert verdicts["vocabulary sizes equal"] == verdicts["token-id maps equal"] == "caution"


def test_special_tokens_that_llama_cpp_adds_have_to_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ours = {"bos_token": "t1", "eos_token": "t2", "add_bos_token": True}
    target = make.folder(tmp_path / "t", tokenizer_config=ours)
    draft = make.folder(tmp_path / "d", tokenizer_config=ours | {"add_bos_token": False})
    pair = ("--target", target, "--draft", draft)
    code, report = run(capsys, *pair, "--engine", "llama.cpp")
    assert code == 1
    assert report["refused"] == ["special tokens", "llama.cpp would"]
    code, report = run(capsys, *pair, "--engine", "sglang")
    assert (code, found(report, "special tokens")["verdict"]) == (0, "caution")


def test_generation_settings_that_end_elsewhere_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = make.folder(tmp_path / "t", generation_config={"eos_token_id": [3, 2]})
    draft = make.folder(tmp_path / "d", generation_config={"eos_token_id": [2]})
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "sglang")
    assert (code, found(report, "special tokens")["facts"]["different"]) == (0, ["eos_all"])


# rows, quantisation


@pytest.mark.parametrize(
    ("rows", "vocab_size", "verdict", "said"),
    [
        (64, 64, "pass", "4 rows stand for nothing"),
        (60, 60, "pass", "60 rows (lm_head.weight), ids up to 59"),
        (59, 59, "refuse", "1 ids have no row"),
        (64, 80, "refuse", "vocab_size is 80"),
    ],
)
def test_every_id_of_the_tokenizer_has_a_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, rows: int, vocab_size: int, verdict: str, said: str
) -> None:
    config = make.QWEN | {"vocab_size": vocab_size}
    target = make.folder(tmp_path / "t", config=config, shapes={"lm_head.weight": ("BF16", (rows, 8))})
    _, report = run(capsys, "--target", target, "--engine", "vllm")
    finding = found(report, "vocabulary rows of the target")
    assert finding["verdict"] == verdict
    assert said in finding["seen"]


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


@pytest.mark.parametrize(
    ("label", "fits"),
    [
        *[("AWQ", True), ("awq-int4", True), ("int4", True), ("4-bit", True), ("awq_marlin", True)],
        *[("GPTQ", False), ("fp8", False), ("awq-8bit", False), ("bf16", False), ("none", False)],
    ],
)
def test_a_label_that_is_not_what_the_checkpoint_says_is_contradicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, label: str, fits: bool
) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | {"quantization_config": AWQ})
    code, report = run(capsys, "--target", target, "--engine", "vllm", "--quantisation", label)
    finding = found(report, "quantisation of the target")
    assert (code, "contradicted" in finding["seen"]) == (0, False) if fits else (1, True)


def test_an_unquantised_checkpoint_contradicts_the_label_fp8(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = make.folder(tmp_path / "t", shapes={"lm_head.weight": ("BF16", (64, 8))})
    code, report = run(capsys, "--target", target, "--engine", "vllm", "--quantisation", "fp8")
    assert code == 1
    assert found(report, "quantisation of the target")["facts"]["read"] == "bf16"


def test_a_configuration_that_its_own_tensors_contradict_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = make.QWEN | {"quantization_config": AWQ}
    target = make.folder(tmp_path / "t", config=config, shapes=make.dense_shapes(make.QWEN))
    code, report = run(capsys, "--target", target, "--engine", "vllm", "--quantisation", "awq")
    assert code == 1
    assert "contradicted by its tensors: matrices are BF16 100%" in found(report, "quantisation of the target")["seen"]


# EAGLE-3 and MTP

HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 64,
    "draft_vocab_size": 3,
    "torch_dtype": "bfloat16",
}
HEAD_SHAPES = {
    "fc.weight": ("BF16", (8, 24)),
    "midlayer.self_attn.q_proj.weight": ("BF16", (8, 16)),
    "lm_head.weight": ("BF16", (3, 8)),
    "d2t": ("I64", (3,)),
    "t2d": ("BOOL", (64,)),
}


def head(path: Path, d2t: tuple[int, ...] = (0, 4, 61), marked: tuple[int, ...] = (0, 5, 63), **changes: Any) -> Path:
    shapes = HEAD_SHAPES | changes.pop("shapes", {})
    shapes = {name: shape for name, shape in shapes.items() if shape is not None}
    data = {"d2t": struct.pack(f"<{len(d2t)}q", *d2t), "t2d": bytes(i in marked for i in range(64))}
    data = {name: value for name, value in data.items() if name in shapes}
    return make.folder(path, config=HEAD | changes, shapes=shapes, data=data, tokenizer=False)


def test_an_eagle3_head_that_fits_its_target_is_good(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | {"num_hidden_layers": 64})
    code, report = run(capsys, "--target", target, "--draft", head(tmp_path / "h"), "--engine", "sglang")
    assert (code, report["algorithm"]) == (0, "eagle3"), report["refused"]
    assert found(report, "EAGLE-3 layers to capture")["facts"]["layer_ids"] == [2, 32, 61]
    assert found(report, "draft-to-target map")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("changes", "check", "said"),
    [
        ({"shapes": {"fc.weight": ("BF16", (8, 16))}}, "EAGLE-3 hidden size", "takes 16 inputs, 3 x 8 = 24 come"),
        ({"target_hidden_size": 16}, "EAGLE-3 hidden size", "expects hidden states of 16, the target's have 8"),
        ({"vocab_size": 65}, "EAGLE-3 vocabulary", "made for a vocabulary of 65, the target's has 64"),
        ({"shapes": {"lm_head.weight": ("BF16", (4, 8))}}, "EAGLE-3 vocabulary", "shape [4, 8], draft_vocab_size is 3"),
        ({"shapes": {"d2t": None}}, "draft-to-target map", "has no d2t"),
        ({"d2t": (0, 4, 62)}, "draft-to-target map", "maps draft id 2 to 64, and the target has 64 ids"),
        ({"d2t": (1, 0, 61)}, "draft-to-target map", "that another maps to"),
        ({"marked": (0, 5)}, "draft-to-target map", "t2d marks 2 target ids"),
        ({"shapes": {"t2d": ("BOOL", (63,))}}, "draft-to-target map", "t2d has shape [63]"),
        ({"draft_vocab_size": 4}, "draft-to-target map", "d2t has shape [3]"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}},
            "EAGLE-3 layers to capture",
            "9 is no layer",
        ),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "EAGLE-3 layers to capture", "3 different layers"),
    ],
)
def test_an_eagle3_head_of_another_target_is_refused_by_what_differs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changes: dict[str, Any], check: str, said: str
) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | {"num_hidden_layers": 8})
    draft = head(tmp_path / "h", **changes)
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "sglang")
    assert code == 1
    assert said in found(report, check)["seen"]


MTP_SHAPES = {"model.layers.4.eh_proj.weight": ("BF16", (8, 16)), "lm_head.weight": ("BF16", (64, 8))}


def test_mtp_layers_have_to_be_said_and_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ask = ("--algorithm", "mtp", "--engine", "vllm")
    config = make.QWEN | {"num_nextn_predict_layers": 2}
    good = make.folder(tmp_path / "good", config=config, shapes=MTP_SHAPES)
    assert run(capsys, "--target", good, *ask, "--num-draft-tokens", "4")[0] == 0
    code, report = run(capsys, "--target", good, *ask, "--num-draft-tokens", "5")
    assert (code, found(report, "MTP layers")["seen"]) == (
        1,
        "num_speculative_tokens:5 must be divisible by n_predict=2",
    )
    stripped = make.folder(tmp_path / "s", config=config, shapes={"lm_head.weight": ("BF16", (64, 8))})
    code, report = run(capsys, "--target", stripped, *ask)
    assert (code, "none of their tensors is there" in found(report, "MTP layers")["seen"]) == (1, True)
    assert run(capsys, "--target", stripped, "--engine", "vllm")[0] == 0  # not asked for: told, not refused
    without = make.folder(tmp_path / "w", shapes={"lm_head.weight": ("BF16", (64, 8))})
    assert run(capsys, "--target", without, *ask)[0] == 1
    wide = make.folder(
        tmp_path / "x", config=config, shapes=MTP_SHAPES | {"model.layers.4.eh_proj.weight": ("BF16", (8, 8))}
    )
    assert "takes 8 inputs, 2 x 8 come" in found(run(capsys, "--target", wide, *ask)[1], "MTP layers")["seen"]


# memory


def dense_27b() -> dict[str, Any]:
    """27.2 billion parameters of conventional attention."""
    shape = {"hidden_size": 5120, "intermediate_size": 24576, "num_hidden_layers": 56, "num_attention_heads": 40}
    return make.QWEN | shape | {"num_key_value_heads": 8, "vocab_size": 152064}


@pytest.fixture
def whole_27b(tmp_path: Path) -> Path:
    return make.folder(tmp_path / "m27b", config=dense_27b(), shapes=make.dense_shapes(dense_27b()))


def test_27_billion_unquantised_parameters_on_48_gib_are_refused_with_the_sum(
    capsys: pytest.CaptureFixture[str], whole_27b: Path
) -> None:
    code, report = run(capsys, "--target", whole_27b, "--engine", "vllm", "--device-memory-gib", "48")
    assert (code, report["refused"]) == (1, ["memory"])
    memory = found(report, "memory")
    facts = memory["facts"]
    parts = facts["target_weights_bytes"] + facts["target_KV_cache_bytes"] + facts["overhead_bytes"]
    assert abs(parts - facts["needed_bytes"]) <= 2
    assert facts["target_weights_bytes"] == pytest.approx(2 * 27.2e9, rel=0.05)
    for word in ("target weights", "target KV", "overhead", "1 x 48 = 48.00 GiB"):
        assert word in memory["seen"]


@pytest.mark.parametrize(
    "words",
    [
        ("--n-gpu-layers", "30"),
        ("--cpu-offload-gib", "16"),
        ("--n-devices", "2"),
        ("--device-memory-gib", "80"),
    ],
)
def test_an_arm_that_offloads_or_has_more_memory_passes_with_the_arithmetic(
    capsys: pytest.CaptureFixture[str], whole_27b: Path, words: tuple[str, ...]
) -> None:
    code, report = run(capsys, "--target", whole_27b, "--engine", "vllm", "--device-memory-gib", "48", *words)
    assert code == 0, found(report, "memory")["seen"]
    if "gpu-layers" in words[0]:
        assert "30 of 56 + 1 layers on the device" in found(report, "memory")["seen"]
    if "offload" in words[0]:
        assert "16 GiB a device offloaded" in found(report, "memory")["seen"]


def test_a_model_that_is_not_here_yet_is_estimated_from_its_configuration(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, whole_27b: Path
) -> None:
    bare = make.folder(tmp_path / "bare", config=dense_27b())
    words = ("--engine", "vllm", "--device-memory-gib", "48")
    code, report = run(capsys, "--target", bare, *words)
    _, whole = run(capsys, "--target", whole_27b, *words)
    assert (code, report["refused"]) == (1, ["memory"])
    estimated, read = (found(one, "memory")["facts"]["target_weights_bytes"] for one in (report, whole))
    assert estimated == pytest.approx(read, rel=0.001)
    assert "estimated from config.json" in found(report, "memory")["seen"]


def test_the_32b_awq_target_is_estimated_near_its_published_size(
    capsys: pytest.CaptureFixture[str], study_pair: tuple[Path, Path]
) -> None:
    """The published checkpoint has 19.3 GB of weights."""
    _, report = run(capsys, "--target", study_pair[0], "--engine", "sglang", "--device-memory-gib", "24")
    assert found(report, "memory")["facts"]["target_weights_bytes"] == pytest.approx(19.3e9, rel=0.03)


def test_the_memory_fraction_limits_weights_and_cache(capsys: pytest.CaptureFixture[str], whole_27b: Path) -> None:
    words = ("--target", whole_27b, "--engine", "sglang", "--device-memory-gib", "60")
    assert run(capsys, *words)[0] == 0
    code, report = run(capsys, *words, "--memory-fraction", "0.8")
    assert code == 1
    assert "the 0.8 of 1 x 60" in found(report, "memory")["seen"]


# KV cache


@pytest.mark.parametrize(
    ("dtype", "n_bytes"), [(None, 64 * 8 * 256 * 2), ("fp8_e5m2", 64 * 8 * 256), ("q8_0", 64 * 8 * 256 * 34 / 32)]
)
def test_bytes_of_cache_a_token_follow_from_layers_heads_width_and_type(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str | None, n_bytes: float
) -> None:
    target = make.folder(tmp_path / "t", config=make.qwen_32b())
    words = () if dtype is None else ("--kv-dtype", dtype)
    _, report = run(capsys, "--target", target, "--engine", "sglang", *words)
    facts = found(report, "KV cache")["facts"]
    assert facts["bytes_per_token"] == n_bytes
    if dtype == "fp8_e5m2":
        assert facts["saves_ratio"] == 0.5
    elif dtype is None:
        assert (facts["would_save_with"], facts["would_save_ratio"]) == ("fp8", 0.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kv_lora_rank": 512}, "multi-head latent attention (MLA) (kv_lora_rank = 512)"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layers that are no full attention"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "sliding-window attention"),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding-window attention (sliding_window = 4096)"),
        ({"full_attention_interval": 4}, "recurrent state beside attention"),
        ({"mamba_d_state": 128}, "recurrent state beside attention"),
        ({"num_kv_shared_layers": 10}, "layers that share their cache"),
    ],
)
def test_no_number_is_given_for_a_cache_that_is_not_modelled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | changes)
    _, report = run(capsys, "--target", target, "--engine", "sglang", "--kv-dtype", "fp8_e5m2")
    finding = found(report, "KV cache")
    assert (finding["verdict"], "bytes_per_token" in finding["facts"]) == ("unknown", False)
    assert said in finding["seen"]
    assert "target KV not counted" in found(report, "memory")["seen"]


@pytest.mark.parametrize("changes", [{}, {"use_sliding_window": True}, {"layer_types": ["full_attention"] * 4}])
def test_a_window_that_is_off_or_never_slides_is_conventional(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changes: dict[str, Any]
) -> None:
    target = make.folder(tmp_path / "t", config=make.QWEN | changes)
    assert found(run(capsys, "--target", target, "--engine", "vllm")[1], "KV cache")["verdict"] == "pass"


def test_the_source_of_fp8_scales_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bare = make.folder(tmp_path / "a")
    scaled = make.folder(tmp_path / "b", shapes={"model.layers.0.self_attn.k_scale": ("F32", (1,))})
    words = ("--engine", "vllm", "--kv-dtype")
    assert "1.0 for each" in found(run(capsys, "--target", bare, *words, "fp8_e4m3")[1], "KV scales")["seen"]
    assert found(run(capsys, "--target", bare, *words, "fp8_e5m2")[1], "KV scales")["verdict"] == "pass"
    assert "k_scale first" in found(run(capsys, "--target", scaled, *words, "fp8")[1], "KV scales")["seen"]
    report = run(capsys, "--target", bare, "--engine", "vllm")[1]
    assert not [one for one in report["findings"] if one["check"] == "KV scales"]


# half-there folders and usage


def test_an_index_without_shards_is_refused_unless_only_metadata_is_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = make.folder(tmp_path / "t")
    index = {"metadata": {"total_size": 1000}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    code, report = run(capsys, "--target", target, "--engine", "vllm", "--device-memory-gib", BIG)
    assert (code, report["refused"]) == (1, ["target files"])
    assert "model-00001-of-00001.safetensors first; fetch them" in found(report, "target files")["seen"]
    code, _ = run(capsys, "--target", target, "--engine", "vllm", "--device-memory-gib", BIG, "--metadata-only")
    assert code == 0


def test_a_truncated_header_is_refused_and_the_vocabulary_is_still_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = make.folder(tmp_path / "t", shapes={"lm_head.weight": ("BF16", (64, 8))})
    weights = target / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:30])
    draft = make.folder(tmp_path / "d", config=make.QWEN | {"vocab_size": 61})
    code, report = run(capsys, "--target", target, "--draft", draft, "--engine", "vllm")
    assert code == 1
    assert {"target files", "vocabulary sizes equal"} <= set(report["refused"])
    assert "truncated" in found(report, "target files")["seen"]


def test_a_target_without_a_tokenizer_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = make.folder(tmp_path / "t", tokenizer=False)
    code, report = run(capsys, "--target", target, "--engine", "vllm")
    assert (code, report["refused"]) == (1, ["vocabulary rows of the target"])


ODD = st.sampled_from([None, True, 0, -1, 3, 2.5, "x", "", [], [1], [[1]], ["full_attention", 3], {}, {"a": 1}, 10**30])
KEYS = sorted(
    {*make.QWEN, *HEAD, "text_config", "quantization_config", "compression_config", "layer_types", "kv_lora_rank"}
    | {"head_dim", "eos_token_id", "num_nextn_predict_layers", "eagle_config", "eagle_aux_hidden_state_layer_ids"}
    | {"num_experts", "moe_intermediate_size", "num_kv_shared_layers", "dtype", "speculators_model_type"}
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), ODD, max_size=5), st.booleans())
def test_no_odd_value_of_a_configuration_makes_it_fail(changes: dict[str, Any], as_head: bool) -> None:
    import tempfile

    from infra.preflight.memory_estimate import Devices
    from infra.preflight.subject import Subject

    with tempfile.TemporaryDirectory() as base:
        path = Path(base)
        target = make.folder(path / "t", config=make.QWEN if as_head else make.QWEN | changes)
        draft = head(path / "h", **changes) if as_head else make.folder(path / "d", config=make.QWEN | changes)
        subject = Subject(
            arm=None,
            engine="vllm",
            algorithm="eagle3" if as_head else "draft",
            target=target,
            draft=draft,
            devices=Devices(memory_gib=48.0),
            kv_dtype="fp8",
            label="awq",
        )
        findings = preflight.look(subject)
        json.dumps(preflight.as_json(subject, findings))
        assert preflight.table(subject, findings)


@pytest.mark.parametrize("name", ["generation_config", "tokenizer_config", "hf_quant_config", "kv_cache_scales"])
@pytest.mark.parametrize("value", [[], {}, "x", {"quantization": "x"}, {"eos_token_id": "x"}, {"eos_token": 5}])
def test_no_odd_small_file_makes_it_fail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, value: Any
) -> None:
    target = make.folder(tmp_path / "t", **{name: value})
    code, report = run(capsys, "--target", target, "--draft", target, "--engine", "sglang", "--kv-dtype", "fp8")
    assert code in (0, 1)
    assert report["findings"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to look at; give an ARM"),
        (("no-such-arm",), "there is no such arm"),
        (("--target", "/nowhere/at/all"), "is not there; give a model folder"),
        (("--target", ".", "--engine", "ollama"), "no rules for an engine 'ollama'"),
    ],
)
def test_what_cannot_be_looked_at_is_usage(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, report = run(capsys, *words)
    assert code == 2
    assert said in report["error"]


def test_the_printed_table_ends_with_the_verdict_and_shows_remedies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    preflight.add_arguments(parser)
    target = make.folder(tmp_path / "t", tokenizer=False)
    assert preflight.command(parser.parse_args(["--target", str(target), "--engine", "vllm"])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "preflight: t, vLLM, speculation: none"
    assert lines[-1] == "REFUSED: vocabulary rows of the target"
    assert any(line.strip() == "-> put the target's tokenizer files into its folder" for line in lines)


# arms


@pytest.mark.engine
def test_the_bad_pair_of_the_embedded_engine_is_refused_before_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run(capsys, "cpu-f32-badpair")
    assert (code, report["sizes_equal"], report["id_maps_equal"]) == (1, True, False)
    assert report["first_different_ids"][0] == {"id": 17, "target": "!", "draft": '"'}
    assert "token-id maps equal" in report["refused"]


@pytest.mark.engine
@pytest.mark.parametrize("arm", ["cpu-f32", "cpu-f32-draft", "cpu-f32-kvq8", "cpu-q4-selfdraft"])
def test_the_arms_that_start_are_good(capsys: pytest.CaptureFixture[str], arm: str) -> None:
    code, report = run(capsys, arm)
    assert (code, report["refused"]) == (0, []), report


def test_the_studys_draft_arm_is_refused_before_a_machine_is_rented(
    capsys: pytest.CaptureFixture[str], study_pair: tuple[Path, Path]
) -> None:
    target, draft = study_pair
    code, report = run(capsys, "study-draft", "--target", target, "--draft", draft)
    assert (code, report["engine"], report["algorithm"]) == (1, "sglang", "draft")
    assert "vocabulary sizes equal" in report["refused"]


def test_a_hubs_name_is_looked_for_where_models_are_said_to_lie(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    code, report = run(capsys, "study-baseline")
    assert code == 2
    assert "the files of Qwen/Qwen2.5-32B-Instruct-AWQ are not here" in report["error"]
    config = make.qwen_32b() | {"quantization_config": AWQ}
    vocabulary = make.tokens(100)
    make.folder(tmp_path / "models" / "Qwen2.5-32B-Instruct-AWQ", config=config, vocabulary=vocabulary)
    assert run(capsys, "study-baseline", "--models", tmp_path / "models")[1]["engine"] == "sglang"
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "hub" / "models--Qwen--Qwen2.5-32B-Instruct-AWQ"
    make.folder(cached / "snapshots" / commit, config=config, vocabulary=vocabulary)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    _, report = run(capsys, "study-baseline")
    assert report["target"] == "Qwen/Qwen2.5-32B-Instruct-AWQ@0123456789ab"
