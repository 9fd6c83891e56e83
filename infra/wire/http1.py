"""HTTP/1.1 without I/O: a request as bytes, and a response read piece by piece. The grammar is h11's.

Strategy: one ``ResponseReader`` a response. It is fed raw bytes in any pieces and gives back the body bytes they
completed; nothing is lost when the peer breaks the rules: the body up to that point stays, ``problem`` says what
was wrong, and whatever follows is only counted. ``complete`` means that the framing (the last chunk, or the promised
length) ended the body; a body that ends only with the connection never becomes complete here, because a server that
died looks the same.

h11 costs some 20 microseconds a chunk, most of what reading a stream costs. So a segment that begins where a chunk
begins and holds nothing but whole, plain chunks is taken apart here; h11 stays where it is, between two chunks. The
first segment of a body that is anything else goes to h11, and so do all that follow it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import h11

# A header block or a chunk-size line longer than this is refused (h11 buffers no more of an unfinished one).
MAX_HEAD_BYTES = 256 * 1024

_CHUNK_SIZE = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,7}\r\n")
_VALUE = re.compile(rb"(?:[^\x00\s](?:[^\x00\r\n\v\f]*[^\x00\s])?)?")  # of a header, as h11 takes it

Framing = Literal["chunked", "length", "eof"]
Headers = tuple[tuple[str, str], ...]


class WireError(Exception):
    """A request that cannot be written, or a connection used out of turn. ``value`` is what was refused."""

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """Status line and headers of the final response; header names are lower case, values as sent."""

    http_version: str
    status: int
    reason: str
    headers: Headers
    framing: Framing

    def get(self, name: str) -> str | None:
        """The value of a header, several joined by a comma, or None where it was not sent."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None


def request_bytes(
    method: str, target: str, host: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> bytes:
    """A whole request. ``Host``, ``Accept-Encoding: identity`` and ``Content-Length`` are ours and may not be given.

    Raises WireError for a target or a header that HTTP cannot carry (a line break, a control character).
    """
    ours = [("Host", host), ("Accept-Encoding", "identity")]
    if body or method not in ("GET", "HEAD"):
        ours.append(("Content-Length", str(len(body))))
    fixed = {"host", "accept-encoding", "content-length", "transfer-encoding", "connection"}
    given = list(headers)
    for name, value in given:
        if name.lower() in fixed:
            raise WireError(f"header {name!r} is set by the client itself: leave it out", value=(name, value))
        if (
            _VALUE.fullmatch(value.encode("utf-8", "surrogatepass")) is None
        ):  # its value may be a key: h11 would quote it
            raise WireError(
                f"the value of header {name!r} cannot be sent as HTTP: leave out line breaks, control characters and "
                "white space around it",
                value=name,
            )
    try:
        fields = [(name.encode("ascii"), value.encode("utf-8")) for name, value in [*ours, *given]]
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target=target, headers=fields)
        parts = [connection.send(request)]
        if body:
            parts.append(connection.send(h11.Data(data=body)))
        parts.append(connection.send(h11.EndOfMessage()))
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise WireError(
            f"{method} {target!r} with headers {[name for name, _ in given]} cannot be sent as HTTP: {error}. "
            "Use printable ASCII in the path and in header names, and no line breaks in header values",
            value=target,
        ) from error
    return b"".join(part for part in parts if part)


