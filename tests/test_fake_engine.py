"""The fake engine does what it says: its schedule, its faults, its counters, its life and death."""

import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from infra.fake.answer import Answer
from infra.fake.counters import MODES
from infra.fake.schedule import ScheduleError, read_schedule, steps
from infra.fake.script import Manner, Send, stream_script
from infra.fake_engine import FAULTS, FakeEngine, FakeEngineError, running_fake_engine

ROOT = Path(__file__).resolve().parents[1]
CAPTURED = Path(__file__).parent / "fixtures" / "exposition" / "llamacpp_b11434_2_spec_one_request.prom"
QUICK = {"ttft_s": 0.004, "gap_s": 0.001}
MESSAGES = [{"role": "user", "content": "say hello to me"}]
# What a client that reads until the end, or for half a second, must meet.
SILENT = {"hang", "stall", "stall-after-headers"}
BROKEN_HTTP = {
    "close-before-headers",
    "half-headers",
    "not-http",
    "close-chunked",
    "close-length",
    "close-mid-event",
    "garbage-chunk",
    "extra-bytes",
}
RESET = {"reset", "reset-before-headers"}
STATUS = {"401": 401, "404": 404, "429": 429, "500": 500, "503": 503, "redirect": 307}


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with running_fake_engine(fake=QUICK) as running:
        yield running


def connect(engine: FakeEngine, timeout_s: float = 10.0) -> socket.socket:
    parts = urlsplit(engine.url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 0), timeout_s)


def request(path: str, body: dict[str, Any] | None = None, **headers: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: fake", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def chat(**fields: Any) -> dict[str, Any]:
    fixed = {"model": "m", "messages": MESSAGES, "max_tokens": 6, "stream": True}
    return fixed | {"stream_options": {"include_usage": True}} | fields


def raw(engine: FakeEngine, data: bytes, timeout_s: float = 10.0) -> bytes:
    """All bytes until the server closes."""
    with connect(engine, timeout_s) as sock:
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


class Answered:
    """A whole response read by h11 from a socket."""

    def __init__(self, sock: socket.socket) -> None:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "fake")]))
        client.send(h11.EndOfMessage())
        self.body = b""
        self.headers: dict[str, str] = {}
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                client.receive_data(sock.recv(1 << 16))
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self.body += bytes(event.data)
        self.trailing = client.trailing_data[0]

    def chunks(self) -> list[dict[str, Any]]:
        lines = self.body.decode().split("\n\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def ask(engine: FakeEngine, path: str, body: dict[str, Any] | None = None, **headers: str) -> Answered:
    with connect(engine) as sock:
        sock.sendall(request(path, body, **headers))
        return Answered(sock)


def stream(engine: FakeEngine, **fields: Any) -> Answered:
    return ask(engine, "/v1/chat/completions", chat(**fields))


def counters(engine: FakeEngine) -> dict[str, float]:
    text = ask(engine, "/metrics").body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name.removeprefix("llamacpp:") + "".join(sample.labels.values()): sample.value for sample in samples}


def rise(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items() if value != before.get(name, 0.0)}


# the schedule


@given(
    st.integers(0, 200),
    st.integers(0, 6),
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_steps_commit_exactly_the_tokens_asked_for(
    n_tokens: int, drafted: int, accepted: list[int], sizes: list[int]
) -> None:
    plan = list(steps(read_schedule({"drafted": drafted, "accepted": accepted, "tokens_per_chunk": sizes}), n_tokens))
    assert sum(step.n_tokens for step in plan) == n_tokens
    if drafted:
        assert n_tokens - sum(step.n_accepted for step in plan) == len(plan)
    assert all(step.n_accepted <= step.n_drafted <= drafted for step in plan)


@pytest.mark.parametrize("wrong", [{"ttft": 1}, {"ttft_s": -1}, {"gap_s": "1"}, {"accepted": []}, {"n_tokens": True}])
def test_a_schedule_with_a_wrong_key_or_value_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match=next(iter(wrong))):
        read_schedule(wrong)


def test_a_wrong_schedule_in_a_request_is_answered_400_naming_the_key(engine: FakeEngine) -> None:
    answer = stream(engine, fake={"tftt_s": 1})
    assert answer.status == 400
    assert b"tftt_s" in answer.body


