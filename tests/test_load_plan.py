"""Plans of the kinds that load a server: who is sent what, when, at which length, the same on any machine."""

import json
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.arrival_times import constant, poisson, uniform
from scenarios.plan import LoadRequest, Plan, PlannedRequest, deal_level, expand, plan_digest, read_planned
from scenarios.schema import Scenario
from scenarios.stock import plan_from_file
from scenarios.strict_toml import ScenarioError
from tests.test_plan import stock

ROOT = Path(__file__).resolve().parents[1]
SEEDS = st.integers(0, 2**63 - 1)
POLICIES = st.sampled_from(["cold", "warm", "as-is"])


def scenario(kind: str, own: Mapping[str, object], **sections: Any) -> Scenario:
    section = {"concurrency": "levels"}.get(kind, kind)
    domains = sections.pop("domains", {"code": 4, "prose": 2})
    tree = {
        "name": "tiny",
        "kind": kind,
        "mix": {"domains": domains},
        "request": {"max_tokens": dict.fromkeys(domains, 16)},
        section: own,
        **sections,
    }
    return Scenario.model_validate_json(json.dumps(tree))


def words(asked: Sequence[Mapping[str, str]] | str) -> int:
    """A toy server's count: words and signs, and five tokens a message that its chat template adds."""
    if isinstance(asked, str):
        return len(re.findall(r"\w+|[^\w\s]", asked))
    return 4 + sum(5 + words(message["content"]) for message in asked)


def sent(request: PlannedRequest) -> Sequence[Mapping[str, str]] | str:
    if request.messages is None:
        assert request.prompt is not None
        return request.prompt
    return [message.model_dump() for message in request.messages]


def text(request: PlannedRequest) -> str:
    return request.prompt if request.messages is None else request.messages[-1].content  # type: ignore[return-value]  # one of them is text


def load(plan: Plan, label: str) -> tuple[LoadRequest, ...]:
    requests = plan.of_level(label)
    assert all(isinstance(request, LoadRequest) for request in requests)
    return requests  # type: ignore[return-value]  # the line above saw to it


USERS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(USERS, st.integers(1, 15), SEEDS, POLICIES, st.integers(1, 2))
def test_levels_hold_every_measured_request_once_and_no_text_twice_when_cold(
    users: list[int], n: int, seed: int, policy: str, passes: int
) -> None:
    wanted = scenario("concurrency", {"users": users, "requests": n}, seed=seed, cache={"policy": policy})
    plan = expand(wanted, stock(code=4, prose=3), passes=passes)
    together = [request for level in plan.levels for request in plan.of_level(level.label)]
    assert tuple(together) == plan.measured
    assert [level.users for level in plan.levels] == users
    assert [len(plan.of_level(level.label)) for level in plan.levels] == [n * passes] * len(users)
    assert [request.sequence for request in plan.requests] == list(range(len(plan.requests)))
    assert len({request.plan_id for request in plan.requests}) == len(plan.requests)
    texts = Counter(text(request) for request in plan.measured)
    if policy == "cold":
        assert max(texts.values()) == 1
        assert all((request.salt is not None) == (request.repeat > 0) for request in plan.measured)
    else:
        first = [text(request) for request in plan.of_level(plan.levels[0].label)]
        for level in plan.levels:
            assert [text(request) for request in plan.of_level(level.label)] == first
    lines = [request.model_dump_json() for request in plan.requests]
    assert tuple(read_planned(line) for line in lines) == plan.requests
    assert plan_digest(json.loads(line) for line in lines) == plan.digest


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), SEEDS, st.sampled_from(["shuffled", "blocked", "listed"]))
def test_every_level_has_the_mixs_share_of_each_domain_whatever_its_size(n: int, seed: int, order: str) -> None:
    mix = {"domains": {"code": 4, "prose": 2}, "order": order}
    wanted = scenario("concurrency", {"users": [1, 2, 3], "requests": n}, seed=seed, mix=mix)
    plan = expand(wanted, stock(code=4, prose=2))
    for level in plan.levels:
        counted = Counter(request.domain for request in plan.of_level(level.label))
        assert abs(counted["code"] - n * 2 / 3) < 1
        assert counted.total() == n


