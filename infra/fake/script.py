"""From events to sends: SSE text, HTTP framing, cutting and packing, and how the connection ends.

A script is a generator of ``Send`` and at last one ``End``; the server plays it and advances it only after a send has
been made, so that nothing is computed between the stamp and the socket. ``Send.make(now_ns)`` gives the bytes; now_ns
is read immediately before and is what the chunk says as written_ns.
"""

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from infra.fake.answer import Answer, Event, dump

CUT_GAP_NS = 100_000  # between the pieces of one event sent in several segments


class End(Enum):
    """What happens to the connection after the last send."""

    KEEP = "keep alive"
    CLOSE = "close (FIN)"
    RESET = "reset (RST)"
    HANG = "stay open and silent until the peer leaves"
    DIE = "the whole engine process exits"


class Send(NamedTuple):
    due_ns: int
    make: Callable[[int], bytes]


Script = Iterator[Send | End]


def say(data: bytes) -> Callable[[int], bytes]:
    """A ``make`` for bytes without a stamp."""
    return lambda _now_ns: data


def data_line(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


def same_events(events: Iterator[Event], _answer: Answer) -> Iterator[Event]:
    return events


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How an answer's events go out; the defaults are those of a faultless engine."""

    events: Callable[[Iterator[Event], Answer], Iterator[Event]] = same_events
    encode: Callable[[bytes], bytes] = data_line  # one event's payload to SSE text
    cut: Callable[[bytes], list[bytes]] | None = None  # SSE text to pieces, each framed and sent on its own
    cut_wire: Callable[[bytes], list[bytes]] | None = None  # framed bytes to pieces, each sent on its own
    repeatable: bool = True  # encode gives the same for the same, so that an event can be made beforehand
    pack: int = 1  # this many events in one send, due with the last of them
    framing: str | None = None  # None: as the schedule says
    chunk_extension: bytes = b""
    last_chunk: bytes = b"0\r\n\r\n"  # with chunked framing; empty when the body is never finished
    after: bytes = b""  # bytes past the end of the body
    end: End = End.KEEP
    head: dict[str, str] = field(default_factory=dict)  # more header lines
    before_head: bytes = b""
    play_head: Callable[[bytes, int], Iterable[Send]] | None = None  # None: in one send


def stream_script(answer: Answer, manner: Manner) -> Script:
    """The script of a streamed answer."""
    schedule = answer.schedule
    framing = manner.framing or schedule.framing
    events = manner.events(answer.events(), answer)
    frame = _chunked(manner.chunk_extension) if framing == "chunked" else _bare
    headers = {"Content-Type": "text/event-stream", "Server": "fake-engine"} | manner.head
    if framing == "length":
        listed = list(events)
        events = iter(listed)
        headers["Content-Length"] = str(sum(_size(event, answer, manner) for event in listed))
    headers |= {"chunked": {"Transfer-Encoding": "chunked"}, "close": {"Connection": "close"}}.get(framing, {})
    head = manner.before_head + head_bytes(200, headers)
    pending = b""
    if schedule.headers_s is None:
        pending = head
    else:
        due_ns = answer.begun_ns + round(schedule.headers_s * 1e9)
        yield from manner.play_head(head, due_ns) if manner.play_head else [Send(due_ns, say(head))]
    while group := list(itertools.islice(events, manner.pack)):
        yield from _event_sends(group, answer, manner, frame, pending)
        pending = b""
    tail = manner.last_chunk if framing == "chunked" else b""
    if pending + tail + manner.after:
        yield Send(answer.last_due_ns, say(pending + tail + manner.after))
    yield End.CLOSE if framing == "close" and manner.end is End.KEEP else manner.end


def _event_sends(
    group: list[Event], answer: Answer, manner: Manner, frame: Callable[[bytes], bytes], lead: bytes
) -> Iterator[Send]:
    due_ns = group[-1].due_ns
    ready = [(event, _body(event, answer, due_ns)) for event in group]
    pieces: list[bytes] = []
    sent_ns = due_ns

    def whole(now_ns: int) -> bytes:
        return lead + b"".join([frame(_text(event, body, now_ns, manner)) for event, body in ready])

    def make(now_ns: int) -> bytes:
        nonlocal sent_ns
        sent_ns = now_ns
        if manner.cut is None:
            cut = manner.cut_wire(whole(now_ns)) if manner.cut_wire else [whole(now_ns)]
        else:
            texts = [_text(event, body, now_ns, manner) for event, body in ready]
            cut = [frame(piece) for text in texts for piece in manner.cut(text)]
            cut[0] = lead + cut[0]
        pieces.extend(cut[1:])
        return cut[0]

    def make_at_once(now_ns: int) -> bytes:
        nonlocal sent_ns
        if now_ns >= one_digit_more_ns:
            return make(now_ns)
        sent_ns = now_ns
        return b"%b%d%b" % (before, now_ns, after)

    plain = len(group) == 1 and manner.cut is None and manner.cut_wire is None and manner.repeatable
    before, stamped, after = whole(due_ns).rpartition(b"%d" % due_ns) if plain else (b"", b"", b"")
    # The stamp has as many digits as the deadline, so everything around it, lengths included, is made beforehand.
    one_digit_more_ns = 10 ** len(stamped)
    yield Send(due_ns, make_at_once if stamped and ready[0][1][-1:] == b":" else make)
    for event in group:
        answer.mark_sent(event, sent_ns)
    for index, piece in enumerate(pieces, 1):  # filled by make, which has run when the generator goes on
        yield Send(due_ns + index * CUT_GAP_NS, say(piece))


def _body(event: Event, answer: Answer, due_ns: int) -> bytes:
    """The event's JSON up to the value of written_ns, or the whole of it when it carries no truth."""
    if event.payload is None:
        return event.raw
    body = dump(event.payload)
    if not answer.schedule.truth:
        return body
    return b'%s,"received_ns":%d,"due_ns":%d,"written_ns":' % (body[:-1], answer.received_ns, due_ns)


def _text(event: Event, body: bytes, now_ns: int, manner: Manner) -> bytes:
    if event.payload is None and event.kind == "extra":
        return event.raw  # bytes that a fault puts into the stream as they are
    if event.payload is not None and body[-1:] == b":":
        body = b"%s%d}" % (body, now_ns)
    return manner.encode(body)


def _size(event: Event, answer: Answer, manner: Manner) -> int:
    """The event's length on the wire: the stamp has as many digits as the deadline (same clock, same decade)."""
    return len(_text(event, _body(event, answer, event.due_ns), event.due_ns, manner))


def _chunked(extension: bytes) -> Callable[[bytes], bytes]:
    return lambda data: b"%x%s\r\n%s\r\n" % (len(data), extension, data) if data else b""


def _bare(data: bytes) -> bytes:
    return data


def head_bytes(status: int, headers: dict[str, str]) -> bytes:
    reasons = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
    reasons |= {
        429: "Too Many Requests",
        500: "Internal Server Error",
        501: "Not Implemented",
        503: "Service Unavailable",
    }
    lines = [f"HTTP/1.1 {status} {reasons.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def reply(
    status: int, content_type: str, body: bytes, *, due_ns: int = 0, headers: dict[str, str] | None = None
) -> Script:
    """An answer sent whole at ``due_ns`` (0: at once)."""
    named = headers or {}
    fixed = {"Content-Type": content_type, "Server": "fake-engine", "Content-Length": str(len(body))}
    data = head_bytes(status, fixed | named) + body
    yield Send(due_ns, say(data))
    yield End.CLOSE if named.get("Connection") == "close" else End.KEEP


def gzip_encoder() -> Callable[[bytes], bytes]:
    """An encode that compresses a whole stream, flushed at each event."""
    compressor = zlib.compressobj(wbits=31)
    return lambda payload: compressor.compress(data_line(payload)) + compressor.flush(zlib.Z_SYNC_FLUSH)