def test_every_chunk_says_when_it_was_due_and_none_is_written_before(engine: FakeEngine) -> None:
    chunks = stream(engine, fake={"ttft_s": 0.005, "gap_s": 0.002, "tail_s": 0.001}).chunks()
    received = {chunk["received_ns"] for chunk in chunks}
    assert len(received) == 1
    offsets = [chunk["due_ns"] - received.copy().pop() for chunk in chunks]
    assert offsets == [5_000_000 + k * 2_000_000 for k in range(6)] + [16_000_000] * 2
    assert all(chunk["written_ns"] >= chunk["due_ns"] for chunk in chunks)


def test_synchronous_streams_share_one_grid(engine: FakeEngine) -> None:
    fields = {"fake": {"sync": True, "gap_s": 0.005, "ttft_s": 0.001}}
    answers: list[Answered] = []
    threads = [threading.Thread(target=lambda: answers.append(stream(engine, **fields))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {chunk["due_ns"] % 5_000_000 for answer in answers for chunk in answer.chunks()} == {0}
    assert len(answers) == 3


def test_the_truth_can_be_left_out(engine: FakeEngine) -> None:
    chunks = stream(engine, fake={"truth": False}).chunks()
    assert len(chunks) == 8
    assert not any({"written_ns", "due_ns", "received_ns"} & chunk.keys() for chunk in chunks)


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_the_same_text_comes_under_each_framing(engine: FakeEngine, framing: str) -> None:
    answer = stream(engine, fake={"framing": framing})
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in answer.chunks() if chunk["choices"])
    assert text == "one two three four five six"
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_headers_can_come_with_the_first_event(engine: FakeEngine) -> None:
    with connect(engine) as sock:
        sock.sendall(request("/v1/chat/completions", chat(fake={"headers_s": None})))
        first = sock.recv(1 << 16)
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"content":"one"' in first


def test_a_given_text_is_streamed_whole(engine: FakeEngine) -> None:
    text = '{"name": "Ada",\n "born": 1815}'
    chunks = stream(engine, max_tokens=100, fake={"text": text}).chunks()
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == text
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_stamp_with_a_digit_more_than_its_deadline_keeps_the_framing_right() -> None:
    schedule = read_schedule({"ttft_s": 0})
    body = chat(max_tokens=1)
    answer = Answer(body, schedule, chat=True, received_ns=999, created_unix_s=0, number=1, n_cached=0)
    sends = (step for step in stream_script(answer, Manner()) if isinstance(step, Send))
    for stamp_ns in (999, 1000, 1000):
        size, _, rest = next(sends).make(stamp_ns).partition(b"\r\n")
    assert len(rest) == int(size, 16) + 2
    assert rest.endswith(b'"due_ns":999,"written_ns":1000}\n\n\r\n')


# what real engines tell


def test_timings_count_the_tokens_of_every_chunk_when_asked(engine: FakeEngine) -> None:
    chunks = stream(engine, timings_per_token=True, fake={"tokens_per_chunk": [2, 1]}).chunks()
    assert [c["timings"]["predicted_n"] for c in chunks if c["choices"] and c["choices"][0]["delta"]] == [2, 3, 5, 6]
    silent = stream(engine).chunks()
    assert ["timings" in chunk for chunk in silent] == [False] * 7 + [True]


def test_continuous_usage_and_token_ids_come_when_asked(engine: FakeEngine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(engine, stream_options=options, return_token_ids=True, fake={"tokens_per_chunk": [4]}).chunks()
    assert [c["usage"]["completion_tokens"] for c in chunks if "usage" in c] == [4, 6, 6]
    assert [len(c["choices"][0]["token_ids"]) for c in chunks[:2]] == [4, 2]


def test_draft_counts_stand_in_timings_only_when_something_was_drafted(engine: FakeEngine) -> None:
    last = stream(engine, max_tokens=7, fake={"drafted": 3, "accepted": [3, 0]}).chunks()[-1]
    assert last["timings"]["draft_n"] == 3 + 1  # five tokens done, two left: one may be drafted
    assert last["timings"]["draft_n_accepted"] == 3
    assert "draft_n" not in stream(engine).chunks()[-1]["timings"]


def test_a_verify_step_can_come_as_one_event_a_token(engine: FakeEngine) -> None:
    chunks = stream(engine, fake={"drafted": 4, "accepted": [4], "style": "events"}).chunks()
    due = [chunk["due_ns"] for chunk in chunks[:6]]
    assert due[1] > due[0]
    assert len(set(due[1:])) == 1


def test_a_repeated_prompt_is_cached_unless_the_request_refuses(engine: FakeEngine) -> None:
    messages = [{"role": "user", "content": "a prompt of this test alone"}]
    cached = [
        stream(engine, messages=messages, **more).chunks()[-1]["timings"]["cache_n"]
        for more in ({}, {}, {"cache_prompt": False})
    ]
    assert cached == [0, 9, 0]


def test_the_openai_client_reads_the_stream_and_the_completion(engine: FakeEngine) -> None:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = MESSAGES
        parts = client.chat.completions.create(model="m", messages=messages, max_tokens=4, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in parts if c.choices) == "one two three four"
        whole = client.chat.completions.create(model="m", messages=messages, max_tokens=2)
        assert whole.choices[0].message.content == "one two"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 2
        assert [model.id for model in client.models.list()] == ["fake"]
        text = client.completions.create(model="m", prompt="x", max_tokens=3, stream=True)
        assert "".join(c.choices[0].text for c in text) == "one two three"
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="fake-429", messages=messages)


def test_props_slots_health_and_tokenize_answer(engine: FakeEngine) -> None:
    assert json.loads(ask(engine, "/health").body) == {"status": "ok"}
    assert json.loads(ask(engine, "/props").body)["total_slots"] == 64
    assert {slot["speculative"] for slot in json.loads(ask(engine, "/slots").body)} == {False}
    assert len(json.loads(ask(engine, "/tokenize", {"content": "two words"}).body)["tokens"]) == 2
    assert ask(engine, "/nowhere").status == 404


def test_answers_beyond_its_slots_wait_their_turn_and_count_their_schedule_from_there() -> None:
    with running_fake_engine(slots=1, fake=QUICK | {"ttft_s": 0.1}) as own, connect(own) as first, connect(own) as gone:
        first.sendall(request("/v1/chat/completions", chat(fake={"ttft_s": 0.7})))
        assert first.recv(1) == b"H"
        gone.sendall(request("/v1/chat/completions", chat()))
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(stream, own)
            until(lambda: counters(own)["requests_deferred"] == 2)
            gone.close()  # who leaves while it waits takes no slot
            until(lambda: counters(own)["requests_deferred"] < 2)
            chunk, *_, last = second.result().chunks()
        assert counters(own)["requests_deferred"] == 0
        assert json.loads(ask(own, "/props").body)["total_slots"] == 1
    assert chunk["due_ns"] - chunk["received_ns"] > 100_000_000, "its own 0.1 s came after a wait"
    assert last["timings"]["prompt_ms"] == pytest.approx(100), "the wait is no prompt work"


def until(true: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 10
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.002)


# /metrics


def test_metrics_have_the_series_of_a_captured_llama_cpp_body_in_its_order() -> None:
    fake = QUICK | {"drafted": 3, "accepted": [3, 2, 0]}
    with running_fake_engine(fake=fake) as own:
        stream(own, max_tokens=40)
        body = ask(own, "/metrics").body.decode()

    def shape(text: str) -> list[str]:
        return [
            line.rpartition(" ")[0] if line[:1] != "#" else line for line in text.splitlines() if line[:6] != "# HELP"
        ]

    assert shape(body) == shape(CAPTURED.read_text())


def test_counters_agree_with_what_was_served(engine: FakeEngine) -> None:
    before = counters(engine)
    last = [
        stream(engine, max_tokens=50, cache_prompt=False, fake={"drafted": 3, "accepted": [2, 0, 3]}).chunks()[-1],
        stream(engine, max_tokens=9, cache_prompt=False).chunks()[-1],
    ]
    risen = rise(counters(engine), before)
    timings = [chunk["timings"] for chunk in last]
    assert risen["tokens_predicted_total"] == 59 == sum(t["predicted_n"] for t in timings)
    assert risen["prompt_tokens_total"] == sum(t["prompt_n"] for t in timings) == 16
    assert risen["spec_decode_num_draft_tokens_total"] == timings[0]["draft_n"]
    assert risen["spec_decode_num_accepted_tokens_total"] == timings[0]["draft_n_accepted"]
    by_position = [risen[f"spec_decode_num_accepted_tokens_per_pos_total{p}"] for p in range(3)]
    assert sum(by_position) == timings[0]["draft_n_accepted"]
    n_steps = 50 - timings[0]["draft_n_accepted"]
    assert risen["n_decode_total"] == n_steps + 9


def test_zero_acceptance_moves_the_drafts_and_not_the_accepted(engine: FakeEngine) -> None:
    before = counters(engine)
    stream(engine, max_tokens=5, fake={"drafted": 2, "accepted": [0]})
    risen = rise(counters(engine), before)
    assert risen["spec_decode_num_drafts_total"] == 3  # the last token leaves nothing to draft
    assert "spec_decode_num_accepted_tokens_total" not in risen


def test_a_cancelled_request_counts_what_was_sent(engine: FakeEngine) -> None:
    before = counters(engine)
    with connect(engine) as sock:
        sock.sendall(request("/v1/chat/completions", chat(max_tokens=100, fake={"fault": "stall"})))
        seen = b""
        while seen.count(b'"content"') < 50:
            seen += sock.recv(1 << 16)
    assert rise(counters(engine), before)["tokens_predicted_total"] == 50


def test_large_counters_are_printed_with_six_digits() -> None:
    with running_fake_engine(fake={"ttft_s": 0, "gap_s": 0, "tokens_per_chunk": [1_234_567]}) as own:
        stream(own, max_tokens=1_234_567)
        assert b"\nllamacpp:tokens_predicted_total 1.23457e+06\n" in ask(own, "/metrics").body


@pytest.fixture
def own_engine() -> Iterator[FakeEngine]:
    with running_fake_engine(fake=QUICK) as running:
        yield running


def test_the_metrics_modes_that_answer_whole_are_wrong_as_they_say(own_engine: FakeEngine) -> None:
    stream(own_engine)
    seen = {}
    for mode in [mode for mode in MODES if mode not in {"hang", "truncated", "restart"}]:
        own_engine.control(metrics=mode)
        seen[mode] = ask(own_engine, "/metrics")
    assert (seen["off"].status, seen["missing"].status) == (501, 404)
    assert b"\nllamacpp:tokens_predicted_total twelve 6\n" in seen["garbled"].body
    assert seen["duplicate"].body.count(b"\nllamacpp:tokens_predicted_total ") == 2
    assert not seen["no-newline"].body.endswith(b"\n")
    assert seen["html"].headers["content-type"] == "text/html"
    assert seen["noise"].body != seen["ok"].body
    with pytest.raises(FakeEngineError, match="sideways"):
        own_engine.control(metrics="sideways")


def test_truncated_metrics_still_end_in_a_number(own_engine: FakeEngine) -> None:
    stream(own_engine, max_tokens=12345, fake={"tokens_per_chunk": [12345]})
    own_engine.control(metrics="truncated")
    body = raw(own_engine, request("/metrics"))
    assert body.endswith(b"\nllamacpp:tokens_predicted_total 1234")


def test_foreign_and_busy_engines_count_tokens_nobody_asked_for(own_engine: FakeEngine) -> None:
    own_engine.control(metrics="foreign")
    stream(own_engine)
    assert counters(own_engine)["tokens_predicted_total"] == 12
    own_engine.control(metrics="busy")
    assert rise(counters(own_engine), counters(own_engine)) != {}


def test_a_restart_drops_the_counters_and_changes_the_start_time() -> None:
    with running_fake_engine(fake=QUICK, metrics="restart", restart_at=2) as own:
        stream(own)
        before, started = counters(own), ask(own, "/metrics").headers["process-start-time-unix"]
        stream(own)
        after, restarted = counters(own), ask(own, "/metrics").headers["process-start-time-unix"]
    assert before["tokens_predicted_total"] > after["tokens_predicted_total"] == 6
    assert int(restarted) > int(started)


# the faults


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"die", "huge-header"}))
def test_each_fault_ends_as_http_says_it_should(engine: FakeEngine, name: str) -> None:
    with connect(engine, 0.3 if name in SILENT else 10.0) as sock:
        sock.sendall(request("/v1/chat/completions", chat(model=f"fake-{name}")))
        if name in SILENT:
            with pytest.raises(TimeoutError):
                Answered(sock)
        elif name in RESET:
            with pytest.raises(ConnectionResetError):
                Answered(sock)
        elif name in BROKEN_HTTP - {"extra-bytes"}:
            with pytest.raises(h11.RemoteProtocolError):
                Answered(sock)
        else:
            assert Answered(sock).status == STATUS.get(name, 200)
    assert stream(engine).status == 200  # the engine itself is none the worse


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("no-space", b'data:{"choices"'),
        ("crlf", b"data: [DONE]\r\n\r\n"),
        ("cr", b"data: [DONE]\r\r"),
        ("bom", b"\xef\xbb\xbfdata: "),
        ("comments", b":\n\n: keep-alive\n\ndata: "),
        ("pings", b"id: 1\ndata: [DONE]\n\n: ping\n\n"),
        ("named-events", b"event: message\nid: 7\nretry: 1000\ndata: {"),
        ("multi-line-data", b'data: {"choices":[{"index":0,\ndata: "finish_reason"'),
        ("comment-as-data", b"data: : OPENROUTER PROCESSING\n\n"),
        ("bad-json", b'"delta":{"content":"\n\n'),
        ("error-first", b'data: {"error":{"code":500,'),
        ("error-first-string", b'data: {"error":"CUDA'),
        ("error-later", b'data: {"error":{"code":500,'),
        ("error-later-string", b'data: {"error":"CUDA'),
        ("error-then-done", b"data: [DONE]\n\n"),
        ("abort", b'"finish_reason":"abort"'),
        ("finish-error", b'"finish_reason":"error"'),
        ("content-filter", b'"finish_reason":"content_filter"'),
        ("usage-null", b'"usage":null'),
        ("usage-shrinks", b'"completion_tokens":5'),
        ("empty-first-delta", b'"delta":{"content":""}'),
        ("role-only", b'"delta":{"role":"assistant","content":null}'),
        ("reasoning", b'"reasoning":"one"'),
        ("reasoning-content", b'"reasoning_content":"one"'),
        ("mixed", b'"reasoning":"on","content":"e"'),
        ("tool-calls", b'"function":{"name":"look_up","arguments":"one"}'),
        ("html", b"<!DOCTYPE html>"),
        ("json", b'"message":{"role":"assistant"'),
        ("json-error", b'{"error": '),
    ],
)
def test_a_fault_shows_in_the_body(engine: FakeEngine, name: str, body: bytes) -> None:
    assert body in stream(engine, fake={"fault": name}).body
    assert body == b"data: [DONE]\n\n" or body not in stream(engine).body