def test_cold_levels_share_no_prompt_until_all_have_been_used() -> None:
    wanted = scenario("concurrency", {"users": [1, 2], "requests": 3}, cache={"policy": "cold"})
    plan = expand(wanted, stock(code=4, prose=2))
    one, two = ({request.prompt_id for request in plan.of_level(f"users={n}")} for n in (1, 2))
    assert one.isdisjoint(two)
    assert all(request.salt is None for request in plan.measured)


def test_a_warm_level_plan_primes_each_prompt_once_and_at_its_own_length() -> None:
    wanted = scenario("concurrency", {"users": [1, 2], "requests": 9}, cache={"policy": "warm"}, warmup={"requests": 1})
    plan = expand(wanted, stock(code=4, prose=2))
    assert [request.domain for request in plan.warmup] == ["warmup"] * 7
    assert {text(request) for request in plan.warmup[1:]} == {text(request) for request in plan.measured}
    assert all(request.level is None for request in plan.warmup)


def test_a_level_ended_by_time_holds_a_cap_of_requests_and_takes_no_passes() -> None:
    timed = scenario("concurrency", {"users": [1, 8], "steady_s": 60.0})
    plan = expand(timed, stock(code=4, prose=2))
    assert [(level.steady_s, len(plan.of_level(level.label))) for level in plan.levels] == [(60.0, 71), (60.0, 568)]
    own = scenario("concurrency", {"users": [1, 8], "steady_s": 60.0, "at_most_requests": 5})
    assert len(expand(own, stock(code=4, prose=2)).measured) == 10
    with pytest.raises(ScenarioError, match="2 passes were asked; ask one pass"):
        expand(timed, stock(code=4, prose=2), passes=2)


def test_a_value_that_stands_twice_gets_two_labels_and_an_unknown_one_is_refused() -> None:
    plan = expand(scenario("concurrency", {"users": [4, 1, 4], "requests": 2}), stock(code=4, prose=2))
    assert [level.label for level in plan.levels] == ["users=4", "users=1", "users=4#2"]
    with pytest.raises(
        ValueError, match="level 'users=9': the plan has users=4, users=1, users=4#2; name one of these"
    ):
        plan.of_level("users=9")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.integers(1, 40))
def test_a_level_is_dealt_so_that_each_request_is_one_workers_and_in_proportion_to_its_users(
    users: list[int], n: int
) -> None:
    plan = expand(scenario("concurrency", {"users": [sum(users)], "requests": n}), stock(code=4, prose=2))
    label = plan.levels[0].label
    dealt = [deal_level(plan, label, users, worker) for worker in range(len(users))]
    together = sorted((request for part in dealt for request in part), key=lambda request: request.sequence)
    assert tuple(together) == plan.of_level(label)
    rounds = n // sum(users)
    for share, part in zip(users, dealt, strict=True):
        assert rounds * share <= len(part) <= (rounds + 1) * share
        assert list(part) == sorted(part, key=lambda request: request.sequence)


@pytest.mark.parametrize("shares", [[0, 0], [2, -1]])
def test_shares_that_deal_nothing_are_refused(shares: list[int]) -> None:
    plan = expand(scenario("concurrency", {"users": [1], "requests": 2}), stock(code=4, prose=2))
    with pytest.raises(ValueError, match="give 0 or more for each worker"):
        deal_level(plan, "users=1", shares, 0)


# --- arrivals ---------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(0.01, 1000), st.integers(1, 50))
def test_schedules_are_reproducible_never_go_back_and_the_shorter_is_the_beginning_of_the_longer(
    seed: int, rate: float, n: int
) -> None:
    due = poisson(n, rate, seed, "rate=1")
    assert due == poisson(n + 5, rate, seed, "rate=1")[:n]
    assert list(due) == sorted(due)
    assert due[0] > 0
    assert due != poisson(n, rate, seed, "rate=2")
    even = constant(n, rate)
    assert even[0] == 0.0
    assert all(abs(at - place / rate) < 1e-9 for place, at in enumerate(even))


