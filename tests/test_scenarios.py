"""Scenario files: what is read, what is refused, and that every refusal names file, key, value and what to do."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.notices import plan_notices
from scenarios.schema import Scenario, load_scenario
from scenarios.stock import load_stock_for, plan_from_file
from scenarios.strict_toml import ScenarioError, read_toml

ROOT = Path(__file__).resolve().parents[1]

GOOD = """
name = "mine"
kind = "sequential"
seed = 7
[mix]
domains = { code = 2, prose = "all" }
[request]
max_tokens = { code = 64, prose = 32 }
"""


def scenario_file(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> ScenarioError:
    path = scenario_file(folder, text)
    with pytest.raises(ScenarioError) as caught:
        plan_from_file(path)
    assert str(path) in str(caught.value) or caught.value.path != path
    return caught.value


def test_a_short_file_gets_the_documented_defaults(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(tmp_path, GOOD))
    assert scenario.mix.domains == {"code": 2, "prose": "all"}
    assert (scenario.mix.order, scenario.mix.endpoint, scenario.mix.system, scenario.mix.files) == (
        "shuffled",
        "chat",
        None,
        (),
    )
    assert (scenario.request.temperature, scenario.request.seed, scenario.request.ignore_eos) == (0.0, 0, False)
    assert (scenario.warmup.requests, scenario.cache.policy, scenario.cache.per) == (0, "as-is", "cell")
    assert (scenario.limits.timeout_s, scenario.limits.stall_s, scenario.limits.ttft_slo_s) == (600.0, None, None)
    assert scenario.telemetry.scrape_interval_s == 1.0


def test_every_documented_key_is_read(tmp_path: Path) -> None:
    text = """
