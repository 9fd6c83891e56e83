"""What became of a request: one name out of ``evidence.records.Outcome``, decided from the facts of its stream.

Only "completed" is a success: HTTP 200, an event stream, no error object anywhere in it, a finish reason that is no
error or abort, usage that agrees with the other counts, and a complete body. The order of the tests is the order in
which a reader would ask: did the server say so, did HTTP break, did it end, can it be read, is it whole.

Complete means: the framing ended the body (last chunk, or promised length); where only the end of the connection
ends the body, ``[DONE]`` must have come, because a server that died looks the same. A missing ``[DONE]`` in a body
that the framing ended is a problem on record, and no more.
"""

from typing import Literal

from infra.wire.chat import ChatFacts
from infra.wire.faults import FINISH_ERRORS, WireFault, body_text, read_error_body
from infra.wire.stamps import Ended

BodyKind = Literal["sse", "json", "html", "other", "empty"]

_WHEN_CUT: dict[Ended, str] = {
    "complete": "truncated",
    "eof": "truncated",
    "reset": "truncated",
    "timeout_headers": "timeout_stalled",
    "timeout_stalled": "timeout_stalled",
    "cancelled": "cancelled",
}
_CUT_MESSAGE: dict[Ended, str] = {
    "complete": "the reading stopped before the body's end",
    "eof": "the server closed the connection before the body's end",
    "reset": "the connection was reset before the body's end",
    "timeout_headers": "the time limit passed",
    "timeout_stalled": "the time limit passed before the stream ended",
    "cancelled": "given up because the run was stopped",
}


def body_kind(prefix: bytes, content_type: str | None) -> BodyKind:
    """What the body is, by its first character before its content type: servers send errors under either."""
    start = prefix.removeprefix(b"\xef\xbb\xbf").lstrip()
    media = (content_type or "").partition(";")[0].strip().lower()
    if start[:1] == b"<":
        return "html"
    if start[:1] in (b"{", b"["):
        return "json"
    if media == "text/event-stream":
        return "sse"
    if start.startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
        return "sse"
    return "other" if start else "empty"


def without_head(ended: Ended, http_problem: str | None, raw: bytes) -> tuple[str, WireFault]:
    """No complete header block came; ``raw`` is what did."""
    n_bytes = len(raw)
    if http_problem is None and not (raw.startswith(b"HTTP/") or b"HTTP/".startswith(raw)):
        http_problem = f"what came is no HTTP: {raw[:80]!r}; check the scheme and the port"
    if http_problem is not None:
        return "malformed", WireFault(kind="http", message=http_problem)
    if ended == "cancelled":
        return "cancelled", WireFault(kind="cancelled", message=_CUT_MESSAGE["cancelled"])
    if ended in ("timeout_headers", "timeout_stalled"):
        message = f"no complete headers within the time limit ({n_bytes} bytes came)"
        return "timeout_headers", WireFault(kind="timeout", message=message)
    what = "reset" if ended == "reset" else "closed"
    message = f"the connection was {what} before complete headers ({n_bytes} bytes came)"
    return "truncated", WireFault(kind=f"{what}_before_headers", message=message)


def not_ok(status: int, reason: str, body: bytes) -> tuple[str, WireFault]:
    """A status other than 200."""
    said = read_error_body(body)
    kind, message = said if said is not None else (f"http_{status}", f"HTTP {status} {reason}".rstrip())
    return "http_error", WireFault(kind=kind, message=message, http_status=status, body=body_text(body))


def no_stream(kind: BodyKind, body: bytes, content_type: str | None) -> tuple[str, WireFault]:
    """200, and something else in place of an event stream."""
    said = read_error_body(body)
    if said is not None:
        return "error_in_stream", WireFault(kind=said[0], message=said[1], http_status=200, body=body_text(body))
    message = f"a body of kind {kind} ({content_type or 'no content type'}) came in place of an event stream"
    return "not_a_stream", WireFault(kind=kind, message=message, http_status=200, body=body_text(body))


def of_stream(
    chat: ChatFacts, *, ended: Ended, body_complete: bool, http_problem: str | None
) -> tuple[str, WireFault | None]:
    """An event stream under HTTP 200."""
    outcome, kind, message = _of_stream(chat, ended, body_complete, http_problem)
    if kind is None:
        return outcome, None
    return outcome, WireFault(kind=kind, message=message, http_status=200)


def _of_stream(
    chat: ChatFacts, ended: Ended, body_complete: bool, http_problem: str | None
) -> tuple[str, str | None, str]:
    if chat.error is not None:
        return "error_in_stream", *chat.error
    if http_problem is not None:
        return "malformed", "http", http_problem
    if not body_complete:
        return _WHEN_CUT[ended], ended, f"{_CUT_MESSAGE[ended]} ({chat.n_events} events came)"
    if chat.n_malformed_events:
        first = chat.problems[0] if chat.problems else ""
        return "malformed", "event", f"events that cannot be read: {chat.n_malformed_events}; {first}"
    if chat.finish_reason is None:
        return "no_finish_reason", "no_finish_reason", "the stream ended without a finish reason"
    if chat.finish_reason in FINISH_ERRORS:
        return "finish_error", chat.finish_reason, f"finish reason {chat.finish_reason!r}"
    if chat.token_source != "usage":
        what = "no usage came" if chat.usage is None else "usage has no whole number of completion_tokens"
        return "no_usage", "no_usage", f"{what}; ask for it with stream_options.include_usage"
    if chat.inconsistent is not None:
        return "usage_inconsistent", "usage_inconsistent", chat.inconsistent
    return "completed", None, ""