def test_the_last_event_may_lack_its_blank_line(engine: FakeEngine) -> None:
    assert stream(engine, fake={"fault": "no-last-blank"}).body.endswith(b"}\n\ndata: [DONE]")


@pytest.mark.parametrize(
    ("name", "lacking"),
    [("no-usage", b'"usage"'), ("no-done", b"[DONE]"), ("no-finish", b'"length"'), ("error-later", b"[DONE]")],
)
def test_a_fault_leaves_something_out(engine: FakeEngine, name: str, lacking: bytes) -> None:
    assert lacking not in stream(engine, fake={"fault": name}).body
    assert lacking in stream(engine).body


@pytest.mark.parametrize(("name", "n_usages"), [("usage-twice", 2), ("usage-on-content", 1), ("no-tail", 0)])
def test_usage_comes_as_often_as_said(engine: FakeEngine, name: str, n_usages: int) -> None:
    chunks = stream(engine, fake={"fault": name}).chunks()
    assert sum("usage" in chunk for chunk in chunks) == n_usages
    assert name != "usage-on-content" or "usage" in next(
        c for c in chunks if c["choices"][0]["delta"].get("content") == " six"
    )


@pytest.mark.parametrize(("name", "n_tokens"), [("zero-tokens", 0), ("one-token", 1)])
def test_an_answer_may_have_no_token_or_one(engine: FakeEngine, name: str, n_tokens: int) -> None:
    assert stream(engine, model=f"fake-{name}").chunks()[-1]["usage"]["completion_tokens"] == n_tokens


