"""Folds the events of ``/v1/chat/completions`` and ``/v1/completions`` streams into what was answered.

Strategy: nothing stops the fold. An event that cannot be read is counted and quoted, an error object is remembered, and
the reading goes on: what came afterwards is evidence too. Whether the answer counts as one is judged elsewhere.
"""

import json
from dataclasses import dataclass
from typing import Any

from infra.wire.counting import Chunk, Counts, CountSource, whole
from infra.wire.faults import FINISH_ERRORS, NotJson, read_error, read_json

# Fields every stream has; all others are kept under their own names as evidence the server gave.
_ORDINARY = frozenset({"object", "created", "model", "choices", "usage", "error"})
_ORDINARY_CHOICE = frozenset({"index", "delta", "text", "logprobs", "finish_reason", "token_ids", "error", "message"})
_TEXT_OR_NONE = (str, type(None))
_MAX_QUOTED = 5  # malformed events quoted; all are counted


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatFacts:
    """All that the events said. Segments are indices of the wire's segments; None where it never came."""

    chunks: tuple[Chunk, ...]
    count_source: CountSource | None  # of the running counts in ``chunks``
    first_event_segment: int | None
    first_visible_segment: int | None
    done_segment: int | None  # of ``[DONE]``
    n_events: int
    n_malformed_events: int
    text: str
    reasoning: str | None
    tool_calls_text: str | None  # JSON list of names and arguments, without the random ids
    finish_reason: str | None
    usage: dict[str, Any] | None
    n_completion_tokens: int | None
    n_prompt_tokens: int | None
    token_source: CountSource | None  # of n_completion_tokens
    inconsistent: str | None  # counts that disagree, with both numbers
    error: tuple[str, str] | None  # kind and message of the first error object
    server_fields: dict[str, Any]
    model: str | None
    n_replacement_chars: int  # U+FFFD in the answer, whoever put them there
    problems: tuple[str, ...]


