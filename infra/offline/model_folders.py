"""The model folders of the GPU study, made from one packaged GGUF file; no network, no torch.

Real weights: the target, a cut of six of its layers, that cut with another vocabulary size, and with its tokens under
other ids. Random weights: an EAGLE-3 head. Configuration and tokenizer only (an engine starts them with dummy weights):
a target of the size of a 32B model, a draft of the size of a 1.5B model, and a small target whose heads divide by 2.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infra.offline.gguf_reading import LlamaFile
from infra.offline.safetensors_writing import Floats, write_bfloat16

CUT = (0, 1, 2, 27, 28, 29)  # layers of the target that the short draft keeps
SMALLER_BY = 64  # entries that the draft of another vocabulary size lacks
SEED = 20261129  # of the random head
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_EMBEDDING = "model.embed_tokens.weight"


def make_all(source: Path, out: Path, say: Callable[[str], None] = lambda _: None) -> tuple[Path, ...]:
    """Every folder below ``out``, each replaced where it stands; about 10 s. Errors: UnreadableModelError, OSError."""
    file = LlamaFile(source)
    config, tokenizer, weights = file.config(), file.tokenizer(), file.weights()
    target = out / "smollm2-135m"
    _folder(target, config, tokenizer, file.tokenizer_config(), weights)
    cut_config, cut = {**config, "num_hidden_layers": len(CUT)}, layers(weights, CUT)
    made = [target]

    def beside(name: str, shape: Mapping[str, Any], words: Mapping[str, Any], tensors: Mapping[str, Floats]) -> None:
        _folder(out / name, shape, words, file.tokenizer_config(), tensors)
        made.append(out / name)
        say(f"{out / name}")

    say(f"{target}")
    beside("smollm2-135m-draft6", cut_config, tokenizer, cut)
    smaller = config["vocab_size"] - SMALLER_BY
    fewer = {**cut, _EMBEDDING: cut[_EMBEDDING][:smaller]}
    beside(
        f"smollm2-135m-draft6-{smaller}", {**cut_config, "vocab_size": smaller}, shortened(tokenizer, smaller), fewer
    )
    moved = moved_ids(config["vocab_size"], len(tokenizer["added_tokens"]))
    rows = np.empty_like(cut[_EMBEDDING])
    rows[moved] = cut[_EMBEDDING]
    beside("smollm2-135m-draft6-permuted", cut_config, renamed(tokenizer, moved), {**cut, _EMBEDDING: rows})
    beside("smollm2-135m-eagle3-random", eagle3_config(config), tokenizer, eagle3_weights(config))
    for name, shape in shapes(config).items():
        beside(name, shape, tokenizer, {})
    return tuple(made)


def layers(weights: Mapping[str, Floats], kept: Sequence[int]) -> dict[str, Floats]:
    """The same model with only these layers, numbered anew."""
    found: dict[str, Floats] = {}
    for name, values in weights.items():
        if not name.startswith("model.layers."):
            found[name] = values
            continue
        _, _, number, rest = name.split(".", 3)
        if int(number) in kept:
            found[f"model.layers.{kept.index(int(number))}.{rest}"] = values
    return found


def shortened(tokenizer: Mapping[str, Any], size: int) -> dict[str, Any]:
    """A tokenizer without the ids from ``size`` on, nor the merges that would make them."""
    model = tokenizer["model"]
    vocab = {token: i for token, i in model["vocab"].items() if i < size}
    merges = [pair for pair in model["merges"] if all(word in vocab for word in (*pair, "".join(pair)))]
    return {**tokenizer, "model": {**model, "vocab": vocab, "merges": merges}}


def moved_ids(size: int, n_special: int) -> list[int]:
    """For each id its new one: special tokens stay, every other moves on by one, the last to the first place."""
    return [i if i < n_special else i + 1 if i + 1 < size else n_special for i in range(size)]


def renamed(tokenizer: Mapping[str, Any], moved: Sequence[int]) -> dict[str, Any]:
    """The same tokens under other ids."""
    model = tokenizer["model"]
    return {**tokenizer, "model": {**model, "vocab": {token: moved[i] for token, i in model["vocab"].items()}}}


def eagle3_config(config: Mapping[str, Any]) -> dict[str, Any]:
    changed = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "tie_word_embeddings": False}
    return {**config, **changed, "draft_vocab_size": config["vocab_size"]}


def eagle3_weights(config: Mapping[str, Any]) -> dict[str, Floats]:
    """A head of the right shapes and no knowledge: normal numbers of deviation 0.02, norms of 1. Seeded."""
    random = np.random.default_rng(SEED)
    hidden, wide, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    matrices = {
        "fc.weight": (hidden, 3 * hidden),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries),
        "midlayer.mlp.gate_proj.weight": (wide, hidden),
        "midlayer.mlp.up_proj.weight": (wide, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, wide),
        "lm_head.weight": (rows, hidden),
    }
    norms = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")
    found = {name: (random.standard_normal(shape, dtype=np.float32) * 0.02) for name, shape in matrices.items()}
    return {**found, **{f"{name}.weight": np.ones(hidden, dtype=np.float32) for name in norms}}


def shapes(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Configurations to be started with dummy weights, by folder name. The vocabulary is the packaged model's."""
    kept = ("bos_token_id", "eos_token_id", "vocab_size", "dtype", "initializer_range", "attention_dropout")
    qwen2 = {
        **{key: config[key] for key in kept},
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "max_window_layers": 70,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 131072,
        "use_sliding_window": False,
    }
    large = {"hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40}
    small = {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12}
    return {
        "qwen2-32b-shape": {**qwen2, **large, "num_key_value_heads": 8, "tie_word_embeddings": False},
        "qwen2-1b5-shape": {**qwen2, **small, "num_key_value_heads": 2, "tie_word_embeddings": True},
        "smollm2-tp-shape": {**config, "num_attention_heads": 8, "num_key_value_heads": 4},
    }


def _folder(
    path: Path,
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    weights: Mapping[str, Floats],
) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
    written = dict(zip(_TOKENIZER_FILES, (tokenizer, tokenizer_config, generation), strict=True))
    for name, value in {"config.json": config, **written}.items():
        (path / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if weights:
        write_bfloat16(path / "model.safetensors", weights)
