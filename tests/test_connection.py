"""The connection without a loop, over a socket that plays a script of reads and writes."""

import struct

import pytest

from infra.wire import connection
from infra.wire.connection import Connection
from infra.wire.http1 import WireError, request_bytes
from infra.wire.stamps import Segment
from infra.wire.stream import read_stream
from tests.stream_bytes import DONE, GOOD, HEAD, HEAD_CLOSE, LAST, chunk, chunked, event

REQUEST = request_bytes("POST", "/", "h", (), b"{}")


def stamp(seconds: int, nanoseconds: int, *, level: int = 1, kind: int = 35) -> tuple[int, int, bytes]:
    return (level, kind, struct.pack("@qq", seconds, nanoseconds))


class ScriptedSocket:
    """Reads: bytes, (bytes, ancillary), or an error to raise; at the script's end it would block. Writes: how many
    bytes each send takes, or an error; at the end it takes all."""

    def __init__(self, reads=(), writes=()):
        self.reads, self.writes = list(reads), list(writes)
        self.sent = b""
        self.closed = False

    def fileno(self):
        return 7

    def recvmsg(self, bufsize, ancbufsize, /):
        step = self.reads.pop(0) if self.reads else BlockingIOError()
        if isinstance(step, Exception):
            raise step
        data, ancillary = step if isinstance(step, tuple) else (step, [])
        return data, ancillary, 0, None

    def send(self, data, /):
        step = self.writes.pop(0) if self.writes else len(data)
        if isinstance(step, Exception):
            raise step
        self.sent += bytes(data[:step])
        return min(step, len(data))

    def close(self):
        self.closed = True


def started(reads=(), writes=(), tls=None) -> tuple[Connection, ScriptedSocket]:
    sock = ScriptedSocket(reads, writes)
    conn = Connection(sock, tls=tls)
    conn.start(REQUEST)
    return conn, sock


def pump(conn: Connection, times: int = 1000) -> list[bool]:
    """Calls until the end or the limit; call n is made at n nanoseconds."""
    answers = []
    for now in range(1, times + 1):
        answers.append(conn.on_readable(now))
        if answers[-1]:
            break
    return answers


def test_one_read_a_call_and_true_with_the_one_that_ends_the_response():
    pieces = chunked(*GOOD)
    conn, sock = started(pieces)
    assert pump(conn) == [False] * (len(pieces) - 1) + [True]
    assert (conn.ended, conn.ended_at_ns) == ("complete", len(pieces))
    assert [segment.data for segment in conn.segments] == pieces
    assert [segment.user_monotonic_ns for segment in conn.segments] == list(range(1, len(pieces) + 1))
    assert sock.sent == REQUEST
    assert read_stream(conn.segments, ended=conn.ended).outcome == "completed"


def test_kernel_stamps_are_kept_and_other_control_messages_are_not_taken_for_them():
    late = 1_764_400_000
    conn, _ = started(
        [
            (HEAD, [stamp(late, 5)]),
            (chunk(DONE), [stamp(1, 1, kind=29), stamp(late, 7)]),
            (LAST, [stamp(1, 1, level=0)]),
        ]
    )
    pump(conn)
    assert [s.kernel_unix_ns for s in conn.segments] == [late * 10**9 + 5, late * 10**9 + 7, None]


def test_a_stamp_that_is_too_short_is_none():
    conn, _ = started([(HEAD, [(1, 35, b"\0" * 8)])])
    conn.on_readable(1)
    assert conn.segments == [Segment(None, 1, HEAD)]


def test_nothing_to_read_is_no_end_and_no_segment():
    conn, _ = started([BlockingIOError(), InterruptedError(), HEAD])
    assert pump(conn, 4) == [False] * 4
    assert conn.n_segments == 1


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset by peer"), TimeoutError(110, "timed out")])
def test_a_broken_connection_ends_and_keeps_what_came(error):
    conn, _ = started([HEAD, error])
    assert pump(conn) == [False, True]
    assert (conn.ended, conn.n_segments) == ("reset", 1)
    assert str(error) in (conn.fault or "")


def test_the_end_of_the_connection_is_no_segment():
    conn, _ = started([HEAD_CLOSE + event(GOOD[1]), DONE, b""])
    assert pump(conn) == [False, False, True]
    assert (conn.ended, conn.ended_at_ns, conn.n_segments) == ("eof", 3, 2)


def test_after_the_end_nothing_is_read():
    conn, sock = started([HEAD + LAST, b"more"])
    assert pump(conn) == [True]
    assert conn.on_readable(99) and sock.reads == [b"more"] and conn.ended_at_ns == 1


def test_a_request_is_sent_in_as_many_pieces_as_the_socket_takes():
    conn, sock = started([HEAD + LAST], [3, BlockingIOError(), 5, BlockingIOError()])
    assert conn.want_write and sock.sent == REQUEST[:3]
    assert not conn.on_writable()
    assert sock.sent == REQUEST[:8] and conn.want_write
    assert conn.on_writable()
    assert sock.sent == REQUEST and not conn.want_write


def test_an_answer_given_before_the_request_was_taken_is_still_read():
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    conn, _ = started([refusal], [3, BrokenPipeError(32, "broken pipe")])
    assert not conn.want_write and "broken pipe" in (conn.fault or "")
    assert pump(conn) == [True]
    assert read_stream(conn.segments, ended="complete").outcome == "http_error"


def test_giving_up_is_the_callers_end_and_never_replaces_a_real_one():
    conn, _ = started([HEAD])
    conn.on_readable(1)
    conn.give_up("timeout_stalled", 5)
    assert (conn.ended, conn.ended_at_ns) == ("timeout_stalled", 5)
    conn, _ = started([HEAD + LAST])
    conn.on_readable(1)
    conn.give_up("cancelled", 5)
    assert (conn.ended, conn.ended_at_ns) == ("complete", 1)


