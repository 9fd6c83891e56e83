"""Finds where a response ends while it is still coming in, at the price of a glance a segment.

A filter, not the parser: the stopwatch must read the next segment, not decode the last one. A whole chunk ends with
one CRLF, chunked coding with two: a segment that ends with just one, and shows no last chunk with stray bytes behind
it, ends nothing and costs a few comparisons. After any other the chunk sizes not yet seen are walked, which costs
about half a microsecond a chunk, and only a last chunk ends the response. Everything that is not plain 200 with
chunked coding goes through h11 at once: such answers are short, or end with the connection. What the response was
is always decided later, by ``http1.ResponseReader`` over all of it.
"""

import re
from typing import Literal

from infra.wire.http1 import MAX_HEAD_BYTES, ResponseReader

_BLANK = b"\r\n\r\n"
_LAST = b"\r\n0\r\n"

_CLOSE = re.compile(rb"\r\nconnection:[^\r\n]*\bclose\b")  # in a lower-case head
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,20}")

_Mode = Literal["head", "chunked", "parsed", "eof", "done"]


class EndFinder:
    """``feed`` says True with the segment that ends the response, or breaks it beyond reading."""

    def __init__(self, method: str = "POST") -> None:
        self._method = method
        self._mode: _Mode = "head"
        self._pending: list[bytes] = []  # segments not yet walked
        self._tail = b""  # the last segment; at least its last four bytes, where there are as many
        self._skip = 0  # bytes of chunk data and its CRLF still to pass before the next size line
        self._reader: ResponseReader | None = None
        self._closes = False  # the head says that the connection will be closed
        self._clean = False  # the last chunk came, and nothing after it

    @property
    def reusable(self) -> bool:
        """Whether the ended response leaves the connection free for the next request."""
        return self._clean and not self._closes if self._reader is None else self._reader.reusable

    def feed(self, data: bytes) -> bool:
        if self._mode == "chunked":
            self._pending.append(data)
            if len(data) < 4:
                data = (self._tail[-4:] + data)[-4:]
            self._tail = data
            ends_with_one = data[-2:] == b"\r\n" != data[-4:-2]
            if ends_with_one and _LAST not in data and data[:3] != b"0\r\n":
                return False
            return self._walk()
        if self._mode == "head":
            return self._head(data)
        if self._mode == "parsed":
            return self._parse(data)
        return self._mode == "done"

    def _head(self, data: bytes) -> bool:
        self._pending.append(data)
        raw = b"".join(self._pending)
        self._pending = [raw]
        end = raw.find(_BLANK)
        if end < 0 and not raw.endswith(b"\n") and len(raw) <= MAX_HEAD_BYTES:
            return False  # no blank line yet; a head with bare LF, or without end, is h11's business, below
        head = raw[: end + 2].lower()
        if end >= 0 and head.startswith(b"http/1.1 200") and b"\r\ntransfer-encoding: chunked\r\n" in head:
            self._mode = "chunked"
            self._closes = _CLOSE.search(head) is not None
            self._skip = end + 4
            self._tail = raw
            return len(raw) > end + 4 and self._walk()
        self._mode = "parsed"
        self._pending = []
        return self._parse(raw)

    def _parse(self, data: bytes) -> bool:
        if self._reader is None:
            self._reader = ResponseReader(self._method)
        self._reader.feed(data)
        if self._reader.complete or self._reader.problem is not None:
            self._mode = "done"
            return True
        if self._reader.head is not None and self._reader.head.framing == "eof":
            self._mode = "eof"
        return False

    def _walk(self) -> bool:
        """Passes over the chunks that came; True at the last one with its trailer, or where a size is no size."""
        raw = b"".join(self._pending)
        at = self._skip
        while at < len(raw):
            line_end = raw.find(b"\r\n", at)
            if line_end < 0:
                break
            digits = raw[at:line_end].partition(b";")[0].strip()
            if not _SIZE.fullmatch(digits):
                self._mode = "done"
                return True
            size = int(digits, 16)
            if size == 0:
                # The trailer ends with a blank line; without trailer fields it is the blank line itself.
                end = raw.find(_BLANK, line_end)
                if end < 0:
                    break
                self._mode = "done"
                self._clean = end + 4 == len(raw)
                return True
            at = line_end + 2 + size + 2
        if at >= len(raw):
            self._skip, self._pending = at - len(raw), []
        else:
            self._skip, self._pending = 0, [raw[at:]]
        return False
