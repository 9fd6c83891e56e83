"""One GET, whole or with the reason it is not: for scrapes and probes, never for the measured path.

Nothing here raises for what a server or a network does: a refusal, a time-out or a torn body is a fact to keep.
"""

import base64
import http.client
import re
import ssl
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from evidence.redact import redact_headers, redact_text

# A busy engine's metrics are some 100 KB. What is larger is no scrape, and kept each second it would fill the disk.
LIMIT_BYTES = 8 * 1024 * 1024
KEPT_OF_TOO_MUCH_BYTES = 64 * 1024
_PLAIN = frozenset({"", "identity"})
_GZIP = frozenset({"gzip", "x-gzip"})
_SECRET_HEADERS = frozenset({"set-cookie", "authorization", "www-authenticate", "proxy-authenticate"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """``body`` is what came, even when it is torn; ``complete``: shown whole by Content-Length or chunked coding.

    ``error`` is None for a whole answer of status 200. Instants bracket the exchange, connecting included.
    """

    url: str  # without user and password
    send_unix_s: float
    receive_unix_s: float
    send_monotonic_s: float
    receive_monotonic_s: float
    status: int | None
    headers: Mapping[str, str]
    body: bytes | None
    complete: bool
    error: str | None


def bare_url(url: str) -> str:
    """The URL without its user, password and fragment; what cannot be read as one loses all before its last ``@``."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def headers_for(url: str, headers: Mapping[str, str], home: str | None) -> dict[str, str]:
    """What of ``headers`` may go to this URL: those that hold a secret only where its origin is that of ``home``.

    The origin is scheme, host and port. None for ``home``: all of them.
    """
    if home is None:
        return dict(headers)
    origin = _origin(home)
    if origin is not None and _origin(url) == origin:
        return dict(headers)
    public = redact_headers(headers)
    return {name: value for name, value in headers.items() if public[name] == value}


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.scheme, parts.hostname, _PORTS.get(parts.scheme) if port is None else port


def fetch(
    url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Fetched:
    """GET a URL. ``timeout_s`` limits each wait up to the headers, and from the start on the whole of the body.

    Redirects are not followed: another address is another server. A body that comes compressed although identity was
    asked for is unpacked where it is gzip, and its headers say so.
    """
    wall, start = time.time(), time.monotonic()
    reply = _Reply()
    reply.error = _exchange(url, headers or {}, timeout_s, ssl_context, start + timeout_s, reply)
    if reply.error is None and reply.status != 200:
        reply.error = _said(reply)
    body = None if reply.status is None else b"".join(reply.pieces)
    if body:
        body, why = _decoded(body, reply)
        reply.error = reply.error or why
    return Fetched(
        url=bare_url(url),
        send_unix_s=wall,
        receive_unix_s=time.time(),
        send_monotonic_s=start,
        receive_monotonic_s=time.monotonic(),
        status=reply.status,
        headers=reply.headers,
        body=body,
        complete=reply.complete,
        error=reply.error,
    )


def _said(reply: "_Reply") -> str:
    """A status that is no 200, with what would help."""
    if reply.status in (401, 403):
        return (
            f"HTTP {reply.status}: it wants a key or password (OPENAI_API_KEY, --header, or USER:PASSWORD@ in the URL)"
        )
    to = next((value for name, value in reply.headers.items() if name.lower() == "location"), None)
    return f"HTTP {reply.status}" if to is None else f"HTTP {reply.status} to {bare_url(to)}, which is not followed"


def _decoded(body: bytes, reply: "_Reply") -> tuple[bytes, str | None]:
    """The body unpacked, or as it came with the reason it cannot be read."""
    coding = next((v for name, v in reply.headers.items() if name.lower() == "content-encoding"), "").strip().lower()
    if coding in _PLAIN:
        return body, "it is gzip and does not say so" if body.startswith(b"\x1f\x8b") else None
    if coding not in _GZIP:
        return body, f"compressed as {coding} although identity was asked for: look at the proxy before the server"
    if not reply.complete:
        return body, None  # torn: its own error says so
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, LIMIT_BYTES)
    except zlib.error as error:
        return body, f"not gzip, though it says so: {error}"
    if unpacker.unconsumed_tail:
        reply.complete = False
        return plain[:KEPT_OF_TOO_MUCH_BYTES], f"more than {LIMIT_BYTES} bytes once unpacked: not read to its end"
    if not unpacker.eof:
        reply.complete = False
        return plain, "truncated: the gzip stream does not end"
    return plain, None


class _Reply:
    """What has come so far: kept whatever happens next."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.complete = False
        self.error: str | None = None


def _exchange(
    url: str,
    headers: Mapping[str, str],
    timeout_s: float,
    ssl_context: ssl.SSLContext | None,
    deadline_s: float,
    reply: _Reply,
) -> str | None:
    try:
        parts = urlsplit(url)
        connection = _connection(parts, timeout_s, ssl_context)
    except ValueError as error:
        return f"not a URL that can be fetched: {error}"
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    sent = _headers(parts, headers)
    if why := _unsendable(sent):
        return why
    try:
        connection.request("GET", target, headers=sent)
        response = connection.getresponse()
        reply.status = response.status
        reply.headers = _kept(response)
        return _read(connection, response, deadline_s, reply)
    except TimeoutError:
        return f"timed out after {timeout_s:g} s"
    except ConnectionRefusedError:
        return "connection refused: nobody listens there"
    except ssl.SSLError as error:
        return f"TLS failed: {error}"
    except http.client.IncompleteRead:
        return "truncated: the connection closed within the body"
    except (http.client.HTTPException, ValueError) as error:
        return redact_text(f"not HTTP: {type(error).__name__} {error}".rstrip())
    except OSError as error:
        return f"connection failed: {type(error).__name__} {error}".rstrip()
    finally:
        connection.close()


def _connection(parts: SplitResult, timeout_s: float, ssl_context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give http://HOST... or https://HOST...")
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    context = ssl_context or ssl.create_default_context()
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)


def _headers(parts: SplitResult, headers: Mapping[str, str]) -> dict[str, str]:
    sent = {"Accept-Encoding": "identity", "Connection": "close", **headers}
    if parts.username is not None and not any(name.lower() == "authorization" for name in sent):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        sent["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return sent


def _unsendable(headers: Mapping[str, str]) -> str | None:
    """Which header HTTP cannot carry: by its name, and never with its value, which may be a key."""
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None:
            return "a header cannot be sent: its name is no HTTP header name"
        if _HEADER_VALUE.fullmatch(value) is None:
            return (
                f"the header {name} cannot be sent: its value holds a line break or another character that HTTP "
                "headers cannot carry"
            )
    return None


def _kept(response: http.client.HTTPResponse) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in response.getheaders():
        if name.lower() not in _SECRET_HEADERS:
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def _read(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline_s: float, reply: _Reply
) -> str | None:
    framed = response.chunked or response.length is not None
    size = 0
    if response.length is not None and response.length > LIMIT_BYTES:
        return f"{response.length} bytes, more than {LIMIT_BYTES}: not read"
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left_s)
        piece = response.read1(65536)
        if not piece:
            break
        size += len(piece)
        if size > LIMIT_BYTES:
            reply.pieces = [b"".join(reply.pieces)[:KEPT_OF_TOO_MUCH_BYTES]]
            return f"more than {LIMIT_BYTES} bytes: not read to its end"
        reply.pieces.append(piece)
    if response.length:  # what Content-Length promised and did not come
        return f"truncated: {response.length} bytes of its Content-Length did not come"
    if not framed:
        return "neither Content-Length nor chunked coding: nothing shows that the body is whole"
    reply.complete = True
    return None
