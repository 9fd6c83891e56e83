"""Bytes of streamed answers for the tests of the wire: made ones and captured ones, in any segments."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.wire.stamps import Ended, Segment
from infra.wire.stream import StreamFacts, read_stream

FOLDER = Path(__file__).parent / "fixtures" / "streams"

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
LAST = b"0\r\n\r\n"


def event(value: Any, *, end: bytes = b"\n") -> bytes:
    """One server-sent event of a JSON value, or of text as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return b"data: " + text.encode() + end + end


DONE = event("[DONE]")


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    """A chat event with one choice."""
    value: dict[str, Any] = {"model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    if usage is not None:
        value["usage"] = used(usage) if isinstance(usage, int) else usage
    return value


def used(n_tokens: int, n_prompt: int = 5) -> dict[str, int]:
    return {"prompt_tokens": n_prompt, "completion_tokens": n_tokens, "total_tokens": n_prompt + n_tokens}


def usage_event(n_tokens: int, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [], "usage": used(n_tokens), **fields}


GOOD = [delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"), usage_event(2)]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def cut(pieces: Sequence[bytes]) -> list[Segment]:
    """One segment a piece, a millisecond apart."""
    return [Segment(10**18 + i * 10**6, i * 10**6, piece) for i, piece in enumerate(pieces)]


def chunked(*values: Any, done: bool = True) -> list[bytes]:
    """A whole response, one piece an event, as servers send it."""
    events = [value if isinstance(value, bytes) else event(value) for value in values]
    return [HEAD, *(chunk(e) for e in [*events, *([DONE] if done else [])]), LAST]


def read(pieces: Sequence[bytes], ended: Ended = "complete") -> StreamFacts:
    return read_stream(cut(pieces), ended=ended)


def read_events(*values: Any, done: bool = True) -> StreamFacts:
    return read(chunked(*values, done=done))


def captured(name: str) -> list[bytes]:
    """The socket reads of a capture (``.jsonl``), or its bytes as one piece."""
    path = FOLDER / name
    if path.suffix != ".jsonl":
        return [path.read_bytes()]
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["bytes"].encode() for line in lines if "bytes" in line]
