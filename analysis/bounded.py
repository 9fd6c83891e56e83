"""Whole numbers beyond 2**53 in what a server sent: no count can be so large, and arithmetic on them fails.

They are read as if they were not there; the folder keeps them as they came.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.columns import packed
from evidence.marks import Marks
from evidence.records import Request

LARGEST = 2**53
COUNTS = ("n_completion_tokens", "n_prompt_tokens")


def bounded(request: Request) -> Request:
    """The request itself, or a copy in which every count that cannot be one is unknown."""
    changes: dict[str, Any] = {name: None for name in COUNTS if _beyond(getattr(request, name))}
    if _any_beyond(packed(request.chunks).tokens):
        changes["chunks"] = Marks(
            (at, segment, None if _beyond(n) else n, chars) for at, segment, n, chars in request.chunks
        )
    for name in ("usage", "server_fields"):
        value = getattr(request, name)
        if _holds(value):
            changes[name] = _without(value)
    return request.model_copy(update=changes) if changes else request


def _any_beyond(tokens: Sequence[int | None] | None) -> bool:
    small = tokens is None or (isinstance(tokens, array) and tokens.itemsize < 8)
    return not small and any(_beyond(count) for count in tokens or ())


def _beyond(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > LARGEST


def _holds(value: Any) -> bool:
    # Asked of every value of every answer, nearly all of them plain numbers and dicts.
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
    for one in inner:
        if isinstance(one, int):
            if _beyond(one):
                return True
        elif isinstance(one, dict | list) and _holds(one):
            return True
    return False


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without(one) for one in value]
    return None if _beyond(value) else value
