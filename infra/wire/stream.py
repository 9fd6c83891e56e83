"""A streamed answer, read from the raw log of its connection: one pure function, run when the clock no longer matters.

The same segments give the same facts, today and when the run folder is read again; and the same bytes cut into other
segments give the same facts but for the indices of segments. Times are not read here: a fact names the segment that
completed it, and the segment has the stamps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from infra.wire import outcome as judge
from infra.wire.chat import ChatFacts, ChatFold
from infra.wire.counting import Chunk, CountSource, whole
from infra.wire.faults import MAX_BODY_BYTES, NotJson, WireFault, read_json
from infra.wire.http1 import Framing, Head, Headers, ResponseReader
from infra.wire.outcome import BodyKind
from infra.wire.sse import SseEvent, SseParser
from infra.wire.stamps import Ended

ChunkSemantics = Literal["token", "verify_step", "merged", "unknown"]
Segments = Sequence[tuple[int | None, int, bytes]]

_YIELD_EVERY = 16  # segments between two calls of on_yield
_START_BYTES = 4096  # of a body, by which it is judged what it is


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFacts:
    """All that one response says. ``*_segment`` are indices of segments; None: it never came."""

    outcome: str  # a name of evidence.records.Outcome
    error: WireFault | None
    http_status: int | None
    headers: Headers
    informational: tuple[int, ...]  # statuses of 1xx responses before it
    http_framing: Framing | None
    http_complete: bool  # the framing ended the body
    reusable: bool  # the connection can carry the next request
    body_kind: BodyKind | None
    headers_segment: int | None
    first_event_segment: int | None
    first_token_segment: int | None  # of any kind: content, reasoning, tool call, or a rise of the server's count
    first_visible_segment: int | None
    last_token_segment: int | None
    done_segment: int | None
    end_segment: int | None  # that completed the body; None where it did not end, or ended with the connection
    chunks: tuple[Chunk, ...]  # token-bearing events only
    chunk_semantics: ChunkSemantics
    chunk_count_source: CountSource | None
    n_events: int
    n_comments: int
    n_malformed_events: int
    coalesced_events: int | None  # events beyond the first in their segment; None without segments
    text: str
    reasoning: str | None
    tool_calls_text: str | None
    usage: dict[str, Any] | None
    token_source: CountSource | None
    n_completion_tokens: int | None
    n_prompt_tokens: int | None
    finish_reason: str | None
    server_fields: dict[str, Any]
    model_served: str | None
    n_replacement_chars: int
    problems: tuple[str, ...]


def read_stream(
    segments: Segments,
    *,
    ended: Ended,
    framing: Literal["http", "body"] = "http",
    http_status: int | None = None,
    on_yield: Callable[[], None] | None = None,
) -> StreamFacts:
    """The facts of a response.

    ``framing="body"``: the segments hold the decoded body alone, another client having taken HTTP off; it says the
    status (200 if not given) and, by ``ended="complete"``, that HTTP ended the body ("eof": the connection's end did).
    ``on_yield`` is called every 16 segments, so that a caller in an event loop can let others run.
    """
    reader = ResponseReader() if framing == "http" else None
    sse, fold = SseParser(), ChatFold()
    start = b""  # of the body
    headers_segment = end_segment = last_event_segment = None
    last_piece_segment = len(segments) - 1
    n_coalesced = 0
    for index, (_, _, data) in enumerate(segments):
        if on_yield is not None and index % _YIELD_EVERY == _YIELD_EVERY - 1:
            on_yield()
        piece = data
        if reader is not None:
            piece = reader.feed(data)
            if headers_segment is None and reader.head is not None:
                headers_segment = index
            if end_segment is None and reader.complete:
                end_segment = index
        if not piece:
            continue
        last_piece_segment = index
        if len(start) < _START_BYTES:
            start += piece
        for event in sse.feed(piece):
            n_coalesced += last_event_segment == index
            last_event_segment = index
            fold.event(event.data, index, event.name)
    http_complete = ended == "complete" if reader is None else reader.complete
    if reader is None and http_complete and segments:
        end_segment = len(segments) - 1
    problems = _leftover(sse, fold, last_piece_segment, whole_body=http_complete)
    if sse.n_ignored_lines:
        problems.append(f"{sse.n_ignored_lines} lines with a field that event streams do not have")
    head = _head(reader, http_status)
    problem = None if reader is None else reader.problem
    if reader is not None and reader.n_bytes_after_end:
        problems.append(f"{reader.n_bytes_after_end} bytes after the end of the response")
    content_type = None if head is None else head.get("content-type")
    kind = None if head is None else judge.body_kind(start, content_type if reader else "text/event-stream")
    is_stream = head is not None and head.status == 200 and kind == "sse" and not _coding(head)
    chat = fold.close() if is_stream else ChatFold().close()
    if is_stream and reader is not None and not (content_type or "").lower().startswith("text/event-stream"):
        problems.append(f"an event stream under content type {content_type!r}")
    if is_stream and http_complete and chat.done_segment is None:
        problems.append("[DONE] is missing")
    body = b"" if is_stream else _body(segments, framing)
    outcome, error = _outcome(head, kind, chat, body, ended, http_complete, problem, segments)
    chunks = chat.chunks
    return StreamFacts(
        outcome=outcome,
        error=error,
        http_status=None if head is None else head.status,
        headers=() if head is None else head.headers,
        informational=() if reader is None else tuple(reader.informational),
        http_framing=None if head is None or reader is None else head.framing,
        http_complete=http_complete,
        reusable=reader is not None and reader.reusable,
        body_kind=kind,
        headers_segment=headers_segment,
        first_event_segment=chat.first_event_segment,
        first_token_segment=chunks[0].segment if chunks else None,
        first_visible_segment=chat.first_visible_segment,
        last_token_segment=chunks[-1].segment if chunks else None,
        done_segment=chat.done_segment,
        end_segment=end_segment,
        chunks=chunks,
        chunk_semantics=chunk_semantics(chunks, chat.server_fields),
        chunk_count_source=chat.count_source,
        n_events=chat.n_events,
        n_comments=sse.n_comments if is_stream else 0,
        n_malformed_events=chat.n_malformed_events,
        coalesced_events=None if not segments else n_coalesced if is_stream else 0,
        text=chat.text,
        reasoning=chat.reasoning,
        tool_calls_text=chat.tool_calls_text,
        usage=chat.usage,
        token_source=chat.token_source,
        n_completion_tokens=chat.n_completion_tokens,
        n_prompt_tokens=chat.n_prompt_tokens,
        finish_reason=chat.finish_reason,
        server_fields=chat.server_fields,
        model_served=chat.model,
        n_replacement_chars=chat.n_replacement_chars,
        problems=(*(problems if is_stream else ()), *chat.problems),
    )


def events(segments: Segments, *, framing: Literal["http", "body"] = "http") -> Iterator[tuple[int, bytes]]:
    """(segment index, data) of every event but ``[DONE]``, for readers that validate or time recorded chunks."""
    reader = ResponseReader() if framing == "http" else None
    sse = SseParser()
    for index, (_, _, data) in enumerate(segments):
        for event in sse.feed(data if reader is None else reader.feed(data)):
            if event.data.strip() != b"[DONE]":
                yield index, event.data


def chunk_semantics(chunks: Sequence[Chunk], server_fields: dict[str, Any]) -> ChunkSemantics:
    """What one token-bearing event stands for, by evidence.

    token: every one raised the server's count by one. verify_step: some by more, and there are as many of them after
    the first as the server counts verify steps. merged: some by more or by none, without that evidence. unknown: not
    counted.
    """
    counts = [chunk.cum_tokens for chunk in chunks]
    if not counts or None in counts:
        return "unknown"
    if counts == list(range(1, len(counts) + 1)):
        return "token"
    return "verify_step" if _verify_steps(server_fields) == len(chunks) - 1 else "merged"


def _verify_steps(fields: dict[str, Any]) -> int | None:
    for outer, inner, name in (
        ("sglext", "spec_tokens_details", "spec_verify_ct"),
        ("metrics", "speculative_decoding", "num_spec_steps"),
    ):
        holder = fields.get(outer)
        details = holder.get(inner) if isinstance(holder, dict) else None
        n_steps = details.get(name) if isinstance(details, dict) else None
        if counted := whole(n_steps):
            return counted
    return None


def _leftover(sse: SseParser, fold: ChatFold, segment: int, *, whole_body: bool) -> list[str]:
    """What the body left without its last blank line: an event if it can be read as one."""
    left = sse.close()
    if not left.strip():
        return []
    for event in SseParser().feed(left + b"\n\n"):
        if _readable(event) or whole_body:
            fold.event(event.data, segment, event.name)
            return ["the last event has no blank line after it"]
    return [f"{len(left)} bytes at the end are no whole event"]


def _readable(event: SseEvent) -> bool:
    try:
        read_json(event.data)
    except NotJson:
        return event.data.strip() == b"[DONE]"
    return True


def _head(reader: ResponseReader | None, http_status: int | None) -> Head | None:
    if reader is not None:
        return reader.head
    status = 200 if http_status is None else http_status
    return Head(http_version="", status=status, reason="", headers=(), framing="eof")


def _body(segments: Segments, framing: Literal["http", "body"]) -> bytes:
    """The beginning of a body that is no stream, read once more."""
    reader = ResponseReader() if framing == "http" else None
    return b"".join([data if reader is None else reader.feed(data) for _, _, data in segments])[:MAX_BODY_BYTES]


def _coding(head: Head) -> str | None:
    coding = (head.get("content-encoding") or "identity").strip().lower()
    return None if coding in ("identity", "") else coding


def _outcome(
    head: Head | None,
    kind: BodyKind | None,
    chat: ChatFacts,
    body: bytes,
    ended: Ended,
    http_complete: bool,
    http_problem: str | None,
    segments: Segments,
) -> tuple[str, WireFault | None]:
    if head is None or kind is None:
        return judge.without_head(ended, http_problem, b"".join(data for _, _, data in segments))
    if head.status != 200:
        return judge.not_ok(head.status, head.reason, body)
    if coding := _coding(head):
        message = f"the body is coded {coding!r} although identity was asked for; switch compression off at the server"
        return "malformed", WireFault(kind="content_encoding", message=message, http_status=200)
    by_connection = ended == "eof" and head.framing == "eof"
    broken = http_problem is not None or not (http_complete or by_connection)
    if kind == "sse" or (kind == "empty" and broken):
        whole = http_complete or (by_connection and chat.done_segment is not None)
        return judge.of_stream(chat, ended=ended, body_complete=whole, http_problem=http_problem)
    return judge.no_stream(kind, body, head.get("content-type"))
