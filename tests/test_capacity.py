"""Logical bytes, the engine's capacity and the driver's readings: each from its own source, none for another."""

import json

import pytest

from analysis.capacity import capacity, driver
from analysis.kv_bytes import kv_bytes
from analysis.start_log import GIB, kv_lines
from evidence.gpu_records import GpuReading, GpuSample
from infra.engines.adapter import adapter_for, read_snapshot
from infra.launching.model_config import hub_config, kv_config
from tests.level_factory import CONFIG

# Lines of real starts: a 30-layer target with a 6-layer draft, and the CPU engine.
SGLANG = """\
[2026-11-29 14:39:44] Load weight end. elapsed=0.04 s, type=LlamaForCausalLM, avail mem=138.76 GB, mem usage=0.10 GB.
[2026-11-29 14:39:45] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1605036, K size: 17.22 GB, V size: 17.22 GB
[2026-11-29 14:39:45] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1605036, K size: 3.44 GB, V size: 3.44 GB
"""
VLLM = """\
INFO 11-29 16:00:01 [gpu_worker.py:298] Available KV cache memory: 20.12 GiB
INFO 11-29 16:00:01 [kv_cache_utils.py:1087] GPU KV cache size: 146,496 tokens
"""
LLAMACPP = """\
0.00.174.034 I print_info: n_layer               = 30
0.00.174.078 I print_info: n_head                = 9
0.00.174.093 I print_info: n_head_kv             = 3
0.00.174.160 I print_info: n_embd_head_k         = 64
0.00.174.173 I print_info: n_embd_head_v         = 64
0.00.251.667 I llama_kv_cache: size =   90.00 MiB (  4096 cells,  30 layers,  1/1 seqs), K (f16):   45.00 MiB, V (f16):   45.00 MiB
"""  # noqa: E501  (a line of the engine's log as it stands)


def of(log="", *, config=CONFIG, resolved=None, windows=(), gpu=()):
    return capacity(config=config, resolved=resolved or {}, windows=windows, log=kv_lines(log.splitlines()), gpu=gpu)


def sample(at_s, *used, missing=None):
    gpus = tuple(GpuReading(index=i, memory_used_bytes=n, memory_total_bytes=80 * GIB) for i, n in enumerate(used))
    return GpuSample(
        run_id="run-test", source="nvml", host=None, at_unix_s=at_s, at_monotonic_s=None, took_s=None, interval_s=None,
        gpus=gpus, missing=missing,
    )  # fmt: skip


def test_logical_bytes_follow_from_the_models_dimensions_and_agree_with_what_a_real_engine_set_aside():
    found = of(SGLANG)
    assert found.kv.bytes_per_token == 30 * 3 * (64 + 64) * 2 and "30 layers x 3 KV heads" in str(found.kv.formula)
    assert found.logical_bytes.value == pytest.approx(found.engine_bytes.value or 0, rel=1e-3)
    assert (found.draft_tokens, round((found.draft_bytes or 0) / GIB, 2)) == (1605036, 6.88)


def test_an_fp8_cache_takes_half_and_keys_and_values_may_differ():
    assert kv_bytes(CONFIG, "fp8_e4m3", source="x").bytes_per_token == 11520
    assert kv_bytes(CONFIG, "auto", source="x").bytes_per_token == 23040
    mixed = kv_bytes(CONFIG, "q8_0/f16", source="x")
    assert mixed.bytes_per_token == 30 * 3 * 64 * (34 / 32 + 2) and "64 x 1.0625 + 64 x 2" in str(mixed.formula)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"linear_num_value_heads": 32}, "recurrent state beside attention (linear_num_value_heads = 32)"),
        ({"hybrid_override_pattern": "M-M*"}, "recurrent state beside attention (hybrid_override_pattern"),
        ({"kv_lora_rank": 512}, "multi-head latent attention (MLA) (kv_lora_rank = 512)"),
        ({"sliding_window": 4096, "max_position_embeddings": 32768}, "sliding-window attention"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"num_attention_heads": None}, "how many layers and attention heads"),
        ({"head_dim": None, "hidden_size": None}, "neither the width of a head nor the hidden size"),
        ({"torch_dtype": "int3"}, "'int3' is not known"),
        ({"torch_dtype": None}, "no element type"),
        ({"num_hidden_layers": "30"}, "how many layers"),
    ],
)
def test_a_cache_that_the_formula_does_not_describe_gets_no_number(change, said):
    found = kv_bytes({**CONFIG, **change}, None, source="config.json")
    assert found.bytes_per_token is None and said in str(found.why)


