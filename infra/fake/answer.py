"""One fake answer: the request read, its tokens, and the JSON of every event, in llama.cpp's shape.

A request may ask for what real engines offer: ``timings_per_token`` (llama.cpp), ``stream_options.include_usage``,
``stream_options.continuous_usage_stats`` and ``return_token_ids`` (vLLM).
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from infra.fake.schedule import Schedule, Step, due_instants, steps

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WIDE_WORDS = ("中文", "naïve", "日本", "žluť", "🙂")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Event(NamedTuple):
    """One event of the stream before it becomes bytes."""

    kind: str  # "token", "finish", "usage", "done", "extra" (put in by a fault)
    due_ns: int
    payload: dict[str, Any] | None  # None: ``raw`` is the body as it is
    raw: bytes = b""
    n_sent: int = 0  # tokens sent once this event is out
    step: Step | None = None  # the decode step that this event is the first of


def count_prompt_tokens(body: dict[str, Any]) -> int:
    """Words and marks of all the prompt's text, and four for each message's frame."""
    messages = body.get("messages")
    texts = [str(m.get("content")) for m in messages] if isinstance(messages, list) else [str(body.get("prompt"))]
    return sum(len(tokenize(text)) for text in texts) + (4 * len(texts) if messages else 0)


def tokenize(text: str) -> list[str]:
    return re.findall(r"\s*\w+|\s*[^\w\s]|\s+$", text)


class Answer:
    """The state of one answer; what the metrics count when it ends."""

    def __init__(
        self,
        body: dict[str, Any],
        schedule: Schedule,
        *,
        chat: bool,
        received_ns: int,
        begun_ns: int | None = None,
        created_unix_s: int,
        number: int,
        n_cached: int,
    ) -> None:
        self.body = body
        self.schedule = schedule
        self.chat = chat
        self.received_ns = received_ns
        self.begun_ns = received_ns if begun_ns is None else begun_ns  # a slot was free for it; the schedule's zero
        self.created_unix_s = created_unix_s
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-fake{number}"
        self.model = str(body.get("model") or "fake")
        self.n_prompt = count_prompt_tokens(body)
        self.n_cached = min(n_cached, max(self.n_prompt - 1, 0))
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        if not isinstance(limit, int) or limit < 0:
            limit = None
        self.words: tuple[str, ...] = WORDS
        self.pieces = _cut(schedule.text, schedule.n_tokens) if schedule.text else None
        n_wanted = len(self.pieces) if self.pieces is not None else schedule.n_tokens
        if n_wanted is None:
            n_wanted = 16 if limit is None else limit
        self.n_tokens = n_wanted if limit is None else min(n_wanted, limit)
        self.finish_reason = "length" if self.n_tokens == limit else "stop"
        stream_options = body.get("stream_options") or {}
        self.include_usage = bool(stream_options.get("include_usage"))
        self.continuous_usage = bool(stream_options.get("continuous_usage_stats"))
        self.first_due_ns = self.last_due_ns = self.begun_ns + round(schedule.ttft_s * 1e9)
        self.n_drafted = self.n_accepted = 0  # as prepared, one event ahead of what was sent
        self.n_sent = 0
        self.sent_steps: list[Step] = []
        self.last_sent_ns: int | None = None

    def token(self, index: int) -> str:
        if self.pieces is not None:
            return self.pieces[index]
        word = self.words[index % len(self.words)]
        return word if index == 0 else " " + word

    def events(self) -> Iterator[Event]:
        """Every event of a faultless stream, made one at a time, just after the one before it was sent."""
        n_done = 0
        due = due_instants(self.schedule, self.begun_ns)
        for step in steps(self.schedule, self.n_tokens):
            due_ns = next(due)
            if n_done == 0:
                self.first_due_ns = due_ns
            self.last_due_ns = due_ns
            self.n_drafted += step.n_drafted
            self.n_accepted += step.n_accepted
            first: Step | None = step
            sizes = [1] * step.n_tokens if self.schedule.style == "events" else [step.n_tokens]
            for size in sizes:
                payload = self.chunk(n_done, size)
                n_done += size
                yield Event("token", due_ns, payload, n_sent=n_done, step=first)
                first = None
        if self.n_tokens == 0:
            self.last_due_ns = next(due)
        tail_ns = self.last_due_ns + round(self.schedule.tail_s * 1e9)
        yield Event("finish", tail_ns, self.finish_chunk(), n_sent=n_done)
        if self.include_usage:
            yield Event("usage", tail_ns, self.usage_chunk(), n_sent=n_done)
        yield Event("done", tail_ns, None, b"[DONE]", n_sent=n_done)

    def mark_sent(self, event: Event, now_ns: int) -> None:
        """Book what went out; the metrics count this when the answer ends, however it ends."""
        self.n_sent = event.n_sent
        if event.step is not None:
            self.sent_steps.append(event.step)
        if event.kind == "token":
            self.last_sent_ns = now_ns

    def chunk(self, start: int, size: int) -> dict[str, Any]:
        """The chunk that holds tokens [start, start + size)."""
        text = "".join(self.token(index) for index in range(start, start + size))
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        if self.chat:
            choice["delta"] = self._delta(start, text)
            if start == 0:
                choice["delta"]["role"] = "assistant"
        else:
            choice["text"] = text
        if self.body.get("return_token_ids"):
            choice["token_ids"] = list(range(1000 + start, 1000 + start + size))
        payload = self._envelope([choice])
        if self.body.get("timings_per_token"):
            payload["timings"] = self.timings(start + size)
        if self.continuous_usage:
            payload["usage"] = self.usage(start + size)
        return payload

    def _delta(self, start: int, text: str) -> dict[str, Any]:
        shape = self.schedule.shape
        if shape == "tool_calls":
            if start == 0:
                call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": text}}
            else:
                call = {"function": {"arguments": text}}
            return {"tool_calls": [{"index": 0} | call]}
        middle = (self.n_tokens + 1) // 2
        if shape == "content" or (start >= middle and shape != "mixed"):
            return {"content": text}
        if shape == "mixed":  # both fields in one delta
            half = (len(text) + 1) // 2
            return {"reasoning": text[:half], "content": text[half:]}
        return {shape: text}

    def finish_chunk(self) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
        choice["delta" if self.chat else "text"] = {} if self.chat else ""
        payload = self._envelope([choice])
        if not self.include_usage:
            payload["timings"] = self.timings(self.n_tokens)
        return payload

    def usage_chunk(self) -> dict[str, Any]:
        return self._envelope([]) | {"usage": self.usage(self.n_tokens), "timings": self.timings(self.n_tokens)}

    def whole(self) -> dict[str, Any]:
        """The answer to a request that asked for no stream."""
        text = "".join(self.token(index) for index in range(self.n_tokens))
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        payload = self._envelope([choice]) | {
            "usage": self.usage(self.n_tokens),
            "timings": self.timings(self.n_tokens),
        }
        return payload | {"object": "chat.completion" if self.chat else "text_completion"}

    def usage(self, n_tokens: int) -> dict[str, Any]:
        return {
            "completion_tokens": n_tokens,
            "prompt_tokens": self.n_prompt,
            "total_tokens": self.n_prompt + n_tokens,
            "prompt_tokens_details": {"cached_tokens": self.n_cached},
        }

    def timings(self, n_tokens: int) -> dict[str, Any]:
        """llama.cpp's per-request account after ``n_tokens``; the draft fields only when something was drafted."""
        n_prompt = self.n_prompt - self.n_cached
        prompt_ms = (self.first_due_ns - self.begun_ns) / 1e6
        predicted_ms = (self.last_due_ns - self.first_due_ns) / 1e6
        out: dict[str, Any] = {
            "cache_n": self.n_cached,
            "prompt_n": n_prompt,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / n_prompt if n_prompt else None,
            "prompt_per_second": n_prompt / prompt_ms * 1e3 if prompt_ms else None,
            "predicted_n": n_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / (n_tokens - 1) if n_tokens > 1 else None,
            "predicted_per_second": (n_tokens - 1) / predicted_ms * 1e3 if n_tokens > 1 and predicted_ms else None,
        }
        if self.n_drafted:
            out |= {"draft_n": self.n_drafted, "draft_n_accepted": self.n_accepted}
        return out

    def _envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "choices": choices,
            "created": self.created_unix_s,
            "id": self.id,
            "model": self.model,
            "system_fingerprint": "fake",
            "object": "chat.completion.chunk" if self.chat else "text_completion",
        }


def dump(payload: dict[str, Any]) -> bytes:
    return _dumps(payload).encode()


def _cut(text: str, n_pieces: int | None) -> list[str]:
    """The text in ``n_pieces`` pieces (some empty when it is short); by default one a word."""
    if n_pieces is None:
        return tokenize(text)
    bounds = [len(text) * k // n_pieces for k in range(n_pieces + 1)] if n_pieces else [0]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]
