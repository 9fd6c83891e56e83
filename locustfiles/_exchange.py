"""One request's exchange as a transport saw it, and the record that is made of it. Nothing here is on the hot path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from evidence.marks import Marks
from evidence.records import ConnectionFacts, ErrorFacts, Outcome, Request, StampSource, Started, WireRef
from infra.dial import ClockPair
from infra.wire.record_fields import stream_fields
from infra.wire.stamps import Ended, Segment, kernel_to_user_s, offsets_s, stamp_source
from infra.wire.stream import StreamFacts, read_stream
from scenarios.plan import PlannedRequest

# Kernel stamps are wall-clock. A change of (wall - monotonic) beyond this and the readings' uncertainty is a step.
STEP_TOLERANCE_NS = 50_000
# A kernel stamp this far before t0 belongs to another clock.
BEFORE_T0_NS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why nothing, or nothing more, was sent: connecting failed, or the fault is ours."""

    outcome: Outcome
    error: ErrorFacts


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What a transport hands over. ``t0_monotonic_ns`` is None when nothing was sent."""

    transport: Literal["wire", "openai"]
    framing: Literal["http", "body"]
    segments: Sequence[Segment]
    ended: Ended
    t0_monotonic_ns: int | None
    clocks: ClockPair  # read beside t0
    ended_monotonic_ns: int
    clocks_at_end: ClockPair
    connection: ConnectionFacts | None
    http_status: int | None = None  # framing "body": what the other client said
    headers_after_s: float | None = None  # framing "body": when the other client had the headers
    failure: Failure | None = None
    refusal: str | None = None  # why a library gave up a stream: where nothing else failed, its request did
    reusable: bool = False  # the connection can carry the next request
    killed: bool = False  # the user was stopped meanwhile; it dies once the record is written
    notes: tuple[str, ...] = ()  # the system's words where the connection broke

    @property
    def step_ns(self) -> int:
        """How the difference of the two clocks changed between t0 and the end."""
        return self.clocks_at_end.wall_minus_monotonic_ns - self.clocks.wall_minus_monotonic_ns


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Offsets of segments from t0, by the stamps that could be used; ``why_user``: kernel stamps were set aside."""

    source: StampSource | None
    offsets_s: tuple[float, ...]
    kernel_to_user_max_s: float | None
    why_user: str | None = None


def timing_of(exchange: Exchange) -> Timing:
    """Kernel stamps where every segment has one and the wall clock was not stepped meanwhile; user stamps otherwise."""
    if exchange.t0_monotonic_ns is None or not exchange.segments:
        return Timing(source=None, offsets_s=(), kernel_to_user_max_s=None)
    why = None
    if stamp_source(exchange.segments) == "kernel":
        offset_ns = exchange.clocks.wall_minus_monotonic_ns
        by_kernel = offsets_s(
            exchange.segments, t0_monotonic_ns=exchange.t0_monotonic_ns, wall_minus_monotonic_ns=offset_ns
        )
        first_s = min(by_kernel)
        tolerated_ns = STEP_TOLERANCE_NS + exchange.clocks.uncertainty_ns + exchange.clocks_at_end.uncertainty_ns
        if abs(exchange.step_ns) > tolerated_ns:
            why = f"user stamps: the wall clock was stepped by {exchange.step_ns / 1e9:+.6f} s during the request"
        elif first_s * 1e9 < -BEFORE_T0_NS:
            why = f"user stamps: a kernel stamp lies {-first_s:.6f} s before t0"
        else:
            delays = kernel_to_user_s(exchange.segments, wall_minus_monotonic_ns=offset_ns) or ()
            if first_s < 0:
                by_kernel = tuple(max(0.0, offset) for offset in by_kernel)
            return Timing(source="kernel", offsets_s=by_kernel, kernel_to_user_max_s=max(0.0, *delays))
    by_user = tuple((s.user_monotonic_ns - exchange.t0_monotonic_ns) / 1e9 for s in exchange.segments)
    return Timing(source="user", offsets_s=by_user, kernel_to_user_max_s=None, why_user=why)


def facts_of(exchange: Exchange, on_yield: Callable[[], None]) -> StreamFacts:
    return read_stream(
        exchange.segments,
        ended=exchange.ended,
        framing=exchange.framing,
        http_status=exchange.http_status,
        on_yield=on_yield,
    )


def make_record(
    *,
    planned: PlannedRequest,
    started: Started,
    exchange: Exchange,
    facts: StreamFacts,
    wire: WireRef | None,
    wire_missing: str | None,
    since_reset: int | None = None,
    due_ns: int | None = None,
) -> Request:
    """The request's record: raw facts only, each offset counted from t0."""
    timing = timing_of(exchange)
    told = stream_fields(facts, timing.offsets_s)
    told["chunks"] = Marks(told["chunks"])
    t0_ns = exchange.t0_monotonic_ns
    if told["end_after_s"] is None and t0_ns is not None:
        told["end_after_s"] = (exchange.ended_monotonic_ns - t0_ns) / 1e9
    if exchange.framing == "body":
        told |= {"http_status": exchange.http_status, "headers_after_s": exchange.headers_after_s}
    outcome, error = cast(Outcome, facts.outcome), None
    if facts.error is not None:
        error = ErrorFacts(
            kind=facts.error.kind,
            message=facts.error.message,
            http_status=facts.error.http_status,
            body=facts.error.body,
        )
    if exchange.failure is not None:
        outcome, error = exchange.failure.outcome, exchange.failure.error
    elif exchange.refusal is not None and outcome == "completed":
        outcome, error = "malformed", ErrorFacts(kind="openai", message=exchange.refusal)
    notes = (*facts.problems, *exchange.notes, *([timing.why_user] if timing.why_user else []))
    return Request(
        run_id=started.run_id,
        worker=started.worker,
        sequence=started.sequence,
        plan_id=planned.plan_id,
        prompt_id=planned.prompt_id,
        domain=planned.domain,
        phase=planned.phase,
        level=planned.level,
        pass_index=planned.pass_index,
        repeat=planned.repeat,
        transport=exchange.transport,
        connection=exchange.connection,
        sent_at_unix_s=None if t0_ns is None else (t0_ns + exchange.clocks.wall_minus_monotonic_ns) / 1e9,
        sent_at_monotonic_s=None if t0_ns is None else t0_ns / 1e9,
        stamp_source=timing.source,
        clock_step_s=None if t0_ns is None else exchange.step_ns / 1e9,
        kernel_to_user_max_s=timing.kernel_to_user_max_s,
        error=error,
        wire=wire,
        wire_missing=wire_missing,
        requests_since_reset=since_reset,
        send_lag_s=None if due_ns is None or t0_ns is None else max(0, t0_ns - due_ns) / 1e9,
        stream_problems=notes,
        **(told | {"outcome": outcome}),
    )
