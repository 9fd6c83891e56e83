"""Everything the fake engine can do wrong (or rightly but rarely), by name: one table.

A fault is chosen by the model name ``fake-NAME``, by ``"fake": {"fault": NAME}`` in the request, or for the whole
server by ``--fault NAME``. "Half" means half of the answer's tokens, at least one.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from infra.fake import mutations as change
from infra.fake.answer import Answer, dump
from infra.fake.script import End, Manner, Script, Send, gzip_encoder, reply, say

PAGE = b"<!DOCTYPE html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Exactly one of ``manner`` (a stream, in a way of its own) and ``whole`` (something else in place of a stream)."""

    says: str
    manner: Callable[[], Manner] | None = None
    whole: Callable[[Answer], Script] | None = None
    schedule: dict[str, Any] = field(default_factory=dict)  # wins over the server's defaults, not over the request


def error_body(status: int, message: str, kind: str) -> bytes:
    return json.dumps({"error": {"code": status, "message": message, "type": kind}}).encode()


def _status(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Callable[[Answer], Script]:
    body = error_body(status, message, kind)
    return lambda _answer: reply(status, "application/json; charset=utf-8", body, headers=headers)


def _nothing(end: End, first: bytes = b"") -> Callable[[Answer], Script]:
    def script(answer: Answer) -> Script:
        if first:
            yield Send(answer.received_ns, say(first))
        yield end

    return script


def _slow_head(head: bytes, due_ns: int) -> Iterator[Send]:
    for index, line in enumerate(head.splitlines(keepends=True)):
        yield Send(due_ns + index * 50_000_000, say(line))


def _huge_header(answer: Answer) -> Script:
    piece = b"a" * 1_000_000
    yield Send(answer.received_ns, say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Filler: "))
    for _ in range(100):
        yield Send(answer.received_ns, say(piece))
    yield Send(answer.received_ns, say(b"\r\nConnection: close\r\n\r\ndata: [DONE]\n\n"))
    yield End.CLOSE


def _json_in_place(answer: Answer) -> Script:
    return reply(200, "application/json", dump(answer.whole()), due_ns=answer.first_due_ns)


def _error_with_200(answer: Answer) -> Script:
    body = error_body(500, "the model runner died", "server_error")
    return reply(200, "application/json", body, due_ns=answer.first_due_ns)


def _page(_answer: Answer) -> Script:
    return reply(200, "text/html", PAGE)


def _redirect(_answer: Answer) -> Script:
    return reply(307, "text/plain", b"", headers={"Location": "/elsewhere/v1/chat/completions"})


ERROR = {"error": {"code": 500, "message": "CUDA error: out of memory", "type": "server_error"}}
ERROR_TEXT = {"error": "CUDA error: out of memory"}
UNFINISHED: dict[str, Any] = {"last_chunk": b""}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _way(**fields: Any) -> Callable[[], Manner]:
    return lambda: Manner(**fields)


_TABLE: dict[str, Fault] = {
    "none": Fault(says="a stream as it should be", manner=_way()),
    # in place of an answer
    "401": Fault(says="401 with an error object", whole=_status(401, "Invalid API Key", "authentication_error")),
    "404": Fault(says="404: the model does not exist", whole=_status(404, "model not found", "not_found_error")),
    "429": Fault(says="429 with Retry-After: 1", whole=_status(429, "slow down", "rate_limit", {"Retry-After": "1"})),
    "500": Fault(says="500 with an error object", whole=_status(500, "internal failure", "server_error")),
    "503": Fault(says="503: the model is loading", whole=_status(503, "Loading model", "unavailable_error")),
    "redirect": Fault(says="307 to another path", whole=_redirect),
    "hang": Fault(says="the request is read and nothing ever comes", whole=_nothing(End.HANG)),
    "close-before-headers": Fault(says="FIN in place of an answer", whole=_nothing(End.CLOSE)),
    "reset-before-headers": Fault(says="RST in place of an answer", whole=_nothing(End.RESET)),
    "half-headers": Fault(says="FIN within the headers", whole=_nothing(End.CLOSE, b"HTTP/1.1 200 OK\r\nContent-T")),
    "not-http": Fault(says="a greeting of another protocol", whole=_nothing(End.CLOSE, b"220 mail ready\r\n")),
    "html": Fault(says="200 with an HTML page", whole=_page),
    "json": Fault(says="200 with a plain JSON completion in place of a stream", whole=_json_in_place),
    "json-error": Fault(says="200 with a JSON error object in place of a stream", whole=_error_with_200),
    "huge-header": Fault(says="a header line of 100 MB", whole=_huge_header),
    # headers
    "slow-headers": Fault(says="header lines 50 ms apart", manner=_way(play_head=_slow_head)),
    "continue": Fault(says="an interim 100 Continue first (legal)", manner=_way(before_head=CONTINUE)),
    # the stream stops
    "stall-after-headers": Fault(
        says="headers, then silence", manner=_way(events=change.none, end=End.HANG, **UNFINISHED)
    ),
    "stall": Fault(says="half, then silence", manner=_way(events=change.half, end=End.HANG, **UNFINISHED)),
    "close-chunked": Fault(
        says="half, then FIN within chunked coding", manner=_way(events=change.half, end=End.CLOSE, **UNFINISHED)
    ),
    "close-plain": Fault(
        says="half, then FIN, the body being delimited by closing only",
        manner=_way(events=change.half, framing="close", end=End.CLOSE),
    ),
    "close-length": Fault(
        says="half, then FIN before Content-Length bytes have come",
        manner=_way(events=change.half, framing="close", end=End.CLOSE, head={"Content-Length": "1000000"}),
    ),
    "close-mid-event": Fault(
        says="half, then FIN within an event", manner=_way(events=change.half_and_a_bit, end=End.CLOSE, **UNFINISHED)
    ),
    "reset": Fault(says="half, then RST", manner=_way(events=change.half, end=End.RESET, **UNFINISHED)),
    "die": Fault(says="half, then the engine exits", manner=_way(events=change.half, end=End.DIE, **UNFINISHED)),
    "garbage-chunk": Fault(
        says="half, then bytes that are no chunk",
        manner=_way(events=change.half, end=End.CLOSE, last_chunk=b"zz\r\n\x00\xff no chunk\r\n"),
    ),
    # errors inside HTTP 200
    "error-first": Fault(says="the first event is an error object", manner=_way(events=change.only(ERROR))),
    "error-first-string": Fault(says="the first event is an error string", manner=_way(events=change.only(ERROR_TEXT))),
    "error-later": Fault(
        says="half, an error object, and the end without [DONE]", manner=_way(events=change.half_then(ERROR))
    ),
    "error-later-string": Fault(says="half, then an error string", manner=_way(events=change.half_then(ERROR_TEXT))),
    "error-then-done": Fault(
        says="half, an error object, usage, [DONE]", manner=_way(events=change.half_then(ERROR, keep_tail=True))
    ),
    "abort": Fault(says="finish reason abort", manner=_way(events=change.finish_as("abort"))),
    "finish-error": Fault(says="finish reason error", manner=_way(events=change.finish_as("error"))),
    "content-filter": Fault(
        says="finish reason content_filter", manner=_way(events=change.finish_as("content_filter"))
    ),
    # usage and the tail
    "no-usage": Fault(says="no usage though it was asked for", manner=_way(events=change.without("usage"))),
    "usage-null": Fault(says="usage: null in every other chunk (legal)", manner=_way(events=change.null_usage)),
    "usage-twice": Fault(says="the usage chunk comes twice", manner=_way(events=change.usage_again(0))),
    "usage-shrinks": Fault(says="a second usage with a token less", manner=_way(events=change.usage_again(-1))),
    "usage-on-content": Fault(
        says="usage on the last content chunk, none after (legal)", manner=_way(events=change.usage_on_content)
    ),
    "no-finish": Fault(says="no finish reason", manner=_way(events=change.without("finish"))),
    "no-done": Fault(says="no [DONE]", manner=_way(events=change.without("done"))),
    "no-tail": Fault(says="no finish reason, usage or [DONE]", manner=_way(events=change.without_tail)),
    "close-after": Fault(says="the kept-alive connection is closed after the answer", manner=_way(end=End.CLOSE)),
    "extra-bytes": Fault(says="bytes after the end of the body", manner=_way(after=b"\r\nstray bytes\r\n")),
    # server-sent events, legal and not
    "comments": Fault(says="comment lines between the events (legal)", manner=_way(events=change.comments)),
    "pings": Fault(
        says="an id line, and a comment with a blank line of its own (legal)", manner=_way(encode=change.ping)
    ),
    "comment-as-data": Fault(says="a comment sent as data, not JSON", manner=_way(events=change.stray(change.AS_DATA))),
    "bad-json": Fault(says="one event is cut JSON", manner=_way(events=change.stray(change.CUT_JSON))),
    "named-events": Fault(says="event and id lines (legal)", manner=_way(encode=change.named)),
    "no-space": Fault(says="data: without a space (legal)", manner=_way(encode=change.no_space)),
    "crlf": Fault(says="lines end in CR LF (legal)", manner=_way(encode=change.crlf)),
    "cr": Fault(says="lines end in CR (legal)", manner=_way(encode=change.cr)),
    "multi-line-data": Fault(says="each event's JSON in two data lines (legal)", manner=_way(encode=change.two_lines)),
    "bom": Fault(says="a byte order mark first (legal)", manner=_way(events=change.bom)),
    "no-last-blank": Fault(
        says="no blank line after [DONE], then FIN", manner=_way(events=change.no_last_blank, framing="close")
    ),
    # segments
    "packed": Fault(says="three events in one segment", manner=_way(pack=3)),
    "split": Fault(says="each event in segments of 7 bytes", manner=_way(cut_wire=change.pieces_of(7))),
    "bytes": Fault(says="each event byte by byte", manner=_way(cut_wire=change.pieces_of(1))),
    "split-utf8": Fault(
        says="wide characters cut between two chunks", manner=_way(events=change.wide, cut=change.within_character)
    ),
    "chunk-extension": Fault(says="chunk extensions (legal)", manner=_way(chunk_extension=b";n=1")),
    "trailers": Fault(says="a trailer after the last chunk (legal)", manner=_way(last_chunk=b"0\r\nX-Sum: 1\r\n\r\n")),
    "gzip": Fault(
        says="a gzip body nobody asked for",
        manner=lambda: Manner(encode=gzip_encoder(), repeatable=False, head={"Content-Encoding": "gzip"}),
    ),
    # content
    "empty-first-delta": Fault(
        says='an empty content "" at half of the TTFT (legal)', manner=_way(events=change.early({"content": ""}))
    ),
    "role-only": Fault(
        says="a chunk with the role only, at half of the TTFT (legal)",
        manner=_way(events=change.early({"role": "assistant", "content": None})),
    ),
    "zero-tokens": Fault(says="no token at all", manner=_way(), schedule={"n_tokens": 0}),
    "one-token": Fault(says="one token", manner=_way(), schedule={"n_tokens": 1}),
    "reasoning": Fault(says="first half as reasoning", manner=_way(), schedule={"shape": "reasoning"}),
    "reasoning-content": Fault(
        says="first half as reasoning_content", manner=_way(), schedule={"shape": "reasoning_content"}
    ),
    "mixed": Fault(says="reasoning and content in one delta", manner=_way(), schedule={"shape": "mixed"}),
    "tool-calls": Fault(says="a tool call, no content", manner=_way(), schedule={"shape": "tool_calls"}),
}

FAULTS: dict[str, str] = {name: fault.says for name, fault in _TABLE.items()}


def find_fault(name: str) -> Fault:
    """Raises KeyError for a name not in FAULTS."""
    return _TABLE[name]
