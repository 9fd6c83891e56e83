"""The openai client as a transport: each chunk is stamped when the library hands its object over, no byte is lost."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace

import httpx2
import pytest
from greenlet import GreenletExit
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exchange import record_of

from analysis.raw_check import difference
from infra.fake_engine import running_fake_engine
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.wire.sse import SseParser
from infra.wire.stamps import Segment
from infra.wire.stream import events
from locustfiles._transports import OpenAITransport
from tests.stream_bytes import DONE, delta, event

BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "max_tokens": 12}
PING = b": ping\n\n"
A, B, C = (event(delta(content=text)) for text in ("a", "中🫠", "c"))


class Played(httpx2.SyncByteStream):
    """A body of given network chunks, then the end or an exception; it knows what was asked of it."""

    def __init__(self, pieces: Sequence[bytes], then: BaseException | None = None) -> None:
        self.pieces = pieces
        self.then = then
        self.n_given = 0
        self.exhausted = False
        self.exhausted_when_closed: bool | None = None  # None: never closed

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.n_given += 1
            yield piece
        if self.then is not None:
            raise self.then
        self.exhausted = True

    def close(self) -> None:
        self.exhausted_when_closed = self.exhausted


def client_of(body: Played, *, clock: Callable[[], int] | None = None) -> OpenAIClient:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    transport = httpx2.MockTransport(answer)
    return OpenAIClient(
        "http://x", api_key=None, timeout_s=5, clock=clock or (lambda: body.n_given), transport=transport
    )


def received(body: Played) -> list[tuple[int, bytes]]:
    """(network chunks given by then, bytes) of each segment."""
    segments: list[Segment] = []
    with client_of(body).stream(BODY) as opened:
        opened.receive(segments)
    assert {segment.kernel_unix_ns for segment in segments} <= {None}
    return [(segment.user_monotonic_ns, segment.data) for segment in segments]


def test_a_segment_is_what_an_object_came_of_stamped_when_it_was_handed_over():
    pieces = [PING + A[:9], A[9:] + B[:-1], B[-1:] + C, PING, DONE]
    assert received(Played(pieces)) == [(2, PING + A), (3, B), (3, C), (5, PING + DONE)]


def test_an_object_is_handed_over_before_more_is_read():
    body = Played([A + B, C + DONE])
    segments: list[Segment] = []

    def clock() -> int:
        return 10 * body.n_given + len(segments)

    with client_of(body, clock=clock).stream(BODY) as opened:
        opened.receive(segments)
    assert [segment.user_monotonic_ns for segment in segments] == [10, 11, 22, 23]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_several_events_in_one_network_chunk_have_a_segment_each(end):
    parts = [event(delta(content=text), end=end) for text in "abc"]
    told = received(Played([b"".join(parts)]))
    assert [data for _, data in told] == parts


def test_what_follows_done_is_kept_and_the_connection_is_left_at_the_end_of_its_body():
    body = Played([A, DONE, PING, C])
    assert received(body) == [(1, A), (4, DONE + PING + C)]
    assert body.exhausted_when_closed is True


@pytest.mark.parametrize(
    ("refused", "kind"),
    [(event({"error": {"message": "out of memory"}}), "APIError"), (event("{"), "JSONDecodeError")],
)
def test_what_the_library_refuses_is_evidence_as_is_the_rest_and_said_in_a_note(refused, kind):
    body = Played([A, refused, B, DONE])
    exchange = OpenAITransport(client_of(body)).send(SimpleNamespace(endpoint="chat"), BODY)
    assert [segment.data for segment in exchange.segments] == [A, refused + B + DONE]
    assert (exchange.failure, exchange.killed) == (None, False)
    assert exchange.notes[0].startswith(f"the openai client gave up reading: {kind}: ")


def test_a_stopped_user_keeps_the_bytes_that_had_come():
    body = Played([A, B, b"data: {"], then=GreenletExit())
    exchange = OpenAITransport(client_of(body)).send(SimpleNamespace(endpoint="chat"), BODY)
    assert [segment.data for segment in exchange.segments] == [A, B, b"data: {"]
    assert (exchange.ended, exchange.killed) == ("cancelled", True)


def test_comments_alone_do_not_hold_off_the_time_limit():
    body = Played([PING] * 100)
    segments: list[Segment] = []
    client = client_of(body, clock=lambda: body.n_given * 10**9)
    with pytest.raises(OpenAITransportError) as caught, client.stream(BODY) as opened:
        opened.receive(segments)
    assert (caught.value.outcome, caught.value.kind, caught.value.status) == ("timeout_stalled", "deadline", 200)
    assert [segment.data for segment in segments] == [PING * 6]


LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
ODD = [
    *(PING, A, B, C, DONE, A[:-1], A[:-2], b"\n", b"\r\n", b"\r", b"data: ", b"data\n", b"id: 1\n", b"retry: 3\n"),
    *(event("{"), event("null"), event("3"), event([]), event({"choices": [[], {"x": 1}]}), event("[" * 20000)),
    *(event({"error": {"message": "m"}}), event({"error": "m"}), b'{"object": "x"}', b"event: ping\n\n"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", "data: 中".encode()[:-1], b"data: {\ndata: }\n\n"),
]
PARTS = st.one_of(
    st.builds(lambda text, end: event(delta(content=text), end=end), st.text(max_size=5), LINE_ENDS),
    st.sampled_from(ODD),
    st.binary(max_size=6),
)
ENDPOINTS = st.sampled_from(["chat", "completions"])


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(PARTS, max_size=8), data=st.data(), cut_off=st.booleans(), endpoint=ENDPOINTS)
def test_the_segments_are_the_body_byte_for_byte_whatever_it_is_and_however_it_was_cut(parts, data, cut_off, endpoint):
    whole = b"".join(parts)
    places = data.draw(st.lists(st.integers(0, len(whole)), max_size=12).map(sorted))
    pieces = [whole[a:b] for a, b in itertools.pairwise([0, *places, len(whole)]) if b > a]
    body = Played(pieces, then=httpx2.ReadError("gone") if cut_off else None)
    segments: list[Segment] = []
    failure = None
    with client_of(body).stream(BODY, endpoint) as opened:
        try:
            opened.receive(segments)
        except OpenAITransportError as error:
            failure = error.outcome
    assert b"".join(segment.data for segment in segments) == whole
    assert failure == ("truncated" if cut_off else None)
    assert body.exhausted_when_closed is not cut_off
    ours = [found for found in SseParser().feed(whole) if found.data.strip() != b"[DONE]"]
    assert [found for _, found in events(segments, framing="body")] == [found.data for found in ours]
    if b"\xef\xbb\xbf" not in whole:  # behind a byte order mark the library sees no event, and goes on
        alone = [index for index, _ in events(segments, framing="body") if index < len(segments) - 1]
        assert len(set(alone)) == len(alone)


# fault of the fake engine -> what the record calls it, as with our own connection
OUTCOMES = {
    "none": "completed",
    "html": "not_a_stream",
    "json": "not_a_stream",
    "json-error": "error_in_stream",
    "error-first": "error_in_stream",
    "error-later-string": "error_in_stream",
    "error-then-done": "error_in_stream",
    "bad-json": "malformed",
    "comment-as-data": "malformed",
    "gzip": "malformed",
    "garbage-chunk": "malformed",
    "pings": "completed",
    "bom": "completed",
    "cr": "completed",
    "no-last-blank": "completed",
    "split-utf8": "completed",
    "no-done": "completed",
    "extra-bytes": "completed",
    "no-usage": "no_usage",
    "no-finish": "no_finish_reason",
    "stall": "timeout_stalled",
    "close-chunked": "truncated",
    "close-plain": "truncated",
    "429": "http_error",
}


@pytest.fixture(scope="module")
def engine():
    with running_fake_engine(ttft_s=0.005, gap_s=0.001, n_tokens=6) as fake:
        yield fake


@pytest.fixture(scope="module")
def asked(engine):
    """The exchange of a fault, made once."""

    @cache
    def made(fault):
        client = OpenAIClient(engine.url, api_key=None, timeout_s=0.4)
        body = {**BODY, "model": f"fake-{fault}", "stream_options": {"include_usage": True}}
        exchange = OpenAITransport(client).send(SimpleNamespace(endpoint="chat"), body)
        client.close()
        return exchange

    return made


@pytest.mark.parametrize("fault", OUTCOMES)
def test_what_the_library_makes_of_a_fault_does_not_change_what_the_record_calls_it(asked, fault):
    expected = "malformed" if fault == "pings" else OUTCOMES[fault]  # an event without data, legal, and refused
    assert record_of(asked(fault)).outcome == expected


@pytest.mark.parametrize("fault", ["gzip", "garbage-chunk", "bad-json", "error-first", "stall"])
def test_a_record_of_what_the_library_could_not_read_agrees_with_its_segments(asked, fault):
    exchange = asked(fault)
    assert difference(record_of(exchange), exchange.segments) is None