def test_a_connection_carries_one_request_after_another():
    conn, sock = started([HEAD + LAST, HEAD_CLOSE + DONE, b""])
    pump(conn)
    conn.reset()
    assert (conn.ended, conn.segments, conn.n_requests) == (None, [], 1)
    conn.start(REQUEST)
    assert pump(conn) == [False, True]
    assert (conn.n_requests, sock.sent) == (2, REQUEST * 2)
    with pytest.raises(WireError, match="dial another"):
        conn.reset()


def test_a_second_request_before_the_first_has_ended_is_refused():
    conn, _ = started()
    with pytest.raises(WireError, match="under way"):
        conn.start(REQUEST)


@pytest.mark.parametrize(
    ("read", "stale"),
    [(BlockingIOError(), False), (b"", True), (b"HTTP/1.1 408 X\r\n\r\n", True), (ConnectionResetError(), True)],
)
def test_a_stale_connection_is_seen_before_anything_is_sent(read, stale):
    assert Connection(ScriptedSocket([read])).stale() is stale


class XorTls:
    """A layer with records of a length byte and that many bytes; a record of length 0 says goodbye."""

    def __init__(self):
        self.buffer = b""
        self.closed = False
        self.answer = b""

    @staticmethod
    def seal(plain: bytes) -> bytes:
        return b"".join(bytes([len(plain[i : i + 100])]) + plain[i : i + 100] for i in range(0, len(plain), 100))

    def encrypt(self, plain):
        return self.seal(plain)

    def decrypt(self, cipher):
        self.buffer += cipher
        plain = b""
        while self.buffer and len(self.buffer) > self.buffer[0]:
            n = self.buffer[0]
            if n == 255:
                raise OSError("bad record")
            self.closed = self.closed or n == 0
            plain, self.buffer = plain + self.buffer[1 : 1 + n], self.buffer[1 + n :]
        return plain

    def outgoing(self):
        answer, self.answer = self.answer, b""
        return answer


def test_plaintext_carries_the_stamp_of_the_ciphertext_that_completed_it():
    cipher = XorTls.seal(HEAD + LAST)
    reads = [(cipher[:50], [stamp(1, 1)]), (cipher[50:], [stamp(2, 2)])]
    conn, sock = started(reads, tls=XorTls())
    assert sock.sent == XorTls.seal(REQUEST)
    assert pump(conn) == [False, True]
    assert conn.segments == [Segment(2_000_000_002, 2, HEAD + LAST)]


def test_a_tls_goodbye_is_the_end_of_the_connection():
    conn, _ = started([XorTls.seal(HEAD_CLOSE + DONE) + b"\0"], tls=XorTls())
    assert pump(conn) == [True]
    assert (conn.ended, conn.n_segments) == ("eof", 1)


def test_a_tls_record_that_cannot_be_read_ends_the_connection_and_keeps_what_came():
    conn, _ = started([XorTls.seal(HEAD), b"\xff" + b"x" * 300], tls=XorTls())
    assert pump(conn) == [False, True]
    assert (conn.ended, conn.n_segments, conn.fault) == ("reset", 1, "TLS: bad record")


def test_what_tls_wants_to_say_while_reading_is_sent_after_what_waits():
    tls = XorTls()
    conn, sock = started([XorTls.seal(HEAD)], [2, BlockingIOError(), BlockingIOError()], tls=tls)
    tls.answer = b"key update"
    conn.on_readable(1)
    conn.on_writable()
    assert sock.sent == XorTls.seal(REQUEST) + b"key update"


def test_tls_tickets_do_not_make_an_idle_connection_stale_but_data_and_goodbye_do():
    assert not Connection(ScriptedSocket([b"\x05ab"]), tls=XorTls()).stale()
    assert Connection(ScriptedSocket([b"\x02ab"]), tls=XorTls()).stale()
    assert Connection(ScriptedSocket([b"\0"]), tls=XorTls()).stale()
    assert Connection(ScriptedSocket([b"\xff" + b"x" * 255]), tls=XorTls()).stale()


def test_closing_closes_the_socket():
    conn, sock = started()
    assert conn.fileno() == 7
    conn.close()
    assert sock.closed


@pytest.mark.parametrize("with_tls", [False, True])
def test_an_endless_response_ends_at_the_limit_with_its_reason_and_what_came(monkeypatch, with_tls):
    assert connection.LIMIT_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(connection, "LIMIT_BYTES", 1000)
    pieces = [HEAD, *(chunk(event(GOOD[1])) for _ in range(100))]
    reads = [XorTls.seal(piece) for piece in pieces] if with_tls else pieces
    conn, _ = started(reads, tls=XorTls() if with_tls else None)
    assert pump(conn)[-1] is True
    assert (conn.ended, conn.fault) == ("reset", "more than 1000 bytes in one response")
    assert 1000 < sum(len(segment.data) for segment in conn.segments) < 1300
    facts = read_stream(conn.segments, ended=conn.ended or "eof")
    assert facts.outcome == "truncated"
    assert facts.text.startswith("HelHel")


def test_the_limit_is_of_one_response_and_a_response_that_ends_with_it_is_complete(monkeypatch):
    whole = b"".join(chunked(*GOOD))
    monkeypatch.setattr(connection, "LIMIT_BYTES", len(whole) - 1)
    conn, _ = started([whole, whole[:99], whole[99:]])
    for _ in range(2):
        pump(conn)
        assert conn.ended == "complete"
        conn.reset()
        conn.start(REQUEST)
