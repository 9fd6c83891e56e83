"""Streams of known cadence at little cost: what a client's error is measured against.

The events are those of a faultless answer, made once for all answers that are alike; a send only puts in whose it is
and when it was written. What ends one (finish, usage, ``[DONE]``, the last chunk) goes out in one send, so
that the stamp in it is that of the end. One core sends some tens of thousands of chunks a second this way.
"""

import copy
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from infra.fake.answer import Answer, Event, dump
from infra.fake.schedule import Schedule, ScheduleError, Step, due_instants
from infra.fake.script import End, Script, Send, data_line, head_bytes, say

_ID = "@"
_WHO = b'"created":0,"id":"@"'
_HEAD = head_bytes(200, {"Content-Type": "text/event-stream", "Server": "fake-engine", "Transfer-Encoding": "chunked"})


class _Piece(NamedTuple):
    """One event but for who the answer is and its three instants."""

    after_ns: int  # due, from the answer's beginning
    left: bytes
    right: bytes
    n_sent: int
    step: Step | None


def cadence_script(answer: Answer) -> Script:
    """The script of an answer whose schedule says ``cadence``. Raises ScheduleError where it says more than that."""
    schedule = answer.schedule
    if schedule.style != "merged" or schedule.framing != "chunked" or not schedule.truth or schedule.headers_s != 0:
        raise ScheduleError(schedule.model_dump(), "cadence knows merged steps, chunked framing, truth, early headers")
    first_ns = next(due_instants(schedule, answer.begun_ns)) - answer.begun_ns
    options = str({k: v for k, v in answer.body.items() if k not in ("messages", "prompt", "fake")})
    alike = _Alike(schedule, first_ns, answer.chat, answer.n_prompt, answer.n_cached, options)
    answer.first_due_ns = answer.begun_ns + first_ns
    return _played(answer, _pieces(alike, _Kept(answer)))


class _Alike(NamedTuple):
    """All that the events of an answer depend on."""

    schedule: Schedule
    first_ns: int
    chat: bool
    n_prompt: int
    n_cached: int
    options: str


class _Kept:
    """An answer that is no part of what is looked up."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept)

    def __hash__(self) -> int:
        return 0


class _Pieces:
    """The pieces of one kind of answer, each made when the first answer comes to it."""

    def __init__(self, answer: Answer) -> None:
        self.made: list[_Piece] = []
        self.tail: list[_Piece] = []
        self._begun_ns = answer.begun_ns
        self._events = _prototype(answer).events()

    def token(self, index: int) -> _Piece | None:
        """The next token event; None once the tail is known."""
        if index < len(self.made):
            return self.made[index]
        if not self.tail:
            event = next(self._events)
            if event.kind == "token":
                self.made.append(self._piece(event))
                return self.made[-1]
            self.tail = [self._piece(one) for one in (event, *self._events)]
        return None

    def _piece(self, event: Event) -> _Piece:
        after_ns = event.due_ns - self._begun_ns
        if event.payload is None:
            return _Piece(after_ns, data_line(event.raw), b"", event.n_sent, None)
        left, _, right = dump(event.payload).partition(_WHO)
        return _Piece(after_ns, b"data: " + left, right[:-1] + b',"received_ns":', event.n_sent, event.step)


@lru_cache(maxsize=64)
def _pieces(_alike: _Alike, kept: _Kept) -> _Pieces:
    return _Pieces(kept.answer)


def _prototype(answer: Answer) -> Answer:
    one = copy.copy(answer)
    one.id, one.created_unix_s = _ID, 0
    one.sent_steps = []
    return one


def _played(answer: Answer, pieces: _Pieces) -> Iterator[Send | End]:
    received_ns, begun_ns = answer.received_ns, answer.begun_ns
    who = b'"created":%d,"id":"%b"' % (answer.created_unix_s, answer.id.encode())
    yield Send(begun_ns, say(_HEAD))
    index = 0
    while (piece := pieces.token(index)) is not None:
        due_ns = begun_ns + piece.after_ns
        yield Send(due_ns, _maker(answer, piece, who, due_ns))
        index += 1
    answer.last_due_ns = begun_ns + pieces.tail[0].after_ns

    def ending(now_ns: int) -> bytes:
        texts = [_text(piece, who, received_ns, answer.last_due_ns, now_ns) for piece in pieces.tail]
        return b"".join([b"%x\r\n%b\r\n" % (len(text), text) for text in texts]) + b"0\r\n\r\n"

    yield Send(answer.last_due_ns, ending)
    yield End.KEEP


def _maker(answer: Answer, piece: _Piece, who: bytes, due_ns: int) -> Callable[[int], bytes]:
    def make(now_ns: int) -> bytes:
        answer.n_sent = piece.n_sent
        answer.last_sent_ns = now_ns
        if piece.step is not None:
            answer.sent_steps.append(piece.step)
        text = _text(piece, who, answer.received_ns, due_ns, now_ns)
        return b"%x\r\n%b\r\n" % (len(text), text)

    return make


def _text(piece: _Piece, who: bytes, received_ns: int, due_ns: int, now_ns: int) -> bytes:
    if not piece.right:
        return piece.left
    return b'%b%b%b%d,"due_ns":%d,"written_ns":%d}\n\n' % (piece.left, who, piece.right, received_ns, due_ns, now_ns)
