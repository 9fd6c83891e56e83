"""Server-sent events, bytes in, events out (the event stream format of the HTML standard).

Strategy: a line ends with LF, CRLF or CR; lines are cut from the bytes before anything is decoded, so a UTF-8 character
split over two reads is whole again by the time its event is. A CR ends its line at once and the LF that may follow in a
later read is swallowed: an event is dispatched by the read that completed it and never waits for the next one. A blank
line without data dispatches nothing. One space after the colon is dropped, if there is one. A stream that ends without
the last blank line leaves bytes over, which ``close`` hands back: they are evidence, whatever is made of them.
"""

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event: its data lines joined by LF, and its ``event:`` name or None."""

    data: bytes
    name: str | None


class SseParser:
    """Feed it the body in any pieces; the same bytes give the same events."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of a line whose end has not come
        self._swallow_lf = False  # the last byte was a CR; an LF that follows belongs to it
        self._at_start = True  # a byte order mark may still come
        self._lines: list[bytes] = []  # whole lines of the event under way, as they came
        self._data: list[bytes] = []
        self._name: str | None = None
        self.n_comments = 0
        self.n_ignored_lines = 0  # lines whose field name the format does not know

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes completed."""
        if not data:
            return []
        if data[:6] == b"data: " and not (self._partial or self._lines) and _is_one_event(data):
            self._swallow_lf = self._at_start = False
            return [SseEvent(data[6:-2], None)]
        if self._swallow_lf:
            self._swallow_lf = False
            if data[0] == 0x0A:
                data = data[1:]
        if b"\n" not in data and b"\r" not in data:
            if data:
                self._partial.append(data)
            return []
        if self._partial:
            self._partial.append(data)
            data = b"".join(self._partial)
            self._partial = []
        if b"\r" in data:
            lines = _LINE_END.split(data)
            self._swallow_lf = data[-1] == 0x0D
        else:
            lines = data.split(b"\n")
        rest = lines.pop()
        if rest:
            self._partial.append(rest)
        events: list[SseEvent] = []
        for line in lines:
            if line:
                self._line(line)
            else:
                self._dispatch(events)
        return events

    def close(self) -> bytes:
        """The end of the body: what was begun and not ended by a blank line, as it came (line ends as LF)."""
        left = b"\n".join([*self._lines, b"".join(self._partial)])
        self._lines, self._partial, self._data = [], [], []
        return left

    def _line(self, line: bytes) -> None:
        if self._at_start:
            self._at_start = False
            if line.startswith(_BOM):
                line = line[3:]
                if not line:
                    return
        if line[0] == 0x3A:
            self.n_comments += 1
            return
        self._lines.append(line)
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name not in (b"id", b"retry"):
            self.n_ignored_lines += 1

    def _dispatch(self, events: list[SseEvent]) -> None:
        self._at_start = False
        data = b"\n".join(self._data)
        if data:
            events.append(SseEvent(data, self._name))
        self._data, self._lines, self._name = [], [], None


def _is_one_event(data: bytes) -> bool:
    """Whether these are one line and the blank line that ends the event, as most pieces are."""
    return data.find(b"\n") == len(data) - 2 > 6 and data[-1] == 0x0A and b"\r" not in data
