"""Streams of known cadence from the fake engine: the ordinary answer, made cheaply."""

import json
from typing import Any

import pytest

from infra.fake.answer import Answer
from infra.fake.cadence import cadence_script
from infra.fake.counters import Counters
from infra.fake.routes import Engine, Incoming
from infra.fake.schedule import ScheduleError, answer_s, read_schedule
from infra.fake.script import End, Manner, Send, stream_script
from infra.wire.stamps import Segment
from infra.wire.stream import events, read_stream

TRUTH = ("received_ns", "due_ns", "written_ns")
BODY: dict[str, Any] = {"model": "m", "max_tokens": 7, "stream_options": {"include_usage": True}}


def answer(received_ns: int = 10**12, number: int = 1, body: dict[str, Any] | None = None, **fake: Any) -> Answer:
    schedule = read_schedule({"ttft_s": 0.05, "gap_s": 0.01}, fake)
    return Answer(
        BODY if body is None else body,
        schedule,
        chat=True,
        received_ns=received_ns,
        created_unix_s=1_700_000_000,
        number=number,
        n_cached=0,
    )


def play(script: Any) -> tuple[list[Segment], list[int], End]:
    """The segments, each made at the instant it is due, and those instants."""
    segments, due_ns = [], []
    for step in script:
        if not isinstance(step, Send):
            return segments, due_ns, step
        due_ns.append(step.due_ns)
        segments.append(Segment(None, step.due_ns, step.make(step.due_ns)))
    raise AssertionError("a script ends with an End")


def payloads(segments: list[Segment], *, truth: bool = True) -> list[dict[str, Any]]:
    found = [json.loads(data) for _, data in events(segments)]
    return found if truth else [{k: v for k, v in one.items() if k not in TRUTH} for one in found]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_an_answer_lasts_until_its_last_token_with_which_its_end_goes_out(n: int):
    for script in (cadence_script, lambda one: stream_script(one, Manner())):
        _, due_ns, _ = play(script(answer(body=BODY | {"max_tokens": n})))
        assert (due_ns[-1] - due_ns[0]) / 1e9 == pytest.approx(answer_s(n, ttft_s=0.05, gap_s=0.01))
    assert answer_s(72, ttft_s=0.05, gap_s=0.02) == pytest.approx(1.47)


@pytest.mark.parametrize(
    "more",
    [{}, {"timings_per_token": True}, {"return_token_ids": True}, {"stream_options": {}}, {"max_tokens": 1}],
    ids=["usage at the end", "timings", "token ids", "no usage", "one token"],
)
def test_its_events_are_those_of_the_ordinary_answer(more: dict[str, Any]):
    quick, _, end = play(cadence_script(answer(body=BODY | more)))
    slow, _, _ = play(stream_script(answer(body=BODY | more), Manner()))
    assert payloads(quick) == payloads(slow)
    assert end is End.KEEP
    assert read_stream(quick, ended="complete").reusable


def test_steps_of_several_tokens_and_speculation_are_kept():
    fake = {"drafted": 3, "accepted": (2, 0)}
    quick, _, _ = play(cadence_script(answer(**fake)))
    slow, _, _ = play(stream_script(answer(**fake), Manner()))
    assert payloads(quick) == payloads(slow)


def test_every_chunk_is_due_on_the_schedule_and_says_when_it_was_written():
    one = answer(received_ns=10**12)
    segments, due_ns, _ = play(cadence_script(one))
    assert due_ns == [10**12, *(10**12 + 50_000_000 + k * 10_000_000 for k in range(7)), 10**12 + 110_000_000]
    assert [p["written_ns"] for p in payloads(segments)[:7]] == due_ns[1:8]
    assert {p["received_ns"] for p in payloads(segments)} == {10**12}


def test_what_ends_an_answer_goes_out_at_once():
    segments, _, _ = play(cadence_script(answer()))
    facts = read_stream(segments, ended="complete")
    assert facts.done_segment == facts.end_segment == len(segments) - 1
    assert facts.last_token_segment == len(segments) - 2


def test_two_answers_alike_differ_only_in_whose_they_are_and_when():
    first, _, _ = play(cadence_script(answer(number=1)))
    second, _, _ = play(cadence_script(answer(number=20_000_000, received_ns=10**14)))
    assert {p["id"] for p in payloads(second)} == {"chatcmpl-fake20000000"}
    assert payloads(second)[0]["written_ns"] == 10**14 + 50_000_000
    same = [[{k: v for k, v in p.items() if k != "id"} for p in payloads(s, truth=False)] for s in (first, second)]
    assert same[0] == same[1]
    assert read_stream(second, ended="complete").outcome == "completed"


def test_answers_of_another_length_prompt_or_schedule_are_not_taken_for_alike():
    for other in (answer(body=BODY | {"max_tokens": 5}), answer(gap_s=0.02), answer(body=BODY | {"prompt": "a b c"})):
        quick, _, _ = play(cadence_script(other))
        slow, _, _ = play(stream_script(answer(body=other.body, gap_s=other.schedule.gap_s), Manner()))
        assert payloads(quick) == payloads(slow)


def test_the_counters_count_what_was_sent_and_no_more():
    one = answer()
    script = cadence_script(one)
    for _ in range(4):  # the headers and three chunks
        step = next(script)
        assert isinstance(step, Send)
        step.make(step.due_ns)
    counters = Counters("ok", 0)
    counters.add(one, 10**12)
    assert counters.predicted == 3
    assert counters.decodes == 3


@pytest.mark.parametrize("fake", [{"framing": "close"}, {"truth": False}, {"style": "events"}, {"headers_s": None}])
def test_what_cadence_does_not_do_is_refused(fake: dict[str, Any]):
    with pytest.raises(ScheduleError, match="cadence"):
        cadence_script(answer(**fake))


def test_a_fault_is_played_all_the_same():
    engine = Engine(counters=Counters("ok", 0), defaults={"cadence": True})
    body = json.dumps(BODY | {"stream": True, "messages": [], "fake": {"fault": "500"}}).encode()
    script, _ = engine.answer(Incoming("POST", "/v1/chat/completions", {}, body, 10**12))
    segments, _, _ = play(script)
    assert segments[0].data.startswith(b"HTTP/1.1 500")
