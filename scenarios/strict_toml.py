"""Reading a TOML file strictly, and saying in plain words what is wrong with it.

Strategy: the file becomes a plain Python tree first (syntax errors carry their line), values JSON has no room for
(dates, inf, nan) are refused by key, and only then is the tree checked against a model. Whatever the model refuses is
translated here into one shape, ``file: dotted.key = value: what is wrong; what to do``, so that no error of a library
reaches a user. All problems of a file are told at once, the first one as data.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from prompts.regular import NotRegularError, read_regular

Tree = dict[str, Any]
ModelT = TypeVar("ModelT", bound=BaseModel)
MOST_BYTES = 1 << 20
SHOWN_OF_A_LINE = 40  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing wrong with a file. ``key`` is dotted (None: the whole file), ``value`` None where there is none."""

    key: str | None
    value: object
    message: str

    def __str__(self) -> str:
        if self.key is None:
            return self.message
        if self.value is None:
            return f"{self.key}: {self.message}"
        return f"{self.key} = {shown(self.value)}: {self.message}"


class ScenarioError(Exception):
    """A scenario that cannot be used as it is written.

    ``path`` is the file at fault (a prompt file where that is the one), ``line`` counts from 1 where it is known,
    ``key``, ``value`` and ``message`` are the first problem's, ``problems`` holds all of them.
    """

    def __init__(self, path: Path | None, *problems: Problem, line: int | None = None) -> None:
        self.path, self.line, self.problems = path, line, problems
        self.key, self.value, self.message = problems[0].key, problems[0].value, problems[0].message
        where = "scenario" if path is None else str(path) if line is None else f"{path}:{line}"
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))


