"""Traces of arrivals: three forms, read strictly, and replayed at their times with prompts of their lengths."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.plan import LoadRequest, Plan
from scenarios.stock import plan_from_file
from scenarios.strict_toml import ScenarioError
from scenarios.trace_file import read_trace
from tests.test_load_plan import sent, text, words

FILE = """
name = "replay"
kind = "arrivals"
seed = 5
[mix]
domains = { code = 2, prose = 1 }
[request]
max_tokens = { code = 64, prose = 64 }
[cache]
policy = "cold"
[arrivals]
process = "trace"
trace = "trace.jsonl"
"""
LENGTHS = {"timestamp": 0.5, "input_length": 300, "output_length": 20}
NAMED = {"timestamp": 0.5, "prompt_id": "code_01"}
MOONCAKE = {"timestamp": 500, "input_length": 1300, "output_length": 20, "hash_ids": [1, 2, 3]}


def trace(folder: Path, *lines: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines), "utf-8")
    return path


def plan(folder: Path, *lines: object, more: str = "", **options: Any) -> Plan:
    trace(folder, *lines)
    (folder / "replay.toml").write_text(FILE + more, "utf-8")
    return plan_from_file(folder / "replay.toml", **{"count": words, **options})


def measured(made: Plan) -> tuple[LoadRequest, ...]:
    assert [level.label for level in made.levels] == ["trace"]
    assert made.of_level("trace") == made.measured
    return made.measured  # type: ignore[return-value]  # a plan with levels has lines of that type


def test_a_trace_of_lengths_is_replayed_at_its_times_and_to_its_lengths(tmp_path: Path) -> None:
    lines = [
        {"timestamp": at, "input_length": n, "output_length": 5 + n} for at, n in [(2.0, 200), (2.0, 301), (3.25, 90)]
    ]
    requests = measured(plan(tmp_path, *lines))
    assert [request.scheduled_after_s for request in requests] == [0.0, 0.0, 1.25]
    assert [words(sent(request)) for request in requests] == [200, 301, 90]
    assert [request.target_prompt_tokens for request in requests] == [200, 301, 90]
    assert [request.max_tokens for request in requests] == [205, 306, 95]
    assert len({text(request)[:30] for request in requests}) == 3


def test_a_line_too_short_for_a_prompt_of_the_mix_gets_a_short_request_without_a_check(tmp_path: Path) -> None:
    (request,) = measured(plan(tmp_path, {"timestamp": 0, "input_length": 18, "output_length": 3}))
    assert words(sent(request)) == 18
    assert text(request).endswith("Go on.")
    assert request.check is None


def test_a_trace_of_prompt_ids_needs_no_tokenizer_and_salts_a_repeat(tmp_path: Path) -> None:
    lines = [NAMED, {"timestamp": 0.75, "prompt_id": "prose_01", "output_length": 9}, {**NAMED, "timestamp": 1}]
    requests = measured(plan(tmp_path, *lines, count=None))
    assert [request.prompt_id for request in requests] == ["code_01", "prose_01", "code_01"]
    assert [request.max_tokens for request in requests] == [64, 9, 64]
    assert [request.scheduled_after_s for request in requests] == [0.0, 0.25, 0.5]
    assert [request.salt is None for request in requests] == [True, True, False]


def test_mooncakes_blocks_are_shared_by_id_and_its_times_are_milliseconds(tmp_path: Path) -> None:
    lines = [
        MOONCAKE,
        {"timestamp": 1750, "input_length": 1400, "output_length": 7, "hash_ids": [1, 2, 9]},
        {"timestamp": 1750, "input_length": 1100, "output_length": 7, "hash_ids": [8, 2, 3]},
    ]
    one, two, three = measured(plan(tmp_path, *lines))
    assert [request.scheduled_after_s for request in (one, two, three)] == [0.0, 1.25, 1.25]
    assert [words(sent(request)) for request in (one, two, three)] == [1300, 1400, 1100]
    assert [request.shared_prefix_tokens for request in (one, two, three)] == [1024, 1024, 1024]
    assert 1024 <= words(os.path.commonprefix([text(one), text(two)])) < 1030  # noqa: RUF071  of characters
    assert words(os.path.commonprefix([text(one), text(three)])) < 6  # noqa: RUF071  of characters
    assert one.salt is None


def test_a_block_gives_way_where_nothing_else_would_fit_behind_it(tmp_path: Path) -> None:
    (request,) = measured(plan(tmp_path, {**MOONCAKE, "input_length": 514}))
    assert words(sent(request)) == 514
    assert request.shared_prefix_tokens == 0


def test_requests_takes_the_first_lines_and_more_than_there_are_is_refused(tmp_path: Path) -> None:
    assert len(plan(tmp_path, NAMED, NAMED, NAMED, more="requests = 2\n").measured) == 2
    with pytest.raises(ScenarioError, match=r"has only 1 lines, and arrivals.requests = 2; write 1 or less"):
        plan(tmp_path, NAMED, more="requests = 2\n")


BAD = [
    # the second line, the key named, the value, what is said
    ({**LENGTHS, "timestamp": -1}, "timestamp", -1, "is negative; write a time of 0 or later"),
    ({**LENGTHS, "timestamp": 0.25}, "timestamp", 0.25, "is before the line above (0.5); sort the lines by time"),
    ({**LENGTHS, "timestamp": math.nan}, "timestamp", math.nan, "is not a finite number"),
    ({**LENGTHS, "timestamp": math.inf}, "timestamp", math.inf, "is not a finite number"),
    ({**LENGTHS, "timestamp": "1.0"}, "timestamp", "1.0", "is not a number"),
    ({**LENGTHS, "timestamp": True}, "timestamp", True, "is not a number"),
    ({**LENGTHS, "timestamp": 10**400}, "timestamp", 10**400, "is not a finite number"),
    ({**LENGTHS, "timestamp": 1.7e12}, "timestamp", 1.7e12, "write seconds (milliseconds only with hash_ids)"),
    ({"timestamp": 1.0, "input_length": 9}, "output_length", None, "is missing from this line"),
    ({"input_length": 9, "output_length": 9}, "timestamp", None, "is missing from this line"),
    ({**LENGTHS, "input_length": 0}, "input_length", 0, "is not between 1 and"),
    ({**LENGTHS, "input_length": 9.5}, "input_length", 9.5, "is not a whole number"),
    ({**LENGTHS, "output_length": -3}, "output_length", -3, "is not between 1 and"),
    ({**LENGTHS, "hash_ids": [1]}, "hash_ids", [1], "write input_length, output_length, timestamp, the same in all"),
    ({**LENGTHS, "prompt_id": "code_01"}, "prompt_id", "code_01", "is not a key of this trace's form"),
    ("[1, 2]", None, [1, 2], "is no JSON object"),
    ("{broken", None, "{broken", "is not JSON"),
    ("", None, "", "is not JSON"),
    ('{"timestamp": 1, "timestamp": 2}', None, '{"timestamp": 1, "timestamp": 2}', "'timestamp' stands twice"),
]


@pytest.mark.parametrize(("bad", "key", "value", "said"), BAD, ids=lambda one: str(one)[:40])
def test_a_bad_line_is_refused_by_file_line_and_value(
    tmp_path: Path, bad: object, key: str | None, value: object, said: str
) -> None:
    path = trace(tmp_path, LENGTHS, bad, LENGTHS)
    with pytest.raises(ScenarioError) as caught:
        read_trace(path)
    assert (caught.value.path, caught.value.line, caught.value.key) == (path, 2, key)
    assert caught.value.value == value or (value != value and caught.value.value != caught.value.value)  # NaN
    assert said in str(caught.value)
    assert f"{path}:2: " in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "value", "said"),
    [
        (["a"], "a", "is not a whole number"),
        (7, 7, "is not a list of numbers"),
        ([True], True, "is not a whole number"),
    ],
)
def test_bad_hash_ids_are_refused(tmp_path: Path, bad: object, value: object, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as caught:
        read_trace(trace(tmp_path, {**MOONCAKE, "hash_ids": bad}))
    assert (caught.value.key, caught.value.value, caught.value.line) == ("hash_ids", value, 1)


def test_an_unknown_prompt_and_a_context_beyond_the_servers_are_refused_by_their_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is no prompt of this mix") as caught:
        plan(tmp_path, NAMED, {**NAMED, "prompt_id": "code_99"})
    assert (caught.value.line, caught.value.key, caught.value.value) == (2, "prompt_id", "code_99")
    with pytest.raises(ScenarioError, match="takes 320 tokens, and the server's context is 319; write 299") as caught:
        plan(tmp_path, LENGTHS, limit_tokens=319)
    assert (caught.value.line, caught.value.key, caught.value.value) == (1, "input_length", 300)


def test_an_empty_trace_and_one_that_no_plan_can_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the trace is empty"):
        plan(tmp_path, "")
    with pytest.raises(ScenarioError, match=r"about 40\.0 GB of prompts in 1000 lines; take a part of it"):
        plan(tmp_path, *[{**LENGTHS, "input_length": 10_000_000}] * 1000)


def test_a_trace_is_part_of_what_the_plan_was_made_from(tmp_path: Path) -> None:
    digests = plan(tmp_path, NAMED).prompts_sha256
    assert {"trace.jsonl", "prompts/material/sentences.txt"} <= set(digests)
    assert plan(tmp_path, {**NAMED, "timestamp": 0}).prompts_sha256["trace.jsonl"] != digests["trace.jsonl"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(MOONCAKE)), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(JSON | st.fixed_dictionaries(dict.fromkeys(LENGTHS, JSON)), min_size=1, max_size=3))
def test_any_lines_are_arrivals_in_order_or_a_refusal_with_a_line(tmp_path: Path, lines: list[object]) -> None:
    path = trace(tmp_path, *lines)
    try:
        arrivals = read_trace(path)
    except ScenarioError as error:
        assert error.path == path
        assert error.line is not None or "the trace is empty" in error.message
        assert ";" in str(error)
    else:
        assert [arrival.line for arrival in arrivals] == list(range(1, len(lines) + 1))
        assert [arrival.after_s for arrival in arrivals] == sorted(arrival.after_s for arrival in arrivals)
