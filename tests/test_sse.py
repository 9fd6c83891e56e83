"""Server-sent events: whole, byte by byte, in any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.wire.sse import SseEvent, SseParser


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def byte_by_byte(data: bytes) -> list[SseEvent]:
    return parse(*(data[i : i + 1] for i in range(len(data))))


CASES = {
    "plain": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "no space after the colon": (b"data:a\n\n", [b"a"]),
    "only one space is dropped": (b"data:  a\n\n", [b" a"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "cr": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\rdata: c\r\n\r\n", [b"a", b"b", b"c"]),
    "several data lines": (b"data: a\ndata: b\n\n", [b"a\nb"]),
    "comments": (b":\n\n: keep-alive\n\ndata: a\n: ping\n\n", [b"a"]),
    "id and then a comment dispatch nothing": (b"id: 1\ndata: a\n\nid: 2\n\n: ping\n\n", [b"a"]),
    "empty data dispatches nothing": (b"data:\n\ndata\n\ndata: a\n\n", [b"a"]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "byte order mark inside is data": (b"data: \xef\xbb\xbfa\n\n", [b"\xef\xbb\xbfa"]),
    "blank lines first": (b"\n\r\n\rdata: a\n\n", [b"a"]),
    "utf-8 left alone": ("data: 中🫠\n\n".encode(), ["中🫠".encode()]),
    "unterminated": (b"data: a\n\ndata: b\n", [b"a"]),
}


@pytest.mark.parametrize("name", CASES)
def test_events_are_the_same_whole_byte_by_byte_and_with_more_behind(name):
    data, expected = CASES[name]
    assert [event.data for event in parse(data)] == expected
    assert [event.data for event in byte_by_byte(data)] == expected
    behind = [event.data for event in parse(data, b"\n\ndata: z\n\n")]
    assert behind[: len(expected)] == expected and behind[-1] == b"z"


def test_an_event_is_dispatched_by_the_byte_that_completes_it():
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [SseEvent(b"a", None)]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: b\n\n") == [SseEvent(b"b", None)]


def test_the_name_of_an_event_is_its_own_only():
    assert parse(b"event: error\ndata: a\n\ndata: b\n\n") == [SseEvent(b"a", "error"), SseEvent(b"b", None)]


def test_comments_and_unknown_fields_are_counted():
    parser = SseParser()
    parser.feed(b": one\n:two\n{} no field\nretry: 3\nnonsense: 1\n\n")
    assert (parser.n_comments, parser.n_ignored_lines) == (2, 2)


@pytest.mark.parametrize("left", [b"data: [DONE]", b"data: [DONE]\n", b"id: 1\ndata: {"])
def test_what_is_left_at_the_end_is_handed_back(left):
    parser = SseParser()
    parser.feed(b"data: a\n\n" + left)
    assert parser.close() == left
    assert parser.close() == b""


def test_a_long_line_in_many_pieces_costs_no_quadratic_copying():
    parser = SseParser()
    for _ in range(200_000):
        parser.feed(b"x")
    parser.feed(b"\n")
    assert len(parser.close()) == 200_001


@given(
    st.lists(st.sampled_from([b"data:", b"data: {}", b"\r", b"\n", b"\r\n", b":", b"x", b"\xe4", b"\xef\xbb\xbf"])),
    st.data(),
)
def test_any_cut_of_the_same_bytes_gives_the_same_events(parts, data):
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, cut = SseParser(), SseParser()
    expected = whole.feed(stream)
    assert [event for piece in pieces for event in cut.feed(piece)] == expected
    assert (cut.n_comments, cut.n_ignored_lines, cut.close()) == (
        whole.n_comments,
        whole.n_ignored_lines,
        whole.close(),
    )