def test_a_poisson_schedule_has_the_mean_and_spread_of_its_rate() -> None:
    n, rate = 20_000, 4.0
    due = poisson(n, rate, 20261129, "rate=4")
    gaps = [later - earlier for earlier, later in zip((0.0, *due), due, strict=False)]
    assert statistics.fmean(gaps) == pytest.approx(1 / rate, rel=4 / math.sqrt(n))
    assert statistics.stdev(gaps) == pytest.approx(1 / rate, rel=0.03)
    assert sum(gap > 1 / rate for gap in gaps) / n == pytest.approx(math.exp(-1), abs=0.014)
    in_a_window = Counter(int(at // 1.0) for at in due)
    counts = [in_a_window[second] for second in range(int(due[-1]))]
    assert statistics.variance(counts) / statistics.fmean(counts) == pytest.approx(1.0, abs=0.1)


# Worked out once and kept; -ln(1 - 0.28837...) / 2 is 0.170101297.
UNIFORM = [0.2883738636185681, 0.2940109133631974]
POISSON = (0.170101297, 0.344179047, 0.586810338, 1.067862468)


def test_a_schedule_has_the_instants_it_has_on_every_machine() -> None:
    assert [uniform(1, "rate=2", place) for place in range(2)] == UNIFORM
    assert poisson(4, 2.0, 1, "rate=2") == POISSON
    assert constant(4, 3.0) == (0.0, 0.333333333, 0.666666667, 1.0)


def test_each_rate_is_a_level_and_passes_go_on_with_the_same_schedule() -> None:
    own = {"process": "poisson", "rate_per_s": [2.0, 0.5], "requests": 6}
    plan = expand(scenario("arrivals", own, seed=7), stock(code=4, prose=2), passes=2)
    assert [(level.label, level.rate_per_s, level.users) for level in plan.levels] == [
        ("rate=2", 2.0, None),
        ("rate=0.5", 0.5, None),
    ]
    for level in plan.levels:
        assert level.rate_per_s is not None
        requests = load(plan, level.label)
        assert tuple(request.scheduled_after_s for request in requests) == poisson(12, level.rate_per_s, 7, level.label)
        assert [request.pass_index for request in requests] == [0] * 6 + [1] * 6


# --- context ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("policy", ["cold", "as-is"])
def test_context_prompts_have_exactly_their_targets_and_end_with_their_question(endpoint: str, policy: str) -> None:
    domains = {"code": 2, "prose": 1, "json": 1}
    wanted = scenario(
        "context",
        {"target_tokens": [100, 640, 641], "requests": 6},
        domains=domains,
        mix={"domains": domains, "endpoint": endpoint},
        cache={"policy": policy},
    )
    there = stock(code=4, prose=2, json=2)
    plan = expand(wanted, there, count=words)
    own = {prompt.id: prompt.text for prompts in there.by_domain.values() for prompt in prompts}
    assert [(level.label, level.users) for level in plan.levels] == [
        ("tokens=100", 1),
        ("tokens=640", 1),
        ("tokens=641", 1),
    ]
    for level in plan.levels:
        for request in load(plan, level.label):
            assert words(sent(request)) == request.target_prompt_tokens == level.target_tokens
            assert request.shared_prefix_tokens == 0
            assert text(request).endswith(own[request.prompt_id])
            assert (request.salt is not None) == (policy == "cold")
    beginnings = Counter(text(request)[:60] for request in plan.measured)
    if policy == "cold":
        assert max(beginnings.values()) == 1


def test_a_long_prompt_repeats_no_paragraph() -> None:
    wanted = scenario("context", {"target_tokens": [20_000], "requests": 2}, domains={"code": 1, "prose": 1})
    for request in expand(wanted, stock(code=1, prose=1), count=words).measured:
        between = "\n\n\n" if request.domain == "code" else "\n\n"
        pieces = [piece for piece in text(request).split(between) if len(piece) > 60]
        assert len(pieces) > 100
        assert len(set(pieces)) == len(pieces)


@pytest.mark.parametrize("policy", ["cold", "as-is"])
def test_a_shared_prefix_has_its_stated_length_and_only_that_is_shared(policy: str) -> None:
    own = {"target_tokens": [300, 400], "requests": 4, "shared_prefix_tokens": 128}
    plan = expand(scenario("context", own, cache={"policy": policy}), stock(code=4, prose=2), count=words)
    beginnings = set()
    for level in plan.levels:
        texts = [text(request) for request in plan.of_level(level.label)]
        common = os.path.commonprefix(texts)  # noqa: RUF071  of characters, which is what is meant
        assert 128 <= words(common) <= 131  # a bracket, or the first words of two fillers, may be alike
        beginnings.add(common[:200])
        for request in load(plan, level.label):
            assert words(sent(request)) == level.target_tokens
            assert request.shared_prefix_tokens == 128
            assert policy != "cold" or f"[{request.salt}]\n" in text(request)
    assert len(beginnings) == 2


def test_a_system_message_and_the_salt_before_it_count() -> None:
    wanted = scenario(
        "context",
        {"target_tokens": [120], "requests": 2},
        mix={"domains": {"code": 2}, "system": "Answer in as few words as you can."},
        cache={"policy": "cold"},
    )
    for request in expand(wanted, stock(code=4), count=words).measured:
        assert request.messages is not None
        assert request.messages[0].content == f"[{request.salt}]\nAnswer in as few words as you can."
        assert words(sent(request)) == 120


def test_a_context_plan_is_the_same_every_time_and_asks_the_tokenizer_seldom() -> None:
    asked = [0]

    def count(request: Sequence[Mapping[str, str]] | str) -> int:
        asked[0] += 1
        return words(request)

    wanted = scenario("context", {"target_tokens": [2048], "requests": 6}, seed=3)
    first = expand(wanted, stock(code=4, prose=2), count=count)
    assert asked[0] <= 12 * len(first.measured)
    assert expand(wanted, stock(code=4, prose=2), count=words).digest == first.digest


def test_a_target_below_the_prompt_is_refused_with_the_least_it_takes() -> None:
    wanted = scenario("context", {"target_tokens": [200, 5], "requests": 1})
    with pytest.raises(ScenarioError, match=r"the prompt alone is longer .*; write \d+ or more") as caught:
        expand(wanted, stock(code=4, prose=2), count=words)
    assert (caught.value.key, caught.value.value) == ("context.target_tokens[1]", 5)


def test_a_length_no_words_can_meet_is_refused_and_not_come_near() -> None:
    wanted = scenario("context", {"target_tokens": [301], "requests": 1})
    with pytest.raises(ScenarioError, match=r"no choice of words .* \(300 reached\); write another number of tokens"):
        expand(wanted, stock(code=4, prose=2), count=lambda asked: 2 * (words(asked) // 2))


def test_a_context_beyond_the_servers_is_refused_before_anything_is_made() -> None:
    def count(_asked: object) -> int:
        raise AssertionError("nothing may be counted")

    wanted = scenario("context", {"target_tokens": [2048, 4090], "requests": 1})
    with pytest.raises(
        ScenarioError, match="takes 4106 tokens, and the server's context is 4096; write 4080 or"
    ) as caught:
        expand(wanted, stock(code=4, prose=2), count=count, limit_tokens=4096)
    assert (caught.value.key, caught.value.value) == ("context.target_tokens[1]", 4090)


def test_without_a_tokenizer_a_context_plan_is_refused_and_its_outline_is_not() -> None:
    wanted = scenario("context", {"target_tokens": [100, 200], "requests": 3})
    with pytest.raises(ScenarioError, match="is counted by the server's own tokenizer") as caught:
        expand(wanted, stock(code=4, prose=2))
    assert caught.value.key == "context.target_tokens"
    outline = expand(wanted, stock(code=4, prose=2), outline=True)
    assert [request.target_prompt_tokens for request in load(outline, "tokens=200")] == [200] * 3


@pytest.mark.parametrize("name", ["concurrency", "arrivals", "context"])
def test_the_files_that_come_with_the_project_make_plans(name: str) -> None:
    whole = plan_from_file(ROOT / "scenarios" / f"{name}.toml", outline=True)
    assert (whole.scenario.kind, whole.scenario.cache.policy) == (name, "cold")
    assert len(whole.measured) == len(whole.levels) * len(whole.of_level(whole.levels[0].label))
    smoke = plan_from_file(ROOT / "scenarios" / f"smoke-{name}.toml", count=words)
    assert (smoke.scenario.kind, len(smoke.levels)) == (name, 2)
    assert len(smoke.requests) <= 9
