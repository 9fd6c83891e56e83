"""Plans: the same seed gives the same plan anywhere, and every planned request occurs exactly once."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompts.load import Prompt
from scenarios.plan import Plan, PlannedRequest, Stock, deal, expand, plan_digest, scenario_sha256
from scenarios.schema import Scenario
from scenarios.stock import plan_from_file
from scenarios.strict_toml import ScenarioError


def prompts(domain: str, n: int) -> tuple[Prompt, ...]:
    made = []
    for number in range(1, n + 1):
        fields = {"id": f"{domain}_{number:02d}", "domain": domain, "text": f"Tell of {domain}, number {number}."}
        made.append(Prompt.model_validate_json(json.dumps(fields)))
    return tuple(made)


def stock(warmup: int = 3, **sizes: int) -> Stock:
    by_domain = {domain: prompts(domain, n) for domain, n in sizes.items()}
    return Stock(by_domain=by_domain, warmup=prompts("warmup", warmup), sha256={"prompts/code.jsonl": "ab" * 32})


def scenario(domains: Mapping[str, object], **sections: Any) -> Scenario:
    max_tokens = dict.fromkeys(domains, 48)
    tree = {"name": "tiny", "kind": "sequential", "seed": 0, "request": {"max_tokens": max_tokens}, **sections}
    tree["mix"] = {"domains": domains, **sections.get("mix", {})}
    return Scenario.model_validate_json(json.dumps(tree))


def ids(plan: Plan) -> list[str]:
    return [request.prompt_id for request in plan.measured]


DOMAINS = ("code", "prose", "json")
SEEDS = st.integers(0, 2**63 - 1)
ORDERS = st.sampled_from(["shuffled", "blocked", "listed"])
SIZES = st.fixed_dictionaries({domain: st.integers(1, 9) for domain in DOMAINS})


@st.composite
def asked(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, object]]:
    """Sizes of a stock, and an unequal mix over some of its domains."""
    sizes = draw(SIZES)
    names = draw(st.lists(st.sampled_from(DOMAINS), min_size=1, unique=True))
    return sizes, {name: draw(st.just("all") | st.integers(1, sizes[name])) for name in names}


def n_of(sizes: dict[str, int], mix: dict[str, object]) -> dict[str, int]:
    return {name: sizes[name] if n == "all" else int(str(n)) for name, n in mix.items()}


@settings(max_examples=60, deadline=None)
@given(asked(), SEEDS, ORDERS, st.integers(0, 3), st.integers(1, 3))
def test_the_same_seed_gives_the_same_plan_and_digest(
    size_and_mix: tuple[dict[str, int], dict[str, object]], seed: int, order: str, warmup: int, passes: int
) -> None:
    sizes, mix = size_and_mix

    def once() -> Plan:
        wanted = scenario(mix, seed=seed, mix={"order": order}, warmup={"requests": warmup})
        return expand(wanted, stock(**sizes), passes=passes)

    assert once() == once()
    assert once().digest == once().digest


@settings(max_examples=60, deadline=None)
@given(asked(), SEEDS, ORDERS, st.integers(0, 3), st.integers(1, 3), st.integers(1, 12))
def test_every_planned_request_occurs_exactly_once_over_any_number_of_workers(
    size_and_mix: tuple[dict[str, int], dict[str, object]],
    seed: int,
    order: str,
    warmup: int,
    passes: int,
    n_workers: int,
) -> None:
    sizes, mix = size_and_mix
    wanted = scenario(mix, seed=seed, mix={"order": order}, warmup={"requests": warmup})
    plan = expand(wanted, stock(**sizes), passes=passes)
    dealt = [deal(plan, n_workers, worker) for worker in range(n_workers)]
    together = sorted((request for part in dealt for request in part), key=lambda request: request.sequence)
    assert tuple(together) == plan.requests
    assert plan_digest(request.model_dump(mode="json") for request in together) == plan.digest
    assert all(list(part) == sorted(part, key=lambda request: request.sequence) for part in dealt)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 2  # one for each phase


@settings(max_examples=60, deadline=None)
@given(asked(), SEEDS, ORDERS, st.integers(1, 3))
def test_an_unequal_mix_is_met_to_the_prompt_and_all_means_all(
    size_and_mix: tuple[dict[str, int], dict[str, object]], seed: int, order: str, passes: int
) -> None:
    sizes, mix = size_and_mix
    plan = expand(scenario(mix, seed=seed, mix={"order": order}), stock(**sizes), passes=passes)
    wanted = {f"{name}_{k:02d}": passes for name, n in n_of(sizes, mix).items() for k in range(1, n + 1)}
    assert Counter(ids(plan)) == wanted


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**62), st.integers(1, 1000))
def test_another_seed_gives_another_order_of_the_same_prompts(seed: int, step: int) -> None:
    one, other = (expand(scenario({"code": "all"}, seed=s), stock(code=30)) for s in (seed, seed + step))
    assert ids(one) != ids(other)
    assert sorted(ids(one)) == sorted(ids(other))
    assert one.digest != other.digest


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.permutations(range(12)))
def test_the_shuffled_order_does_not_depend_on_the_order_of_the_prompt_file(seed: int, moved: list[int]) -> None:
    there = stock(code=12)
    other = Stock(
        by_domain={"code": tuple(there.by_domain["code"][at] for at in moved)}, warmup=there.warmup, sha256=there.sha256
    )
    wanted = scenario({"code": "all"}, seed=seed)
    assert expand(wanted, there).digest == expand(wanted, other).digest


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 4), st.integers(1, 6))
def test_passes_cycle_the_seeded_order_and_salt_each_repeat_when_cold(seed: int, passes: int, n: int) -> None:
    cold = expand(scenario({"code": n}, seed=seed, cache={"policy": "cold"}), stock(code=6), passes=passes)
    warm = expand(scenario({"code": n}, seed=seed, cache={"policy": "warm"}), stock(code=6), passes=passes)
    first = ids(cold)[:n]
    assert ids(cold) == first * passes == ids(warm)
    assert [request.pass_index for request in cold.measured] == [p for p in range(passes) for _ in range(n)]
    assert [request.repeat for request in cold.measured] == [request.pass_index for request in cold.measured]
    assert all(request.salt is None for request in (*warm.measured, *cold.measured[:n]))
    salts = [request.salt for request in cold.measured[n:]]
    assert None not in salts
    assert len(set(salts)) == len(salts)
    for request in cold.measured[n:]:
        assert request.messages is not None
        assert request.messages[0].content.startswith(f"[{request.salt}]\n")


def test_the_salt_stands_before_a_system_message_and_before_a_completion_prompt() -> None:
    cold = {"policy": "cold"}
    chat = expand(scenario({"code": 1}, mix={"system": "Be brief."}, cache=cold), stock(code=1), passes=2).measured[1]
    assert chat.messages is not None
    assert [message.role for message in chat.messages] == ["system", "user"]
    assert chat.messages[0].content == f"[{chat.salt}]\nBe brief."
    assert chat.messages[1].content == "Tell of code, number 1."
    wanted = scenario({"code": 1}, mix={"endpoint": "completions"}, cache=cold)
    text = expand(wanted, stock(code=1), passes=2).measured[1]
    assert text.messages is None
    assert text.prompt == f"[{text.salt}]\nTell of code, number 1."


def test_listed_keeps_the_domains_as_written_and_the_prompts_as_in_their_files() -> None:
    plan = expand(scenario({"prose": 2, "code": "all"}, mix={"order": "listed"}), stock(code=3, prose=4))
    assert ids(plan) == ["prose_01", "prose_02", "code_01", "code_02", "code_03"]


def test_blocked_runs_one_domain_after_the_other_and_shuffles_inside() -> None:
    wanted = {"prose": "all", "code": "all"}
    plan = expand(scenario(wanted, mix={"order": "blocked"}), stock(code=20, prose=20))
    assert [request.domain for request in plan.measured] == ["prose"] * 20 + ["code"] * 20
    listed = expand(scenario(wanted, mix={"order": "listed"}), stock(code=20, prose=20))
    assert ids(plan)[:20] != ids(listed)[:20]
    assert ids(plan)[20:] != ids(listed)[20:]


def test_a_number_below_the_stock_takes_the_same_prompts_whatever_the_seed() -> None:
    for seed in range(5):
        plan = expand(scenario({"code": 3}, seed=seed), stock(code=9))
        assert sorted(ids(plan)) == ["code_01", "code_02", "code_03"]


def test_warmup_comes_first_with_the_smallest_limit_of_the_mix() -> None:
    wanted = scenario(
        {"code": 1, "json": 1},
        request={"max_tokens": {"code": 512, "json": 384, "prose": 16}},
        warmup={"requests": 3},
        mix={"system": "Be brief."},
    )
    plan = expand(wanted, stock(code=1, json=1, prose=1))
    assert [request.phase for request in plan.requests] == ["warmup"] * 3 + ["measured"] * 2
    assert [request.plan_id for request in plan.requests] == ["w0000", "w0001", "w0002", "m0000", "m0001"]
    assert [request.sequence for request in plan.requests] == [0, 1, 2, 3, 4]
    assert {request.max_tokens for request in plan.warmup} == {384}  # prose is not in the mix, so its 16 do not count
    assert {request.domain for request in plan.warmup} == {"warmup"}
    assert all(request.messages and request.messages[0].content == "Be brief." for request in plan.warmup)
    assert {request.domain: request.max_tokens for request in plan.measured} == {"code": 512, "json": 384}


def test_more_warmups_than_prompts_are_refused() -> None:
    with pytest.raises(ScenarioError, match="there are only 3 warm-up prompts") as caught:
        expand(scenario({"code": 1}, warmup={"requests": 4}), stock(code=1))
    assert (caught.value.key, caught.value.value) == ("warmup.requests", 4)


def test_a_number_above_the_stock_is_refused_and_the_stock_named() -> None:
    with pytest.raises(ScenarioError, match="there are only 2 prompts") as caught:
        expand(scenario({"code": 3}), stock(code=2))
    assert (caught.value.key, caught.value.value) == ("mix.domains.code", 3)


@pytest.mark.parametrize(("n_workers", "worker"), [(0, 0), (2, 2), (2, -1)])
def test_dealing_to_a_worker_there_is_not_is_refused(n_workers: int, worker: int) -> None:
    plan = expand(scenario({"code": 1}), stock(code=1))
    with pytest.raises(ValueError, match="workers count from 0"):
        deal(plan, n_workers, worker)


def test_fewer_than_one_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="passes = 0"):
        expand(scenario({"code": 1}), stock(code=1), passes=0)


def test_a_planned_request_survives_its_own_json_and_the_digest_is_derived_again() -> None:
    plan = expand(scenario({"code": 2}, warmup={"requests": 1}), stock(code=2))
    lines = [request.model_dump_json() for request in plan.requests]
    assert tuple(PlannedRequest.model_validate_json(line) for line in lines) == plan.requests
    assert plan_digest(json.loads(line) for line in lines) == plan.digest


CHECKED = {
    "kind": "json_schema",
    "schema": {"type": "object", "properties": {"größe": {"type": "number", "minimum": 0.5}}},
}


def tiny_stock() -> Stock:
    def one(id_: str, domain: str, text: str, check: object) -> Prompt:
        return Prompt.model_validate_json(json.dumps({"id": id_, "domain": domain, "text": text, "check": check}))

    return Stock(
        by_domain={
            "code": (one("code_01", "code", "Add two numbers.", None), one("code_02", "code", "Reverse a list.", None)),
            "prose": (one("prose_01", "prose", "Describe a café.", None), one("prose_02", "prose", "Tea, 日本.", None)),
            "json": (one("json_01", "json", "A size.", CHECKED), one("json_02", "json", "A name\nand age.", None)),
        },
        warmup=(one("warmup_01", "warmup", "Hello.", None), one("warmup_02", "warmup", "Good day.", None)),
        sha256={},
    )


# Worked out once and kept: they may change only with a new schema version of the plan line or of the order.
GOLDEN: dict[Literal["shuffled", "blocked", "listed"], tuple[list[str], str]] = {
    "shuffled": (
        ["json_02", "prose_02", "prose_01", "code_01", "json_01", "code_02"],
        "7cce9fe9044977ad93f77d52103a36c9962a2e2cd195235d223de5e1a535c351",
    ),
    "blocked": (
        ["code_01", "code_02", "prose_02", "prose_01", "json_02", "json_01"],
        "b5bf67430b4c3626be011fd3dc48c63488ac550fb4523a6d8507c693bc51fb86",
    ),
    "listed": (
        ["code_01", "code_02", "prose_01", "prose_02", "json_01", "json_02"],
        "869ca9d8ba2c57ce6d05157dc50b395f676b9b93e8cfabecf578176a33134522",
    ),
}


@pytest.mark.parametrize("order", ["shuffled", "blocked", "listed"])
def test_a_plan_of_the_smoke_files_shape_has_the_digest_it_has_on_every_machine(
    order: Literal["shuffled", "blocked", "listed"],
) -> None:
    wanted = scenario(
        {"code": 2, "prose": 2, "json": 2},
        seed=1,
        mix={"order": order},
        warmup={"requests": 2},
        cache={"policy": "cold", "per": "request"},
        limits={"timeout_s": 120.0},
    )
    plan = expand(wanted, tiny_stock(), passes=2)
    assert (ids(plan)[:6], plan.digest) == GOLDEN[order]


def test_the_order_is_the_sorted_sha256_of_seed_stream_and_prompt() -> None:
    plan = expand(scenario({"code": "all"}, seed=42), stock(code=9))
    keys = [hashlib.sha256(f"42:measured:{prompt_id}".encode()).hexdigest() for prompt_id in ids(plan)]
    assert keys == sorted(keys)


def test_the_scenario_digest_tells_the_order_of_domains_apart() -> None:
    one, other = scenario({"code": 1, "prose": 1}), scenario({"prose": 1, "code": 1})
    assert scenario_sha256(one) != scenario_sha256(other)
    assert scenario_sha256(one) == scenario_sha256(scenario({"code": 1, "prose": 1}))


def test_another_seed_changes_the_order_of_a_file_and_nothing_else():
    file = Path(__file__).parents[1] / "scenarios" / "smoke.toml"
    own, other = plan_from_file(file), plan_from_file(file, seed=4242)
    assert [r.prompt_id for r in own.measured] != [r.prompt_id for r in other.measured]
    assert {r.prompt_id for r in own.measured} == {r.prompt_id for r in other.measured}
    assert other.scenario.seed == 4242


def test_a_warm_cache_is_primed_with_every_measured_prompt_once_before_measuring(tmp_path):
    (tmp_path / "warm.toml").write_text(
        'name = "w"\nkind = "sequential"\nseed = 1\n[mix]\ndomains = { code = 2, prose = 1 }\n'
        "[request]\nmax_tokens = { code = 9, prose = 7 }\n[warmup]\nrequests = 1\n"
        '[cache]\npolicy = "warm"\n',
        encoding="utf-8",
    )
    plan = plan_from_file(tmp_path / "warm.toml")
    assert [r.prompt_id for r in plan.warmup[1:]] == [r.prompt_id for r in plan.measured]
    assert [r.max_tokens for r in plan.warmup[1:]] == [r.max_tokens for r in plan.measured]
    assert len({r.plan_id for r in plan.requests}) == len(plan.requests) == 7
    assert [r.sequence for r in plan.requests] == list(range(7))
