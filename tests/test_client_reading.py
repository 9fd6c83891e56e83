"""Many streams read by one process, and ended requests made records off their path."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.wire.connection import Connection, Raw
from infra.wire.faults import NotJson, read_json
from infra.wire.stream import read_stream
from locustfiles._duty import MOST_REST_S, WINDOW_S, Duty
from locustfiles._pace import MOST_CLOSE, SAMPLE, Pace
from tests.locust_runs import ROOT, environment
from tests.stream_bytes import DONE, GOOD, HEAD, HEAD_CLOSE, chunk, chunked, event
from tests.test_connection import ScriptedSocket, pump, started


@pytest.fixture(scope="module")
def played() -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gevent_reading"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_users_killed_while_their_answers_wait_lose_no_line(played: Any):
    found = played["killed"]
    assert found["waiting"] == 4
    assert found["left"] == 0
    assert [line for line in found["log"] if line.startswith("written")] == [f"written {k}" for k in range(4)]


def test_raw_segments_are_on_the_disk_before_the_first_answer_is_read(played: Any):
    log = played["killed"]["log"]
    assert log.index("written 0") > max(log.index(f"kept {k}") for k in range(4))
    assert sum(line.startswith("kept") for line in log) == 4


def test_an_answer_that_ends_alone_has_its_line_at_once(played: Any):
    assert played["alone"] == {"log": [0]}


def test_a_disk_that_is_full_is_told_once_and_refuses_later_requests(played: Any):
    found = played["failing"]
    assert len(found["told"]) == 1
    assert "No space left" in found["told"][0]
    assert found["refused"] == found["told"][0]


def test_answers_beyond_the_memory_they_are_given_wait_on_the_disk(played: Any):
    found = played["spooled"]
    assert found["back"], "some were read back"
    assert found["back"] == sorted(found["back"])
    assert (found["texts"], found["kinds"], found["n_bytes"]) == (6, 1, 0)


def duty(busy: float, late_s: float | None = 0.0, n: int = 8) -> list[float]:
    """The rests over ``n`` windows of a process that is busy for so much of each."""
    times = iter(1.01 * k * WINDOW_S for k in range(n + 1))
    cpu = iter(1.01 * k * WINDOW_S * busy for k in range(n + 1))
    one = Duty(lambda: late_s, lambda: next(times), lambda: next(cpu))
    return [one.rest_s() for _ in range(n)]


def stamp(at_s: float) -> bytes:
    return (int(at_s)).to_bytes(8, sys.byteorder) + round(at_s % 1 * 1e9).to_bytes(8, sys.byteorder)


def pair(gap_s: float, data: bytes = b"data: {}\n\n", *, stamped: bool = True) -> tuple[Raw, Raw]:
    """The last two reads of a stream."""
    one, other = ((stamp(at_s) if stamped else None, 0, data) for at_s in (7.0, 7.0 + gap_s))
    return one, other


def judged(pace: Pace, *pairs: tuple[Raw, Raw], per_s: float = 4000) -> float:
    """The pause after a stretch of that sample."""
    return pace.pause_s(n_segments=round(per_s), took_s=1.0, pairs=pairs)


def paused(*pairs: tuple[Raw, Raw], per_s: float = 4000) -> float:
    """The pause for streams of which nothing else is known."""
    return judged(Pace(), *pairs, per_s=per_s)


@pytest.mark.parametrize(
    ("gap_s", "pause_s"),
    [(0.04, 0.004), (0.02, 0.004), (0.0155, 0.002), (0.01, 0.002), (0.005, 0.001), (0.0035, 0)],
)
def test_streams_are_read_together_by_at_most_a_quarter_of_what_lies_between_their_segments(gap_s, pause_s):
    assert paused(*[pair(gap_s)] * SAMPLE) == pause_s


def test_connections_that_still_wait_for_their_first_token_make_no_pause_longer():
    """256 open at a server that answers 13 of them, a chunk each millisecond: it was read each 2 ms."""
    assert paused(*[pair(0.001)] * SAMPLE, per_s=13000) == 0


def test_a_pause_that_would_bring_fewer_than_four_segments_together_is_not_made():
    assert paused(*[pair(0.02)] * SAMPLE, per_s=1000) == 0.004
    assert paused(*[pair(0.02)] * SAMPLE, per_s=990) == 0
    assert paused(*[pair(0.005)] * SAMPLE, per_s=3900) == 0


def test_streams_that_the_kernel_does_not_stamp_are_read_at_once():
    assert paused(*[pair(0.02, stamped=False)] * SAMPLE) == 0


def test_one_close_pair_in_forty_is_taken_and_one_more_is_not():
    assert paused(*[pair(0.02)] * (SAMPLE - MOST_CLOSE), *[pair(0.0001)] * MOST_CLOSE) == 0.004
    assert paused(*[pair(0.02)] * (SAMPLE - MOST_CLOSE - 1), *[pair(0.0001)] * (MOST_CLOSE + 1)) == 0


@pytest.mark.parametrize(
    ("data", "pause_s"),
    [
        (b"data: {}\n\n", 0.004),
        (b"1f\r\ndata: {}\n\n\r\n", 0.004),
        (b'data: {"a": "data: b"}\n\n', 0.004),
        (b"data: {}\n\ndata: {}\n\n", 0),
        (b"data: {}\r\n\r\ndata: {}\r\n\r\n", 0),
        (b"1f\r\ndata: {}\n\n\r\n1f\r\ndata: {}\n\n\r\n", 0),
        (b"3e\r\ndata: {}\n\ndata: {}\n\n\r\n", 0),
    ],
    ids=["one", "one, chunked", "one that quotes", "two", "two, CRLF", "two chunks", "two in a chunk"],
)
def test_two_events_in_one_segment_may_be_what_a_pause_has_hidden(data: bytes, pause_s: float):
    assert paused(*[pair(0.02, data)] * SAMPLE) == pause_s


def test_streams_that_become_bursts_are_read_at_once_after_one_stretch_until_they_are_forgotten():
    pace = Pace()
    assert judged(pace, *[pair(0.02)] * (SAMPLE - 1)) == 0, "not enough is known"
    assert judged(pace, pair(0.02)) == 0.004
    assert judged(pace, *[pair(0.002), pair(0.038)] * 8) == 0
    assert judged(pace, *[pair(0.02)] * (SAMPLE - 16)) == 0
    assert judged(pace, *[pair(0.02)] * 16) == 0.004


def test_what_was_known_of_streams_is_forgotten_once_none_is_in_the_midst_of_its_response():
    pace = Pace()
    assert judged(pace, *[pair(0.02)] * SAMPLE) == 0.004
    assert judged(pace) == 0
    assert judged(pace, pair(0.02)) == 0


def test_a_reader_whose_last_connection_goes_sleeps_and_begins_anew_with_the_next(played: Any):
    assert played["idle"] == {"awake": False, "left": [1, 0, 0], "anew": True, "pause_s": 0.0}


def test_how_late_is_read_what_the_kernel_does_not_stamp_is_unknown(played: Any):
    assert played["unstamped"] == {"read": 1, "late_s": [None, None], "delays_s": []}
    assert duty(0.4, late_s=None) == [0.0] * 8
    assert duty(0.99, late_s=None) == duty(0.99)


def test_reading_answers_rests_where_the_process_is_always_busy_but_never_stops():
    rests = duty(0.99)
    assert rests == sorted(rests)
    assert 0 < rests[0] < rests[-1] == MOST_REST_S


def test_reading_answers_rests_where_streams_are_read_late_and_not_in_a_process_at_ease():
    assert duty(0.4, late_s=0.02)[-1] == MOST_REST_S
    assert duty(0.4) == [0.0] * 8


def test_a_stream_is_read_while_another_s_long_answer_is_made_a_record(played: Any):
    log = played["others"]["log"]
    assert log.index("read") < log.index("written")


def test_fast_streams_are_read_together_without_loss_and_slow_ones_at_once(played: Any):
    found = played["many"]
    assert found["answers"] == 97
    assert found["kinds"] == 1, "every answer is the same, to the last token"
    assert found["last"][0] == 20
    assert found["last"][2] == "completed"
    assert found["together"]
    assert not found["then"][-1]


def test_a_forked_process_reads_by_a_descriptor_of_its_own(played: Any):
    assert played["fork"] == {"same": False, "kept": True}


def test_a_stream_that_was_given_up_is_read_no_more(played: Any):
    assert played["timed_out"] == {"ended": "timeout_stalled", "still_read": 0}


CLOSING = HEAD[:-2] + b"Connection: close\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("raw", "reusable"),
    [
        (b"".join(chunked(*GOOD)), True),
        (b"".join([CLOSING, *chunked(*GOOD)[1:]]), False),
        (HEAD + chunk(DONE) + b"0\r\nX-Took: 3\r\n\r\n", True),
        (LENGTH, True),
        (LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
        (HEAD_CLOSE + event(GOOD[1]), False),
        (HEAD + b"zz\r\n", False),
    ],
    ids=["kept", "closing", "trailer", "length", "length, closing", "until closed", "broken"],
)
def test_whether_a_connection_can_be_used_again_is_known_before_the_answer_is_read(raw: bytes, reusable: bool):
    for size in (len(raw), 7, 1):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        conn, _ = started([*pieces, b""])
        pump(conn)
        assert conn.reusable is reusable
        if conn.ended == "complete" and size == len(raw):
            assert read_stream(conn.segments, ended="complete").reusable is reusable


def test_a_connection_with_bytes_behind_the_answer_is_not_used_again():
    conn, _ = started([b"".join(chunked(*GOOD)) + b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
    pump(conn)
    assert (conn.ended, conn.reusable) == ("complete", False)


def test_a_connection_with_a_request_half_sent_is_not_used_again():
    conn = Connection(ScriptedSocket([LENGTH], writes=[3, BlockingIOError()]))
    conn.start(b"a request")
    assert conn.on_readable(1)
    assert not conn.reusable


@pytest.mark.parametrize(
    "text", ["[1e999]", "[NaN]", "[-Infinity]", "[" + "9" * 400 + ".0]", '{"a": 1E0400}', "[" * 100]
)
def test_a_number_too_large_and_what_is_no_json_are_refused_by_the_quick_reader_too(text: str):
    with pytest.raises(NotJson):
        read_json(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "[1e99]",
        '"e+100 and 1e500 in a text"',
        '"\\ud83d"',
        '{"a": 1, "a": 2}',
        "[1.0e-400, 0.1, -0.0, 12345678901234567890]",
    ],
)
def test_what_the_quick_reader_reads_is_what_the_standard_library_reads(text: str):
    assert read_json(text.encode()) == json.loads(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(SCALARS, st.lists, max_leaves=8))
def test_any_json_value_comes_back_as_it_was(value: Any):
    assert read_json(json.dumps(value).encode()) == value
