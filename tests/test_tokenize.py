"""Counting prompt tokens with the server's own tokenizer, and the context it says it has."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.context_limit import context_limit
from infra.launching.launch import launching
from infra.launching.recipes import load_arm
from infra.probe import probe
from infra.tokenize import ServerTokenizer, TokenizeError
from scenarios.stock import plan_from_file

ROOT = Path(__file__).resolve().parents[1]

HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello to all of them."}]
Reply = tuple[int, Any]


@contextmanager
def server(answers: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Answers each path by its function of the request's body; what was asked is kept. Other paths are 404."""
    asked: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            status, value = answers[self.path](body) if self.path in answers else (404, {"detail": "Not Found"})
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}", asked
        finally:
            httpd.shutdown()


def plain(body: Mapping[str, Any]) -> Reply:
    """As SGLang and vLLM answer for a text: a token a word, one more with special tokens."""
    n = len(body["prompt"].split()) + body["add_special_tokens"]
    return 200, {"tokens": list(range(n)), "count": n, "max_model_len": 4096}


def usage(body: Mapping[str, Any]) -> Reply:
    n = (
        len(body["prompt"].split())
        if "prompt" in body
        else sum(7 + len(m["content"].split()) for m in body["messages"])
    )
    return 200, {"choices": [], "usage": {"prompt_tokens": n, "completion_tokens": 1}}


def test_vllm_renders_and_counts_messages_in_one_call() -> None:
    def tokenize(body: Mapping[str, Any]) -> Reply:
        if "prompt" in body:
            return plain(body)
        return 200, {"count": 5 * len(body["messages"]), "tokens": [1], "max_model_len": 4096}

    with server({"/tokenize": tokenize}) as (url, asked):
        count = ServerTokenizer(
            url, "vllm", model="m", extra_body={"chat_template_kwargs": {"thinking": False}, "top_k": 1}
        )
        assert count(HELLO) == 10
        assert count("one two three") == 4
    chat, text = asked[0][1], asked[1][1]
    assert chat == {
        "model": "m",
        "messages": HELLO,
        "add_generation_prompt": True,
        "add_special_tokens": False,
        "chat_template_kwargs": {"thinking": False},
    }
    assert text == {"model": "m", "prompt": "one two three", "add_special_tokens": True}
    assert (count.n_calls, count.n_requests_of_engine, count.how) == (2, 0, "vllm's own tokenizer")


def test_llamacpp_renders_with_its_template_and_counts_the_rendered_text() -> None:
    answers = {
        "/apply-template": lambda body: (200, {"prompt": " ".join(m["content"] for m in body["messages"]) + " <a>"}),
        "/tokenize": lambda body: (200, {"tokens": body["content"].split()}),
    }
    with server(answers) as (url, asked):
        count = ServerTokenizer(url, "llama.cpp embedded", model="m")
        assert count(HELLO) == 9
        assert count("one two three") == 3
    assert [path for path, _ in asked] == ["/apply-template", "/tokenize", "/tokenize"]
    assert asked[1][1] == {
        "content": "Be brief. Say hello to all of them. <a>",
        "add_special": True,
        "parse_special": True,
    }


def test_sglangs_template_is_taken_from_usage_once_and_then_added() -> None:
    with server({"/tokenize": plain, "/v1/chat/completions": usage}) as (url, asked):
        count = ServerTokenizer(url, "sglang", model="m")
        assert [count(HELLO), count([HELLO[0], {"role": "user", "content": "Short."}])] == [22, 17]
        assert count("one two three") == 4
    sent = [body for path, body in asked if path == "/v1/chat/completions"]
    assert count.n_requests_of_engine == len(sent) == 2
    assert all((body["max_tokens"], body["stream"]) == (1, False) for body in sent)
    assert "14 tokens that the chat template adds (from usage)" in count.how
    assert count.n_calls == len(asked)


def test_a_template_that_does_not_add_the_same_to_every_text_is_counted_by_usage_alone() -> None:
    def odd(body: Mapping[str, Any]) -> Reply:
        return 200, {"usage": {"prompt_tokens": 3 + sum(len(m["content"]) for m in body["messages"])}}

    with server({"/tokenize": plain, "/v1/chat/completions": odd}) as (url, _):
        count = ServerTokenizer(url, "sglang", model="m")
        assert count([{"role": "user", "content": "Short."}]) == 9
    assert "does not add the same" in count.how


