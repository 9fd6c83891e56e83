"""Model folders made from a GGUF file: the numbers are kept, and a preflight finds what is wrong with each draft."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.launching.recipes import CommandArm, arm_names, load_arm
from infra.offline import model_folders
from infra.offline.gguf_reading import _rows_in_order
from infra.offline.safetensors_writing import Floats, bfloat16, write_bfloat16
from infra.preflight.command import look
from infra.preflight.findings import Finding
from infra.preflight.memory_estimate import Devices
from infra.preflight.subject import Subject
from infra.preflight.weight_headers import read_safetensors

WORDS = ["<end>", "<begin>", "a", "b", "c", "d", "ab", "cd"]
TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [{"id": i, "content": WORDS[i], "special": True} for i in (0, 1)],
    "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(WORDS)}, "merges": [["a", "b"], ["c", "d"]]},
}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "head_dim": 4,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 0,
    "tie_word_embeddings": True,
}


def weights(config: dict[str, Any]) -> dict[str, Floats]:
    rows = {"model.embed_tokens.weight": np.ones((config["vocab_size"], 8), dtype=np.float32)}
    return {**rows, "model.norm.weight": np.ones(8, dtype=np.float32)}


def folder(path: Path, config: dict[str, Any], tokenizer: dict[str, Any], tensors: dict[str, Any]) -> Path:
    model_folders._folder(path, config, tokenizer, {"eos_token": WORDS[0]}, tensors)
    return path


def refused(target: Path, draft: Path, algorithm: str = "draft") -> list[str]:
    found: tuple[Finding, ...] = look(
        Subject(
            arm=None,
            engine="sglang",
            algorithm=algorithm,
            target=target,
            draft=draft,
            devices=Devices(memory_gib=100.0),
        )
    )
    return [finding.check for finding in found if finding.verdict == "refuse"]


def test_a_draft_of_other_ids_is_found_though_its_vocabulary_has_the_same_size(tmp_path: Path) -> None:
    target = folder(tmp_path / "target", CONFIG, TOKENIZER, weights(CONFIG))
    moved = model_folders.moved_ids(len(WORDS), 2)
    draft = folder(tmp_path / "draft", CONFIG, model_folders.renamed(TOKENIZER, moved), weights(CONFIG))
    assert sorted(moved) == list(range(len(WORDS)))
    assert moved[:2] == [0, 1], "special tokens keep their ids"
    assert refused(target, draft) == ["token-id maps equal"]
    assert refused(target, target) == []


def test_a_draft_of_fewer_entries_is_found_by_size_by_map_and_by_what_the_engine_would_say(tmp_path: Path) -> None:
    target = folder(tmp_path / "target", CONFIG, TOKENIZER, weights(CONFIG))
    config = {**CONFIG, "vocab_size": 7}
    smaller = model_folders.shortened(TOKENIZER, 7)
    assert smaller["model"]["merges"] == [["a", "b"]], "a merge whose word is gone goes too"
    draft = folder(tmp_path / "draft", config, smaller, weights(config))
    assert refused(target, draft) == ["vocabulary sizes equal", "token-id maps equal", "SGLang would"]


def test_the_random_head_has_the_shapes_that_a_preflight_asks_of_an_eagle3_head(tmp_path: Path) -> None:
    target = folder(tmp_path / "target", CONFIG, TOKENIZER, weights(CONFIG))
    config = model_folders.eagle3_config(CONFIG)
    head = model_folders.eagle3_weights(CONFIG)
    draft = folder(tmp_path / "head", config, TOKENIZER, head)
    assert refused(target, draft, "eagle3") == []
    assert {name: list(values.shape) for name, values in head.items()}["fc.weight"] == [8, 24]
    again = model_folders.eagle3_weights(CONFIG)
    assert all(np.array_equal(head[name], again[name]) for name in head)


def test_a_cut_keeps_the_chosen_layers_and_numbers_them_anew() -> None:
    whole = {f"model.layers.{i}.mlp.up_proj.weight": np.full(2, i, dtype=np.float32) for i in range(30)}
    cut = model_folders.layers({**whole, "model.norm.weight": np.zeros(2, dtype=np.float32)}, model_folders.CUT)
    assert [float(cut[f"model.layers.{i}.mlp.up_proj.weight"][0]) for i in range(6)] == [0, 1, 2, 27, 28, 29]
    assert len(cut) == 7


def test_shapes_that_are_split_over_two_devices_have_heads_that_divide_by_two() -> None:
    shapes = model_folders.shapes({**CONFIG, "initializer_range": 0.02, "attention_dropout": 0.0})
    for name in ("qwen2-32b-shape", "smollm2-tp-shape"):
        heads = [shapes[name][key] for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size")]
        assert [n % 2 for n in heads] == [0, 0, 0], name


@given(
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120),
        min_size=1,
    )
)
def test_bfloat16_is_the_nearest_of_its_two_neighbours(values: list[float]) -> None:
    given_values = np.array(values, dtype=np.float32)
    kept = (bfloat16(given_values).astype(np.uint32) << 16).view(np.float32)
    low = (given_values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    high = ((given_values.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    nearest = np.minimum(np.abs(given_values - low), np.abs(given_values - high))
    assert np.array_equal(np.abs(given_values - kept), nearest)


def test_a_written_file_is_read_again_by_its_header(tmp_path: Path) -> None:
    tensors = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([1.0], dtype=np.float32)}
    assert write_bfloat16(tmp_path / "model.safetensors", tensors) == 14
    read = {
        tensor.name: (tensor.dtype, tensor.shape) for tensor in read_safetensors(tmp_path / "model.safetensors").tensors
    }
    assert read == {"a": ("BF16", (1,)), "b": ("BF16", (2, 3))}
    assert (tmp_path / "model.safetensors").read_bytes()[-12:] == bfloat16(tensors["b"]).tobytes()


@given(n_heads=st.integers(1, 4), half=st.integers(1, 4))
def test_rows_of_a_projection_come_back_in_the_order_they_had_before_gguf(n_heads: int, half: int) -> None:
    rows = np.arange(n_heads * half * 2 * 3, dtype=np.float32).reshape(-1, 3)
    in_gguf = rows.reshape(n_heads, 2, half, 3).swapaxes(1, 2).reshape(rows.shape)
    assert np.array_equal(_rows_in_order(in_gguf, n_heads), rows)


@pytest.mark.parametrize("name", [n for n in arm_names() if n.startswith(("sglang-smol", "sglang-q32"))])
def test_every_model_an_arm_of_the_study_names_is_made_or_distilled(name: str) -> None:
    arm = load_arm(name)
    assert isinstance(arm, CommandArm)
    made = {
        *(f"smollm2-135m{end}" for end in ("", "-draft6", "-draft6-49088", "-draft6-permuted", "-eagle3-random")),
        *("smollm2-135m-distilled6", "qwen2-32b-shape", "qwen2-1b5-shape", "smollm2-tp-shape"),
    }
    named = {one.path for one in (arm.target, arm.draft) if one is not None}
    assert named <= {f"models/{folder_name}" for folder_name in made}
    assert arm.args["cuda-graph-bs-decode"] == (1, 2, 4, 8, 12, 16, 24, 32)
