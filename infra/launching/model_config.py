"""The keys of a checkpoint's ``config.json`` that say what its KV cache holds, kept as the file has them.

They go into ``launch.json``, so that bytes a token can be worked out on reading, with the formula beside the number.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.engines.kv_elements import OTHER_CACHES

MOST_BYTES = 1 << 20
KEYS = (
    *("architectures", "model_type", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head"),
    *("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query", "head_dim", "v_head_dim"),
    *("hidden_size", "n_embd", "d_model", "torch_dtype", "dtype", "max_position_embeddings"),
    *("sliding_window", "use_sliding_window", "layer_types"),
    *OTHER_CACHES,
)


def kv_config(path: Path) -> dict[str, Any] | None:
    """The listed keys of one ``config.json``, of its ``text_config`` too; None where it cannot be read."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(found, Mapping):
        return None
    kept = {name: found[name] for name in KEYS if name in found}
    text = found.get("text_config")
    if isinstance(text, Mapping):
        kept["text_config"] = {name: text[name] for name in KEYS if name in text}
    return kept


def hub_config(cache: Path, revision: str) -> dict[str, Any] | None:
    """The same of a model in the hub's cache on this host: ``models--ORG--NAME``, at a revision."""
    return kv_config(cache / "snapshots" / revision / "config.json")
