"""Resolved configurations: what a server reports is compared setting by setting; silent confounders are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.launching.call_text import read_call, read_dict
from infra.launching.confounders import asked_not_kept, draft_without_speculation, synthetic_switches
from infra.launching.recipes import load_arm
from infra.launching.resolved import compare_launches, compare_resolved, not_comparable
from infra.launching.resolved_readers import read_llamacpp, read_sglang, read_vllm
from infra.wire.exposition import parse

CAPTURED = Path(__file__).parent / "fixtures" / "launch"
NGRAM: dict[str, Any] = json.loads((CAPTURED / "sglang_0.5.17_ngram.server_info.json").read_text())
VARIED = ("speculative-algorithm", "speculative-num-draft-tokens")
# The same server without speculation: the modes' own settings at their defaults, 48 running requests named.
BASE = {
    **NGRAM,
    "speculative_algorithm": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
    "port": 30001,
    "max_total_num_tokens": 2_000_000,
}


def sglang(info: Any) -> dict[str, Any]:
    return read_sglang(info).record()


def test_a_captured_server_info_is_read_whole() -> None:
    found = read_sglang(NGRAM)
    assert (found.version, found.sources, found.lacks) == ("0.5.17", ("/server_info",), ())
    assert found.settings["speculative_algorithm"] == "NGRAM"
    assert found.settings["max_running_requests"] == 48
    assert found.settings["cuda_graph_config.decode.max_bs"] == 8
    assert found.outcomes["max_total_num_tokens"] == 1929047
    assert not any(key.startswith(("internal_states", "startup_time")) for key in found.settings)


def test_an_arm_that_differs_in_what_it_varies_alone_has_no_difference() -> None:
    assert compare_resolved(sglang(BASE), sglang(NGRAM), VARIED) == ()


def test_ports_and_measured_sizes_stand_aside() -> None:
    other = {**NGRAM, "port": 1, "nccl_port": 2, "max_total_num_tokens": 3, "startup_time": None}
    assert compare_resolved(sglang(NGRAM), sglang(other), ()) == ()


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("max_running_requests", 2048, "SGLang takes 48 under speculation"),
        ("mem_fraction_static", 0.85, "one memory fraction"),
        ("disable_overlap_schedule", True, "overlap scheduler"),
        ("disable_radix_cache", True, "reuses prompts"),
        ("version", "0.5.18", "two versions"),
    ],
)
def test_a_silent_confounder_is_found_and_named(key: str, value: Any, advice: str) -> None:
    (found,) = compare_resolved(sglang({**BASE, key: value}), sglang(NGRAM), VARIED)
    assert (found.key, found.baseline, found.arm) == (key, value, NGRAM[key])
    assert advice in str(found)


def test_memory_fractions_of_the_case_study_are_a_difference() -> None:
    study = {"mem_fraction_static": 0.82, "speculative_algorithm": None}
    arm = {"mem_fraction_static": 0.85, "speculative_algorithm": "NGRAM"}
    (found,) = compare_resolved(study, arm, ["speculative-algorithm"])
    assert str(found).startswith("mem_fraction_static: 0.85 against the baseline's 0.82 (a larger KV pool")


def test_a_setting_that_one_side_does_not_report_is_absent_and_not_null() -> None:
    (gone,) = compare_resolved({"a": 1, "b": None}, {"a": 1}, ())
    assert (gone.key, gone.in_baseline, gone.in_arm) == ("b", True, False)
    assert "not reported against the baseline's None" in str(gone)


def test_values_of_another_type_are_not_equal_but_whole_floats_are() -> None:
    assert compare_resolved({"a": 1, "b": 2.0}, {"a": 1.0, "b": 2}, ()) == ()
    assert [d.key for d in compare_resolved({"a": 1, "b": 0, "c": "1"}, {"a": True, "b": False, "c": 1}, ())] == [
        "a",
        "b",
        "c",
    ]


def test_the_same_model_in_another_folder_is_no_difference_and_another_model_is() -> None:
    base = {"model_path": "/models/smol"}
    assert compare_resolved(base, {"model_path": "/mnt/disk/smol/"}, ()) == ()
    (found,) = compare_resolved(base, {"model_path": "/models/smol-chat"}, ())
    assert found.key == "model_path"
    assert compare_resolved(base, {"model_path": "/models/other"}, ["target"]) == ()


def test_what_follows_from_the_varied_setting_is_named_by_the_recipe_or_reported() -> None:
    arm = {**NGRAM, "enable_mixed_chunk": True}
    assert [d.key for d in compare_resolved(sglang(BASE), sglang(arm), VARIED)] == ["enable_mixed_chunk"]
    assert compare_resolved(sglang(BASE), sglang(arm), VARIED, follows=["enable_mixed_chunk"]) == ()


def test_a_kv_type_that_was_varied_covers_no_other_setting() -> None:
    changed = {**BASE, "kv_cache_dtype": "fp8_e5m2", "page_size": 64}
    assert [d.key for d in compare_resolved(sglang(BASE), sglang(changed), ["kv-cache-dtype"])] == ["page_size"]


def test_two_launches_are_compared_by_the_recipe_of_the_arm() -> None:
    arm = load_arm("sglang-ngram").model_dump(mode="json")
    base = {"arm": {}, "resolved": sglang({**BASE, "max_running_requests": 1024})}
    differences, why = compare_launches(base, {"arm": arm, "resolved": sglang(NGRAM)})
    assert why is None
    assert [d.key for d in differences] == ["max_running_requests"]


def test_reports_of_unlike_sources_or_none_are_not_compared() -> None:
    log = "[t] server_args=ServerArgs(model_path='m', port=1)"
    of_log = read_sglang(None, [log]).record()
    assert "other sources" in (not_comparable(sglang(BASE), of_log) or "")
    nothing = read_sglang(None).record()
    assert "reports no settings: /server_info, and the log has no line" in (not_comparable(nothing, sglang(BASE)) or "")
    differences, why = compare_launches({"resolved": nothing}, {"resolved": sglang(BASE)})
    assert (differences, why is None) == ((), False)


def test_the_arguments_of_a_start_that_failed_are_read_from_its_log() -> None:
    line = (
        "[2026-11-29 14:39:22] server_args=ServerArgs(model_path='/m/a, b', tp_size=2, mem_fraction_static=0.82, "
        "dtype=torch.float16, lora_paths=None, buckets=[1, 2], nested=Config(a=1, b='x)'), enable_metrics=True)"
    )
    found = read_sglang(None, [line])
    assert found.sources == ("log",)
    assert found.settings == {
        "model_path": "/m/a, b",
        "tp_size": 2,
        "mem_fraction_static": 0.82,
        "dtype": "torch.float16",
        "lora_paths": None,
        "buckets": [1, 2],
        "nested": "Config(a=1, b='x)')",
        "enable_metrics": True,
    }


@pytest.mark.parametrize(
    "text", ["", "ServerArgs", "(", "(a=", "(a=1, b='unclosed", "(__import__('os').system('x')=1)", "({[<"]
)
def test_a_configuration_that_cannot_be_read_is_nothing_and_is_never_run(text: str) -> None:
    assert isinstance(read_call(text), dict)
    assert read_dict("__import__('os')") == {}


VLLM_LINE = (
    "(EngineCore pid=7476) INFO 07-25 13:41:51 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: "
    "model='unsloth/Q', speculative_config=SpeculativeConfig(method='mtp', model='unsloth/Q', num_spec_tokens=2), "
    "tokenizer='unsloth/Q', dtype=torch.bfloat16, max_seq_len=1048576, tensor_parallel_size=1, "
    "kv_cache_dtype=nvfp4, seed=0"
)
METRICS = (
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",'
    'gpu_memory_utilization="0.9",num_gpu_blocks="2345"} 1.0\n'
)


def test_vllm_is_read_from_its_start_log_and_its_info_series_where_the_development_mode_is_off() -> None:
    found = read_vllm(None, None, parse(METRICS, "text/plain; version=0.0.4"), [VLLM_LINE])
    assert found.version == "0.25.1"
    assert found.sources == ("log", "vllm:cache_config_info")
    assert found.settings["log.kv_cache_dtype"] == "nvfp4"
    assert found.settings["cache_config_info.gpu_memory_utilization"] == "0.9"
    assert found.outcomes == {"cache_config_info.num_gpu_blocks": "2345"}
    assert "VLLM_SERVER_DEV_MODE=1" in found.lacks[0]


def test_vllms_speculation_is_the_varied_setting_and_its_memory_share_is_not() -> None:
    plain = VLLM_LINE.replace("SpeculativeConfig(method='mtp', model='unsloth/Q', num_spec_tokens=2)", "None")
    base = read_vllm(None, None, parse(METRICS, None), [plain]).record()
    other = METRICS.replace('"0.9"', '"0.85"')
    arm = read_vllm(None, None, parse(other, None), [VLLM_LINE]).record()
    assert [d.key for d in compare_resolved(base, arm, ["speculative-config"])] == [
        "cache_config_info.gpu_memory_utilization"
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"cache_config": {"cache_dtype": "fp8"}, "speculative_config": None},
        "cache_dtype='fp8', speculative_config=None",
    ],
)
def test_vllms_server_info_is_read_as_json_and_as_text(config: Any) -> None:
    found = read_vllm({"vllm_config": config, "vllm_env": {"VLLM_USE_V1": True}}, "0.33.0", None)
    assert (found.version, found.sources, found.lacks) == ("0.33.0", ("/server_info",), ())
    assert "fp8" in found.settings.values()
    assert found.settings["environment.VLLM_USE_V1"] is True


LLAMACPP_LOG = """\
0.00.002.077 I cmn  common_param: system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CPU : SSE3 = 1 |
0.00.072.296 I print_info: file type   = Q4_K - Medium
0.00.230.000 I load_tensors: offloaded 33/33 layers to GPU
0.00.230.480 I load_tensors:   CPU_Mapped model buffer size =   513.13 MiB
0.00.230.481 I load_tensors:        CUDA0 model buffer size =  4513.13 MiB
0.00.234.350 I llama_context: n_ctx                 = 4096
0.00.234.439 I llama_context: flash_attn            = enabled
0.00.299.132 I llama_kv_cache: size = 90.00 MiB ( 4096 cells, 30 layers, 1/1 seqs), K (q8_0): 45 MiB, V (f16): 45.00 MiB
0.00.400.350 I llama_context: n_ctx                 = 512
""".splitlines()


def test_llamacpps_settings_are_those_of_its_log_its_slots_and_what_was_asked() -> None:
    slots = [
        {"id": k, "n_ctx": 4096, "speculative": True, "params": {"speculative.types": "draft-simple"}} for k in (0, 1)
    ]
    props = {
        "total_slots": 2,
        "model_path": "m.gguf",
        "build_info": "b11434-abc",
        "default_generation_settings": {"n_ctx": 4096},
    }
    found = read_llamacpp(props, slots, LLAMACPP_LOG, {"spec-type": "draft-simple"})
    assert (found.version, found.sources) == ("b11434-abc", ("command line", "/props", "/slots", "log"))
    assert found.settings["log.n_ctx"] == 4096  # the target's, whose lines come first; the draft's is 512
    assert (found.settings["log.kv_type_k"], found.settings["log.kv_type_v"]) == ("q8_0", "f16")
    assert found.settings["log.offloaded_layers"] == "33/33"
    assert found.settings["log.weight_backends"] == ["CPU", "CUDA0"]
    assert found.settings["slots.speculative"] is True


def test_slots_that_disagree_are_kept_as_they_are() -> None:
    found = read_llamacpp(None, [{"speculative": True}, {"speculative": False}])
    assert found.settings["slots.speculative"] == [True, False]
    assert "/props does not answer" in found.lacks


def test_a_quantised_kv_cache_of_llamacpp_is_covered_by_its_flags_alone() -> None:
    base = read_llamacpp(None, None, LLAMACPP_LOG, {"cache-type-k": "q8_0", "cache-type-v": "f16"}).record()
    changed = [line.replace("V (f16)", "V (q8_0)").replace("33/33", "30/33") for line in LLAMACPP_LOG]
    arm = read_llamacpp(None, None, changed, {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}).record()
    assert [d.key for d in compare_resolved(base, arm, ["cache-type-k", "cache-type-v"])] == ["log.offloaded_layers"]


@pytest.mark.parametrize(
    ("settings", "environment", "said"),
    [
        ({}, {"SGLANG_SIMULATE_ACC_LEN": "3.0"}, "SGLANG_SIMULATE_ACC_LEN = 3.0"),
        ({"speculative_config.rejection_sample_method": "synthetic"}, {}, "rejection_sample_method = synthetic"),
        ({"speculative_config": {"rejection_sample_method": "fly"}}, {}, "rejection_sample_method = fly"),
        ({"asked.spec-synth-len": 3}, {}, "asked.spec-synth-len = 3"),
        ({"speculative.synth_len": 3.0}, {}, "speculative.synth_len = 3.0"),
        ({"asked.spec-synth-rates": "0.8,0.6"}, {}, "spec-synth-rates"),
        ({"speculative_accept_threshold_acc": 0.9}, {}, "speculative_accept_threshold_acc = 0.9"),
    ],
)
def test_a_switch_that_makes_acceptance_up_is_found(
    settings: dict[str, Any], environment: dict[str, str], said: str
) -> None:
    (found,) = synthetic_switches(settings, environment)
    assert said in found


def test_defaults_and_switches_that_are_off_make_nothing_up() -> None:
    off = {"SGLANG_SIMULATE_ACC_LEN": "-1", "SGLANG_SIMULATE_ACC_METHOD": ""}
    settings = {"speculative.synth_len": -1.0, "speculative.synth_rates": [], **read_sglang(NGRAM).settings}
    assert synthetic_switches(settings, off) == ()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"speculative_draft_model_path": "d", "speculative_algorithm": None}, "speculative_algorithm = None"),
        ({"asked.model-draft": "/x/d.gguf", "slots.speculative": False}, "a draft is given (d.gguf)"),
        ({"speculative.draft.mparams.path": "d.gguf", "speculative.types": ["none"]}, "speculative.types is none"),
    ],
)
def test_a_draft_that_is_loaded_and_never_used_is_found(settings: dict[str, Any], said: str) -> None:
    assert said in (draft_without_speculation(settings) or "")


def test_a_draft_that_is_used_or_not_given_is_no_finding() -> None:
    assert (
        draft_without_speculation({"speculative_draft_model_path": "d", "speculative_algorithm": "STANDALONE"}) is None
    )
    assert draft_without_speculation({"asked.model-draft": "d", "slots.speculative": True}) is None
    assert draft_without_speculation(read_sglang(NGRAM).settings) is None


def test_a_flag_that_the_server_did_not_keep_is_named() -> None:
    asked = {
        "mem-fraction-static": 0.85,
        "context-length": 4096,
        "kv-cache-dtype": "auto",
        "tp-size": 1,
        "unheard-of": 1,
    }
    assert asked_not_kept(asked, read_sglang(NGRAM).settings) == (("mem-fraction-static", 0.85, 0.3),)
