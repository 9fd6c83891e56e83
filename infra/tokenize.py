"""How many prompt tokens a server will count for a request, asked of the server itself before anything is measured.

vLLM renders and counts chat messages in one call of ``/tokenize``; llama.cpp renders them with ``/apply-template`` and
counts the text with ``/tokenize``. SGLang's ``/tokenize`` takes plain text only: what its chat template adds is taken
from the usage of two one-token requests, and added. A server without such an endpoint is asked by one-token requests
alone. Requests of that kind reach the engine's counters and caches, so all of this belongs before warm-up and reset;
during the run the usage of every answer confirms the count. Forms: vLLM 0.6 to 0.33, SGLang 0.5.3 to 0.5.23, llama.cpp
b11434.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.dial import PLAIN, DialError, Io, exchange
from infra.target import Target
from infra.wire.http1 import read_response

Asked = Sequence[Mapping[str, str]] | str  # chat messages ({"role", "content"} each), or a completion's text

_KEPT_BODY = 300
_ABSENT = frozenset({404, 405, 501})
# Body fields that change what a chat template renders; the others of a request do not.
_OF_THE_TEMPLATE = ("chat_template", "chat_template_kwargs", "tools", "documents")
# Two texts that begin and end differently, to see whether a template adds the same to both.
_PROBES = ("[probe]\nCount the words of this line.", "Seventeen grey herons stood in the shallow water, and none moved")


class TokenizeError(Exception):
    """The server did not say how long a prompt is. ``path`` was asked; ``status`` None: no whole answer came."""

    def __init__(self, path: str, status: int | None, why: str, remedy: str) -> None:
        super().__init__(f"POST {path}: {why}; {remedy}")
        self.path, self.status = path, status


class ServerTokenizer:
    """Counts prompt tokens as one server does: ``tokenizer(messages)`` or ``tokenizer(text)`` for a completion.

    ``how`` says by which means, ``n_calls`` how often the server was asked, ``n_requests_of_engine`` how many of these
    calls were one-token requests that the engine itself counted. Raises TokenizeError.
    """

    def __init__(
        self,
        base_url: str,
        engine: str,
        *,
        model: str,
        headers: Sequence[tuple[str, str]] = (),
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        io: Io = PLAIN,
    ) -> None:
        self._target, self._model, self._io, self._timeout_s = Target.parse(base_url), model, io, timeout_s
        self._headers = [("Content-Type", "application/json"), *headers]
        self._extra = {key: value for key, value in (extra_body or {}).items() if key in _OF_THE_TEMPLATE}
        family = "llama.cpp" if engine.startswith("llama.cpp") else engine.lower()
        native = {"vllm": self._by_vllm, "llama.cpp": self._by_llamacpp, "sglang": self._by_sglang}
        self._native = native.get(family)
        self._template_adds: dict[tuple[str, ...], int | None] = {}  # by roles; None: not the same for every text
        self._short: dict[str, int] = {}
        self.n_calls = self.n_requests_of_engine = 0
        self.how = f"{family}'s own tokenizer" if self._native else "the usage of one-token requests"

    def __call__(self, asked: Asked) -> int:
        """Prompt tokens of a request with these messages, or this text."""
        if self._native is not None:
            try:
                return self._native(asked)
            except TokenizeError as error:
                if error.status not in _ABSENT:
                    raise
                self._native = None
                self.how = f"the usage of one-token requests, for the server has no {error.path}"
        return self._by_usage(asked)

    def _by_vllm(self, asked: Asked) -> int:
        if isinstance(asked, str):
            body: dict[str, Any] = {"prompt": asked, "add_special_tokens": True}
        else:
            body = {"messages": list(asked), "add_generation_prompt": True, "add_special_tokens": False, **self._extra}
        return _count("/tokenize", self._post("/tokenize", {"model": self._model, **body}))

    def _by_llamacpp(self, asked: Asked) -> int:
        text = asked
        if not isinstance(asked, str):
            rendered = self._post("/apply-template", {"messages": list(asked), **self._extra}).get("prompt")
            if not isinstance(rendered, str):
                raise TokenizeError("/apply-template", 200, "the answer has no prompt", "look at the server's version")
            text = rendered
        return _count(
            "/tokenize", self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        )

    def _by_sglang(self, asked: Asked) -> int:
        if isinstance(asked, str):
            return self._plain(asked, special=True)
        roles = tuple(message["role"] for message in asked)
        if roles not in self._template_adds:
            found = {self._added([{"role": role, "content": probe} for role in roles]) for probe in _PROBES}
            self._template_adds[roles] = found.pop() if len(found) == 1 else None
        added = self._template_adds[roles]
        if added is None:
            self.how = "the usage of one-token requests, for the chat template does not add the same to every text"
            return self._by_usage(asked)
        self.how = f"sglang's own tokenizer, and {added} tokens that the chat template adds (from usage)"
        return added + sum(self._plain(message["content"], special=False) for message in asked)

    def _added(self, messages: Sequence[Mapping[str, str]]) -> int:
        texts = sum(self._plain(message["content"], special=False) for message in messages)
        return self._by_usage(messages) - texts

    def _plain(self, text: str, *, special: bool) -> int:
        if not special and text in self._short:
            return self._short[text]
        body = {"model": self._model, "prompt": text, "add_special_tokens": special}
        count = _count("/tokenize", self._post("/tokenize", body))
        if not special and len(text) < 2000:
            self._short[text] = count
        return count

    def _by_usage(self, asked: Asked) -> int:
        self.n_requests_of_engine += 1
        body: dict[str, Any] = {"model": self._model, "max_tokens": 1, "temperature": 0.0, "stream": False}
        if isinstance(asked, str):
            path = "/v1/completions"
            body |= {"prompt": asked}
        else:
            path = "/v1/chat/completions"
            body |= {"messages": list(asked), **self._extra}
        usage = self._post(path, body).get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(count, int) or isinstance(count, bool):
            raise TokenizeError(path, 200, "the answer's usage has no prompt_tokens", "use a server that counts them")
        return count

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.n_calls += 1
        request = self._target.request("POST", path, self._headers, json.dumps(body).encode())
        try:
            segments, ended, _ = exchange(self._target, request, self._timeout_s, io=self._io)
        except DialError as error:
            raise TokenizeError(path, None, str(error), "see that the server runs") from error
        response = read_response((segment.data for segment in segments), method="POST")
        shown = response.body[:_KEPT_BODY].decode("utf-8", "replace")
        if response.head is None or response.complete is False:
            raise TokenizeError(path, None, f"no whole answer came ({ended})", "look at the server's log")
        status = response.head.status
        if status != 200:
            raise TokenizeError(path, status, f"HTTP {status}: {shown}", "look at the server's log, or at the length")
        try:
            value = json.loads(response.body)
        except ValueError as error:
            raise TokenizeError(path, status, f"no JSON: {shown}", "look at what answers there") from error
        if not isinstance(value, dict):
            raise TokenizeError(path, status, f"no JSON object: {shown}", "look at what answers there")
        return value


def _count(path: str, answer: Mapping[str, Any]) -> int:
    """vLLM and SGLang say ``count``; llama.cpp only lists the tokens."""
    count, tokens = answer.get("count"), answer.get("tokens")
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    if count is None and isinstance(tokens, list):
        return len(tokens)
    raise TokenizeError(path, 200, f"neither count nor tokens in {str(answer)[:200]}", "look at the server's version")
