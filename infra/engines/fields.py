"""Numbers in what a server sent beside an answer: read strictly, so that a word, a bool or a fraction is no count."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.wire.counting import whole


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdProof:
    """``proven`` is None when the answer says nothing about its cache."""

    proven: bool | None
    n_cached: Reading  # prompt tokens taken from a cache
    why: str


def count_of(fields: Any, name: str) -> int | None:
    """A whole number from 0 to 2**53, or None: a bool, a fraction, a word or more than that is no count."""
    return whole(fields.get(name)) if _has_keys(fields) else None


def seconds_of(fields: Any, name: str, *, unit_s: float = 1.0) -> float | None:
    """A finite time above zero in seconds, or None; ``unit_s`` is what one of the server's units is worth."""
    value = fields.get(name) if _has_keys(fields) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value * unit_s if value > 0 else None


def _has_keys(fields: Any) -> bool:
    """Whether it can be asked for a field; the two commonest answers first, for this is asked millions of times."""
    return isinstance(fields, dict) or (fields is not None and isinstance(fields, Mapping))


def part_of(fields: Any, *path: str) -> Any:
    """The value under a path of keys, or None where one is missing."""
    for key in path:
        fields = fields.get(key) if _has_keys(fields) else None
    return fields


def cached_by_usage(usage: Any) -> int | None:
    """Prompt tokens from a cache by ``usage.prompt_tokens_details.cached_tokens``; null is no zero."""
    return count_of(part_of(usage, "prompt_tokens_details"), "cached_tokens")


def counts_in(values: Any) -> list[int] | None:
    """A list of counts, or None where it is none."""
    if not isinstance(values, list) or any(whole(value) is None for value in values):
        return None
    return list(values)


def cold_by(told: Mapping[str, int | None], silent: str) -> ColdProof:
    """Judge counts of cached prompt tokens, by where they stood; ``silent`` says why there is none."""
    return _judged(tuple(told.items()), silent)


@lru_cache(maxsize=4096)  # asked three times of every answer of a run, and most say the same
def _judged(told: tuple[tuple[str, int | None], ...], silent: str) -> ColdProof:
    known = {name: n for name, n in told if n is not None}
    if not known:
        return ColdProof(proven=None, n_cached=Absent(why=silent), why=silent)
    shown = ", ".join(f"{name} {n}" for name, n in known.items())
    if len(set(known.values())) > 1:
        why = f"two counts of cached tokens disagree: {shown}"
        return ColdProof(proven=False, n_cached=Unmeasured(why=why), why=why)
    n_cached = next(iter(known.values()))
    return ColdProof(proven=n_cached == 0, n_cached=Measured(n_cached), why=shown)