@pytest.mark.parametrize("name", ["close-chunked", "close-plain", "reset", "close-length", "close-mid-event", "die"])
def test_a_stream_that_breaks_off_has_sent_half(name: str) -> None:
    with running_fake_engine(fake=QUICK) as own, connect(own) as sock:
        sock.sendall(request("/v1/chat/completions", chat(fake={"fault": name})))
        seen = b""
        try:
            while data := sock.recv(1 << 16):
                seen += data
        except ConnectionResetError:
            assert name == "reset"
        assert seen.count(b'"content"') == 3
        assert b"0\r\n\r\n" not in seen
        if name == "die":
            assert own.process.wait(5) != 0


def test_pieces_arrive_apart(engine: FakeEngine) -> None:
    with connect(engine) as sock:
        sock.sendall(request("/v1/chat/completions", chat(max_tokens=1, fake={"fault": "bytes"})))
        reads = [sock.recv(1 << 16)]
        while not reads[-1].endswith(b"0\r\n\r\n"):
            reads.append(sock.recv(1 << 16))
    assert len(reads) > 50
    assert b"data: [DONE]" in b"".join(reads)


def test_three_events_arrive_in_one_segment(engine: FakeEngine) -> None:
    chunks = stream(engine, fake={"fault": "packed"}).chunks()
    assert len({chunk["written_ns"] for chunk in chunks}) == 3  # eight chunks and [DONE], three at a time


