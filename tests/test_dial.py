"""Targets, dialling and exchanges over real local sockets, plain and TLS."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from infra.dial import DialError, Io, Target, TargetError, converse, dial, exchange, read_clocks, wait_on_selector
from infra.tls import tls_context
from infra.wire.stamps import kernel_to_user_s, offsets_s, stamp_source
from infra.wire.stream import read_stream
from tests.stream_bytes import GOOD, HEAD, HEAD_CLOSE, LAST, chunked

LIMIT_S = 10.0


@contextlib.contextmanager
def server(play, *, family=socket.AF_INET, host="127.0.0.1", context=None):
    """Serves each connection in turn with ``play(connection)``; gives the port."""
    listener = socket.create_server((host, 0), family=family)

    def serve():
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                if context is not None:
                    accepted = context.wrap_socket(accepted, server_side=True)
                play(accepted)
            accepted.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(LIMIT_S)


def receive(connection) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise ConnectionError("the client has gone")
    return data


def read_request(connection) -> bytes:
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += receive(connection)
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += receive(connection)
    return head + b"\r\n\r\n" + body


def answer(*pieces: bytes, pause_s: float = 0.002):
    """A play: one request, the pieces, each sent by itself."""

    def play(connection):
        read_request(connection)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause_s)

    return play


def local(port: int, scheme: str = "http") -> Target:
    return Target.parse(f"{scheme}://127.0.0.1:{port}")


def ask(target: Target, timeout_s: float = LIMIT_S, **options):
    return exchange(target, target.request("POST", "/v1/x", (), b"{}"), timeout_s, **options)


# ---- targets ----


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "header"),
    [
        ("http://h", "h", 80, "", "h"),
        ("http://h:80/", "h", 80, "", "h"),
        ("https://h:443", "h", 443, "", "h"),
        ("http://h:8000/a/b/", "h", 8000, "/a/b", "h:8000"),
        ("http://[::1]:9", "::1", 9, "", "[::1]:9"),
        ("http://[fe80::1%25eth0]:9", "fe80::1%eth0", 9, "", "[fe80::1]:9"),
        ("https://bücher.example", "bücher.example", 443, "", "xn--bcher-kva.example"),
        ("http://h/v1x", "h", 80, "/v1x", "h"),
    ],
)
def test_a_base_url_is_taken_apart(url, host, port, prefix, header):
    target = Target.parse(url)
    assert (target.host, target.port, target.prefix, target.host_header) == (host, port, prefix, header)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000", "http://HOST:PORT"),
        ("ftp://h", "http://HOST:PORT"),
        ("http://", "names no host"),
        ("http://h:0", "no usable port"),
        ("http://h:99999", "out of range"),
        ("http://h:x", "http://HOST:PORT"),
        ("http://h/v1", "Leave /v1 away"),
        ("http://h/p/v1/", "Leave /v1 away"),
        ("http://h?x=1", "query"),
        ("http://h\r\nX: 1", "white space"),
        ("http://h/ü", "percent-encoded"),
        ("http://[::1", "http://HOST:PORT"),
    ],
)
def test_a_base_url_that_cannot_be_used_is_refused_with_what_to_write(url, says):
    with pytest.raises(TargetError, match=says.replace("[", r"\[")):
        Target.parse(url)


def test_credentials_in_the_url_are_refused_and_not_repeated():
    with pytest.raises(TargetError) as caught:
        Target.parse("http://user:secret@h")
    assert "secret" not in str(caught.value) and "OPENAI_API_KEY" in str(caught.value)


def test_the_prefix_comes_before_every_path():
    target = Target.parse("http://h:1/p")
    assert (target.path("/v1/models"), target.url("/metrics")) == ("/p/v1/models", "http://h:1/p/metrics")
    assert target.request("GET", "/v1/models").startswith(b"GET /p/v1/models HTTP/1.1\r\nHost: h:1\r\n")


# ---- exchanges ----


def test_an_exchange_reads_a_stream_and_stamps_every_segment():
    pieces = chunked(*GOOD)
    with server(answer(*pieces)) as port:
        target = local(port)
        dialed = dial(target, LIMIT_S)
        assert (dialed.tls_s, dialed.tls_version, dialed.address) == (None, None, "127.0.0.1")
        assert dialed.resolve_s >= 0 and dialed.connect_s >= 0
        done = converse(dialed.conn, target.request("POST", "/", (), b"{}"), LIMIT_S)
        dialed.conn.close()
    assert (done.facts.outcome, done.ended, done.facts.reusable) == ("completed", "complete", True)
    assert b"".join(s.data for s in done.segments) == b"".join(pieces)
    offsets = offsets_s(
        done.segments, t0_monotonic_ns=done.t0_monotonic_ns, wall_minus_monotonic_ns=done.wall_minus_monotonic_ns
    )
    assert list(offsets) == sorted(offsets) and offsets[0] > 0
    if sys.platform == "linux":
        assert (dialed.stamp_source, stamp_source(done.segments)) == ("kernel", "kernel")
        delays = kernel_to_user_s(done.segments, wall_minus_monotonic_ns=done.wall_minus_monotonic_ns)
        assert delays is not None and min(delays) > -0.001  # the kernel had it before we did


def test_a_connection_is_used_again_and_found_stale_when_the_server_has_closed_it():
    closed = threading.Event()

    def play(connection):
        for _ in range(2):
            read_request(connection)
            connection.sendall(b"".join(chunked(*GOOD)))
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with server(play) as port:
        target = local(port)
        request = target.request("POST", "/", (), b"{}")
        conn = dial(target, LIMIT_S).conn
        first = converse(conn, request, LIMIT_S)
        assert first.facts.reusable
        conn.reset()
        assert not conn.stale()
        assert converse(conn, request, LIMIT_S).facts.outcome == "completed"
        assert conn.n_requests == 2
        assert closed.wait(LIMIT_S)
        assert wait_on_selector(conn.fileno(), "read", LIMIT_S)
        conn.reset()
        assert conn.stale()
        conn.close()


def test_nobody_listening_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DialError, match="Start the server") as caught:
        dial(local(port), LIMIT_S)
    assert caught.value.outcome == "connect_refused"


def test_a_name_that_does_not_resolve_and_an_address_that_does_not_answer_are_failures_to_connect():
    def no_such_name(*_):
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(DialError, match="does not resolve") as caught:
        dial(Target.parse("http://nowhere.invalid"), LIMIT_S, io=Io(getaddrinfo=no_such_name))
    assert caught.value.outcome == "connect_failed"

    def never(fd, direction, timeout_s):
        return False

    with server(answer()) as port, pytest.raises(DialError, match="timed out") as caught:
        dial(local(port), LIMIT_S, io=Io(wait=never))
    assert caught.value.outcome == "connect_failed"


def test_the_next_address_is_tried_when_the_first_refuses():
    with server(answer(*chunked(*GOOD))) as port:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dead = listener.getsockname()[1]

        def two(*_):
            kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
            return [(*kind, ("127.0.0.1", dead)), (*kind, ("127.0.0.1", port))]

        assert ask(local(port), io=Io(getaddrinfo=two))[2].outcome == "completed"


def test_an_ipv6_literal_is_dialled():
    try:
        with server(answer(*chunked(*GOOD)), family=socket.AF_INET6, host="::1") as port:
            assert ask(Target.parse(f"http://[::1]:{port}"))[2].outcome == "completed"
    except OSError:
        pytest.skip("no IPv6 loopback here")


def test_silence_and_stalls_and_early_ends_have_their_outcomes():
    release = threading.Event()

    def then_wait(*pieces):
        def play(connection):
            answer(*pieces)(connection)
            release.wait(LIMIT_S)

        return play

    cases = [
        (then_wait(), 0.1, "timeout_headers"),
        (then_wait(HEAD), 0.1, "timeout_stalled"),
        (answer(*chunked(*GOOD)[:4]), LIMIT_S, "truncated"),
        (answer(HEAD_CLOSE), LIMIT_S, "truncated"),
        (answer(), LIMIT_S, "truncated"),
        (answer(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), LIMIT_S, "http_error"),
    ]
    for play, limit_s, outcome in cases:
        with server(play) as port:
            assert ask(local(port), limit_s)[2].outcome == outcome
            release.set()
        release.clear()


def test_a_reset_keeps_what_came():
    def play(connection):
        answer(*chunked(*GOOD)[:4], pause_s=0.02)(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with server(play) as port:
        segments, ended, facts = ask(local(port))
    assert (ended, facts.outcome, facts.text) == ("reset", "truncated", "Hello")
    assert segments


def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole():
    got = []

    def play(connection):
        time.sleep(0.05)
        got.append(read_request(connection))
        connection.sendall(HEAD + LAST)

    with server(play) as port:
        target = local(port)
        request = target.request("POST", "/", (), b"x" * 20_000_000)
        _, ended, _ = exchange(target, request, LIMIT_S)
    assert (ended, got) == ("complete", [request])


def test_the_clocks_are_read_together():
    pair = read_clocks()
    assert 0 <= pair.uncertainty_ns < 10**9
    assert abs(time.time_ns() - time.monotonic_ns() - pair.wall_minus_monotonic_ns) < 10**9


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, made here."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return cert, key


@contextlib.contextmanager
def tls_server(certificate, play, **minimum):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    for name, value in minimum.items():
        setattr(context, name, value)
    with server(play, context=context) as port:
        yield port


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_tls_server_is_read_with_the_kernels_stamps(certificate, version):
    pieces = chunked(*GOOD)
    with tls_server(certificate, answer(*pieces), maximum_version=version, minimum_version=version) as port:
        target = local(port, "https")
        dialed = dial(target, LIMIT_S, context=tls_context(str(certificate[0])))
        done = converse(dialed.conn, target.request("POST", "/", (), b"{}"), LIMIT_S)
        dialed.conn.close()
    assert dialed.tls_version == version.name.replace("_", ".")
    assert dialed.tls_s is not None and dialed.tls_s > 0
    assert (done.facts.outcome, done.facts.text, done.ended) == ("completed", "Hello", "complete")
    assert b"".join(s.data for s in done.segments) == b"".join(pieces)
    assert stamp_source(done.segments) == ("kernel" if sys.platform == "linux" else "user")


def test_a_tls_connection_is_used_again_and_seen_stale(certificate):
    def play(connection):
        for _ in range(2):
            read_request(connection)
            connection.sendall(b"".join(chunked(*GOOD)))
        connection.unwrap()

    with tls_server(certificate, play) as port:
        target = local(port, "https")
        conn = dial(target, LIMIT_S, context=tls_context(str(certificate[0]))).conn
        for _ in range(2):
            assert converse(conn, target.request("POST", "/", (), b"{}"), LIMIT_S).facts.outcome == "completed"
            conn.reset()
        assert wait_on_selector(conn.fileno(), "read", LIMIT_S)
        assert conn.stale()
        conn.close()


def test_a_large_answer_over_tls_comes_whole(certificate):
    big = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000
    with tls_server(certificate, answer(big)) as port:
        segments, ended, _ = ask(local(port, "https"), context=tls_context(str(certificate[0])))
    assert (ended, b"".join(s.data for s in segments)) == ("complete", big)


def test_a_certificate_nobody_vouches_for_is_refused_and_one_may_be_named(certificate, monkeypatch):
    with tls_server(certificate, answer(*chunked(*GOOD))) as port:
        with pytest.raises(DialError, match="SSL_CERT_FILE") as caught:
            dial(local(port, "https"), LIMIT_S)
        assert caught.value.outcome == "tls_failed"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert ask(local(port, "https"))[2].outcome == "completed"
        with pytest.raises(DialError, match="localhost") as caught:
            dial(Target.parse(f"https://localhost:{port}"), LIMIT_S)
        assert caught.value.outcome == "tls_failed"


def test_a_server_that_speaks_no_tls_or_hangs_up_or_hangs_is_a_tls_failure():
    release = threading.Event()

    def plain(connection):
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    for play, limit_s in ((plain, LIMIT_S), (lambda c: c.recv(100), LIMIT_S), (lambda c: release.wait(LIMIT_S), 0.1)):
        with server(play) as port:
            with pytest.raises(DialError) as caught:
                dial(local(port, "https"), limit_s)
            assert caught.value.outcome == "tls_failed"
            release.set()
        release.clear()


def test_a_plain_request_to_a_tls_port_is_no_completed_answer(certificate):
    with tls_server(certificate, answer(*chunked(*GOOD))) as port:
        assert ask(local(port))[2].outcome in ("malformed", "truncated")


def test_the_facts_can_be_read_again_from_the_segments():
    with server(answer(*chunked(*GOOD))) as port:
        segments, ended, facts = ask(local(port))
    assert read_stream(segments, ended=ended) == facts
