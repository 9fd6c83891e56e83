"""What a running server is, and the openai client as a second pair of eyes."""

import argparse
import json
import socket

import pytest
from test_scrape import answering

from infra.asked import judge
from infra.engines.identify import MORE_PATHS, PATHS
from infra.fake_engine import running_fake_engine
from infra.fetch import Fetched
from infra.openai_client import OpenAIClient, OpenAITransportError, validate_chunks
from infra.probe import KEY_WANTED, ProbeReport, add_arguments, as_json, command, main_lines, probe
from infra.wire.stamps import Segment
from infra.wire.stream import read_stream

BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def engine():
    with running_fake_engine(ttft_s=0.01, gap_s=0.001, n_tokens=6) as fake:
        yield fake


@pytest.fixture
def client(engine):
    made = OpenAIClient(engine.url, api_key="sk-test", timeout_s=2.0)
    yield made
    made.close()


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_probe_says_what_the_server_is_and_keeps_the_bodies(engine):
    report = probe(engine.url)
    assert report.facts.engine == "llama.cpp"
    assert report.facts.models
    assert "metrics.prom" in report.bodies()
    assert json.loads(report.bodies()["models.json"])["data"]
    said = as_json(report)
    assert json.loads(json.dumps(said, allow_nan=False))["engine"] == "llama.cpp"
    assert any(line.startswith("engine") for line in main_lines(report))


def test_a_probe_of_nobody_says_so_and_tries_no_further():
    report = probe(unused_url(), timeout_s=1)
    assert not report.reachable
    assert as_json(report)["engine"] is None
    assert list(report.fetched) == ["models"]
    assert "nothing answered" in main_lines(report)[-1]


def test_a_key_is_not_sent_to_metrics_that_live_elsewhere(engine):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with answering(answer) as (other, asked):
        probe(engine.url, headers={"Authorization": "Bearer sk-hunter2"}, metrics_url=other + "/metrics", timeout_s=1)
    assert asked[0].startswith(b"GET /metrics")
    assert b"hunter2" not in asked[0]


def test_metrics_can_live_elsewhere(engine):
    report = probe(engine.url, metrics_url=unused_url() + "/metrics", timeout_s=1)
    assert report.facts.adapter is None
    assert any("refused" in lack for lack in report.facts.lacks)


def test_a_key_that_a_server_tells_is_not_kept(engine):
    told = b'{"version": "1", "api_key": "sk-verysecret", "launch_command": "serve --api-key sk-verysecret -x"}'
    got = Fetched(
        url="u", send_unix_s=0, receive_unix_s=0, send_monotonic_s=0, receive_monotonic_s=0,
        status=200, headers={}, body=told, complete=True, error=None,
    )  # fmt: skip
    report = ProbeReport(base_url="u", fetched={"server_info": got}, facts=probe(engine.url).facts)
    assert b"verysecret" not in report.bodies()["server_info.json"]


def test_openai_finds_the_models(client, engine):
    assert client.discover_models() == probe(engine.url).facts.models


def test_openai_streams_the_bytes_with_their_instants_status_and_headers(client):
    client.prime({"model": "fake-none", **BODY})
    segments: list[Segment] = []
    with client.stream({"model": "fake-none", **BODY, "timings_per_token": True}) as opened:
        opened.receive(segments)
        assert opened.status == 200
        assert "text/event-stream" in opened.headers["content-type"]
    instants = [segment.user_monotonic_ns for segment in segments]
    assert instants == sorted(instants)
    assert instants[0] >= opened.headers_ns
    body = b"".join(segment.data for segment in segments)
    assert body.endswith(b"data: [DONE]\n\n")
    assert b'"timings"' in body
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    report = validate_chunks(events)
    assert (report.n, report.n_bad) == (len(events) - 1, 0), report.problems