class ResponseReader:
    """Reads one response to a request with the given method."""

    def __init__(self, method: str = "POST") -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._h11.send(h11.Request(method=method, target="/", headers=[("Host", "-")]))
        self._h11.send(h11.EndOfMessage())
        self._bodyless = method == "HEAD"
        self.head: Head | None = None
        self.informational: list[int] = []  # statuses of 1xx responses that came first
        self.trailers: Headers = ()
        self.complete = False
        self.problem: str | None = None
        self.n_bytes_after_end = 0
        self._between_chunks = False  # h11 has read the head or whole chunks, and nothing since

    def feed(self, data: bytes) -> bytes:
        """The body bytes that these raw bytes completed."""
        if not data:  # h11 takes an empty piece for the end of the connection
            return b""
        if self.complete or self.problem is not None:
            self.n_bytes_after_end += len(data)
            return b""
        if self.head is None and not self._h11.trailing_data[0]:
            data = self._read_heads(data)
        if self._between_chunks:
            body = _whole_chunks(data)
            if body is not None:
                return body
            self._between_chunks = False
        return self._through_h11(data) if data else b""

    def _read_heads(self, data: bytes) -> bytes:
        """Header blocks (several, where 1xx came first) that lie whole in this segment; gives back what follows."""
        while self.head is None and self.problem is None:
            head_end = data.find(b"\r\n\r\n") + 4
            if head_end < 4:
                return data
            self._through_h11(data[:head_end])
            data = data[head_end:]
        self._between_chunks = self.head is not None and self.head.framing == "chunked"
        if self.complete or self.problem is not None:
            self.n_bytes_after_end += len(data)
            return b""
        return data

    def _through_h11(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        try:
            self._h11.receive_data(data)
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.Data):
                    pieces.append(bytes(event.data))
                elif event is h11.NEED_DATA:
                    break
                elif isinstance(event, h11.EndOfMessage):
                    self.trailers = _text(event.headers)
                    self.complete = True
                    self.n_bytes_after_end = len(self._h11.trailing_data[0])
                    break
                elif isinstance(event, h11.Response):
                    self.head = self._head(event)
                elif isinstance(event, h11.InformationalResponse):
                    self.informational.append(event.status_code)
                else:  # PAUSED: the peer wants another protocol
                    self.problem = f"the server left HTTP/1.1 ({event!r})"
                    break
        except h11.ProtocolError as error:
            self.problem = f"HTTP framing cannot be read: {error}"
        return b"".join(pieces)

    @property
    def reusable(self) -> bool:
        """Whether the next request may go over the same connection."""
        return self.complete and not self.n_bytes_after_end and self._h11.their_state is h11.DONE

    def _head(self, event: h11.Response) -> Head:
        headers = _text(event.headers)
        names = {name for name, _ in headers}
        framing: Framing = "eof"
        if self._bodyless or event.status_code in (204, 304):
            framing = "length"
        elif "transfer-encoding" in names:
            framing = "chunked"
        elif "content-length" in names:
            framing = "length"
        return Head(
            http_version=event.http_version.decode("ascii"),
            status=event.status_code,
            reason=event.reason.decode("latin-1"),
            headers=headers,
            framing=framing,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A whole plain response, for callers that want a body and not a stream.

    ``complete`` is None where only the connection's end ended the body: nobody can tell then.
    """

    head: Head | None  # None when no complete header block came
    body: bytes
    complete: bool | None
    problem: str | None


def read_response(pieces: Iterable[bytes], *, method: str = "GET") -> Response:
    """Reads the raw bytes of one response, in any pieces, whatever became of it."""
    reader = ResponseReader(method)
    body = b"".join([reader.feed(piece) for piece in pieces])
    complete: bool | None = reader.complete
    if reader.head is not None and reader.head.framing == "eof" and reader.problem is None:
        complete = None
    return Response(head=reader.head, body=body, complete=complete, problem=reader.problem)


def _whole_chunks(data: bytes) -> bytes | None:
    """The data of whole, plain chunks, or None where there is anything else: a part, an extension, the last chunk."""
    pieces: list[bytes] = []
    at, n = 0, len(data)
    while at < n:
        size = _CHUNK_SIZE.match(data, at)
        if size is None:
            return None
        begin = size.end()
        end = begin + int(data[at : begin - 2], 16)
        if data[end : end + 2] != b"\r\n":
            return None
        pieces.append(data[begin:end])
        at = end + 2
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _text(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return tuple((bytes(name).decode("ascii").lower(), bytes(value).decode("latin-1")) for name, value in headers)