def test_a_character_is_cut_between_two_chunks_and_the_text_is_whole(engine: FakeEngine) -> None:
    with connect(engine) as sock:
        sock.sendall(request("/v1/chat/completions", chat(max_tokens=3, fake={"fault": "split-utf8"})))
        answer = Answered(sock)
    assert (
        "".join(c["choices"][0]["delta"].get("content", "") for c in answer.chunks() if c["choices"])
        == "中文 naïve 日本"
    )
    wire = raw(
        engine, request("/v1/chat/completions", chat(max_tokens=1, fake={"fault": "split-utf8"}), Connection="close")
    )
    assert b"\xe4\r\n" in wire


def test_a_header_line_of_a_hundred_megabytes_is_sent_whole_to_who_reads_it(engine: FakeEngine) -> None:
    n_bytes = 0
    with connect(engine) as sock:
        sock.sendall(request("/v1/chat/completions", chat(model="fake-huge-header")))
        while data := sock.recv(1 << 20):
            n_bytes += len(data)
    assert n_bytes > 100_000_000


def test_two_answers_come_over_one_connection_and_close_after_ends_it(engine: FakeEngine) -> None:
    with connect(engine) as sock:
        for fault in ("none", "close-after"):
            sock.sendall(request("/v1/chat/completions", chat(fake={"fault": fault})))
            assert Answered(sock).body.endswith(b"data: [DONE]\n\n")
        assert sock.recv(1) == b""