name = "whole"
kind = "sequential"
seed = 20261129
[mix]
domains = { code = 1 }
order = "listed"
files = []
endpoint = "chat"
system = "Answer briefly."
[request]
temperature = 1
seed = 4
max_tokens = { code = 512, prose = 512, json = 384 }
ignore_eos = true
[warmup]
requests = 6
[cache]
policy = "warm"
per = "request"
[limits]
timeout_s = 60
stall_s = 5.5
ttft_slo_s = 0.5
tpot_slo_s = 0.05
[telemetry]
scrape_interval_s = 0.5
"""
    scenario = load_scenario(scenario_file(tmp_path, text))
    assert scenario.mix.system == "Answer briefly."
    assert scenario.request.temperature == 1.0
    assert (scenario.limits.timeout_s, scenario.limits.stall_s) == (60.0, 5.5)
    assert (scenario.limits.ttft_slo_s, scenario.limits.tpot_slo_s) == (0.5, 0.05)
    assert scenario.cache.per == "request"
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


def test_the_files_that_come_with_the_project_ask_for_what_they_say() -> None:
    smoke = load_scenario(ROOT / "scenarios" / "smoke.toml")
    assert (smoke.name, smoke.mix.domains) == ("smoke", {"code": 2, "prose": 2, "json": 2})
    assert smoke.request.max_tokens == {"code": 48, "prose": 48, "json": 48}
    assert (smoke.warmup.requests, smoke.cache.policy, smoke.cache.per) == (2, "cold", "request")
    whole = load_scenario(ROOT / "scenarios" / "sequential.toml")
    assert whole.mix.domains == {"code": 30, "prose": 30, "json": 30}
    assert whole.request.max_tokens == {"code": 512, "prose": 512, "json": 384}
    assert whole.warmup.requests == 6


BAD_VALUES = [
    # what is replaced, by what, the key named, the value shown, what to do
    ("code = 2", "code = 0", "mix.domains.code", "0", 'a whole number above 0, or "all"'),
    ("code = 2", "code = -3", "mix.domains.code", "-3", "above 0"),
    ("code = 2", "code = true", "mix.domains.code", "true", "above 0"),
    ("code = 2", "code = 2.0", "mix.domains.code", "2.0", "above 0"),
    ("code = 2", 'code = "ALL"', "mix.domains.code", '"ALL"', '"all"'),
    (
        "code = 2",
        "code = 2000",
        "mix.domains.code",
        "2000",
        "there are only 30 prompts of this domain; write 30 or less",
    ),
    (
        "code = 2",
        "coed = 2",
        "request.max_tokens.coed",
        "",
        'write coed = 512 into max_tokens, or correct mix.domains.coed if you meant "code"',
    ),
    ('{ code = 2, prose = "all" }', "{}", "mix.domains", "{}", "at least one entry"),
    ('{ code = 2, prose = "all" }', "[1]", "mix.domains", "[1]", "must be a table"),
    ('prose = "all"', "warmup = 2", "mix.domains.warmup", "2", "set warmup.requests"),
    ("code = 64", "code = 0", "request.max_tokens.code", "0", "must be above 0"),
    ("code = 64", 'code = "64"', "request.max_tokens.code", '"64"', "without quotes"),
    ("code = 64, ", "", "request.max_tokens.code", "", "write code = 512 into max_tokens"),
    ("prose = 32", "prose = 32, prosse = 4", "request.max_tokens.prosse", "4", 'did you mean "prose"?'),
    ("prose = 32", "prose = 32, law = 4", "request.max_tokens.law", "4", "take it out or add the domain"),
    ("seed = 7", "seed = -1", "seed", "-1", "must be 0 or above"),
    ("seed = 7", "seed = true", "seed", "true", "must be a whole number"),
    ("seed = 7", "seed = 1979-05-27", "seed", "1979-05-27", "put quotes around it"),
    ("seed = 7", "seed = 07:32:00", "seed", "07:32:00", "is a TOML date or time"),
    ("seed = 7", "seed = 7\nsede = 8", "sede", "8", 'did you mean "seed"?'),
    ("seed = 7", "seed = 7\nzzz = 8", "zzz", "8", "where name, kind, seed, mix"),
    ('name = "mine"', 'name = ""', "name", '""', "correct the text"),
    ('name = "mine"', 'name = "../up"', "name", '"../up"', "correct the text"),
    ('name = "mine"', "", "name", "", 'is missing; write name = "my-run"'),
    ('kind = "sequential"', "", "kind", "", 'is missing; write kind = "sequential"'),
    ('kind = "sequential"', 'kind = "sequentail"', "kind", '"sequentail"', "sequential"),
    ('kind = "sequential"', "kind = 3", "kind", "3", '"sequential"'),
    ("[request]", 'orders = "listed"\n[request]', "mix.orders", '"listed"', 'did you mean "order"?'),
    ("[request]", 'order = "listd"\n[request]', "mix.order", '"listd"', 'did you mean "listed"?'),
    ("[request]", 'order = "random"\n[request]', "mix.order", '"random"', '"shuffled", "blocked", "listed"'),
    ("[request]", 'files = "own.jsonl"\n[request]', "mix.files", '"own.jsonl"', "square brackets"),
    ("[request]", "files = [3]\n[request]", "mix.files[0]", "3", "put it in quotes"),
    ("[request]", 'system = ""\n[request]', "mix.system", '""', "must not be empty"),
    ("[request]", 'system = "S"\nendpoint = "completions"\n[request]', "mix.system", '"S"', 'set endpoint = "chat"'),
    ("[request]", "[request]\ntemperature = nan", "request.temperature", "nan", "is not a finite number"),
    ("[request]", "[request]\ntemperature = -0.5", "request.temperature", "-0.5", "must be 0.0 or above"),
    ("[request]", '[request]\ntemperature = "0"', "request.temperature", '"0"', "without quotes"),
    ("[request]", "[request]\nignore_eos = 1", "request.ignore_eos", "1", "true or false"),
    ("[request]", "[request]\ntimeout_s = 3.0", "request.timeout_s", "3.0", "it belongs in [limits]"),
    ("[mix]", "[warmup]\nrequests = 5000\n[mix]", "warmup.requests", "5000", "none is sent twice"),
    ("[mix]", "[warmup]\nrequests = -1\n[mix]", "warmup.requests", "-1", "must be 0 or above"),
    ("[mix]", '[cache]\npolicy = "hot"\n[mix]', "cache.policy", '"hot"', '"cold", "warm", "as-is"'),
    ("[mix]", '[cache]\nper = "cells"\n[mix]', "cache.per", '"cells"', 'did you mean "cell"?'),
    ("[mix]", "[limits]\ntimeout_s = inf\n[mix]", "limits.timeout_s", "inf", "write one, for example 600.0"),
    ("[mix]", "[limits]\ntimeout_s = 0\n[mix]", "limits.timeout_s", "0", "must be above 0"),
    (
        "[mix]",
        "[limits]\ntimeout_s = 5.0\nstall_s = 6.0\n[mix]",
        "limits.stall_s",
        "6.0",
        "longer than limits.timeout_s",
    ),
    ("[mix]", "[limits]\ntimeout = 5.0\n[mix]", "limits.timeout", "5.0", 'did you mean "timeout_s"?'),
    ("[mix]", "[telemetry]\nscrape_interval_s = 0\n[mix]", "telemetry.scrape_interval_s", "0", "must be 0.05 or above"),
    ("[mix]", "[telemetry]\nseed = 1\n[mix]", "telemetry.seed", "1", "the top of the file"),
    ("[mix]", "[mixx]\na = 1\n[mix]", "mixx", '{"a": 1}', 'did you mean "mix"?'),
    ("[mix]", "requests = 6\n[mix]", "requests", "6", "it belongs in [warmup]"),
    ("[request]", "warmup = 6\n[request]", "mix.warmup", "6", "it belongs at the top of the file"),
]


@pytest.mark.parametrize(("old", "new", "key", "value", "remedy"), BAD_VALUES, ids=lambda v: str(v)[:30])
def test_a_bad_value_is_refused_by_file_key_and_value(
    tmp_path: Path, old: str, new: str, key: str, value: str, remedy: str
) -> None:
    assert old in GOOD
    error = refused(tmp_path, GOOD.replace(old, new, 1))
    assert error.path == tmp_path / "mine.toml"
    assert error.key == key
    named = f"{key} = {value}: " if value else f"{key}: "
    assert f"{tmp_path / 'mine.toml'}: {named}" in str(error)
    assert remedy in error.message


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("code = 2", "code = 0").replace("seed = 7", "seed = -1"))
    assert [problem.key for problem in error.problems] == ["seed", "mix.domains.code"]
    assert len(str(error).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "mine\n', 1),
        ('name = "mine"\nkind = sequential\n', 2),
        ('name = "mine"\n\n[mix\n', 3),
        ('name = "mine"\nname = "other"\n', 2),
        ("[mix]\ndomains = {\n", 2),
        ("seed = " + "9" * 5000, None),
    ],
)
def test_a_toml_syntax_error_names_the_line(tmp_path: Path, text: str, line: int | None) -> None:
    error = refused(tmp_path, text)
    assert "not valid TOML" in str(error)
    if line is not None:
        assert error.line == line
        assert f"mine.toml:{line}: " in str(error)
    assert "correct this line" in str(error)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'name = "mine"\nkind = "\xff"\n')
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert f"{path}:2: byte 0xff is not UTF-8" in str(caught.value)


def test_a_byte_order_mark_is_named_as_such(tmp_path: Path) -> None:
    error = refused(tmp_path, "\ufeff" + GOOD)
    assert "byte order mark" in str(error)


@pytest.mark.parametrize("text", ["seed = " + "[" * 20_000 + "]" * 20_000, ".".join(["a"] * 3000) + " = 1"])
def test_deep_nesting_is_refused_and_does_not_crash(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)
    assert "nested too deeply" in str(error)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ScenarioError, match=r"cannot be read .*; check the path") as caught:
            load_scenario(path)
        assert caught.value.path == path


SECTIONS = {
    "concurrency": "[levels]\nusers = [1, 4]\nrequests = 6\n",
    "context": "[context]\ntarget_tokens = [256, 512]\nrequests = 6\n",
    "arrivals": '[arrivals]\nprocess = "poisson"\nrate_per_s = [1.0, 2.5]\nrequests = 6\n',
}
TRACE = '[arrivals]\nprocess = "trace"\ntrace = "trace.jsonl"\n'


def of_kind(kind: str, section: str | None = None) -> str:
    return GOOD.replace("sequential", kind) + (SECTIONS[kind] if section is None else section)


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_kind_of_load_is_read_with_its_section_and_dumped_without_the_others(tmp_path: Path, kind: str) -> None:
    scenario = load_scenario(scenario_file(tmp_path, of_kind(kind)))
    dumped = scenario.model_dump(mode="json")
    assert scenario.kind == kind
    assert len({"levels", "context", "arrivals"} & set(dumped)) == 1
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


def test_a_sequential_scenario_is_dumped_as_it_was_before_there_were_other_kinds(tmp_path: Path) -> None:
    dumped = load_scenario(scenario_file(tmp_path, GOOD)).model_dump(mode="json")
    assert set(dumped) == {"name", "kind", "seed", "mix", "request", "warmup", "cache", "limits", "telemetry"}
    assert dumped["telemetry"] == {"scrape_interval_s": 1.0}


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_section_without_its_kind_and_a_kind_without_its_section_are_refused(tmp_path: Path, kind: str) -> None:
    section = {"concurrency": "levels"}.get(kind, kind)
    lacking = refused(tmp_path, GOOD.replace("sequential", kind))
    assert lacking.key == section
    assert f'kind = "{kind}" needs it; write a section [{section}]' in lacking.message
    stray = refused(tmp_path, GOOD + SECTIONS[kind])
    assert stray.key == section
    assert f'belongs to kind = "{kind}"' in stray.message
    assert "change kind or take the section out" in stray.message


BAD_LOAD = [
    # kind, what is replaced in its section, by what, the key named, the value shown, what to do
    ("concurrency", "[1, 4]", "[1, 0]", "levels.users[1]", "0", "must be 1 or above"),
    ("concurrency", "[1, 4]", "[]", "levels.users", "[]", "write at least one entry"),
    ("concurrency", "[1, 4]", "4", "levels.users", "4", "must be a list; write users = [1, 2, 4, 8] under [levels]"),
    ("concurrency", "[1, 4]", "[1.5]", "levels.users[0]", "1.5", "or a decimal point"),
    ("concurrency", "requests = 6", "requests = 0", "levels.requests", "0", "must be 1 or above"),
    ("concurrency", "requests = 6", "requests = 6\nsteady_s = 9.0", "levels.steady_s", "9.0", "take one out"),
    ("concurrency", "requests = 6", "", "levels.requests", "", "write requests = 90 or steady_s = 60.0"),
    ("concurrency", "requests = 6", "steady_s = 0.0", "levels.steady_s", "0.0", "must be above 0"),
    ("concurrency", "requests = 6", "steady_s = inf", "levels.steady_s", "inf", "is not a finite number"),
    ("concurrency", "= 6", "= 6\nat_most_requests = 9", "levels.at_most_requests", "9", "or write steady_s"),
    ("concurrency", "= 6", "= 6\nsearch = true", "levels.search", "true", "write ttft_slo_s = 0.5"),
    ("concurrency", "[1, 4]", "[4, 1]\nsearch = true", "levels.users", "[4, 1]", "the smallest first"),
    ("concurrency", "= 6", "= 6\nrate_per_s = [1.0]", "levels.rate_per_s", "[1.0]", "it belongs in [arrivals]"),
    ("context", "[256, 512]", "[256, -1]", "context.target_tokens[1]", "-1", "must be above 0"),
    ("context", "requests = 6", "", "context.requests", "", "write requests = 30 under [context]"),
    ("context", "= 6", "= 6\nshared_prefix_tokens = 256", "context.shared_prefix_tokens", "256", "a smaller prefix"),
    ("arrivals", "[1.0, 2.5]", "[1.0, 0.0]", "arrivals.rate_per_s[1]", "0.0", "must be above 0"),
    ("arrivals", "[1.0, 2.5]", "[inf]", "arrivals.rate_per_s[0]", "inf", "is not a finite number"),
    ("arrivals", "[1.0, 2.5]", "[nan]", "arrivals.rate_per_s[0]", "nan", "is not a finite number"),
    ("arrivals", "[1.0, 2.5]", "[1e9]", "arrivals.rate_per_s[0]", "1000000000.0", "must be 100000.0 or below"),
    ("arrivals", "rate_per_s = [1.0, 2.5]\n", "", "arrivals.rate_per_s", "", "write rate_per_s = [1.0, 2.0]"),
    ("arrivals", "requests = 6", "", "arrivals.requests", "", "write requests = 90 into [arrivals]"),
    ("arrivals", '"poisson"', '"poison"', "arrivals.process", '"poison"', 'did you mean "poisson"?'),
    ("arrivals", '"poisson"', '"trace"', "arrivals.trace", "", 'write trace = "FILE.jsonl"'),
    ("arrivals", "= 6", '= 6\ntrace = "a"', "arrivals.trace", '"a"', 'only under process = "trace"'),
    ("arrivals", "= 6", "= 6\nmax_in_flight = 0", "arrivals.max_in_flight", "0", "must be 1 or above"),
]


@pytest.mark.parametrize(("kind", "old", "new", "key", "value", "remedy"), BAD_LOAD, ids=lambda v: str(v)[:30])
def test_a_bad_value_of_a_kind_of_load_is_refused_by_key_and_value(
    tmp_path: Path, kind: str, old: str, new: str, key: str, value: str, remedy: str
) -> None:
    assert old in SECTIONS[kind]
    error = refused(tmp_path, of_kind(kind, SECTIONS[kind].replace(old, new, 1)))
    assert [problem.key for problem in error.problems] == [key]
    assert f"{tmp_path / 'mine.toml'}: {key} = {value}: " in str(error) or not value
    assert remedy in error.message


@pytest.mark.parametrize(
    ("more", "key"),
    [("rate_per_s = [1.0]\n", "arrivals.rate_per_s"), ("search = true\n", "arrivals.search")],
)
def test_a_trace_takes_neither_rates_nor_a_search(tmp_path: Path, more: str, key: str) -> None:
    assert refused(tmp_path, of_kind("arrivals", TRACE + more)).key == key


def test_a_missing_trace_is_named_with_the_place_it_was_looked_for(tmp_path: Path) -> None:
    error = refused(tmp_path, of_kind("arrivals", TRACE))
    assert (error.key, error.value) == ("arrivals.trace", "trace.jsonl")
    assert str(tmp_path / "trace.jsonl") in error.message


def test_a_profile_is_read_in_every_kind_and_refused_where_it_would_never_begin(tmp_path: Path) -> None:
    text = GOOD + "[telemetry]\nprofile = { steps = 5, after_requests = 3 }\n"
    profile = plan_from_file(scenario_file(tmp_path, text)).scenario.telemetry.profile
    assert profile is not None
    assert (profile.steps, profile.after_requests) == (5, 3)
    never = refused(tmp_path, text.replace("after_requests = 3", "after_requests = 32"))
    assert (never.key, never.value) == ("telemetry.profile.after_requests", 32)
    assert "the plan has 32 measured requests" in never.message
    lacking = refused(tmp_path, text.replace(", after_requests = 3", ""))
    assert lacking.key == "telemetry.profile.after_requests"
    odd = refused(tmp_path, text.replace("steps = 5", "steps = 5, step = 5"))
    assert (odd.key, odd.value) == ("telemetry.profile.step", 5)
    assert 'did you mean "steps"?' in odd.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD, []),
        (of_kind("concurrency", SECTIONS["concurrency"].replace("[1, 4]", "[4, 1]")), ["[4, 1] does not", "as-is"]),
        (of_kind("concurrency", SECTIONS["concurrency"].replace("[1, 4]", "[2, 2]")), ["does not", "#2", "as-is"]),
        (of_kind("concurrency", "[levels]\nusers = [8]\nsteady_s = 60\n"), ["568 for 8; a level that uses them up"]),
        (of_kind("concurrency", "[levels]\nusers = [8]\nrequests = 7\n"), ["7 is less than 8 users: not all of them"]),
        (of_kind("context", SECTIONS["context"].replace("[256, 512]", "[512, 256]")), ["[512, 256] does not increase"]),
        (of_kind("arrivals", SECTIONS["arrivals"].replace("2.5", "9000.0")), ["as-is", "9000 is more than one client"]),
        (GOOD + "[telemetry]\nprofile = { steps = 5, after_requests = 3 }\n", ["none of its times"]),
    ],
)  # fmt: skip
def test_what_is_allowed_and_worth_a_word_is_said(tmp_path: Path, text: str, said: list[str]) -> None:
    notices = plan_notices(load_scenario(scenario_file(tmp_path, text)))
    assert len(notices) == len(said)
    assert all(part in notice for part, notice in zip(said, notices, strict=True))


def test_a_study_file_is_refused_as_what_it_is(tmp_path: Path) -> None:
    error = refused(tmp_path, 'name = "demo"\nscenario = "smoke.toml"\nbaseline = "cpu-f32"\narms = ["cpu-f32"]\n')
    assert "this is a study file" in str(error)


OWN = '{"id": "law_1", "domain": "law", "text": "Explain in two sentences what a tenancy deposit is."}\n'
WITH_OWN = (
    GOOD.replace("code = 2", "law = 1")
    .replace("code = 64", "law = 64")
    .replace("[request]", 'files = ["own.jsonl"]\n[request]')
)


def test_own_prompts_are_found_from_the_scenario_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "own.jsonl").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    plan = plan_from_file(scenario_file(folder, WITH_OWN).relative_to(tmp_path))
    assert sum(request.domain == "law" for request in plan.measured) == 1
    assert set(plan.prompts_sha256) == {"prompts/prose.jsonl", "own.jsonl"}


def test_own_prompts_of_one_of_our_domains_join_ours(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(OWN.replace('"law"', '"code"'))
    text = GOOD.replace("code = 2", 'code = "all"').replace("[request]", 'files = ["own.jsonl"]\n[request]')
    path = scenario_file(tmp_path, text)
    stock = load_stock_for(load_scenario(path), path)
    assert len(stock.by_domain["code"]) == 31
    assert stock.by_domain["code"][-1].id == "law_1"


def test_a_missing_prompt_file_is_named_with_its_place_in_the_scenario(tmp_path: Path) -> None:
    error = refused(tmp_path, WITH_OWN)
    assert (error.key, error.value) == ("mix.files[0]", "own.jsonl")
    assert str(tmp_path / "own.jsonl") in error.message


def test_a_broken_own_prompt_is_refused_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(OWN + "{broken\n")
    error = refused(tmp_path, WITH_OWN)
    assert (error.path, error.line) == (tmp_path / "own.jsonl", 2)
    assert f"{tmp_path / 'own.jsonl'}:2: " in str(error)


def test_an_own_prompt_equal_to_a_warmup_prompt_is_refused_though_case_and_space_differ(tmp_path: Path) -> None:
    warmup = json.loads((ROOT / "prompts" / "warmup.jsonl").read_text().splitlines()[0])
    shouted = "  " + warmup["text"].upper().replace(" ", "\n ")
    (tmp_path / "own.jsonl").write_text(json.dumps({"id": "law_1", "domain": "law", "text": shouted}) + "\n")
    error = refused(tmp_path, WITH_OWN)
    assert (error.path, error.line) == (tmp_path / "own.jsonl", 1)


def test_an_own_prompt_with_an_id_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(OWN.replace("law_1", "code_01"))
    error = refused(tmp_path, WITH_OWN)
    assert error.path == tmp_path / "own.jsonl"
    assert "code_01" in str(error)


def test_an_own_file_the_mix_does_not_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(OWN)
    error = refused(tmp_path, GOOD.replace("[request]", 'files = ["own.jsonl"]\n[request]'))
    assert error.key == "mix.files[0]"
    assert 'add law = "all"' in error.message


def test_the_same_own_file_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(OWN)
    error = refused(tmp_path, WITH_OWN.replace('["own.jsonl"]', '["own.jsonl", "own.jsonl"]'))
    assert error.key == "mix.files[1]"


def test_a_domain_without_prompts_is_refused_with_those_there_are(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("code = ", "coed = "))
    assert (error.key, error.value) == ("mix.domains.coed", 2)
    assert 'did you mean "code"?' in error.message
    assert "prose (30)" in error.message


TOML_VALUES = st.recursive(
    st.integers(-(2**70), 2**70) | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(["all", "code"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    "name",
    "kind",
    "seed",
    "mix",
    "mix.domains",
    "mix.domains.code",
    "mix.files",
    "mix.system",
    "request.max_tokens",
]
PLACES += [
    "request.seed",
    "warmup",
    "warmup.requests",
    "cache.policy",
    "limits.timeout_s",
    "limits.stall_s",
    "telemetry",
]
PLACES += ["telemetry.profile", "telemetry.profile.steps", "levels", "levels.users", "context", "extra", "mix.extra"]
PLACES += ["arrivals", "arrivals.rate_per_s", "arrivals.trace"]


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(inner) for inner in value) + "]"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "n" in text or "e" in text else text + ".0"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=TOML_VALUES)
def test_any_value_anywhere_gives_a_scenario_or_a_refusal_that_names_the_file(
    tmp_path: Path, place: str, value: object
) -> None:
    base: dict[str, object] = {
        "name": "mine",
        "kind": "sequential",
        "mix": {"domains": {"code": 2}},
        "request": {"max_tokens": {"code": 64}},
    }
    *parents, last = place.split(".")
    at = base
    for parent in parents:
        at = at.setdefault(parent, {})  # type: ignore[assignment]  # every parent in PLACES is a table
    at[last] = value
    path = scenario_file(tmp_path, "\n".join(f"{key} = {as_toml(inner)}" for key, inner in base.items()))
    try:
        scenario = load_scenario(path)
    except ScenarioError as error:
        assert str(path) in str(error)
        assert ";" in str(error)
    else:
        assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_a_tree_or_a_refusal(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any.toml"
    path.write_bytes(data)
    try:
        assert isinstance(read_toml(path), dict)
    except ScenarioError as error:
        assert error.path == path


def test_what_has_no_end_or_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (Path("/dev/zero"), tmp_path / "pipe.toml"):
        with pytest.raises(ScenarioError, match=r"is a device, a pipe or a socket; name a regular file"):
            load_scenario(path)
    with pytest.raises(ScenarioError, match="no path that can be opened; name a file"):
        load_scenario(Path("a\0b.toml"))
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ScenarioError, match="is larger than 1 MiB; name another file"):
        load_scenario(huge)


def test_no_content_is_shown_of_a_file_that_is_not_named_as_ours(tmp_path: Path) -> None:
    for text in ("root:x:0:0:secret-1:/root\n", 'PASSWORD = "secret-1"\n'):
        for name, shown in (("passwd", False), ("mine.toml", True)):
            (tmp_path / name).write_text(text, encoding="utf-8")
            with pytest.raises(ScenarioError) as caught:
                load_scenario(tmp_path / name)
            assert ("secret-1" in str(caught.value)) is shown


@pytest.mark.parametrize("rate", ["1e-300", "1e-7"])
def test_a_rate_whose_schedule_takes_more_than_ten_years_is_refused(tmp_path: Path, rate: str) -> None:
    text = 'name = "mine"\nkind = "arrivals"\n[mix]\ndomains = { prose = 1 }\n[request]\nmax_tokens = { prose = 8 }\n'
    text += f'[arrivals]\nprocess = "constant"\nrequests = 3\nrate_per_s = [2.0, {rate}]\n'
    error = refused(tmp_path, text)
    assert "more than ten years for 3 requests; write a higher rate" in str(error)
    assert error.key == "arrivals.rate_per_s"
