"""Which id stands for which token: read from tokenizer files or from GGUF fields, and compared id by id.

Two models of one vocabulary size may still mean different tokens by the same id: a draft then proposes other words than
it means, and every engine that compares sizes alone lets it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_UNUSED = 5  # ggml's token type of an id that pads the matrix and stands for nothing


class TokenizerError(Exception):
    """A tokenizer that cannot be read, in words that end with what to do."""


@dataclass(frozen=True, kw_only=True)
class TokenMap:
    """``texts`` by id, ids that stand for nothing left out. ``kind`` is the tokenizer's model, e.g. BPE or gpt2."""

    source: str
    kind: str
    texts: Mapping[int, str]
    n_unused: int = 0  # ids listed that only pad the matrix
    special: Mapping[str, int] = field(default_factory=dict)  # bos, eos, pad, unk
    add_bos: bool | None = None
    add_eos: bool | None = None

    @property
    def max_id(self) -> int:
        return max(self.texts, default=-1)


class Difference(NamedTuple):
    """One id that means two things; None: it stands for nothing there."""

    id: int
    target: str | None
    draft: str | None


def read_tokenizer(folder: Path) -> TokenMap:
    """The map of a model folder: tokenizer.json, else vocab.json with added_tokens.json. Errors: TokenizerError."""
    settings = _json(folder / "tokenizer_config.json") or {}
    whole = _json(folder / "tokenizer.json")
    if whole is not None:
        kind, texts = _from_tokenizer_json(whole)
        return _with_special("tokenizer.json", kind, texts, settings)
    vocabulary = _json(folder / "vocab.json")
    if vocabulary is not None:
        texts = _inverted(vocabulary, "vocab.json")
        texts |= _inverted(_json(folder / "added_tokens.json") or {}, "added_tokens.json")
        return _with_special("vocab.json", "BPE", texts, settings)
    if (folder / "tokenizer.model").is_file():
        what = "only tokenizer.model is there, which is not read; save it as tokenizer.json with a fast tokenizer"
        raise TokenizerError(what)
    raise TokenizerError("neither tokenizer.json nor vocab.json is there; fetch the tokenizer's files too")


def gguf_tokens(fields: Mapping[str, Any]) -> TokenMap:
    """The map in a GGUF header. Errors: TokenizerError where it has none."""
    tokens = fields.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, tuple):
        raise TokenizerError("the GGUF header has no tokenizer.ggml.tokens; convert it with its tokenizer")
    said = fields.get("tokenizer.ggml.token_type")
    kinds = said if isinstance(said, tuple) else ()
    unused = {i for i, kind in enumerate(kinds) if kind == _UNUSED}
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    found = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return TokenMap(
        source="GGUF",
        kind=str(fields.get("tokenizer.ggml.model", "unknown")),
        texts={i: str(text) for i, text in enumerate(tokens) if i not in unused},
        n_unused=len(unused),
        special={name: value for name, value in found.items() if type(value) is int},
        add_bos=_flag(fields.get("tokenizer.ggml.add_bos_token")),
        add_eos=_flag(fields.get("tokenizer.ggml.add_eos_token")),
    )


def differences(target: TokenMap, draft: TokenMap, start: int = 0, limit: int = 5) -> tuple[list[Difference], int]:
    """The first ids from ``start`` on that mean different tokens, and how many there are in all."""
    found, n_found = [], 0
    for i in sorted(target.texts.keys() | draft.texts.keys()):
        ours, theirs = target.texts.get(i), draft.texts.get(i)
        if i >= start and ours != theirs:
            n_found += 1
            if n_found <= limit:
                found.append(Difference(i, ours, theirs))
    return found, n_found


def _from_tokenizer_json(whole: Any) -> tuple[str, dict[int, str]]:
    model = whole.get("model") if isinstance(whole, dict) else None
    if not isinstance(model, dict) or "vocab" not in model:
        raise TokenizerError("tokenizer.json has no model.vocab; fetch it again")
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: [text, score], the id is the position
        texts = {i: str(entry[0]) for i, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    else:
        texts = _inverted(vocabulary, "tokenizer.json, model.vocab")
    listed = whole.get("added_tokens") or []
    if not isinstance(listed, list):
        raise TokenizerError("tokenizer.json, added_tokens is no list; fetch it again")
    for added in listed:
        if not isinstance(added, dict) or type(added.get("id")) is not int or "content" not in added:
            raise TokenizerError(f"tokenizer.json, added_tokens: {added!r} has no id and content; fetch it again")
        texts[added["id"]] = str(added["content"])
    return str(model.get("type") or "unknown"), texts


def _inverted(vocabulary: Any, where: str) -> dict[int, str]:
    if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
        raise TokenizerError(f"{where} is no map from token to id; fetch it again")
    texts = {i: text for text, i in vocabulary.items()}
    if len(texts) != len(vocabulary):
        raise TokenizerError(f"{where} gives one id to two tokens; fetch it again")
    return texts


def _with_special(source: str, kind: str, texts: dict[int, str], settings: Any) -> TokenMap:
    settings = settings if isinstance(settings, dict) else {}
    ids = {text: i for i, text in texts.items()}
    special = {}
    for name in ("bos", "eos", "pad", "unk"):
        token = settings.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            special[name] = ids[text]
    return TokenMap(
        source=source,
        kind=kind,
        texts=texts,
        special=special,
        add_bos=_flag(settings.get("add_bos_token")),
        add_eos=_flag(settings.get("add_eos_token")),
    )


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _json(path: Path) -> Any:
    """A JSON file's value, None where there is no such file. Errors: TokenizerError."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TokenizerError(f"{path.name} cannot be read ({error.strerror}); check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path.name} is no JSON ({error}); fetch it again") from error
