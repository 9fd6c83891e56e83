"""A metrics address that is a page, wants a password, is compressed, huge or slow: a named reason, no run lost."""

import gzip
import zlib

import pytest
from test_scrape import GOOD, answering, get, http, scraper

from evidence.records import Scrape
from infra.fetch import KEPT_OF_TOO_MUCH_BYTES, LIMIT_BYTES, fetch, headers_for
from infra.telemetry.scrape import Scraper, usable

SGLANG = b'# TYPE sglang:num_requests_total counter\nsglang:num_requests_total{is_streaming="true"} 3\n'


def whole(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    return http(body, b"Content-Length: %d" % len(body), *headers, status=status)


def test_gzip_that_nobody_asked_for_is_unpacked_and_its_header_kept():
    with answering(whole(gzip.compress(GOOD), b"Content-Encoding: gzip")) as (url, asked):
        got = get(url)
    assert b"Accept-Encoding: identity" in asked[0]
    assert (got.body, usable(got)) == (GOOD.decode(), None)
    assert got.headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("body", "header", "says"),
    [
        (GOOD, b"Content-Encoding: br", "compressed as br"),
        (zlib.compress(GOOD), b"Content-Encoding: deflate", "compressed as deflate"),
        (GOOD, b"Content-Encoding: gzip", "not gzip"),
        (gzip.compress(GOOD)[:-12], b"Content-Encoding: gzip", "does not end"),
        (gzip.compress(GOOD), b"X-Nothing: 1", "does not say so"),
    ],
)
def test_a_compression_that_cannot_be_read_is_named(body, header, says):
    with answering(whole(body, header)) as (url, _):
        got = get(url)
    assert says in (got.error or "")
    assert usable(got) is not None


def test_a_gzip_that_grows_beyond_the_limit_is_left_and_only_its_head_kept():
    bomb = gzip.compress(b"a" * (LIMIT_BYTES + 1000))
    with answering(whole(bomb, b"Content-Encoding: gzip")) as (url, _):
        got = get(url)
    assert "once unpacked" in (got.error or "")
    assert len(got.body or "") == KEPT_OF_TOO_MUCH_BYTES


def test_fifty_megabytes_are_not_read():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 52428800\r\n\r\n"
    with answering(head + GOOD) as (url, _):
        got = get(url)
    assert "52428800 bytes" in (got.error or "")
    assert usable(got) is not None


def test_a_body_without_an_end_is_left_at_the_limit_and_only_its_head_kept():
    piece = b"x" * 65536
    endless = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for _ in range(LIMIT_BYTES // len(piece) + 4))
    with answering(http(endless, b"Transfer-Encoding: chunked")) as (url, _):
        got = fetch(url, timeout_s=10)
    assert "not read to its end" in (got.error or "")
    assert len(got.body or b"") == KEPT_OF_TOO_MUCH_BYTES


def test_a_password_is_asked_for_by_name():
    with answering(whole(b"no", b"WWW-Authenticate: Basic", status=b"401 Unauthorized")) as (url, _):
        got = get(url)
    assert "wants a key or password" in (got.error or "")


def test_a_redirect_to_a_sign_in_is_named_with_its_address_and_without_its_secrets():
    to = b"Location: http://me:hunter2@127.0.0.1:1/login?x=1"
    with answering(whole(b"", to, status=b"302 Found")) as (url, _):
        error = get(url).error or ""
    assert "127.0.0.1:1/login" in error
    assert "hunter2" not in error


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (whole(b"<html>sign in</html>").replace(b"text/plain", b"text/html"), "Content-Type"),
        (whole(b"no", status=b"401 Unauthorized"), "password"),
        (whole(b"no", status=b"403 Forbidden"), "password"),
    ],
)
def test_what_waiting_will_not_mend_is_not_waited_for(answer, says):
    kept: list[Scrape] = []
    with answering(answer) as (url, _):
        idle = scraper(url, kept).idle_check("vllm", interval_s=0.01, limit_s=60)
    assert (idle.proven, idle.n_rounds, len(kept)) == (False, 1, 1)
    assert says in idle.seen


def test_an_idle_sglang_is_shown_at_rest_by_its_own_counters():
    kept: list[Scrape] = []
    with answering(*[whole(SGLANG)] * 3) as (url, _):
        assert scraper(url, kept).idle_check("sglang", version="0.5.17", interval_s=0.01, limit_s=5).proven


def test_an_address_without_the_engines_series_shows_nothing():
    with answering(*[whole(GOOD)] * 9) as (url, _):
        idle = scraper(url, []).idle_check("sglang", interval_s=0.01, limit_s=0.05)
    assert not idle.proven
    assert "sglang:*" in idle.seen


@pytest.mark.parametrize(
    "value", ["Bearer sk-hunter2\r", "Bearer sk-hunter2\n", "Bearer sk-hunter2\r\nX: 1", "sk-hunter2\u20ac"]
)
def test_a_header_value_that_cannot_be_sent_is_named_by_its_header_and_never_quoted(value):
    with answering(whole(GOOD)) as (url, _):
        got = fetch(url, timeout_s=1, headers={"Authorization": value})
        assert "the header Authorization cannot be sent" in (got.error or "")
        assert "hunter2" not in (got.error or "")
        assert (got.status, fetch(url, timeout_s=1, headers={"sk-hunter2\n": "1"}).error) == (
            None,
            "a header cannot be sent: its name is no HTTP header name",
        )
        assert fetch(url, timeout_s=1).status == 200  # for the server's thread: nothing had reached it


def test_a_secret_in_the_query_of_a_metrics_url_is_in_no_record():
    with answering(whole(GOOD), whole(b"", b"Location: /m?token=hunter2", status=b"302 Found")) as (url, asked):
        got, moved = get(url + "/metrics?job=a&api_key=hunter2"), get(url)
        bad = get(url + "/metrics x?api_key=hunter2")
    assert b"api_key=hunter2" in asked[0]
    assert got.url == f"{url}/metrics?job=a&api_key=[redacted]"
    assert "HTTP 302" in (moved.error or "")
    assert "not HTTP" in (bad.error or "")
    assert not any("hunter2" in record.model_dump_json() for record in (got, moved, bad))


def test_a_key_goes_to_the_origin_of_the_base_url_alone():
    keys = {"Authorization": "Bearer sk-hunter2", "X-API-Key": "hunter2", "X-Tenant": "a"}
    with answering(whole(GOOD)) as (home, asked_at_home), answering(whole(GOOD)) as (other, asked):
        Scraper(
            [home + "/metrics", other + "/metrics"], lambda _: None, run_id="r", headers=keys, home=home + "/prefix"
        ).scrape("before")
    assert b"sk-hunter2" in asked_at_home[0]
    assert b"X-API-Key: hunter2" in asked_at_home[0]
    assert b"hunter2" not in b"".join(asked)
    assert b"X-Tenant: a" in asked[0]


@pytest.mark.parametrize(
    ("url", "home", "same"),
    [
        ("http://h/metrics", "http://h", True),
        ("http://H:80/metrics", "http://h/v1", True),
        ("https://h:443/m", "https://h", True),
        ("https://h/m", "http://h", False),
        ("http://h:9090/m", "http://h", False),
        ("http://h.evil/m", "http://h", False),
        ("http://h@evil/m", "http://h", False),
        ("http://[::1", "http://[::1", False),
        ("http://elsewhere/m", None, True),
    ],
)
def test_an_origin_is_scheme_host_and_port(url, home, same):
    assert ("Authorization" in headers_for(url, {"Authorization": "k"}, home)) is same