def test_a_full_window_and_a_nested_text_config_are_conventional():
    assert kv_bytes({"text_config": CONFIG}, None, source="x").bytes_per_token == 23040
    wide = {**CONFIG, "sliding_window": 32768, "max_position_embeddings": 32768}
    assert kv_bytes(wide, None, source="x").bytes_per_token == 23040


def test_the_start_log_of_the_cpu_engine_gives_dimensions_capacity_and_bytes():
    found = of(LLAMACPP, config=None, resolved={"cache_type_k": "f16", "cache_type_v": "f16", "n_ctx": 4096})
    assert (found.kv.bytes_per_token, found.tokens.value) == (23040, 4096)
    assert found.logical_bytes.value == found.engine_bytes.value == 90 * 2**20
    assert found.setting == "n_ctx = 4096" and "n_ctx = 4096" in found.sentence


def test_vllms_start_lines_are_read_and_the_memory_setting_is_named():
    found = of(VLLM, resolved={"cache_config_info.gpu_memory_utilization": "0.9"})
    assert (found.tokens.value, found.tokens_source) == (146496, "the start log")
    assert found.engine_bytes.value == 20.12 * GIB and found.setting == "gpu_memory_utilization = 0.9"


def window(engine, body):
    adapter = adapter_for(engine)
    assert adapter is not None
    shot = read_snapshot(adapter, body, {"Content-Type": "text/plain; version=0.0.4"})
    return adapter.window(shot, shot)


def test_what_a_running_engine_publishes_comes_before_its_start_log_and_data_parallel_ranks_add():
    body = "# TYPE sglang:max_total_num_tokens gauge\n" + "".join(
        f'sglang:max_total_num_tokens{{dp_rank="{dp}",tp_rank="{tp}"}} 1000\n' for dp in (0, 1) for tp in (0, 1)
    )
    found = of(SGLANG, windows=(window("sglang", body),))
    assert (found.tokens.value, found.tokens_source) == (2000, "sglang:max_total_num_tokens")
    body = '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="16",num_gpu_blocks="2345"} 1.0\n'
    assert of(windows=(window("vllm", body),)).tokens.value == 37520
    assert of(resolved={"resolved.outcomes": {"max_total_num_tokens": 77}}).tokens.value == 77


def test_what_no_source_tells_is_none_with_its_reason_and_never_zero():
    found = of(config=None)
    assert found.tokens.value is None and "no series" in str(found.tokens.why)
    assert found.kv.bytes_per_token is None and found.logical_bytes.value is None and found.engine_bytes.value is None
    said = found.as_json()
    assert set(said["why"]) == {"tokens", "logical_bytes", "engine_bytes", "driver_most_bytes"}
    assert json.loads(json.dumps(said, allow_nan=False)) == said


def test_the_driver_is_read_at_its_first_sample_and_at_its_most_over_all_gpus():
    found = driver([sample(3, 9, 9), sample(1, 5, 6), sample(2, 7, 7)])
    assert (found.first_bytes, found.most_bytes, found.total_bytes, found.n_gpus) == (11, 18, 160 * GIB, 2)


def test_a_driver_that_tells_nothing_says_why():
    assert driver([]).why == "no sample of a GPU lies in that time"
    assert driver([sample(1, missing="no NVML on this host")]).why == "no NVML on this host"
    assert driver([sample(1, None)]).why == "the driver tells no memory in use"


def test_the_sentence_says_that_a_static_pool_is_a_setting_and_no_cost_of_an_algorithm():
    said = of(resolved={"mem_fraction_static": 0.82}).sentence
    assert "mem_fraction_static = 0.82" in said and "is not the cost of an algorithm" in said


def test_a_launch_keeps_the_keys_that_decide_the_cache_and_nothing_else(tmp_path):
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({**CONFIG, "_name_or_path": "/home/me/model"}))
    assert hub_config(tmp_path, "abc") == kv_config(snapshot / "config.json") == CONFIG
    (snapshot / "config.json").write_text("{")
    assert kv_config(snapshot / "config.json") is None and kv_config(tmp_path / "none.json") is None
