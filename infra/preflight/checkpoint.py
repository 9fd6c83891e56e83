"""A model as its files describe it, without loading weights: a Hugging Face folder or a GGUF file.

What a file does not say is None. What is wrong with the files (half there, cut, unreadable) is a list of faults in
words; the rest is read as far as it goes, so that one missing shard does not hide a vocabulary that does not fit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.preflight.gguf_header import GgufHeader, read_gguf
from infra.preflight.gguf_shards import shards_of
from infra.preflight.token_maps import TokenizerError, TokenMap, gguf_tokens, read_tokenizer
from infra.preflight.weight_files import absent_in_words, json_object, read_weights
from infra.preflight.weight_headers import HeaderError, Tensor


class CheckpointError(Exception):
    """Nothing to look at: no such folder or file. The message ends with what to do."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """``config`` is the language model's part (text_config merged over the outer one); for GGUF its fields.

    ``faults`` would keep an engine from loading it; ``notes`` only limit what can be checked. ``n_weight_bytes`` is
    None where neither files nor index say it. ``tensors`` are those of the files that are there.
    """

    path: Path
    form: str  # "safetensors" or "GGUF"
    config: Mapping[str, Any]
    generation: Mapping[str, Any] = field(default_factory=dict)
    tokens: TokenMap | None
    why_no_tokens: str | None
    tensors: tuple[Tensor, ...]
    n_weight_bytes: int | None
    weights_from: str  # where the bytes were read, or why they are not known
    extra: Mapping[str, Any] = field(default_factory=dict)  # other small files that say something, by name
    faults: tuple[str, ...] = ()
    absent: str | None = None  # weight files that are named and not there
    notes: tuple[str, ...] = ()

    @property
    def gguf(self) -> bool:
        return self.form == "GGUF"

    @property
    def architecture(self) -> str | None:
        named = self.config.get("architectures")
        if isinstance(named, list) and named:
            return str(named[0])
        found = self.config.get("general.architecture") or self.config.get("model_type")
        return None if found is None else str(found)

    def number(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number above 0 (GGUF keys come without their architecture)."""
        for name in names:
            value = self.value(name)
            if type(value) is int and value > 0:
                return value
        return None

    def value(self, name: str) -> Any:
        prefix = f"{self.config.get('general.architecture')}." if self.gguf else ""
        return self.config.get(prefix + name)

    @property
    def vocab_size(self) -> int | None:
        """Rows of the vocabulary as the engine counts them: config.json's, or the length of the GGUF token list."""
        if self.gguf:
            listed = self.config.get("tokenizer.ggml.tokens")
            return len(listed) if isinstance(listed, tuple) else self.number("vocab_size")
        return self.number("vocab_size")

    @property
    def hidden_size(self) -> int | None:
        return self.number("embedding_length") if self.gguf else self.number("hidden_size", "n_embd", "d_model")

    @property
    def n_layers(self) -> int | None:
        return self.number("block_count") if self.gguf else self.number("num_hidden_layers", "n_layer", "num_layers")

    def tensor(self, *names: str) -> Tensor | None:
        """The first tensor of one of these names, or ending in ``.name``."""
        for name in names:
            for one in self.tensors:
                if one.name == name or one.name.endswith("." + name):
                    return one
        return None


def read_checkpoint(path: Path) -> Checkpoint:
    """A model folder or a GGUF file. Errors: CheckpointError where there is no such thing to look at."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(f"{path} is a file and no .gguf; give a model folder or a GGUF file")
        return _from_gguf(path)
    if not path.is_dir():
        raise CheckpointError(f"{path} is not there; give a model folder or a GGUF file")
    found = sorted(path.glob("*.gguf"))
    if (path / "config.json").is_file() or not found:
        return _from_folder(path)
    first = [one for one in found if shards_of(one)[0] == one]
    if len(first) > 1:
        raise CheckpointError(f"{path} holds {len(first)} GGUF models; name one of them, such as {first[0]}")
    return _from_gguf(first[0])


def _from_gguf(path: Path) -> Checkpoint:
    faults: list[str] = []
    notes: list[str] = []
    headers: list[GgufHeader] = []
    parts = shards_of(path)
    gone = [part.name for part in parts if not part.is_file()]
    for part in parts:
        if part.name not in gone:
            try:
                headers.append(read_gguf(part))
            except HeaderError as error:
                faults.append(str(error))
    first = next((header for header in headers if header.path == parts[0]), None)
    whole = bool(headers) and not faults and not gone
    fields = dict(first.fields) if first else {}
    tokens, why = _tokens(lambda: gguf_tokens(fields)) if first else (None, "the GGUF header cannot be read")
    if any(header.header_only for header in headers):
        notes.append("only the GGUF header is here, without weights; sizes are the header's")
    return Checkpoint(
        path=path,
        form="GGUF",
        config=fields,
        tokens=tokens,
        why_no_tokens=why,
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        n_weight_bytes=sum(header.n_weight_bytes for header in headers) if whole else None,
        weights_from="GGUF header" if whole else "not known: the GGUF files are not whole",
        faults=tuple(faults),
        absent=absent_in_words(gone, len(parts), "parts"),
        notes=tuple(notes),
    )


def _from_folder(folder: Path) -> Checkpoint:
    faults: list[str] = []
    notes: list[str] = []
    outer = json_object(folder / "config.json", faults)
    if outer is None:
        faults.append("config.json is not there; fetch the model's small files too")
        outer = {}
    extra = {name: json_object(folder / name, faults) for name in ("hf_quant_config.json", "kv_cache_scales.json")}
    tokens, why = _tokens(lambda: read_tokenizer(folder))
    weights = read_weights(folder, faults, notes)
    return Checkpoint(
        path=folder,
        form="safetensors",
        config=_flat(outer),
        generation=json_object(folder / "generation_config.json", faults) or {},
        tokens=tokens,
        why_no_tokens=why,
        tensors=weights.tensors,
        n_weight_bytes=weights.n_bytes,
        weights_from=weights.source,
        extra={name: value for name, value in extra.items() if value is not None},
        faults=tuple(faults),
        absent=weights.absent,
        notes=tuple(notes),
    )


def _flat(outer: Mapping[str, Any]) -> dict[str, Any]:
    """The language part over the whole; what belongs to the whole model stays the outer configuration's."""
    inner: Mapping[str, Any] = {}
    for name in ("text_config", "llm_config", "language_config", "transformer_layer_config"):
        if isinstance(outer.get(name), dict):
            inner = outer[name]
            break
    said = {name: value for name, value in inner.items() if value is not None or name not in outer}
    whole = ("architectures", "quantization_config", "model_type")
    return {**outer, **said, **{name: outer[name] for name in whole if outer.get(name) is not None}}


def _tokens(read: Any) -> tuple[TokenMap | None, str | None]:
    try:
        return read(), None
    except TokenizerError as error:
        return None, str(error)


def matrix_types(tensors: Iterable[Tensor]) -> Counter[str]:
    """Bytes of matrices by element type."""
    found: Counter[str] = Counter()
    for tensor in tensors:
        if len(tensor.shape) > 1:
            found[tensor.dtype] += tensor.n_bytes
    return found
