"""What the openai client is used for: discovery, priming, a second transport to check ours against, and the validation
of recorded chunks. The measured path of our own is elsewhere; this one's instants are those of a busy library.

One shared client without retries: a retried request would be two requests and one row. The first call of a process is
0.4 to 1.8 s slower than the next, so ``prime`` makes one that is never measured.
"""

import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import openai
import pydantic
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from evidence.records import Outcome
from infra.tls import tls_context

Endpoint = Literal["chat", "completions"]

BODY_LIMIT_BYTES = 65536  # of an error body, kept verbatim
_NO_KEY = "none"  # the library wants a key; a server without one ignores it
_SHOWN_PROBLEMS = 5


class OpenAITransportError(Exception):
    """A request that did not end as a stream. ``outcome`` is our name for it; the rest is what the server said."""

    def __init__(
        self,
        outcome: Outcome,
        *,
        kind: str,
        message: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> None:
        self.outcome: Outcome = outcome
        self.kind = kind
        self.message = message
        self.status = status
        self.headers = dict(headers or {})
        self.body = body
        super().__init__(f"{outcome}: {kind}: {message}; see the server's log, and `python -m infra probe URL`")


class Opened:
    """A response whose headers have come; ``segments`` yields its body's network chunks as the library gives them."""

    def __init__(self, response: Any, headers_ns: int, clock: Callable[[], int], deadline_ns: int) -> None:
        self.status: int = response.http_response.status_code
        self.headers: dict[str, str] = dict(response.http_response.headers)
        self.headers_ns = headers_ns
        self._response = response
        self._clock = clock
        self._deadline_ns = deadline_ns

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """(instant on ``clock``, bytes) of every chunk. Raises OpenAITransportError; what came before it stands."""
        try:
            for data in self._response.iter_bytes():
                now_ns = self._clock()
                yield now_ns, data
                if now_ns > self._deadline_ns:
                    raise OpenAITransportError(
                        "timeout_stalled", kind="deadline", message="no end within the time limit", status=self.status
                    )
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError) as error:
            raise translate(error, headers_came=True) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkReport:
    """How many recorded events the openai types accept; ``problems`` shows the first few that they do not."""

    n: int
    n_bad: int
    problems: tuple[str, ...]


class OpenAIClient:
    """``base_url`` without ``/v1``; it may carry a path prefix. Close it when done.

    ``timeout_s`` bounds a whole request, ``stall_s`` each wait for a byte within it (None: only the whole).
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        timeout_s: float,
        stall_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s  # of a whole request
        each_wait = httpx2.Timeout(timeout_s if stall_s is None else stall_s)
        # Proxies and keys of the environment would put a stranger, or a secret, into the measurement.
        http = httpx2.Client(
            timeout=each_wait,
            verify=ssl_context if ssl_context is not None else tls_context(),
            trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        )
        self._client = openai.OpenAI(
            base_url=base_url.rstrip("/") + "/v1",
            api_key=api_key or _NO_KEY,
            organization="",
            project="",
            max_retries=0,
            timeout=each_wait,
            default_headers={"Accept-Encoding": "identity", **(headers or {})},
            http_client=http,
        )

    def close(self) -> None:
        self._client.close()

    def discover_models(self) -> tuple[str, ...]:
        """Names of the models served. Raises OpenAITransportError."""
        try:
            return tuple(model.id for model in self._client.models.list().data)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise translate(error, headers_came=False) from error

    def prime(self, body: Mapping[str, Any], endpoint: Endpoint = "chat") -> None:
        """One request that is never measured and generates one token: do it before the scrape that opens a window."""
        one = {**body, "max_tokens": 1}
        with self.stream(one, endpoint) as opened:
            for _ in opened.segments():
                pass

    @contextmanager
    def stream(self, body: Mapping[str, Any], endpoint: Endpoint = "chat") -> Iterator[Opened]:
        """Send a streaming request; yields once the headers of a 200 have come. Raises OpenAITransportError.

        The body is sent as given (``stream`` is set); the instant before the call is the caller's to take.
        """
        resource: Any = self._client.chat.completions if endpoint == "chat" else self._client.completions
        first = "messages" if endpoint == "chat" else "prompt"
        rest = {name: value for name, value in body.items() if name not in ("model", first, "stream")}
        deadline_ns = self._clock() + int(self._timeout_s * 1e9)
        call = resource.with_streaming_response.create(
            model=body["model"], **{first: body[first]}, stream=True, extra_body=rest
        )
        try:
            response = call.__enter__()
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise translate(error, headers_came=False) from error
        try:
            yield Opened(response, self._clock(), self._clock, deadline_ns)
        finally:
            call.__exit__(None, None, None)

    def stream_segments(self, body: Mapping[str, Any], endpoint: Endpoint = "chat") -> Iterator[tuple[int, bytes]]:
        """``stream`` for a caller that wants the body's segments alone."""
        with self.stream(body, endpoint) as opened:
            yield from opened.segments()


