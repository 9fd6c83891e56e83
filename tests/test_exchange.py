"""From what a transport saw to a record: which stamps are used, and when kernel stamps are set aside."""

import hashlib

import pytest

from analysis.lateness import lateness
from analysis.measures import Row, measure
from evidence.records import ConnectionFacts, ErrorFacts, Health, Started
from infra.dial import ClockPair
from infra.wire.stamps import Segment
from locustfiles._exchange import Exchange, Failure, facts_of, make_record, timing_of
from scenarios.plan import Message, PlannedRequest
from tests.run_factory import request

OFFSET_NS = 1_700_000_000_000_000_000
T0_NS = 5_000_000_000
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
TAIL = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}\n\ndata: [DONE]\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}".encode() + b"\r\n" + data + b"\r\n"


def clocks(offset_ns: int = OFFSET_NS, uncertainty_ns: int = 200) -> ClockPair:
    return ClockPair(monotonic_ns=T0_NS, wall_minus_monotonic_ns=offset_ns, uncertainty_ns=uncertainty_ns)


def exchange(*, kernel_after_ms=(10.0, 30.0), user_after_ms=(10.2, 30.4), step_ns=0, **changes) -> Exchange:
    data = [HEAD + chunked(EVENT), chunked(TAIL) + b"0\r\n\r\n"]
    segments = [
        Segment(None if kernel is None else OFFSET_NS + T0_NS + int(kernel * 1e6), T0_NS + int(user * 1e6), piece)
        for kernel, user, piece in zip(kernel_after_ms, user_after_ms, data, strict=True)
    ]
    fields = {
        "transport": "wire",
        "framing": "http",
        "segments": segments,
        "ended": "complete",
        "t0_monotonic_ns": T0_NS,
        "clocks": clocks(),
        "ended_monotonic_ns": T0_NS + 31_000_000,
        "clocks_at_end": clocks(OFFSET_NS + step_ns),
        "connection": ConnectionFacts(reused=True, resolve_s=None, connect_s=None, tls_s=None, tls_version=None),
    }
    return Exchange(**(fields | changes))


def record_of(one: Exchange):
    planned = PlannedRequest(
        plan_id="m0000", sequence=0, phase="measured", domain="code", prompt_id="code_01", prompt_sha256="0" * 64,
        level=None, pass_index=0, repeat=0, endpoint="chat", messages=(Message(role="user", content="x"),), prompt=None,
        max_tokens=4, temperature=0.0, seed=0, ignore_eos=False, salt=None, check=None,
    )  # fmt: skip
    started = Started(
        run_id="r", worker=0, sequence=0, plan_id="m0000", started_at_unix_s=1.0, started_at_monotonic_s=1.0
    )
    facts = facts_of(one, lambda: None)
    return make_record(planned=planned, started=started, exchange=one, facts=facts, wire=None, wire_missing="a test")


def test_kernel_stamps_are_carried_over_to_the_clock_of_t0():
    record = record_of(exchange())
    assert record.stamp_source == "kernel"
    assert record.first_token_after_s == pytest.approx(0.010)
    assert record.end_after_s == pytest.approx(0.030)
    assert record.kernel_to_user_max_s == pytest.approx(0.0004)
    assert record.outcome == "completed"
    assert record.output_sha256 == hashlib.sha256(b"hi").hexdigest()


@pytest.mark.parametrize("step_ns", [-5_000_000, 5_000_000, 60_000])
def test_a_stepped_wall_clock_sets_kernel_stamps_aside_and_says_so(step_ns):
    record = record_of(exchange(step_ns=step_ns))
    assert record.stamp_source == "user"
    assert record.first_token_after_s == pytest.approx(0.0102)
    assert record.clock_step_s == pytest.approx(step_ns / 1e9)
    assert any("the wall clock was stepped" in problem for problem in record.stream_problems)


def test_the_error_of_reading_two_clocks_is_no_step():
    assert timing_of(exchange(step_ns=30_000)).source == "kernel"


def test_a_user_stamp_taken_before_a_late_read_does_not_unseat_kernel_stamps():
    assert timing_of(exchange(user_after_ms=(9.9, 30.4))).source == "kernel"


def test_one_segment_without_kernel_stamp_means_user_stamps_for_all():
    assert timing_of(exchange(kernel_after_ms=(None, 30.0))).source == "user"


def test_a_request_that_was_never_sent_has_no_instants():
    failure = Failure(outcome="connect_refused", error=ErrorFacts(kind="DialError", message="nobody listens"))
    record = record_of(exchange(segments=(), t0_monotonic_ns=None, connection=None, failure=failure, ended="eof"))
    assert record.outcome == "connect_refused"
    assert (record.sent_at_unix_s, record.end_after_s, record.stamp_source, record.http_status) == (None,) * 4


def health(at_s: float, lag_s: float) -> Health:
    return Health(
        at_monotonic_s=at_s, interval_s=1.0, lag_p50_s=0.0, lag_max_s=lag_s, cpu_ratio=0.1, gc_pauses=0,
        gc_pause_max_s=0.0, in_flight=1,
    )  # fmt: skip


def rows(*requests):
    return [Row(request=one, measures=measure(one, max_draft_tokens=0)) for one in requests]


def test_lateness_needs_merged_tokens_and_a_late_sentinel_at_the_same_time():
    merged = request(chunks=((0.7, 0, 1, 2), (0.7, 0, 2, 2), (0.9, 1, 3, 2)))  # sent at 50.0
    apart = request()
    assert lateness(rows(apart), {0: [health(50.5, 0.5)]}) == (None, None)
    assert lateness(rows(merged), {0: [health(40.0, 0.5)]}) == (None, None)
    late, rate = lateness(rows(merged), {0: [health(50.5, 0.5)]})
    assert late is not None and rate is not None
    assert (late.n_late, late.lag_s, late.median_s) == (1, 0.5, 0.7)
    assert rate.median_s == pytest.approx(0.2)


def test_user_stamps_are_moved_by_every_lateness():
    late, _ = lateness(rows(request(stamp_source="user")), {0: [health(50.2, 0.05)]})
    assert late is not None
    assert late.lag_s == 0.05


def test_a_stream_that_the_library_gave_up_is_a_failed_request_and_its_instants_are_nobodys_latency():
    record = record_of(exchange(refusal="the openai client gave up reading: JSONDecodeError: line 1"))
    assert record.outcome == "malformed"
    assert record.error is not None and record.error.kind == "openai"
    failed = exchange(
        refusal="given up", failure=Failure(outcome="timeout_stalled", error=ErrorFacts(kind="k", message="m"))
    )
    assert record_of(failed).outcome == "timeout_stalled"