@pytest.mark.parametrize("engine", ["sglang", "llama.cpp", "vllm", "tensorrt-llm", "unknown"])
def test_a_server_without_the_endpoint_is_asked_by_one_token_requests(engine: str) -> None:
    with server({"/v1/chat/completions": usage, "/v1/completions": usage}) as (url, _):
        count = ServerTokenizer(url, engine, model="m")
        assert (count(HELLO), count("one two three")) == (22, 3)
    assert count.how.startswith("the usage of one-token requests")
    assert count.n_requests_of_engine == 2


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        ((400, {"error": "too long"}), 400, "HTTP 400"),
        ((200, b"<html>"), 200, "no JSON: <html>"),
        ((200, [1]), 200, "no JSON object"),
        ((200, {"count": None}), 200, "neither count nor tokens"),
        ((200, {"count": True}), 200, "neither count nor tokens"),
    ],
)
def test_an_answer_that_is_no_count_is_an_error_and_not_a_guess(reply: Reply, status: int, said: str) -> None:
    with server({"/tokenize": lambda _body: reply}) as (url, _), pytest.raises(TokenizeError, match=said) as caught:
        ServerTokenizer(url, "vllm", model="m")(HELLO)
    assert (caught.value.path, caught.value.status) == ("/tokenize", status)


def test_usage_without_prompt_tokens_and_a_server_that_is_not_there_are_errors() -> None:
    nothing = {"/v1/completions": lambda _body: (200, {"usage": {}})}
    with server(nothing) as (url, _), pytest.raises(TokenizeError, match="usage has no prompt_tokens"):
        ServerTokenizer(url, "unknown", model="m")("text")
    with pytest.raises(TokenizeError, match="see that the server runs") as caught:
        ServerTokenizer(url, "vllm", model="m")("text")
    assert caught.value.status is None


@pytest.mark.engine
def test_the_real_engine_counts_what_it_was_planned_to_count(tmp_path: Path) -> None:
    with launching(load_arm("cpu-q4"), launch_root=tmp_path) as engine:
        url, model = engine.url, "SmolLM2-135M-Instruct"
        assert context_limit(probe(url).bodies(), model).tokens == 4096
        count = ServerTokenizer(url, "llama.cpp embedded", model=model)
        plan = plan_from_file(ROOT / "scenarios" / "smoke-context.toml", count=count, limit_tokens=4096)
        by_usage = ServerTokenizer(url, "unknown", model=model)  # what the engine itself says of a request it has read
        request = plan.of_level("tokens=192")[0]
        assert request.messages is not None
        assert by_usage([message.model_dump() for message in request.messages]) == 192
    assert (count.how, count.n_requests_of_engine) == ("llama.cpp's own tokenizer", 0)
    assert len(plan.measured) == 4


def body_of(**values: object) -> bytes:
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("bodies", "tokens", "why"),
    [
        ({"props.json": body_of(default_generation_settings={"n_ctx": 2048})}, 2048, "n_ctx in /props"),
        (
            {"models.json": body_of(data=[{"id": "a", "max_model_len": 8}, {"id": "m", "max_model_len": 9}])},
            9,
            "max_model",
        ),
        ({"models.json": body_of(data=[{"id": "a", "max_model_len": 8}])}, 8, "max_model_len in /v1/models"),
        ({"server_info.json": body_of(context_length=4096, max_total_num_tokens=900)}, 900, "max_total_num_tokens"),
        ({"server_info.json": body_of(context_length=None)}, None, "no answer of"),
        ({"models.json": b"<html>", "props.json": b"[]"}, None, "no answer of"),
        ({}, None, "no answer of"),
    ],
)
def test_the_smallest_context_a_server_states_counts(bodies: dict[str, bytes], tokens: int | None, why: str) -> None:
    found = context_limit(bodies, "m")
    assert found.tokens == tokens
    assert why in found.why
