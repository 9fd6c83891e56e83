"""A llama checkpoint read out of a GGUF file: configuration, tokenizer and weights as a Hugging Face folder has them.

Weights that are quantised in the file are dequantised: the folder holds what the file means, not what was trained.
GGUF keeps the rows of the query and key projections in another order (for its rotary embedding); they are put back.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from infra.offline.safetensors_writing import Floats

_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL = 3  # of tokenizer.ggml.token_type


class UnreadableModelError(Exception):
    """A checkpoint that this reader has no rules for. The message says what was found and what to do."""


class LlamaFile:
    """One GGUF file of architecture ``llama``. Errors: UnreadableModelError, OSError."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        kind = self._field("general.architecture")
        if kind != "llama":
            raise UnreadableModelError(f"{path.name} is of architecture {kind!r}; give a llama checkpoint")

    def config(self) -> dict[str, Any]:
        """``config.json`` of the model as it is in the file."""
        heads = int(self._field("llama.attention.head_count"))
        hidden = int(self._field("llama.embedding_length"))
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": int(self._field("tokenizer.ggml.bos_token_id")),
            "eos_token_id": int(self._field("tokenizer.ggml.eos_token_id")),
            "pad_token_id": int(self._field("tokenizer.ggml.padding_token_id")),
            "dtype": "bfloat16",
            "head_dim": hidden // heads,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "initializer_range": 0.02,
            "intermediate_size": int(self._field("llama.feed_forward_length")),
            "max_position_embeddings": int(self._field("llama.context_length")),
            "mlp_bias": False,
            "num_attention_heads": heads,
            "num_hidden_layers": int(self._field("llama.block_count")),
            "num_key_value_heads": int(self._field("llama.attention.head_count_kv")),
            "rms_norm_eps": float(self._field("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": float(self._field("llama.rope.freq_base")),
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self._reader.tensors),
            "use_cache": True,
            "vocab_size": int(self._field("llama.vocab_size")),
        }

    def tokenizer(self) -> dict[str, Any]:
        """``tokenizer.json``: byte-level BPE, digits apart, as the ``smollm`` pre-tokenizer says."""
        if (pre := self._field("tokenizer.ggml.pre")) != "smollm":
            raise UnreadableModelError(f"tokenizer.ggml.pre is {pre!r}; only smollm is known here")
        tokens, kinds = self._field("tokenizer.ggml.tokens"), self._field("tokenizer.ggml.token_type")
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added = [{"id": i, "content": tokens[i], **flags} for i, kind in enumerate(kinds) if kind == _CONTROL]
        bytes_of_words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_of_words],
            },
            "post_processor": None,
            "decoder": {**bytes_of_words, "add_prefix_space": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": tokens[int(self._field("tokenizer.ggml.unknown_token_id"))],
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: i for i, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self._field("tokenizer.ggml.merges")],
            },
        }

    def tokenizer_config(self) -> dict[str, Any]:
        tokens = self._field("tokenizer.ggml.tokens")

        def named(role: str) -> str:
            return str(tokens[int(self._field(f"tokenizer.ggml.{role}_token_id"))])

        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": int(self._field("llama.context_length")),
            "bos_token": named("bos"),
            "eos_token": named("eos"),
            "unk_token": named("unknown"),
            "pad_token": named("padding"),
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": self._field("tokenizer.chat_template"),
        }

    def weights(self) -> dict[str, Floats]:
        """Every tensor by its Hugging Face name, as float32."""
        config = self.config()
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        found: dict[str, Floats] = {}
        for tensor in self._reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if tensor.name in _WHOLE:
                found[_WHOLE[tensor.name]] = values
                continue
            lead, _, rest = tensor.name.partition(".")
            layer, _, part = rest.partition(".")
            part = part.removesuffix(".weight")
            if lead != "blk" or part not in _PARTS:
                raise UnreadableModelError(f"no rule for the tensor {tensor.name}; give a plain llama checkpoint")
            if part in heads:
                values = _rows_in_order(values, heads[part])
            found[f"model.layers.{layer}.{_PARTS[part]}.weight"] = values
        return found

    def _field(self, name: str) -> Any:
        field = self._reader.fields.get(name)
        if field is None:
            raise UnreadableModelError(f"the file has no key {name}; give a checkpoint with its tokenizer in it")
        return field.contents()


def _rows_in_order(values: Floats, n_heads: int) -> Floats:
    """From pairs side by side to halves one after the other, head by head."""
    halves = values.reshape(n_heads, values.shape[0] // n_heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
