"""Reads prompt files: ours beside this module and the user's own, by the same strict rules.

A prompt file is UTF-8 text with one JSON object a line and no blank line but at its end:

    {"id": "code_01", "domain": "code", "text": "...", "check": {...}}

``check`` may be left out; ``prompts/checks.py`` says what it may hold. Refused, by file and line: bytes that are not
UTF-8, a byte order mark, a blank line, broken JSON, a key that stands twice, an unknown or missing field, a wrong type,
an empty text, a number beyond a double, an id used before, a broken schema, a measured prompt of the domain ``warmup``
or ``all``, and a warm-up text equal to a measured one, letter case and white space aside.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import Field, ValidationError, field_validator

from prompts.checks import Check, Json, StrictModel
from prompts.regular import NotRegularError, read_regular

DOMAINS = ("code", "prose", "json")  # the stock, each in prompts/<domain>.jsonl
WARMUP = "warmup"
RESERVED = {WARMUP: "prompts that are never measured", "all": "the sum of all domains"}  # no domain of an own file

_BOM = b"\xef\xbb\xbf"
_MOST_BYTES = 1 << 30  # of a prompt file

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$")]


class PromptError(Exception):
    """A prompt file that cannot be used.

    Carries where (``path``, and ``line`` from 1 or None for the whole file), the ``value`` and the ``message``.
    """

    def __init__(self, path: Path, line: int | None, value: object, message: str) -> None:
        self.path, self.line, self.value, self.message = path, line, value, message
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


class Prompt(StrictModel):
    """One prompt. ``check`` is None where nothing is asked of the answer."""

    id: Label
    domain: Label
    text: str
    check: Check | None = None

    @field_validator("text")
    @classmethod
    def _text_is_not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the text is empty")
        return value


def stock_path(domain: str) -> Path:
    """The stock's file of a domain in ``DOMAINS``, or of ``WARMUP``."""
    return Path(__file__).resolve().parent / f"{domain}.jsonl"


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal. Raises PromptError when it cannot be read."""
    return hashlib.sha256(_bytes_of(path)).hexdigest()


def load_file(path: Path, *, warmup: bool = False) -> tuple[Prompt, ...]:
    """The prompts of one file in its order: the prompt of line n is the item n - 1.

    With ``warmup`` all are of the domain ``warmup`` and carry no check; without, none is of a domain in
    ``RESERVED``. Raises PromptError.
    """
    found: list[Prompt] = []
    for line, raw in enumerate(_lines_of(path), 1):
        prompt = _prompt_of(path, line, raw)
        if warmup and (prompt.domain != WARMUP or prompt.check is not None):
            message = f"the warm-up prompt {prompt.id!r} is of the domain {prompt.domain!r} or carries a check"
            _fail(path, line, prompt.domain, message, "write the domain 'warmup' and no check")
        if not warmup and prompt.domain in RESERVED:
            message = f"the domain {prompt.domain!r} of {prompt.id!r} is kept for {RESERVED[prompt.domain]}"
            _fail(path, line, prompt.domain, message, "choose another domain name")
        found.append(prompt)
    if not found:
        _fail(path, None, "", "the file holds no prompt", "write one JSON object a line, or leave the file out")
    refuse_clashes([(path, found)])
    return tuple(found)


def load_stock() -> dict[str, tuple[Prompt, ...]]:
    """Our own prompts by domain: code, prose, json and warmup, checked against each other. Raises PromptError."""
    stock = {domain: load_file(stock_path(domain), warmup=domain == WARMUP) for domain in (*DOMAINS, WARMUP)}
    refuse_clashes((stock_path(domain), prompts) for domain, prompts in stock.items())
    return stock


def refuse_clashes(files: Iterable[tuple[Path, Sequence[Prompt]]]) -> None:
    """Checks the loaded files of a mix against each other.

    Raises PromptError, at the later of the two lines, for an id that stands twice and for a warm-up text equal to a
    measured one, letter case and white space aside.
    """
    ids: dict[str, str] = {}
    texts: dict[bool, dict[str, str]] = {True: {}, False: {}}  # folded text to its place, of warm-ups and of the others
    for path, prompts in files:
        for line, prompt in enumerate(prompts, 1):
            place = f"{path.name}:{line}"
            if prompt.id in ids:
                message = f"the id {prompt.id!r} stands at {ids[prompt.id]} already"
                _fail(path, line, prompt.id, message, "give this prompt an id of its own")
            warm = prompt.domain == WARMUP
            same = texts[not warm].get(fold(prompt.text))
            if same is not None:
                what = ("warm-up", "measured") if warm else ("measured", "warm-up")
                message = f"the {what[0]} text {_shown(prompt.text)} equals the {what[1]} one at {same}"
                _fail(path, line, prompt.text, message, "change it by more than case and white space")
            ids[prompt.id] = place
            texts[warm].setdefault(fold(prompt.text), place)


def fold(text: str) -> str:
    """The text with letter case and white space folded: what folds alike is the same prompt."""
    return " ".join(text.casefold().split())


def _lines_of(path: Path) -> list[bytes]:
    data = _bytes_of(path)
    if data.startswith(_BOM):
        _fail(path, 1, _BOM, f"the file starts with a byte order mark, {_BOM!r}", "save it as UTF-8 without one")
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _bytes_of(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except NotRegularError as error:
        _fail(path, None, str(path), error.what, error.remedy)


def _prompt_of(path: Path, line: int, raw: bytes) -> Prompt:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.end]
        _fail(path, line, bad, f"{bad!r} at byte {error.start} of the line is not UTF-8", "save the file as UTF-8")
    if not text.strip():
        _fail(path, line, text, f"the line {text!r} is blank", "remove it; only the end of the file may be blank")
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite)
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses half a surrogate pair
    except (ValueError, RecursionError) as error:
        _fail(path, line, text, f"the line {_shown(text)} is not JSON: {error}", "write one JSON object on one line")
    if not isinstance(value, dict):
        _fail(path, line, value, f"the line {_shown(text)} is no JSON object", "write {...} with id, domain and text")
    try:
        return Prompt.model_validate_json(whole)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the prompt"
        problem = {"extra_forbidden": "unknown field", "missing": "missing"}.get(first["type"], first["msg"])
        message = f"{field}: {problem}, in {_shown(first['input'])}"
        _fail(path, line, first["input"], message, "correct it; prompts/load.py and prompts/checks.py give the format")


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} stands twice")
    return dict(pairs)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is beyond what a double holds")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _fail(path: Path, line: int | None, value: object, message: str, remedy: str) -> NoReturn:
    raise PromptError(path, line, value, f"{message}; {remedy}")