@pytest.mark.parametrize(
    ("fault", "outcome", "status"),
    [
        ("401", "http_error", 401),
        ("404", "http_error", 404),
        ("429", "http_error", 429),
        ("500", "http_error", 500),
        ("hang", "timeout_headers", None),
        ("stall", "timeout_stalled", None),
        ("close-chunked", "truncated", None),
        ("close-before-headers", "truncated", None),
        ("reset", "truncated", None),
        ("garbage-chunk", "malformed", None),
    ],
)
def test_openais_errors_have_our_names(engine, fault, outcome, status):
    client = OpenAIClient(engine.url, api_key=None, timeout_s=0.5)
    with pytest.raises(OpenAITransportError) as caught, client.stream({"model": f"fake-{fault}", **BODY}) as opened:
        opened.receive([])
    client.close()
    assert (caught.value.outcome, caught.value.status) == (outcome, status)
    if status:
        assert json.loads(caught.value.body or "")["error"]["code"] == status


def test_a_refused_connection_is_named():
    client = OpenAIClient(unused_url(), api_key=None, timeout_s=1)
    with pytest.raises(OpenAITransportError) as caught:
        client.discover_models()
    client.close()
    assert caught.value.outcome == "connect_refused"


def test_what_came_before_a_stall_is_in_the_callers_hands(engine):
    client = OpenAIClient(engine.url, api_key=None, timeout_s=0.5)
    got: list[Segment] = []
    with pytest.raises(OpenAITransportError), client.stream({"model": "fake-stall", **BODY}) as opened:
        opened.receive(got)
    client.close()
    assert b"data: " in b"".join(segment.data for segment in got)


def test_recorded_chunks_are_judged_one_by_one():
    choices = b'"choices":[{"index":0,"delta":{"content":null}}]'
    good = b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"m",' + choices + b"}"
    events = [good, b'{"error":{"message":"out of memory"}}', b"{", b"\xff", b"[DONE]"]
    report = validate_chunks(events)
    assert (report.n, report.n_bad) == (4, 3)
    assert report.problems[0].startswith("chunk 2: id")


def options(*argv: str):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


def test_asking_shows_what_an_answer_carries_in_fact(engine, capsys):
    assert command(options(engine.url, "--ask", "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    assert any("usage in its answer" in offer for offer in said["asked"]["offers"])
    assert any("cached prompt tokens" in offer for offer in said["asked"]["offers"])
    assert {lack["what"] for lack in said["missing"]} >= {"verify steps of a single request"}


def test_a_probe_asks_no_model_unless_told_to(engine, capsys):
    assert command(options(engine.url)) == 0
    printed = capsys.readouterr().out
    assert "answered" not in printed
    assert "this is" in printed
    assert as_json(probe(engine.url))["asked"] is None


def test_a_wrong_header_is_a_usage_error_that_says_how_to_write_it(engine, capsys):
    assert command(options(engine.url, "--header", "oops")) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def stream(*payloads: dict) -> list[Segment]:
    events = b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(events)
    return [Segment(None, 1, head + events)]


def chunk(text: str, n: int, finish: str | None = None) -> dict:
    return {
        "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n},
    }  # fmt: skip


def test_tokens_that_never_arrive_are_told_as_thinking_taken_out(engine):
    facts = probe(engine.url).facts
    told = judge(read_stream(stream(chunk("four", 32, "stop")), ended="complete"), facts)
    assert any("takes thinking out" in lack.why for lack in told.missing)
    plain = judge(read_stream(stream(chunk("one two three four", 4, "stop")), ended="complete"), facts)
    assert not any("takes thinking out" in lack.why for lack in plain.missing)


def test_a_stream_in_one_piece_is_told_as_held_back(engine):
    many = [chunk("word ", n, "stop" if n == 12 else None) for n in range(1, 13)]
    told = judge(read_stream(stream(*many), ended="complete"), probe(engine.url).facts)
    assert any("holds the stream back" in lack.why for lack in told.missing)


def test_a_server_that_wants_a_key_everywhere_is_refused_in_the_first_lines_and_fails_the_probe(capsys):
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    with answering(*[refusal] * (len(PATHS) + len(MORE_PATHS))) as (url, _):
        assert command(options(url)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(url)
    assert lines[1].split(maxsplit=1) == ["refused", KEY_WANTED]