def shown(value: object) -> str:
    """The value as TOML writes it, cut at 100 characters."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = repr(value)
    text = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(text, text)
    return text if len(text) <= 100 else text[:97] + "..."


def refusal(key: str, value: object, message: str) -> PydanticCustomError:
    """What a model's validator raises to name a dotted key of its choice; ``refusal("", ...)`` keeps the field's."""
    return PydanticCustomError("refused", "{message}", {"key": key, "value": value, "message": message})


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was most likely meant, or None."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return close[0] if close else None


def read_toml(path: Path) -> Tree:
    """The file as a tree of JSON-like values.

    Raises ScenarioError for a file that cannot be read, is not UTF-8, is not TOML (with its line), or holds a date or a
    number that is not finite.
    """
    try:
        raw = read_regular(path, MOST_BYTES)
    except NotRegularError as error:
        raise _whole(path, str(error)) from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = raw.count(b"\n", 0, error.start) + 1
        byte = f"0x{raw[error.start]:02x}"
        raise _whole(path, f"byte {byte} is not UTF-8; save the file as UTF-8", at) from error
    if text.startswith("\ufeff"):
        raise _whole(path, "starts with a byte order mark; save the file as UTF-8 without one", 1)
    try:
        tree = tomllib.loads(text)
    except RecursionError as error:
        raise _whole(path, "is nested too deeply; a scenario has two levels") from error
    except ValueError as error:  # TOMLDecodeError, and integers too long for Python
        found = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1 if found else None
        written = text.splitlines()[line - 1].strip() if line and line <= len(text.splitlines()) else ""
        seen = f" in {shown(written[:SHOWN_OF_A_LINE])}" if written and _is_ours(path) else ""
        raise _whole(path, f"not valid TOML{seen}: {error}; correct this line", line) from error
    try:
        problems = _not_plain(tree, "")
    except RecursionError as error:
        raise _whole(path, "is nested too deeply; a scenario has two levels", None) from error
    if problems:
        raise ScenarioError(path, *_shown_of(path, problems))
    return tree


def check_tree(path: Path, tree: Tree, model: type[ModelT], examples: Mapping[str, str]) -> ModelT:
    """The tree as a model; ``examples`` has, by dotted key, how a missing key is written."""
    try:
        return model.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        found = [one for one in error.errors(include_url=False) if not _follows(one, error)]
        problems = [_explained(one, tree, model, examples) for one in found]
        raise ScenarioError(path, *_shown_of(path, problems)) from error


def _is_ours(path: Path) -> bool:
    """By its name it is a file of this kind; of any other file no content is shown, which may be a secret."""
    return path.suffix == ".toml"


def _shown_of(path: Path, problems: Sequence[Problem]) -> Sequence[Problem]:
    return problems if _is_ours(path) else [replace(one, value=None) for one in problems]


def _follows(error: ErrorDetails, all_of: ValidationError) -> bool:
    """A list counts as too short when its entries were refused: then they are told, not the list."""
    loc = error["loc"]
    inner = (one["loc"] for one in all_of.errors(include_url=False))
    return error["type"] == "too_short" and any(one[: len(loc)] == loc and len(one) > len(loc) for one in inner)


def _whole(path: Path, message: str, line: int | None = None) -> ScenarioError:
    return ScenarioError(path, Problem(key=None, value=None, message=message), line=line)


def _not_plain(value: object, key: str) -> list[Problem]:
    if isinstance(value, dict):
        return [p for name, inner in value.items() for p in _not_plain(inner, f"{key}.{name}" if key else name)]
    if isinstance(value, list):
        return [p for index, inner in enumerate(value) for p in _not_plain(inner, f"{key}[{index}]")]
    if isinstance(value, datetime | date | time):
        message = "is a TOML date or time, and no key takes one; put quotes around it to make it text"
        return [Problem(key=key, value=value, message=message)]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(key=key, value=value, message="is not a finite number; write one, for example 600.0")]
    return []


PLAIN_WORDS = {
    "int_type": "must be a whole number; write it without quotes or a decimal point, for example 30",
    "int_from_float": "must be a whole number; write it without a decimal point",
    "float_type": "must be a number; write it without quotes, for example 1.0",
    "bool_type": "must be true or false; write it in small letters without quotes",
    "string_type": "must be text; put it in quotes",
    "tuple_type": 'must be a list; write it in square brackets, for example ["my-prompts.jsonl"]',
    "dict_type": "must be a table; write it in braces, for example {{ code = 30 }}",
    "model_type": "must be a section of its own; write its name in square brackets on a line of its own",
    "greater_than": "must be above {gt}; write a larger number",
    "greater_than_equal": "must be {ge} or above; write a larger number",
    "less_than": "must be below {lt}; write a smaller number",
    "less_than_equal": "must be {le} or below; write a smaller number",
    "too_short": "must not be empty; write at least one entry",
    "string_too_short": "must not be empty; write the text or take the key out",
}


def _explained(error: ErrorDetails, tree: Tree, model: type[BaseModel], examples: Mapping[str, str]) -> Problem:
    loc, context = error["loc"], error.get("ctx", {})
    key = ".".join(str(part) for part in loc if part != "[key]")
    key = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", key)
    if error["type"] == "refused":
        return Problem(key=context["key"] or key, value=context["value"], message=context["message"])
    if error["type"] == "missing":
        wanted = f"; write {examples[key]}" if key in examples else "; add it"
        return Problem(key=key, value=None, message=f"is missing{wanted}")
    value = _value_at(tree, loc)
    if error["type"] == "extra_forbidden":
        return Problem(key=key, value=value, message=_unknown_key(loc, model))
    if error["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(context["expected"]))
        meant = nearest(value, allowed) if isinstance(value, str) else None
        hint = f'did you mean "{meant}"?' if meant else "write one of " + ", ".join(f'"{a}"' for a in allowed)
        return Problem(key=key, value=value, message=f"is not one of the values this key takes; {hint}")
    if error["type"] == "tuple_type" and key in examples:
        return Problem(key=key, value=value, message=f"must be a list; write {examples[key]}")
    words = PLAIN_WORDS.get(error["type"])
    message = words.format(**context) if words else f"{error['msg']}; correct the value"
    return Problem(key=key, value=value, message=message)


def _value_at(tree: object, loc: tuple[int | str, ...]) -> object:
    """What the tree holds there; a part the model put into the place itself ("[key]") is passed over."""
    for part in loc:
        in_list = isinstance(tree, list) and isinstance(part, int) and part < len(tree)
        if in_list or (isinstance(tree, dict) and part in tree):
            tree = tree[part]  # type: ignore[index]  # either test above makes it indexable
    return tree


def _unknown_key(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    name, sections = str(loc[-1]), _sections(model)
    here = ".".join(str(part) for part in loc[:-1])
    places = {section: f"in [{section}]" if section else "at the top of the file" for section in sections}
    wrong, known = f"is not a key {places[here]}", sections[here]
    if homes := [places[section] for section, keys in sections.items() if name in keys]:
        return f"{wrong}; it belongs {homes[0]}, move it there"
    if meant := nearest(name, known):
        return f'{wrong}; did you mean "{meant}"?'
    return f"{wrong}, where {', '.join(known)} may stand; correct its name or take it out"


def _sections(model: type[BaseModel], at: str = "") -> dict[str, list[str]]:
    """Key names by dotted section, "" for the top; sections that may be left out (``Levels | None``) too."""
    sections = {at: list(model.model_fields)}
    for name, field in model.model_fields.items():
        for one in (field.annotation, *get_args(field.annotation)):
            if isinstance(one, type) and issubclass(one, BaseModel):
                sections |= _sections(one, f"{at}.{name}" if at else name)
    return sections
