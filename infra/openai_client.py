"""What the openai client is used for: discovery, priming, a second transport to check ours against, and the validation
of recorded chunks. The measured path of our own is elsewhere; this one's instants are those of a busy library: when it
hands a chunk object over, as it does to whoever iterates its stream. The bytes it made the object of are the evidence.

One shared client without retries: a retried request would be two requests and one row. The first call of a process is
0.4 to 1.8 s slower than the next, so ``prime`` makes one that is never measured.
"""

import json
import re
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
from infra.wire.stamps import Segment

Endpoint = Literal["chat", "completions"]

BODY_LIMIT_BYTES = 65536  # of an error body, kept verbatim
_NO_KEY = "none"  # the library wants a key; a server without one ignores it
_SHOWN_PROBLEMS = 5
_PIECE = re.compile(rb"[^\r\n]*+[\r\n]+|[^\r\n]+")  # up to and with a run of line ends: at most one event ends in it
# What the library, or the type it builds, raises at an event it cannot take, an error object among them.
_REFUSALS = (openai.OpenAIError, ValueError, TypeError, AttributeError, RecursionError)


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


class _Tape(httpx2.SyncByteStream):
    """The body of ``response`` on its way to the library, which gets it in pieces in which at most one event ends.

    The library closes a response at ``[DONE]`` and at what it refuses. What follows is evidence too, so the body stays
    open until ``release``: iterating on gives the rest. It ends where the network fails; ``failure`` says why.
    """

    def __init__(self, response: httpx2.Response, clock: Callable[[], int], deadline_ns: int) -> None:
        self.failure: OpenAITransportError | None = None
        assert isinstance(response.stream, httpx2.SyncByteStream), "the client is not an asynchronous one"
        self._body = response.stream
        self._pieces = self._received(response, clock, deadline_ns)
        self._passed: list[bytes] = []
        response.stream = self

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._passed.append(piece)
            yield piece

    def _received(self, response: httpx2.Response, clock: Callable[[], int], deadline_ns: int) -> Iterator[bytes]:
        try:
            for data in self._body:
                yield from _PIECE.findall(data)
                if clock() > deadline_ns:
                    self.failure = OpenAITransportError(
                        "timeout_stalled",
                        kind="deadline",
                        message="no end within the time limit",
                        status=response.status_code,
                    )
                    return
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            self.failure = translate(error, headers_came=True)

    def take(self) -> bytes:
        """What has passed since the last call."""
        passed = b"".join(self._passed)
        self._passed.clear()
        return passed

    def release(self) -> None:
        """Closes the body; the connection stays in the pool where the body was read to its end."""
        self._body.close()


class Opened:
    """A response whose headers have come; its body is still to be received."""

    def __init__(self, stream: openai.Stream[Any], tape: _Tape, clock: Callable[[], int]) -> None:
        self.headers_ns = clock()
        self.status: int = stream.response.status_code
        self.headers: dict[str, str] = dict(stream.response.headers)
        self.refusal: str | None = None  # why the library gave up reading; the rest came without it
        self._stream = stream
        self._tape = tape
        self._clock = clock

    def receive(self, segments: list[Segment]) -> None:
        """Appends the body: a segment for each object, stamped on ``clock`` when the library handed it over.

        Comments and blank lines are in the segment of the object that follows. The last segment is stamped at the end
        and holds what no object came of: ``[DONE]``, and all from an event on that the library refused. Raises
        OpenAITransportError; whatever came, before any exception, stands in ``segments``.
        """
        try:
            try:
                for _ in self._stream:
                    segments.append(Segment(None, self._clock(), self._tape.take()))  # noqa: PERF401 - stamped one by one
            except _REFUSALS as error:
                self.refusal = f"the openai client gave up reading: {type(error).__name__}: {error}"
            for _ in self._tape:
                pass
        finally:
            if left := self._tape.take():
                segments.append(Segment(None, self._clock(), left))
        if self._tape.failure is not None:
            raise self._tape.failure
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", ""):
            message = f"the body is coded {coding!r} although identity was asked for; switch it off at the server"
            raise OpenAITransportError("malformed", kind="content_encoding", message=message, status=self.status)


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
        transport: httpx2.BaseTransport | None = None,  # None: sockets
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s  # of a whole request
        each_wait = httpx2.Timeout(timeout_s if stall_s is None else stall_s)
        # Proxies and keys of the environment would put a stranger, or a secret, into the measurement.
        http = httpx2.Client(
            timeout=each_wait,
            verify=ssl_context if ssl_context is not None else tls_context(),
            trust_env=False,
            transport=transport,
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
            opened.receive([])

    @contextmanager
    def stream(self, body: Mapping[str, Any], endpoint: Endpoint = "chat") -> Iterator[Opened]:
        """Send a streaming request; yields once the headers of a 200 have come. Raises OpenAITransportError.

        The body is sent as given (``stream`` is set); the instant before the call is the caller's to take.
        """
        resource: Any = self._client.chat.completions if endpoint == "chat" else self._client.completions
        first = "messages" if endpoint == "chat" else "prompt"
        rest = {name: value for name, value in body.items() if name not in ("model", first, "stream")}
        deadline_ns = self._clock() + int(self._timeout_s * 1e9)
        try:
            stream = resource.create(model=body["model"], **{first: body[first]}, stream=True, extra_body=rest)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise translate(error, headers_came=False) from error
        tape = _Tape(stream.response, self._clock, deadline_ns)
        try:
            yield Opened(stream, tape, self._clock)
        finally:
            tape.release()


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
