"""What a fault does to a stream: to its events (generators over them) or to one event's SSE text."""

from collections.abc import Callable, Iterator
from typing import Any

from infra.fake.answer import WIDE_WORDS, Answer, Event

Change = Callable[[Iterator[Event], Answer], Iterator[Event]]

AS_DATA = b"data: : OPENROUTER PROCESSING\n\n"
CUT_JSON = b'data: {"choices":[{"index":0,"delta":{"content":"\n\n'


def none(_events: Iterator[Event], _answer: Answer) -> Iterator[Event]:
    return iter(())


def half(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    """Events up to the one that brings the tokens sent to half of the answer's."""
    for event in events:
        if event.kind != "token":
            return
        yield event
        if event.n_sent * 2 >= answer.n_tokens:
            return


def half_and_a_bit(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    yield from half(events, answer)
    yield extra(b'data: {"choices":[{"index":0,"del', answer)


def extra(raw: bytes, answer: Answer, n_sent: int | None = None) -> Event:
    return Event("extra", answer.last_due_ns, None, raw, answer.n_sent if n_sent is None else n_sent)


def only(payload: dict[str, Any]) -> Change:
    """That payload at the first token's instant, and no more."""

    def change(_events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        yield Event("error", answer.first_due_ns, payload)

    return change


def half_then(payload: dict[str, Any], *, keep_tail: bool = False) -> Change:
    def change(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        n_sent = 0
        for event in half(events, answer):
            n_sent = event.n_sent
            yield event
        due_ns = answer.last_due_ns
        yield Event("error", due_ns, payload, n_sent=n_sent)
        if keep_tail:
            yield Event("usage", due_ns, answer.usage_chunk() | {"usage": answer.usage(n_sent)}, n_sent=n_sent)
            yield Event("done", due_ns, None, b"[DONE]", n_sent)

    return change


def finish_as(reason: str) -> Change:
    def change(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        answer.finish_reason = reason
        return events

    return change


def without(kind: str) -> Change:
    return lambda events, _answer: (event for event in events if event.kind != kind)


def without_tail(events: Iterator[Event], _answer: Answer) -> Iterator[Event]:
    return (event for event in events if event.kind == "token")


def null_usage(events: Iterator[Event], _answer: Answer) -> Iterator[Event]:
    for event in events:
        known = event.payload is None or "usage" in event.payload
        yield event if known else event._replace(payload=(event.payload or {}) | {"usage": None})


def usage_again(difference: int) -> Change:
    def change(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        for event in events:
            yield event
            if event.kind == "usage":
                again = answer.usage_chunk() | {"usage": answer.usage(answer.n_tokens + difference)}
                yield event._replace(payload=again)

    return change


def usage_on_content(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    for event in events:
        if event.kind == "token" and event.n_sent == answer.n_tokens:
            yield event._replace(payload=(event.payload or {}) | {"usage": answer.usage(answer.n_tokens)})
        elif event.kind != "usage":
            yield event


def comments(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    """A lone colon first, while nothing has come yet; then a comment before every event."""
    yield Event("extra", answer.received_ns, None, b":\n\n")
    for event in events:
        yield Event("extra", event.due_ns, None, b": keep-alive\n\n", answer.n_sent)
        yield event


def stray(raw: bytes) -> Change:
    """These bytes as an event after the first token."""

    def change(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        for index, event in enumerate(events):
            yield event
            if index == 0:
                yield extra(raw, answer, event.n_sent)

    return change


def bom(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    yield Event("extra", answer.received_ns, None, b"\xef\xbb\xbf")
    yield from events


def no_last_blank(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    for event in events:
        yield extra(b"data: [DONE]", answer, event.n_sent) if event.kind == "done" else event


def wide(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
    answer.words = WIDE_WORDS
    return events


def early(delta: dict[str, Any]) -> Change:
    """A chunk without a token at half of the time to the first token."""

    def change(events: Iterator[Event], answer: Answer) -> Iterator[Event]:
        due_ns = (answer.received_ns + answer.first_due_ns) // 2
        payload = answer.chunk(0, 0)
        payload["choices"][0] |= {"delta": delta} if answer.chat else {"text": ""}
        yield Event("early", due_ns, payload)
        yield from events

    return change


def ping(payload: bytes) -> bytes:
    return payload if not payload else b"id: 1\ndata: " + payload + b"\n\n: ping\n\n"


def named(payload: bytes) -> bytes:
    return b"event: message\nid: 7\nretry: 1000\ndata: " + payload + b"\n\n"


def no_space(payload: bytes) -> bytes:
    return b"data:" + payload + b"\n\n"


def crlf(payload: bytes) -> bytes:
    return b"data: " + payload + b"\r\n\r\n"


def cr(payload: bytes) -> bytes:
    return b"data: " + payload + b"\r\r"


def two_lines(payload: bytes) -> bytes:
    """Cut at a comma between two members, where JSON allows a line feed."""
    head, comma, rest = payload.partition(b',"')
    return b"data: " + head + (b',\ndata: "' + rest if comma else b"") + b"\n\n"


def pieces_of(size: int) -> Callable[[bytes], list[bytes]]:
    return lambda wire: [wire[start : start + size] for start in range(0, len(wire), size)]


def within_character(text: bytes) -> list[bytes]:
    """Two pieces, cut inside the first character that takes several bytes; one piece when there is none."""
    for index, byte in enumerate(text):
        if byte >= 0xC0:
            return [text[: index + 1], text[index + 1 :]]
    return [text]