class ChatFold:
    """``event`` for each event in order, then ``close`` once."""

    def __init__(self) -> None:
        self._counts = Counts()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._tools: dict[int, dict[str, str]] = {}
        self._finish: str | None = None
        self._error: tuple[str, str] | None = None
        self._fields: dict[str, Any] = {}
        self._model: str | None = None
        self._first_event: int | None = None
        self._first_visible: int | None = None
        self._done: int | None = None
        self._n_events = 0
        self._n_malformed = 0
        self._problems: dict[str, int] = {}  # what was seen, how often

    def event(self, payload: bytes, segment: int, name: str | None = None) -> None:
        """One event: its data, the index of the segment that completed it, and its ``event:`` name."""
        self._n_events += 1
        if self._first_event is None:
            self._first_event = segment
        if self._done is not None:
            self._note("event after [DONE], not read")
            return
        if payload.strip() == b"[DONE]":
            self._done = segment
            return
        try:
            value = read_json(payload)
        except NotJson as error:
            self._malformed(f"event is no JSON ({error})", payload)
            value = None
        else:
            if not isinstance(value, dict):
                self._malformed("event is no JSON object", payload)
        error_found = read_error(value)
        if error_found is None and name == "error":
            error_found = ("error", payload.decode("utf-8", "replace"))
        self._error = self._error or error_found
        if isinstance(value, dict):
            if not payload.isascii() and not _is_utf8(payload):
                self._note("event whose bytes are no UTF-8, read with U+FFFD")
            self._object(value, segment, payload, is_error=error_found is not None)

    def close(self) -> ChatFacts:
        """Everything, with the chunk marks made by the best running count."""
        n_tokens, token_source = self._counts.total()
        count_source, chunks = self._counts.marks()
        usage: dict[str, Any] | None = _mended(self._counts.usage)
        text, reasoning = _joined(self._content), _joined(self._reasoning)
        tools = [self._tools[index] for index in sorted(self._tools)]
        return ChatFacts(
            chunks=chunks,
            count_source=count_source,
            first_event_segment=self._first_event,
            first_visible_segment=self._first_visible,
            done_segment=self._done,
            n_events=self._n_events,
            n_malformed_events=self._n_malformed,
            text=text,
            reasoning=reasoning or None,
            tool_calls_text=_joined([json.dumps(tools, ensure_ascii=False)]) if tools else None,
            finish_reason=_mended(self._finish),
            usage=usage,
            n_completion_tokens=n_tokens,
            n_prompt_tokens=whole((usage or {}).get("prompt_tokens")),
            token_source=token_source,
            inconsistent=self._counts.inconsistent(),
            error=None if self._error is None else (_joined([self._error[0]]), _joined([self._error[1]])),
            server_fields=_mended(self._fields),
            model=_mended(self._model),
            n_replacement_chars=text.count("\ufffd") + reasoning.count("\ufffd"),
            problems=tuple(what if n == 1 else f"{what} ({n} times)" for what, n in self._problems.items()),
        )

    def _object(self, value: dict[str, Any], segment: int, payload: bytes, *, is_error: bool) -> None:
        model = value.get("model")
        if isinstance(model, str) and model:
            self._model = model
        if not is_error:
            self._keep(value, _ORDINARY)
        counts = self._counts.counts_of(value.get("usage"), value.get("timings"))
        choices = value.get("choices")
        if choices is None or choices == []:
            self._counts.without_choices(counts)
            return
        if not isinstance(choices, list) or set(map(type, choices)) != {dict}:
            self._malformed("choices is no list of objects", payload)
            return
        for choice in choices:
            if choice.get("index") in (0, None):
                self._choice(choice, segment, payload, counts)
                break
        if len(choices) > 1 or choices[0].get("index") not in (0, None):
            self._note("event with a choice beyond the first, not read")

    def _choice(self, choice: dict[str, Any], segment: int, payload: bytes, counts: dict[CountSource, int]) -> None:
        self._error = self._error or read_error(choice)
        delta = choice.get("delta")
        delta = {} if delta is None else delta
        if not isinstance(delta, dict):
            self._malformed("delta is no object", payload)
            return
        content = delta.get("content") if choice.get("text") is None else choice["text"]
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if not isinstance(content, _TEXT_OR_NONE) or not isinstance(reasoning, _TEXT_OR_NONE):
            self._malformed("content or reasoning is no text", payload)
            return
        n_chars = self._tool_calls(delta, payload) if "tool_calls" in delta or "function_call" in delta else 0
        if content:
            self._content.append(content)
            n_chars += len(content)
            if self._first_visible is None:
                self._first_visible = segment
        if reasoning:
            self._reasoning.append(reasoning)
            n_chars += len(reasoning)
        finish = choice.get("finish_reason")
        finish = finish.get("type") if isinstance(finish, dict) else finish
        finished = isinstance(finish, str) and finish != ""
        if isinstance(finish, str) and finish:
            self._finished_with(finish)
        self._keep(choice, _ORDINARY_CHOICE)
        ids = choice.get("token_ids")
        self._counts.line(segment, n_chars=n_chars, finish=finished, token_ids=ids, counts=counts)

    def _finished_with(self, reason: str) -> None:
        """The last reason stands, but for one that is an error: no later one takes it back."""
        if self._finish is not None and reason != self._finish:
            self._note(f"finish reason {_joined([reason[:100]])!r} after {_joined([self._finish[:100]])!r}")
        if self._finish not in FINISH_ERRORS:
            self._finish = reason

    def _tool_calls(self, delta: dict[str, Any], payload: bytes) -> int:
        calls = delta.get("tool_calls")
        if calls is None and isinstance(delta.get("function_call"), dict):
            calls = [{"index": 0, "function": delta["function_call"]}]
        if calls is None:
            return 0
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            self._malformed("tool_calls is no list of objects", payload)
            return 0
        n_chars = 0
        for position, call in enumerate(calls):
            function = call.get("function")
            if isinstance(function, dict):
                index = whole(call.get("index"))
                kept = self._tools.setdefault(position if index is None else index, {"name": "", "arguments": ""})
                for key in ("name", "arguments"):
                    piece = function.get(key)
                    if isinstance(piece, str):
                        kept[key] += piece
                        n_chars += len(piece)
        return n_chars

    def _keep(self, holder: dict[str, Any], ordinary: frozenset[str]) -> None:
        fields = self._fields
        before = fields.get("sglext")
        for key, field in holder.items():
            if key not in ordinary and field is not None:
                fields[key] = field
        now = fields.get("sglext")
        if now is not before and isinstance(before, dict) and isinstance(now, dict):
            fields["sglext"] = {**before, **now}  # SGLang sends its parts in events of their own

    def _note(self, what: str) -> None:
        self._problems[what] = self._problems.get(what, 0) + 1

    def _malformed(self, why: str, payload: bytes) -> None:
        self._n_malformed += 1
        if self._n_malformed <= _MAX_QUOTED:
            self._note(f"{why}: {payload[:200].decode('utf-8', 'replace')!r}")


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _joined(pieces: list[str]) -> str:
    """The pieces joined; halves of a surrogate pair sent in two events meet here, a lone half becomes U+FFFD."""
    text = "".join(pieces)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _mended(value: Any) -> Any:
    """A JSON value without lone surrogates, which no UTF-8 file could hold."""
    return json.loads(_joined([json.dumps(value, ensure_ascii=False)]))
