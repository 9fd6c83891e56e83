"""Arms in narrow columns: a name that fits, and never the same for two of them."""

from hypothesis import given
from hypothesis import strategies as st

from analysis.names import NARROW, labels, short

ARMS = st.text("ab-", min_size=1, max_size=40)


def test_two_arms_that_differ_in_the_middle_stay_apart():
    pools = ["sglang-smollm2-pool4k", "sglang-smollm2-pool4k-fp8kv", "sglang-smollm2-pool8k-fp8kv"]
    assert list(labels(pools, NARROW).values()) == ["…pool4k", "…pool4k-fp8kv", "…pool8k-fp8kv"]
    assert short(pools[1], NARROW) == short(pools[2], NARROW)


def test_names_that_fit_are_left_as_they_are():
    assert dict(labels(["cpu-f32-draft", "cpu-f32-base"], NARROW)) == {
        "cpu-f32-draft": "cpu-f32-draft", "cpu-f32-base": "cpu-f32-base",
    }  # fmt: skip


def test_one_long_name_alone_loses_its_middle():
    assert labels(["sglang-smollm2-ngram"], NARROW)["sglang-smollm2-ngram"] == "sglang-…-ngram"


@given(st.lists(ARMS, min_size=1, max_size=6, unique=True), st.sampled_from([11, NARROW, 20]))
def test_no_two_names_print_as_one(names, widest):
    assert len(set(labels(names, widest).values())) == len(names)
