"""Configurations as Python prints them in a log: calls such as ``ServerArgs(a=1)`` and dicts. Pure, and never run."""

import ast
from collections.abc import Iterator
from typing import Any

Json = Any


def read_call(text: str) -> dict[str, Json]:
    """``(a=1, b='x', c=D(e=2))`` as a dict: literals as such, everything else as its own text; {} where it is none."""
    if not text.startswith("("):
        return {}
    found: dict[str, Json] = {}
    for part in _parts(text[1:]):
        key, equals, value = part.strip().partition("=")
        if equals and key.strip().isidentifier():
            found[key.strip()] = _value(value.strip())
    return found


def _parts(text: str) -> Iterator[str]:
    """Cut at commas outside of brackets and quotes, up to the bracket that closes the call."""
    depth, quote, begin = 0, "", 0
    for i, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[i - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
            if depth < 0:
                yield text[begin:i]
                return
        elif character == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def _value(text: str) -> Json:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | str | list | dict | None) else text


def read_dict(text: str) -> dict[str, Json]:
    """A dict as Python prints it, and {} for anything else."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
