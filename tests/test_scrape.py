"""A scrape is whole or says why not, and a server is at rest only when its counters stood still."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evidence.records import Scrape
from infra.fake_engine import running_fake_engine
from infra.fetch import bare_url, fetch
from infra.telemetry.scrape import Scraper, to_record, usable

GOOD = b"# TYPE a counter\na_total 1\n"


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives each connection the next of these bytes and closes; yields its URL and what it was sent."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for data in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    thread.join(5)


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"".join(h + b"\r\n" for h in (b"Content-Type: text/plain", *headers))
    return b"HTTP/1.1 " + status + b"\r\n" + head + b"\r\n" + body


def get(url: str, timeout_s: float = 2.0) -> Scrape:
    return to_record(fetch(url, timeout_s=timeout_s), run_id="run-test", role="before")


@pytest.fixture(scope="module")
def engine():
    with running_fake_engine() as fake:
        yield fake


@pytest.fixture(autouse=True)
def restored(request):
    yield
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").control(metrics="ok")


def scraper(url: str, kept: list[Scrape], **options) -> Scraper:
    return Scraper(
        [url + "/metrics"], kept.append, run_id="run-test", timeout_s=options.pop("timeout_s", 1.0), **options
    )


def test_a_body_of_its_full_length_is_whole():
    with answering(http(GOOD, b"Content-Length: %d" % len(GOOD))) as (url, _):
        got = get(url + "/metrics")
    assert (got.body, got.complete, got.error, usable(got)) == (GOOD.decode(), True, None, None)
    assert got.send_monotonic_s <= got.receive_monotonic_s


def test_a_chunked_body_with_its_end_is_whole():
    with answering(http(b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD), b"Transfer-Encoding: chunked")) as (url, _):
        assert get(url).complete


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (http(GOOD[:-3], b"Content-Length: %d" % len(GOOD)), "truncated"),
        (http(b"%x\r\n%s" % (len(GOOD), GOOD[:9]), b"Transfer-Encoding: chunked"), "truncated"),
        (http(b"%x\r\n%s\r\n" % (len(GOOD), GOOD), b"Transfer-Encoding: chunked"), "truncated"),
        (http(GOOD), "nothing shows that the body is whole"),
        (b"220 mail ready\r\n", "not HTTP"),
        (b"", "RemoteDisconnected"),
        (http(b"{}", b"Content-Length: 2", status=b"501 Not Implemented"), "HTTP 501"),
        (http(b"", b"Content-Length: 0", b"Location: /else", status=b"302 Found"), "HTTP 302"),
        (http(b"a\xff\n", b"Content-Length: 3"), "not UTF-8"),
    ],
)
def test_a_scrape_that_is_not_whole_is_recorded_with_its_reason(answer, says):
    with answering(answer) as (url, _):
        got = get(url)
    assert says in (got.error or "")
    assert usable(got) == got.error
    assert (got.http_status is not None) == answer.startswith(b"HTTP")


def test_what_came_before_a_cut_is_kept():
    with answering(http(GOOD[:-3], b"Content-Length: %d" % len(GOOD))) as (url, _):
        got = get(url)
    assert got.body == GOOD[:-3].decode()
    assert got.complete is False


def test_nobody_listening_is_a_scrape_with_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    got = get(url)
    assert (got.http_status, got.body) == (None, None)
    assert "refused" in (got.error or "")


@pytest.mark.parametrize(
    "rest", ["ftp://127.0.0.1/", "http://", "http://127.0.0.1:port/", "http://127.0.0.1:99999/", "http://[::1"]
)
def test_a_url_that_cannot_be_fetched_is_an_error_not_a_crash(rest):
    got = fetch(rest, timeout_s=1)
    assert got.status is None
    assert "not a URL" in (got.error or "")


def test_a_key_is_sent_and_never_recorded():
    kept: list[Scrape] = []
    secret = http(GOOD, b"Content-Length: %d" % len(GOOD), b"Set-Cookie: session=hunter2")
    with answering(secret) as (url, asked):
        host = url.removeprefix("http://")
        Scraper([f"http://me:hunter2@{host}/metrics"], kept.append, run_id="r", headers={"X-Key": "sk-1"}).scrape(
            "before"
        )
    assert b"X-Key: sk-1" in asked[0]
    assert b"Authorization: Basic" in asked[0]
    assert "hunter2" not in kept[0].model_dump_json()
    assert "sk-1" not in kept[0].model_dump_json()
    assert kept[0].url == f"http://{host}/metrics"


def test_bare_url_drops_user_and_password_alone():
    assert bare_url("https://u:p@h:8/a/b?x=1#f") == "https://h:8/a/b?x=1"


def test_a_server_at_rest_is_proven_by_three_equal_scrapes(engine):
    kept: list[Scrape] = []
    idle = scraper(engine.url, kept).idle_check("llama.cpp", interval_s=0.01, limit_s=5)
    assert (idle.proven, idle.n_rounds) == (True, 3)
    assert [s.role for s in kept] == ["idle-check"] * 3


def test_gauges_that_jump_do_not_disturb_the_rest(engine):
    engine.control(metrics="noise")
    assert scraper(engine.url, []).idle_check("llama.cpp", interval_s=0.01, limit_s=5).proven


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("busy", "kept moving"),
        ("garbled", "line"),
        ("duplicate", "again"),
        ("no-newline", "cut"),
        ("truncated", "truncated"),
        ("html", "Content-Type"),
        ("off", "HTTP 501"),
        ("missing", "HTTP 404"),
    ],
)
def test_without_three_equal_readable_scrapes_nothing_is_proven(engine, mode, says):
    engine.control(metrics=mode)
    kept: list[Scrape] = []
    idle = scraper(engine.url, kept).idle_check("llama.cpp", interval_s=0.01, limit_s=0.1)
    assert not idle.proven
    assert says in idle.seen
    assert kept


def test_metrics_that_are_off_are_not_waited_for(engine):
    engine.control(metrics="off")
    assert scraper(engine.url, []).idle_check("llama.cpp", interval_s=0.01, limit_s=60).n_rounds == 1


def test_a_server_that_hangs_is_left_after_the_time_limit(engine):
    engine.control(metrics="hang")
    (got,) = scraper(engine.url, [], timeout_s=0.2).scrape("before")
    assert "timed out" in (got.error or "")


def test_an_engine_without_an_adapter_is_not_proven_at_rest(engine):
    kept: list[Scrape] = []
    idle = scraper(engine.url, kept).idle_check(None, interval_s=0.01, limit_s=1)
    assert not idle.proven
    assert kept == []


def test_the_loop_scrapes_every_url_until_it_is_stopped(engine):
    kept: list[Scrape] = []
    enough = threading.Event()
    stop = threading.Event()

    def sink(scrape: Scrape) -> None:
        kept.append(scrape)
        if len(kept) == 4:
            enough.set()

    urls = [engine.url + "/metrics", engine.url + "/metrics?second"]
    thread = threading.Thread(target=Scraper(urls, sink, run_id="r").loop, args=(0.01, stop))
    thread.start()
    assert enough.wait(10)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert {s.role for s in kept} == {"during"}
    assert [s.url for s in kept[:2]] == urls


def test_what_the_sink_raises_comes_out(engine):
    def full(scrape: Scrape) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Scraper([engine.url + "/metrics"], full, run_id="r").scrape("before")