def translate(error: Exception, *, headers_came: bool) -> OpenAITransportError:
    """The library's error class as our outcome, with whatever the server said."""
    kind, message = type(error).__name__, str(error) or type(error).__name__
    if isinstance(error, openai.APIStatusError):
        return OpenAITransportError(
            "http_error",
            kind=kind,
            message=message,
            status=error.status_code,
            headers=dict(error.response.headers),
            body=error.response.content[:BODY_LIMIT_BYTES].decode("utf-8", "replace"),
        )
    causes = list(_chain(error))
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        return OpenAITransportError("connect_failed", kind=kind, message=message)
    if any(isinstance(cause, httpx2.TimeoutException | openai.APITimeoutError | TimeoutError) for cause in causes):
        outcome: Outcome = "timeout_stalled" if headers_came else "timeout_headers"
        return OpenAITransportError(outcome, kind=kind, message=message)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return OpenAITransportError("tls_failed", kind=kind, message=_deepest(causes))
    if any(isinstance(cause, httpx2.ConnectError) for cause in causes):
        refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes)
        return OpenAITransportError(
            "connect_refused" if refused else "connect_failed", kind=kind, message=_deepest(causes)
        )
    if any(isinstance(cause, httpx2.RemoteProtocolError | httpx2.DecodingError) for cause in causes):
        # The peer closed within the body, or before it said anything; any other breach of HTTP is called so too.
        closed = "closed" in _deepest(causes) or "disconnected" in _deepest(causes) or "incomplete" in _deepest(causes)
        return OpenAITransportError("truncated" if closed else "malformed", kind=kind, message=_deepest(causes))
    if any(isinstance(cause, httpx2.NetworkError) for cause in causes):
        return OpenAITransportError("truncated", kind=kind, message=_deepest(causes))
    return OpenAITransportError("client_error", kind=kind, message=message)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _deepest(causes: list[BaseException]) -> str:
    return next((str(cause) for cause in reversed(causes) if str(cause)), type(causes[0]).__name__)


def validate_chunks(events: Iterable[bytes], endpoint: Endpoint = "chat") -> ChunkReport:
    """Judge recorded event payloads by the openai types. ``[DONE]`` is no chunk; an error object is a bad one."""
    model: type[pydantic.BaseModel] = ChatCompletionChunk if endpoint == "chat" else Completion
    n = n_bad = 0
    problems: list[str] = []
    for payload in events:
        if payload.strip() == b"[DONE]":
            continue
        n += 1
        problem = _problem(payload, model)
        if problem is None:
            continue
        n_bad += 1
        if len(problems) < _SHOWN_PROBLEMS:
            problems.append(f"chunk {n}: {problem}")
    return ChunkReport(n=n, n_bad=n_bad, problems=tuple(problems))


def _problem(payload: bytes, model: type[pydantic.BaseModel]) -> str | None:
    try:
        model.model_validate(json.loads(payload))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        return f"{where}: {first['msg']}"
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, nested without end
        return f"not JSON: {error}"
    return None
