"""Which runs may be compared: the listed keys agree, but for what the arm varies on purpose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.comparable import KEYS, compare_identities, compare_runs, facts_of, identity_of
from analysis.loading import LoadedRun, load_run
from analysis.observing import observe
from evidence.records import Request
from tests.run_factory import make_run, manifest, request

SAME: dict[str, Any] = {
    "checkpoint": "ab" * 32,
    "quantisation": "AWQ",
    "engine": "sglang",
    "engine_version": "0.5.17",
    "backend": {"attention_backend": "flashinfer"},
    "gpu": {"gpu_name": "H200", "gpu_count": 2},
    "topology": {"tp_size": 2},
    "hardware": {"server_cpu_model": "X"},
    "workload": "cd" * 32,
    "request_extra": "{}",
    "memory": {"mem_fraction_static": 0.82, "max_running_requests": 48},
    "token_source": "usage",
    "transport": "wire, kernel stamps",
}


def test_equal_keys_are_comparable() -> None:
    found = compare_identities(SAME, SAME)
    assert found.ok
    assert (found.differences, found.unknown, found.said) == ((), (), "")


@pytest.mark.parametrize("key", KEYS)
def test_each_listed_key_refuses_by_name_where_it_differs(key: str) -> None:
    other: Any = dict.fromkeys(SAME[key], 1) if isinstance(SAME[key], Mapping) else "other"
    found = compare_identities(SAME, SAME | {key: other})
    assert not found.ok
    assert all(one.key.partition(".")[0] == key for one in found.differences)
    assert key in found.said


def test_the_case_study_s_memory_fraction_stops_the_comparison_with_both_values() -> None:
    other = SAME | {"memory": {"mem_fraction_static": 0.85, "max_running_requests": 48}}
    found = compare_identities(SAME, other, varied=("speculative_algorithm",))
    assert not found.ok
    assert found.said == "memory.mem_fraction_static: 0.82 against 0.85"


def test_of_two_lists_of_gpus_only_what_differs_is_said() -> None:
    one = {"gpu": {"gpus": [{"index": 0, "name": "H200", "uuid": "a"}, {"index": 1, "name": "H200", "uuid": "b"}]}}
    other = {"gpu": {"gpus": [{"index": 0, "name": "H200", "uuid": "a"}, {"index": 1, "name": "H200", "uuid": "c"}]}}
    assert compare_identities(one, other).said == "gpu.gpus[1].uuid: 'b' against 'c'"
    fewer = {"gpu": {"gpus": [{"index": 0}]}}
    assert compare_identities(one, fewer).said.startswith("gpu.gpus: [{'index': 0, 'name': 'H200'")


def test_what_is_varied_on_purpose_may_differ_and_is_named() -> None:
    base = SAME | {"memory": {"cache_type_k": "f16", "n_ctx": 4096}}
    other = SAME | {"memory": {"cache_type_k": "q8_0", "n_ctx": 4096}}
    assert not compare_identities(base, other).ok
    found = compare_identities(base, other, varied=("cache_type_k",))
    assert found.ok
    assert [(one.key, one.on_purpose) for one in found.on_purpose] == [("memory.cache_type_k", "cache_type_k")]
    other_file = SAME | {"checkpoint": "ef" * 32, "quantisation": "Q4_1"}
    assert compare_identities(SAME, other_file, varied=("target",)).ok
    assert not compare_identities(SAME, other_file, varied=("draft",)).ok


def test_an_unknown_key_is_named_and_does_not_refuse() -> None:
    found = compare_identities(SAME | {"gpu": None}, SAME | {"memory": {"mem_fraction_static": 0.82}})
    assert found.ok
    assert set(found.unknown) == {"gpu", "memory.max_running_requests"}


def runs(tmp_path: Path, **changes: Any) -> tuple[LoadedRun, LoadedRun]:
    requests = [request(prompt_id=f"code_0{n}") for n in range(1, 4)]
    base = make_run(tmp_path, requests, run_id="run-base")
    return load_run(base), load_run(make_run(tmp_path, requests, run_id="run-arm", **changes))


def test_two_runs_of_one_arm_are_comparable(tmp_path: Path) -> None:
    found = compare_runs(*runs(tmp_path))
    assert found.ok
    assert identity_of(runs(tmp_path / "again")[0])["token_source"] == "usage"


def test_forced_acceptance_is_refused_whatever_agrees(tmp_path: Path) -> None:
    arm = {"name": "fake", "engine": "llama.cpp embedded", "args": {"spec_synth_len": 3}}
    found = compare_runs(*runs(tmp_path, arm=arm))
    assert not found.ok
    assert "run-arm: acceptance is synthetic (spec_synth_len = 3)" in found.said


def test_a_label_that_the_checkpoint_contradicts_is_refused(tmp_path: Path) -> None:
    model = {"served": "tiny", "file_sha256": "ab" * 32, "quantisation": "F32", "quantisation_label": "INT8"}
    found = compare_runs(*runs(tmp_path, model=model))
    assert "'INT8' is contradicted by the checkpoint's 'F32'" in found.said


def test_another_workload_is_refused(tmp_path: Path) -> None:
    base, arm = runs(tmp_path)
    changed = facts_of(arm.manifest.model_copy(update={"plan_sha256": "9" * 64}), None)
    assert "workload" in compare_identities(facts_of(base.manifest, None), changed).said


def test_settings_are_found_under_the_names_of_each_engine() -> None:
    arm = {"name": "x", "engine": "sglang", "args": {"--mem-fraction-static": 0.82, "tp-size": 2}}
    found = facts_of(manifest([], arm=arm), None)
    assert found["memory"] == {"mem_fraction_static": 0.82}
    assert found["topology"] == {"tp_size": 2}


def test_a_draft_s_own_context_is_not_the_target_s() -> None:
    arm = {"name": "x", "engine": "e", "args": {"speculative.draft.n_ctx": 512, "params.n_ctx": 4096}}
    assert facts_of(manifest([], arm=arm), None)["memory"] == {"n_ctx": 4096}
    other = SAME | {"memory": {"mem_fraction_static": 0.85, "max_running_requests": 48}}
    assert not compare_identities(SAME, other, varied=("speculative.draft.mem_fraction_static",)).ok


def test_observations_of_a_run_keep_the_failed_and_the_unfinished_with_their_reasons(tmp_path: Path) -> None:
    requests: list[Request] = [
        request(prompt_id="code_01"),
        request(prompt_id="code_02", outcome="truncated"),
        request(prompt_id="code_03"),
        request(prompt_id="warmup_01", domain="warmup", phase="warmup"),
    ]
    requests = [requests[3], *requests[:3]]
    run = load_run(make_run(tmp_path, requests, never_ended=1))
    found = observe(run, arm="x", launch=2)
    assert [one.prompt_id for one in found] == ["code_01", "code_02", "code_03"]
    assert [one.value is None for one in found] == [False, True, True]
    assert found[1].why == "failed: truncated"
    assert "no line says how it ended" in (found[2].why or "")
    assert found[0].decode_tokens == 1
    assert found[0].decode_s == pytest.approx(0.2)
    assert {one.launch for one in found} == {2}


def test_a_body_field_of_one_run_alone_refuses_and_an_engines_evidence_field_does_not(tmp_path: Path) -> None:
    asked = {"stream_options": {"include_usage": True}, "timings_per_token": True}
    assert compare_runs(*runs(tmp_path / "same", request_extra=asked)).ok
    found = compare_runs(*runs(tmp_path / "other", request_extra=asked | {"top_k": 1}))
    assert not found.ok
    assert [(one.key, one.base, one.arm) for one in found.differences] == [("request_extra", "{}", '{"top_k": 1}')]
