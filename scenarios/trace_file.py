"""Reading a trace of arrivals: JSONL, one request a line, strict, every fault named by line and value.

    {"timestamp": 1.25, "input_length": 512, "output_length": 128}      seconds; lengths in tokens
    {"timestamp": 1.25, "prompt_id": "code_01", "output_length": 128}   a prompt of the mix; the length may be left out
    {"timestamp": 1250, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}     Mooncake's: milliseconds

All lines of a file are of one form. Mooncake's is told by ``hash_ids``: each stands for a block of 512 prompt tokens in
turn, the last one for what is left over, and requests that begin with the same ids share that much of their prompts.
Ids beyond the line's length are passed over; where there are too few, the rest is the line's own. Times are counted
from the first line's.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from prompts.regular import NotRegularError, read_regular
from scenarios.load_sections import MOST_S
from scenarios.strict_toml import Problem, ScenarioError, shown

BLOCK_TOKENS = 512  # what one of Mooncake's hash ids stands for

Form = Literal["lengths", "prompts", "mooncake"]
_KEYS: dict[Form, tuple[frozenset[str], frozenset[str]]] = {  # must stand, may stand
    "lengths": (frozenset({"timestamp", "input_length", "output_length"}), frozenset()),
    "prompts": (frozenset({"timestamp", "prompt_id"}), frozenset({"output_length"})),
    "mooncake": (frozenset({"timestamp", "input_length", "output_length", "hash_ids"}), frozenset()),
}
_UNIT_S: dict[Form, float] = {"lengths": 1.0, "prompts": 1.0, "mooncake": 0.001}
_MOST_TOKENS = 10_000_000
_MOST_BYTES = 1 << 30  # of a trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One line of a trace. Fields that its form does not have are None."""

    line: int  # from 1
    after_s: float  # from the first line's time
    input_tokens: int | None
    output_tokens: int | None
    prompt_id: str | None
    hash_ids: tuple[int, ...] | None


def read_trace(path: Path, most: int | None = None) -> tuple[Arrival, ...]:
    """The first ``most`` lines (None: all). Raises ScenarioError naming file, line, value and what to do."""
    try:
        lines = read_regular(path, _MOST_BYTES).split(b"\n")
    except NotRegularError as error:
        raise ScenarioError(path, Problem(key=None, value=str(path), message=str(error))) from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise ScenarioError(path, Problem(key=None, value="", message="the trace is empty; write one request a line"))
    if most is not None and most > len(lines):
        message = f"the trace has only {len(lines)} lines, and arrivals.requests = {most}; write {len(lines)} or less"
        raise ScenarioError(path, Problem(key=None, value=most, message=message))
    found: list[Arrival] = []
    first_s, before_s, form = 0.0, -math.inf, None
    for number, raw in enumerate(lines[:most], 1):
        one = _Line(path, number, raw)
        form = form or one.form()
        one.is_of(form)
        at_s = one.time() * _UNIT_S[form]
        if at_s < before_s:
            was = before_s / _UNIT_S[form]
            one.fail(
                "timestamp", one.value["timestamp"], f"is before the line above ({was:g})", "sort the lines by time"
            )
        first_s = at_s if number == 1 else first_s
        before_s = at_s
        found.append(one.arrival(form, round(at_s - first_s, 9)))
    return tuple(found)


class _Line:
    def __init__(self, path: Path, number: int, raw: bytes) -> None:
        self._path, self._number = path, number
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(None, f"0x{raw[error.start]:02x}", "is not UTF-8", "save the file as UTF-8")
        try:
            value = json.loads(text, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            self.fail(None, text.strip(), f"is not JSON: {error}", "write one JSON object on one line")
        if not isinstance(value, dict):
            self.fail(None, value, "is no JSON object", 'write {"timestamp": ..., ...}')
        self.value: dict[str, Any] = value

    def fail(self, key: str | None, value: object, what: str, remedy: str) -> NoReturn:
        message = f"{what}; {remedy}" if key is not None else f"{shown(value)} {what}; {remedy}"
        raise ScenarioError(self._path, Problem(key=key, value=value, message=message), line=self._number)

    def form(self) -> Form:
        """By its keys; the first line decides for the file."""
        if "hash_ids" in self.value:
            return "mooncake"
        return "prompts" if "prompt_id" in self.value else "lengths"

    def is_of(self, form: Form) -> None:
        must, may = _KEYS[form]
        for key in sorted(must - set(self.value)):
            self.fail(key, None, "is missing from this line", f"a line of this trace has {', '.join(sorted(must))}")
        for key in sorted(set(self.value) - must - may):
            known = ", ".join(sorted(must | may))
            self.fail(
                key, self.value[key], "is not a key of this trace's form", f"write {known}, the same in all lines"
            )

    def time(self) -> float:
        value = self.value["timestamp"]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(
                "timestamp", value, "is not a number", "write the time of the request, the first one's is the start"
            )
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63):
            self.fail("timestamp", value, "is not a finite number", "write a time of 0 or later")
        if value < 0:
            self.fail("timestamp", value, "is negative", "write a time of 0 or later")
        return float(value)

    def arrival(self, form: Form, after_s: float) -> Arrival:
        if after_s > MOST_S:
            self.fail(
                "timestamp",
                self.value["timestamp"],
                f"is {after_s:g} s after the first line",
                "write seconds (milliseconds only with hash_ids)",
            )
        given = form != "prompts" or "output_length" in self.value
        input_tokens = None if form == "prompts" else self._tokens("input_length")
        return Arrival(
            line=self._number,
            after_s=after_s,
            input_tokens=input_tokens,
            output_tokens=self._tokens("output_length") if given else None,
            prompt_id=self._prompt_id() if form == "prompts" else None,
            hash_ids=self._hash_ids(input_tokens) if input_tokens is not None and form == "mooncake" else None,
        )

    def _tokens(self, key: str) -> int:
        value = self.value[key]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, value, "is not a whole number", "write a number of tokens, 1 or more")
        if not 0 < value <= _MOST_TOKENS:
            self.fail(key, value, f"is not between 1 and {_MOST_TOKENS}", "write a number of tokens, 1 or more")
        return value

    def _prompt_id(self) -> str:
        value = self.value["prompt_id"]
        if not isinstance(value, str) or not value:
            self.fail("prompt_id", value, "is not the id of a prompt", 'write one, for example "code_01"')
        return value

    def _hash_ids(self, input_tokens: int) -> tuple[int, ...]:
        value = self.value["hash_ids"]
        if not isinstance(value, list):
            self.fail("hash_ids", value, "is not a list of numbers", "write the ids of its blocks, [0, 1]")
        for one in value:
            if isinstance(one, bool) or not isinstance(one, int) or abs(one) >= 2**63:
                self.fail("hash_ids", one, "is not a whole number", "write the ids of its blocks, [0, 1]")
        return tuple(value[: -(-input_tokens // BLOCK_TOKENS)])


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} stands twice")
    return dict(pairs)