# access, and the process


def test_without_its_key_an_engine_answers_401() -> None:
    with running_fake_engine(api_key="k3y", prefix="/llm", fake=QUICK) as own:
        assert own.url.endswith("/llm")
        assert ask(own, "/llm/v1/models").status == 401
        assert ask(own, "/llm/v1/models", Authorization="Bearer k3y").status == 200
        assert ask(own, "/llm/health").status == 200
        assert ask(own, "/v1/models", Authorization="Bearer k3y").status == 404


def test_a_late_accept_delays_the_answer_not_the_connection() -> None:
    with running_fake_engine(accept_delay_s=0.2, fake=QUICK) as own, connect(own, 0.1) as sock:
        sock.sendall(request("/health"))
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(10)
        assert Answered(sock).status == 200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make a certificate")
def test_tls_serves_the_same_stream(tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)
    with running_fake_engine(certfile=tmp_path / "cert.pem", keyfile=tmp_path / "key.pem", fake=QUICK) as own:
        assert own.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with connect(own) as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
            sock.sendall(request("/v1/chat/completions", chat()))
            assert Answered(sock).body.endswith(b"data: [DONE]\n\n")


def test_the_engine_quits_when_its_parent_closes_the_pipe_and_on_sigterm() -> None:
    with running_fake_engine() as own:
        assert own.process.stdin is not None
        own.process.stdin.close()
        assert own.process.wait(10) == 0
    with running_fake_engine() as own:
        own.process.send_signal(signal.SIGTERM)
        assert own.process.wait(10) == 0


def test_an_engine_that_cannot_start_says_so() -> None:
    with pytest.raises(FakeEngineError), running_fake_engine(fault="no such fault"):
        pass


def test_the_lists_name_every_fault_and_mode() -> None:
    for flag, names in (("--list-faults", FAULTS), ("--list-metrics-modes", MODES)):
        command = [sys.executable, "-m", "infra.fake_engine", flag]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert [line.split()[0] for line in listed.splitlines()] == list(names)
