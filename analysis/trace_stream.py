"""The events of a Chrome JSON trace, one after the other, whatever the file's size; what is wrong with it is named.

Only one block of text and the event that straddles its end are in memory. Each event is decoded by the standard
library's C scanner where it begins in the block; one that is cut by the block's end is decoded again with more text.
Both forms of the format are read: an object with ``traceEvents`` among its keys, and a bare array (whose closing
bracket may be missing, by the format's own rule). Fractions stay text (``"12.345"``), so that a time in microseconds
becomes whole nanoseconds without passing through a float.

A file that is cut or damaged gives every event before the damage, and then its fault.
"""

import codecs
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

BLOCK_BYTES = 1 << 20
LONGEST_CHARS = 1 << 24  # of one event or one value beside the events
MOST_KEYS = 256  # kept beside the events; a trace has a dozen
_GZIP = b"\x1f\x8b"
_AT_THE_END = 16  # an error this close to the end of the text may be no more than the end

FaultCode = Literal[
    "no_trace_file",
    "unreadable",
    "empty_file",
    "truncated_gzip",
    "damaged_gzip",
    "truncated_json",
    "malformed_json",
    "no_trace_events",
    "window_without_steps",
    "no_request_in_window",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Why a trace is not, or not wholly, usable: a name, what was seen, and what to do."""

    code: FaultCode
    seen: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.seen}; {self.remedy}"


class _Stop(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


class TraceReader:
    """Reads one file once. After ``events`` has ended, ``fault`` says why it ended early, or is None."""

    def __init__(self, path: Path, *, block_bytes: int = BLOCK_BYTES) -> None:
        self.path = path
        self.header: dict[str, Any] = {}  # the keys beside traceEvents
        self.n_events = 0
        self.n_bytes = 0  # as they lie on the disk
        self.n_text_bytes = 0  # after decompression
        self.sha256: str | None = None  # of the whole file; None where it was not read to its end
        self.fault: Fault | None = None
        self._block_bytes = max(block_bytes, len(_GZIP))
        self._decode = json.JSONDecoder(parse_float=str, parse_constant=str).raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._cut: Fault | None = None  # the text ends here because the gzip stream does
        self._blocks: Iterator[bytes] = iter(())
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event that is a JSON object, in the file's order."""
        try:
            with self.path.open("rb") as opened:
                self._blocks = self._unpacked(opened)
                yield from self._document()
        except FileNotFoundError:
            self.fault = Fault(
                code="no_trace_file",
                seen=f"{self.path} is not there",
                remedy="a profiler window that no step fell into writes no trace file, although the server answers "
                "HTTP 200: start the window while a request decodes, and give that request more tokens",
            )
        except OSError as error:
            seen = f"{self.path} cannot be read ({error.strerror or error})"
            self.fault = Fault(code="unreadable", seen=seen, remedy="give the path of a trace file")
        except _Stop as stop:
            self.fault = stop.fault

    # -- the document --------------------------------------------------------------------------------------------

    def _document(self) -> Iterator[dict[str, Any]]:
        first = self._peek(skip="\ufeff \t\r\n")
        if first == "":
            if self.n_bytes == 0:
                self._stop("empty_file", "the file is empty", "profile again: its writer did not live to write it")
            self._end_of_text("before the trace began")
        if first == "[":
            yield from self._array(may_end=True)
            return
        if first != "{":
            self._malformed(f"it begins with {first!r}, which is neither an object nor an array")
        self._at += 1
        found = False
        while (key := self._key()) is not None:
            if key == "traceEvents":
                if found:
                    self._malformed("traceEvents stands in it twice")
                found = True
                if self._peek() != "[":
                    self._malformed("traceEvents is no array")
                yield from self._array(may_end=False)
            else:
                value = self._value()
                if len(self.header) < MOST_KEYS:
                    self.header[key] = value
        if not found:
            remedy = "give a trace that torch.profiler exported as Chrome JSON"
            self._stop("no_trace_events", "the file is JSON and has no traceEvents", remedy)
        self._nothing_after()

    def _key(self) -> str | None:
        """The next key with its colon behind us, None at the object's end."""
        sign = self._peek()
        if sign == ",":
            self._at += 1
            sign = self._peek()
        elif sign == "}":
            self._at += 1
            return None
        if sign == "":
            self._end_of_text("inside the trace's object")
        key = self._value() if sign == '"' else self._malformed(f"{sign!r} stands where a key should")
        if self._peek() != ":":
            if self._peek() == "":
                self._end_of_text("inside the trace's object")
            self._malformed(f"no colon after the key {key!r}")
        self._at += 1
        return str(key)

    def _array(self, *, may_end: bool) -> Iterator[dict[str, Any]]:
        self._at += 1
        while True:
            sign = self._peek(skip=" \t\r\n,")
            if sign == "]":
                self._at += 1
                if may_end:
                    self._nothing_after()
                return
            if sign == "":
                if may_end and self._cut is None:
                    return
                self._end_of_text(f"after {self.n_events} events")
            if sign != "{":
                self._malformed(f"{sign!r} stands where an event should, after {self.n_events} events")
            event = self._value()
            self.n_events += 1
            yield event

    def _nothing_after(self) -> None:
        if self._peek() != "":
            self._malformed("something stands after the end of the trace")
        if self._cut is not None:
            raise _Stop(self._cut)

    def _value(self) -> Any:
        """The JSON value that begins here. A number that touches the end of the text may go on in the next block."""
        self._peek()
        while True:
            touches = False
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                touches = error.pos >= len(self._text) - _AT_THE_END or error.msg.startswith("Unterminated string")
                if not touches:
                    self._malformed(error.msg)
            except (ValueError, RecursionError) as error:
                self._malformed(str(error))
            else:
                if end < len(self._text) or self._ended or self._text[end - 1] in '}]"':
                    self._at = end
                    return value
            if len(self._text) - self._at > LONGEST_CHARS:
                self._malformed(f"one value has more than {LONGEST_CHARS} characters")
            if not self._more(at_least=len(self._text) - self._at):
                self._end_of_text(f"after {self.n_events} events")

    def _peek(self, *, skip: str = " \t\r\n") -> str:
        """The next character that is not to be skipped; "" at the end of the text."""
        while True:
            text, at, end = self._text, self._at, len(self._text)
            while at < end and text[at] in skip:
                at += 1
            self._at = at
            if at < end:
                return text[at]
            if not self._more():
                return ""

    def _more(self, *, at_least: int = 1) -> bool:
        """Append at least so many characters (as far as there are any); False where the text has ended."""
        if self._ended:
            return False
        parts, n_chars = [self._text[self._at :]], 0
        while n_chars < max(at_least, 1):
            block = next(self._blocks, None)
            if block is None:
                parts.append(self._utf8.decode(b"", final=True))
                self._ended = True
                break
            parts.append(self._utf8.decode(block))
            n_chars += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return True

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _unpacked(self, opened: BinaryIO) -> Iterator[bytes]:
        """The text's bytes in blocks of bounded size. A gzip stream that is cut sets ``_cut`` and ends."""
        digest = hashlib.sha256()

        def read() -> bytes:
            data = opened.read(self._block_bytes)
            digest.update(data)
            self.n_bytes += len(data)
            if not data:
                self.sha256 = digest.hexdigest()
            return data

        data = read()
        if data[:2] != _GZIP:
            while data:
                self.n_text_bytes += len(data)
                yield data
                data = read()
            return
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while data:
            try:
                text = stream.decompress(data, self._block_bytes)
            except zlib.error as error:
                seen = f"the gzip stream is damaged after {self.n_text_bytes} bytes of text ({error})"
                self._cut = Fault(code="damaged_gzip", seen=seen, remedy="copy the trace again from its host")
                return
            self.n_text_bytes += len(text)
            if text:
                yield text
            data = stream.unused_data or stream.unconsumed_tail
            if stream.eof:
                data = data.lstrip(b"\0") or read()  # padding of zeros is allowed between members and at the end
                if data:
                    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            elif not data:
                data = read()
        while not stream.eof and (text := stream.decompress(b"", self._block_bytes)):  # what the last block still holds
            self.n_text_bytes += len(text)
            yield text
        if not stream.eof:
            seen = f"the gzip stream is cut after {self.n_bytes} bytes, {self.n_text_bytes} of text"
            remedy = "copy the trace again from its host once the server has finished writing it"
            self._cut = Fault(code="truncated_gzip", seen=seen, remedy=remedy)

    # -- endings -------------------------------------------------------------------------------------------------

    def _end_of_text(self, where: str) -> NoReturn:
        if self._cut is not None:
            fault = self._cut
            raise _Stop(Fault(code=fault.code, seen=f"{fault.seen}, {where}", remedy=fault.remedy))
        remedy = "copy the trace again from its host once the server has finished writing it"
        self._stop("truncated_json", f"the JSON is cut after {self.n_text_bytes} bytes, {where}", remedy)

    def _malformed(self, what: str) -> NoReturn:
        remedy = "give a trace that torch.profiler exported as Chrome JSON"
        self._stop("malformed_json", f"after {self.n_events} events the JSON is malformed: {what}", remedy)

    def _stop(self, code: FaultCode, seen: str, remedy: str) -> NoReturn:
        raise _Stop(Fault(code=code, seen=seen, remedy=remedy))
