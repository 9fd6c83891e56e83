"""One adapter an engine, one interface, and a reading of TensorRT-LLM from its source alone."""

import pytest
from engine_bodies import counter, numbers, reader, window

from infra.engines.adapter import adapter_for, speaks
from infra.engines.meaning import Counted, growth
from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.versions import at_least, parsed
from infra.wire.exposition import parse

ENGINES = ["llama.cpp", "sglang", "vllm", "tensorrt-llm"]
TRT = reader("tensorrt-llm")
DRAFTED, ACCEPTED = "trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_num_accepted_tokens_total"
MADE = "trtllm_generation_tokens_total"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_adapter_says_what_each_count_is_or_why_it_is_told_nowhere(engine):
    adapter = reader(engine, "1.2.3")
    assert (adapter.engine, adapter.version) == (engine, "1.2.3")
    meaning = adapter.meaning
    for where in (
        meaning.generated, meaning.prompt, meaning.cached, meaning.requests, meaning.drafted, meaning.accepted,
        meaning.verify_steps, meaning.per_position, meaning.ttft, meaning.tpot, meaning.inter_token,
    ):  # fmt: skip
        assert where.names if hasattr(where, "names") else where.why
    counted = {name for where in meaning.counts() for name in where.names}
    assert counted <= set(adapter.counters)
    assert not counted & set(meaning.kinds)
    assert meaning.bonus
    assert adapter.request_extras(cold_per_request=True)["stream_options"]["include_usage"] is True
    assert all(name.startswith(adapter.prefix) for name in adapter.counters)


def test_an_engine_that_is_not_known_has_no_adapter():
    assert adapter_for("mlx", "1") is None
    assert adapter_for(None) is None


def test_an_exposition_of_somebody_else_does_not_speak_an_engine():
    ours = parse("# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 1\n", None)
    assert speaks(reader("vllm"), ours)
    assert not speaks(reader("sglang"), ours)


@pytest.mark.parametrize(
    ("version", "numbers"), [("0.5.17", (0, 5, 17)), ("v0.33.0rc1", (0, 33, 0)), ("b11434", None), (None, None)]
)
def test_versions_are_read_by_their_leading_numbers(version, numbers):
    assert parsed(version) == numbers
    assert at_least(version, (0, 5, 19)) is (None if numbers is None else numbers >= (0, 5, 19))


def trt(before: str, after: str, speculative: bool | None = True):
    return TRT.acceptance([window(TRT, before, after)], speculative=speculative, n_requests=2)


def test_tensorrt_llm_gives_a_rate_and_no_length():
    before = counter(DRAFTED, model_name_0=10) + counter(ACCEPTED, model_name_0=4) + counter(MADE, model_name_0=0)
    after = counter(DRAFTED, model_name_0=100) + counter(ACCEPTED, model_name_0=64) + counter(MADE, model_name_0=92)
    found = trt(before, after)
    assert numbers(found, "state", "n_drafted", "n_accepted", "n_verify_steps") == ("value", 90, 60, None)
    assert isinstance(found.length, Absent)
    assert found.tokens_per_target_step == Measured(90 / 30)


def test_tensorrt_llm_leaves_a_zero_out_and_it_is_still_a_zero():
    assert trt(counter(MADE, x_0=0), counter(DRAFTED, x_0=90) + counter(MADE, x_0=9)).state == "zero"


def test_tensorrt_llms_gauges_of_older_builds_give_no_count():
    gauges = [(counter(DRAFTED, x_0=n) + counter(ACCEPTED, x_0=n)).replace(" counter", " gauge") for n in (90, 60)]
    found = trt(*gauges)
    assert found.state == "unmeasured"
    assert "gauge" in (found.why or "")


def test_tensorrt_llm_without_series_is_absent_or_unmeasured_by_its_configuration():
    made = counter(MADE, x_0=5)
    assert trt(made, made, speculative=False).state == "absent"
    assert trt(made, made, speculative=True).state == "unmeasured"


def test_a_server_that_lacks_a_late_series_beside_one_that_has_it_counts_zero():
    two = [window(TRT, counter(MADE, x_0=0), counter(MADE, x_0=5) + counter(DRAFTED, x_0=3)),
           window(TRT, counter(MADE, x_0=0), counter(MADE, x_0=5))]  # fmt: skip
    assert growth(Counted(names=(DRAFTED,), late=True), two).reading == Measured(3)
    assert isinstance(growth(Counted(names=(DRAFTED,)), two).reading, Absent | Unmeasured)
