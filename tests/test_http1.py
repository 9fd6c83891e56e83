"""HTTP/1.1 bytes out and in: whole, byte by byte, with trailing data; and the glance that finds the end."""

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.wire.ending import EndFinder
from infra.wire.http1 import ResponseReader, WireError, read_response, request_bytes
from tests.stream_bytes import DONE, HEAD, HEAD_CLOSE, LAST, captured, chunk, event


def bytes_of(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def test_a_request_asks_for_no_compression_and_states_its_length():
    raw = request_bytes("POST", "/p/v1/x", "h:1", [("Authorization", "Bearer é")], b"{}")
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /p/v1/x HTTP/1.1"
    assert set(lines[1:]) == {
        b"Host: h:1",
        b"Accept-Encoding: identity",
        b"Content-Length: 2",
        "Authorization: Bearer é".encode(),
    }
    assert body == b"{}"


def test_a_get_has_no_body_and_no_length():
    assert request_bytes("GET", "/", "h") == b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: identity\r\n\r\n"


@pytest.mark.parametrize(
    ("target", "header"),
    [("/a b", ("X", "1")), ("/", ("X", "1\r\nEvil: 2")), ("/", ("X Y", "1")), ("/", ("Ü", "1")), ("/ü", ("X", "1"))],
)
def test_what_http_cannot_carry_is_refused(target, header):
    with pytest.raises(WireError, match="cannot be sent"):
        request_bytes("POST", target, "h", [header])


@pytest.mark.parametrize("name", ["host", "Accept-Encoding", "Content-Length", "Transfer-Encoding", "connection"])
def test_headers_the_client_owns_cannot_be_given(name):
    with pytest.raises(WireError, match="leave it out"):
        request_bytes("POST", "/", "h", [(name, "x")])


OK = b"HTTP/1.1 200 OK\r\n"
CODED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
OOPS = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n"
SHOUTED = OK + b"transfer-ENCODING: Chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# name: (raw, body, framing, complete, reusable)
RESPONSES = {
    "chunked": (CODED + b"3\r\nabc\r\n0\r\n\r\n", b"abc", "chunked", True, True),
    "chunk extensions": (CODED + b"3;a=b\r\nabc\r\n0;c\r\n\r\n", b"abc", "chunked", True, True),
    "trailers": (CODED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n", b"abc", "chunked", True, True),
    "upper case coding": (SHOUTED + b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", "chunked", True, True),
    "crlf in the data": (CODED + b"7\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n\r\n", "chunked", True, True),
    "length": (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", "length", True, True),
    "length 0": (OK + b"Content-Length: 0\r\n\r\n", b"", "length", True, True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", "length", True, True),
    "close": (OK + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc", b"abc", "length", True, False),
    "http 1.0": (b"HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\nabc", b"abc", "eof", False, False),
    "to the end of the connection": (HEAD_CLOSE + b"abc", b"abc", "eof", False, False),
    "100 first": (CONTINUE + OK + b"Content-Length: 3\r\n\r\nabc", b"abc", "length", True, True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", b"abc", "length", True, True),
    "length cut short": (OK + b"Content-Length: 5\r\n\r\nabc", b"abc", "length", False, False),
    "chunk cut short": (CODED + b"5\r\nabc", b"abc", "chunked", False, False),
    "last chunk missing": (CODED + b"3\r\nabc\r\n", b"abc", "chunked", False, False),
    "error status": (OOPS + b"3\r\nabc\r\n0\r\n\r\n", b"abc", "chunked", True, True),
}  # fmt: skip


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_read_the_same_in_any_pieces(name, cut):
    raw, body, framing, complete, reusable = RESPONSES[name]
    pieces = [raw] if cut == "whole" else bytes_of(raw)
    reader = ResponseReader()
    assert b"".join([reader.feed(piece) for piece in pieces]) == body
    assert reader.problem is None
    assert reader.head is not None
    assert (reader.head.framing, reader.complete, reader.reusable) == (framing, complete, reusable)


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", RESPONSES)
def test_the_end_is_found_with_the_byte_that_makes_it(name, cut):
    raw, _, _, complete, _ = RESPONSES[name]
    finder = EndFinder()
    found = [finder.feed(piece) for piece in ([raw] if cut == "whole" else bytes_of(raw))]
    assert found == [False] * (len(found) - 1) + [complete]


def test_the_last_chunk_may_be_cut_anywhere():
    raw = HEAD + chunk(DONE) + LAST
    for at in range(1, len(raw)):
        finder = EndFinder()
        assert [finder.feed(raw[:at]), finder.feed(raw[at:])] == [False, True], at


def test_an_event_stream_with_crlf_lines_does_not_end_early():
    finder = EndFinder()
    pieces = [HEAD, *(chunk(event({"n": n}, end=b"\r\n")) for n in range(3)), LAST]
    assert [finder.feed(piece) for piece in pieces] == [False] * 4 + [True]


@pytest.mark.parametrize("size", [b"-5", b"0x3", b"+3", b"", b"zz", b"1_0"])
def test_a_chunk_size_that_is_none_ends_the_reading_and_is_a_problem(size):
    raw = HEAD + size + b"\r\nabc\r\n\r\n"
    assert EndFinder().feed(raw)
    reader = ResponseReader()
    reader.feed(raw)
    assert "chunk header" in (reader.problem or "")


def test_bytes_after_the_end_are_counted_and_spoil_the_connection():
    for pieces in ([HEAD + LAST + b"HTTP/1.1 408"], [HEAD + LAST, b"HTTP/1.1 408"]):
        reader = ResponseReader()
        for piece in pieces:
            reader.feed(piece)
        assert (reader.complete, reader.n_bytes_after_end, reader.reusable) == (True, 12, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000,
    ],
)
def test_what_is_no_http_response_is_a_problem_and_no_crash(raw):
    reader = ResponseReader()
    reader.feed(raw)
    assert reader.problem is not None and not reader.complete


@pytest.mark.parametrize("extra", [b"HTTP/1.1 408 ", b"{}", b"\r\n\r\n", b"\r\nstray\r\n"])
def test_bytes_behind_the_last_chunk_do_not_hide_it(extra):
    assert EndFinder().feed(HEAD + chunk(DONE) + LAST + extra)
    finder = EndFinder()
    assert [finder.feed(piece) for piece in (HEAD, chunk(DONE) + LAST + extra)] == [False, True]
    finder = EndFinder()
    assert [finder.feed(piece) for piece in (HEAD, chunk(DONE), LAST + extra)] == [False, False, True]


def test_a_header_block_without_end_ends_the_reading():
    finder = EndFinder()
    found = [finder.feed(b"HTTP/1.1 200 OK\r\nX: " if n == 0 else b"y" * 10_000) for n in range(40)]
    assert found.index(True) == 27


def test_what_came_before_a_broken_chunk_is_kept():
    reader = ResponseReader()
    assert reader.feed(HEAD + b"3\r\nabc\r\nnonsense\r\n") == b"abc"
    assert reader.problem is not None


def test_large_headers_and_large_chunks_are_read():
    reader = ResponseReader()
    big = b"x" * 1_000_000
    pieces = [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, b"\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(big) + LAST]
    assert b"".join([reader.feed(piece) for piece in pieces]) == big
    assert reader.complete


def test_a_body_that_ends_with_the_connection_cannot_be_called_complete():
    assert read_response([HEAD_CLOSE + b"abc"]).complete is None
    assert read_response([captured("llamacpp_error_400.http")[0]]).complete is True
    assert read_response([b""]).head is None


@pytest.mark.parametrize(
    "name", ["llamacpp_chat_emoji.http", "sglang_chat_ngram_counted.jsonl", "sglang_error_400.jsonl"]
)
def test_captured_responses_end_with_their_last_byte_wherever_they_are_cut(name):
    raw = b"".join(captured(name))
    finder = EndFinder()
    found = [finder.feed(piece) for piece in bytes_of(raw)]
    assert found == [False] * (len(raw) - 1) + [True]


_chunks = st.lists(st.sampled_from([b"data: {}\n\n", b"data: {}\r\n\r\n", b"0\r\n\r\n", b"\r\n", b"0", b"x" * 300]))


@given(_chunks, st.sampled_from([b"0\r\n\r\n", b"0\r\nT: 1\r\n\r\n", b'00;e="0"\r\n\r\n', b""]), st.data())
def test_the_glance_agrees_with_h11_on_any_chunks_in_any_pieces(bodies, last, data):
    raw = HEAD + b"".join(chunk(body) for body in bodies) + last
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=12)))
    finder, reader = EndFinder(), ResponseReader()
    for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        reader.feed(raw[a:b])
        assert finder.feed(raw[a:b]) == reader.complete
    assert reader.problem is None


class SlowReader(ResponseReader):
    """All of it through h11."""

    def feed(self, data):
        if self.complete or self.problem is not None or not data:
            return super().feed(data)
        return self._through_h11(data)


@settings(deadline=None)
@given(
    _chunks,
    st.sampled_from([LAST, b"3;x\r\nabc\r\n" + LAST, b"zz\r\n", b"03\r\nabc\r\n0\r\n\r\nmore", b"5\r\nab"]),
    st.data(),
)
def test_chunks_taken_apart_here_are_what_h11_makes_of_them(bodies, last, data):
    early = data.draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    pieces = [early + HEAD, *(chunk(body) for body in bodies), last]
    raw = b"".join(pieces)
    if data.draw(st.booleans()):
        cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=12)))
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    fast, slow = ResponseReader(), SlowReader()
    for piece in pieces:
        assert fast.feed(piece) == slow.feed(piece)
        assert fast.complete == slow.complete and (fast.problem is None) == (slow.problem is None)
    assert (fast.head, fast.informational, fast.trailers) == (slow.head, slow.informational, slow.trailers)
    assert (fast.reusable, fast.complete and fast.n_bytes_after_end) == (
        slow.reusable,
        slow.complete and slow.n_bytes_after_end,
    )


def test_a_thousand_early_hints_in_one_segment_are_read():
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000 + HEAD + LAST)
    assert (len(reader.informational), reader.complete) == (2000, True)


def test_a_request_of_ours_is_read_by_a_server_of_h11():
    server = h11.Connection(h11.SERVER)
    server.receive_data(request_bytes("POST", "/v1/chat/completions", "[::1]:80", [("X", "y")], b"body"))
    request, data = server.next_event(), server.next_event()
    assert isinstance(request, h11.Request) and isinstance(data, h11.Data)
    assert (request.target, dict(request.headers)[b"host"], data.data) == (
        b"/v1/chat/completions",
        b"[::1]:80",
        b"body",
    )


@pytest.mark.parametrize(
    "value", ["Bearer sk-hunter2\r", "Bearer sk-hunter2\n", " sk-hunter2", "sk-hunter2\0", "sk-hunter2\v1"]
)
def test_a_header_value_that_cannot_be_sent_is_named_by_its_header_and_never_quoted(value):
    with pytest.raises(WireError, match="the value of header 'Authorization'") as caught:
        request_bytes("POST", "/", "h", [("Authorization", value)])
    assert "hunter2" not in f"{caught.value} {caught.value.value}"
