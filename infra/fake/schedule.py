"""What a fake answer is to look like and when each of its pieces is due: the ``fake`` field of a request, checked.

The server's defaults (``--fake``) and the request's own ``"fake": {...}`` are merged, the request's last.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Seconds = Annotated[float, Field(ge=0, le=3600)]


class ScheduleError(ValueError):
    """A ``fake`` field that cannot be read; carries the value."""

    def __init__(self, value: Any, reason: str) -> None:
        self.value = value
        super().__init__(f"fake schedule {value!r}: {reason}; see python -m infra.fake_engine --help")


class Schedule(BaseModel):
    """One answer's schedule. Every instant counts from when the whole request was read and a slot is free for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    ttft_s: Seconds = 0.02
    gap_s: Seconds = 0.01  # between two steps
    n_tokens: Annotated[int, Field(ge=0)] | None = None  # None: max_tokens, or 16 without one
    tokens_per_chunk: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (1,)  # cycled
    style: Literal["merged", "events"] = "merged"  # a step of several tokens: one chunk, or one event a token
    drafted: Annotated[int, Field(ge=0)] = 0  # draft tokens a verify step; 0: no speculation
    accepted: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)  # of them, cycled
    headers_s: Seconds | None = 0.0  # None: headers in the same segment as the first event
    tail_s: Seconds = 0.0  # from the last token to the finish chunk
    sync: bool = False  # put every step on one grid of gap_s common to all streams (a batching server)
    shape: Literal["content", "reasoning", "reasoning_content", "mixed", "tool_calls"] = "content"
    text: str | None = None  # this text, cut in n_tokens pieces (default: one a word), in place of counted words
    framing: Literal["chunked", "length", "close"] = "chunked"
    truth: bool = True  # due_ns, received_ns, written_ns in every chunk
    cadence: bool = False  # little work a chunk and the tail in one send, to measure a client against; no faults
    fault: str | None = None  # a name of FAULTS


class Step(NamedTuple):
    """One decode step: how many tokens it commits and, for a verify step, what was drafted and accepted."""

    n_tokens: int
    n_drafted: int
    n_accepted: int


def read_schedule(*layers: dict[str, Any]) -> Schedule:
    """Later layers win, key by key. Raises ScheduleError naming the key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if not isinstance(layer, dict):
            raise ScheduleError(layer, "it must be an object")
        merged |= layer
    try:
        return Schedule.model_validate_json(json.dumps(merged))
    except ValidationError as error:
        first = error.errors()[0]
        raise ScheduleError(merged, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def steps(schedule: Schedule, n_tokens: int) -> Iterator[Step]:
    """The steps that commit exactly ``n_tokens``.

    With speculation the first token comes from prefill alone; a verify step drafts at most what may still be used less
    one (as llama.cpp does), so tokens - accepted always equals the number of target steps.
    """
    n_done = 0
    turn = 0
    while n_done < n_tokens:
        n_left = n_tokens - n_done
        if schedule.drafted and n_done:
            drafted = min(schedule.drafted, n_left - 1)
            accepted = min(schedule.accepted[turn % len(schedule.accepted)], drafted)
            step = Step(accepted + 1, drafted, accepted)
            turn += 1
        elif schedule.drafted:
            step = Step(1, 0, 0)
        else:
            step = Step(min(schedule.tokens_per_chunk[turn % len(schedule.tokens_per_chunk)], n_left), 0, 0)
            turn += 1
        n_done += step.n_tokens
        yield step


def answer_s(n_tokens: int, *, ttft_s: float, gap_s: float) -> float:
    """How long an answer lasts, a token a step, without ``sync`` or a tail: its end goes out with its last token."""
    return ttft_s + (n_tokens - 1) * gap_s


def due_instants(schedule: Schedule, begun_ns: int) -> Iterator[int]:
    """Absolute deadlines of the steps, without end: begun + ttft + k gaps, or on the common grid of ``sync``."""
    gap_ns = round(schedule.gap_s * 1e9)
    due_ns = begun_ns + round(schedule.ttft_s * 1e9)
    if schedule.sync and gap_ns:
        due_ns = -(-due_ns // gap_ns) * gap_ns
    while True:
        yield due_ns
        due_ns += gap_ns
