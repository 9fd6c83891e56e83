"""Logs of engines that did not start: stage, symptom and memory are what they wrote, and nothing is made up."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.launching.diagnose import misfit
from infra.launching.engine_log import EngineLog
from infra.launching.log_dialects import LLAMACPP, SGLANG, VLLM, Dialect
from infra.launching.memory_messages import read_memory
from infra.launching.recipes import Diagnostic, load_arm
from infra.launching.symptoms import symptom_of_the_end, with_device

CAPTURED = Path(__file__).parent / "fixtures" / "launch"
GIB, MIB = 1 << 30, 1 << 20


def read(dialect: Dialect, text: bytes | str) -> EngineLog:
    log = EngineLog(dialect=dialect)
    log.feed(text.encode() if isinstance(text, str) else text)
    return log


def captured(name: str) -> EngineLog:
    return read(SGLANG, (CAPTURED / f"start-failure.{name}.log").read_bytes())


def test_a_missing_module_is_the_symptom_and_graph_capture_the_stage() -> None:
    log = captured("missing-module")
    assert log.stages == ["weights", "draft", "memory_pool", "graph_capture"]
    assert log.symptom() == "ModuleNotFoundError: No module named 'deep_gemm'"  # not the ignored one, 'helion'
    assert (log.memory, log.loading_weights, log.url) == (None, False, None)


def test_a_start_that_says_nothing_more_has_its_last_lines_for_a_symptom() -> None:
    log = captured("silent-in-graph-capture")
    assert log.stages == ["weights", "memory_pool", "graph_capture"]
    assert log.errors == []
    assert "Capturing num tokens (num_tokens=8192 avail_mem=27.05 GB)" in log.symptom()
    assert symptom_of_the_end(log, -9).endswith("the process ended with exit code -9")


def test_a_refused_vocabulary_is_kept_verbatim_and_shows_its_stage() -> None:
    log = captured("vocabulary")
    assert "got target vocab_size=49152 and draft vocab_size=49088." in log.symptom()
    assert log.symptom().startswith("ValueError: STANDALONE speculative decoding requires the draft model")
    assert log.shown_stage() == "draft"


@pytest.mark.parametrize("name", ["missing-module", "silent-in-graph-capture", "vocabulary"])
def test_a_captured_log_reads_the_same_whole_and_byte_by_byte(name: str) -> None:
    data = (CAPTURED / f"start-failure.{name}.log").read_bytes()
    bytewise = EngineLog(dialect=SGLANG)
    for i in range(len(data)):
        bytewise.feed(data[i : i + 1])
    assert bytewise == read(SGLANG, data)


@given(st.binary(max_size=400))
def test_no_log_makes_the_reader_fail(data: bytes) -> None:
    log = read(VLLM, data)
    assert log.symptom()
    assert log.memory is None or "said" in log.memory


def test_the_second_load_of_one_rank_is_the_draft_and_other_ranks_do_not_count() -> None:
    lines = [
        f"[2026-11-29 14:39:42 TP{rank}] Load weight {word}. avail mem=22.00 GB"
        for word in ("begin", "end")
        for rank in (0, 1)
    ]
    log = read(SGLANG, "\n".join([*lines, ""]))
    assert (log.stages, log.loading_weights) == (["weights"], False)
    log.feed("\n".join([*lines[:2], ""]).encode())
    assert (log.stages, log.loading_weights) == (["weights", "draft"], True)


VLLM_LOG = """\
(EngineCore pid=182) INFO 07-02 21:58:50 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: model='m', seed=0
(EngineCore pid=182) INFO 07-02 21:58:55 [gpu_model_runner.py:5100] Starting to load model m...
(EngineCore pid=182) INFO 07-02 22:01:01 [gpu_model_runner.py:5184] Loading drafter model...
(EngineCore pid=182) INFO 07-02 22:01:13 [gpu_model_runner.py:5255] Model loading took 20.57 GiB memory and 139.6 seconds
(EngineCore pid=182) INFO 07-02 22:01:20 [gpu_worker.py:358] Available KV cache memory: -0.3 GiB
(EngineCore pid=182) ERROR 07-02 22:01:21 [core.py:900] EngineCore failed to start.
(EngineCore pid=182) ERROR 07-02 22:01:21 [core.py:900] Traceback (most recent call last):
(EngineCore pid=182) ERROR 07-02 22:01:21 [core.py:900]   File "/opt/vllm/v1/core/kv_cache_utils.py", line 700, in check
(EngineCore pid=182) ERROR 07-02 22:01:21 [core.py:900]     raise ValueError(
(EngineCore pid=182) ERROR 07-02 22:01:21 [core.py:900] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
(APIServer pid=100) Traceback (most recent call last):
(APIServer pid=100)   File "/opt/vllm/v1/engine/utils.py", line 785, in wait_for_engine_startup
(APIServer pid=100) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""  # noqa: E501 - lines of a log are as long as they are


def test_vllms_exceptions_are_read_out_of_its_prefixed_lines_root_first() -> None:
    log = read(VLLM, VLLM_LOG)
    assert log.symptom().splitlines() == [
        "ValueError: No available memory for the cache blocks. "
        "Try increasing `gpu_memory_utilization` when initializing the engine.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    assert log.stages == ["weights", "draft", "memory_pool"]
    assert (log.loading_weights, log.shown_stage()) == (False, "memory_pool")
    assert log.memory is not None
    assert (log.memory["requested_bytes"], log.memory["available_bytes"]) == (None, round(-0.3 * GIB))
    assert len(log.config_lines) == 1


def test_colours_in_a_log_hide_nothing() -> None:
    coloured = VLLM_LOG.replace("(EngineCore pid=182)", "\x1b[1;36m(EngineCore pid=182)\x1b[0;0m")
    assert read(VLLM, coloured).errors == read(VLLM, VLLM_LOG).errors


def test_llama_servers_own_words_are_its_symptom() -> None:
    log = read(
        LLAMACPP,
        "0.00.003.786 I srv    load_model: loading model 'models/m.gguf'\n"
        "0.01.000.000 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16000.50 MiB on device 0: "
        "cudaMalloc failed: out of memory\n"
        "0.01.000.001 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 16777740288\n"
        "0.01.000.002 E llama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
    )
    assert log.stages == ["weights"]
    assert log.symptom().startswith("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16000.50 MiB on device 0")
    assert log.requested_bytes == round(16000.5 * MIB)


@pytest.mark.parametrize(
    ("line", "total", "in_use", "requested"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
            "24.00 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 22 GiB memory in use",
            24 * GIB,
            round(22.5 * GIB),
            2 * GIB,
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 518.00 MiB. GPU 0 has a total "
            "capacty of 21.67 GiB of which 4.06 MiB is free. Process 2417585 has 21.65 GiB memory in use.",
            round(21.67 * GIB),
            round(21.67 * GIB) - round(4.06 * MIB),
            518 * MIB,
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.63 GiB (GPU 0; 44.56 GiB total "
            "capacity; 27.91 GiB already allocated; 565.31 MiB free; 27.93 GiB reserved in total by PyTorch)",
            round(44.56 * GIB),
            round(44.56 * GIB) - round(565.31 * MIB),
            round(1.63 * GIB),
        ),
        (
            "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by others.",
            round(79.15 * GIB),
            round(79.15 * GIB) - round(59.32 * GIB),
            round(71.24 * GIB),
        ),
        (
            "ValueError: Free memory on device cuda:0 (5.20/23.64 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 21.28 GiB).",
            round(23.64 * GIB),
            round(23.64 * GIB) - round(5.2 * GIB),
            round(21.28 * GIB),
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (32768), (8.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (2.35 GiB).",
            None,
            None,
            8 * GIB,
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", None, None, None),
        ("ggml_vulkan: Device memory allocation of size 1029081088 failed.", None, None, 1029081088),
        ("RuntimeError: CUDA error: out of memory", None, None, None),
    ],
)
def test_a_memory_message_gives_the_numbers_it_says_and_no_others(
    line: str, total: int | None, in_use: int | None, requested: int | None
) -> None:
    found = read_memory([line])
    assert found is not None
    assert (found["total_bytes"], found["in_use_bytes"], found["requested_bytes"]) == (total, in_use, requested)
    assert found["said"] == line


def test_words_about_memory_are_no_memory_symptom() -> None:
    for line in ("Memory pool end. avail mem=1.00 GB", "mem usage=0.09 GB", "out of memory is what nobody says here"):
        assert read_memory([line]) is None


def test_sglangs_pool_refusal_carries_what_was_last_said_to_be_left() -> None:
    found = read_memory(
        [
            "[2026-11-29 14:49:15] Load weight end. elapsed=0.23 s, avail mem=1.50 GB, mem usage=59.08 GB.",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.3",
        ]
    )
    assert found is not None
    assert found["available_bytes"] == round(1.5 * GIB)


def test_a_vulkan_buffer_is_matched_with_the_device_that_the_log_listed() -> None:
    found = read_memory(
        [
            "cmn  common_param:   - Vulkan0 : AMD Radeon (24560 MiB, 20000 MiB free)",
            "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 921600000000",
        ]
    )
    assert found is not None
    assert (found["total_bytes"], found["free_at_start_bytes"]) == (24560 * MIB, 20000 * MIB)
    assert found["in_use_bytes"] is None  # when it failed, nobody said


def test_a_total_is_the_drivers_where_the_message_leaves_it_open_and_use_stays_unknown() -> None:
    said = read_memory(["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."])
    assert said is not None
    before = {"devices": [{"device": "0", "name": "GPU", "total_bytes": 24 * GIB, "in_use_bytes": MIB}]}
    found = with_device(said, before)
    assert (found["total_bytes"], found["in_use_bytes"]) == (24 * GIB, None)
    assert with_device(said, {})["total_bytes"] is None
    two = {"devices": [*before["devices"], {"device": "1", "name": "GPU", "total_bytes": 8 * GIB, "in_use_bytes": 0}]}
    assert with_device(said, two)["total_bytes"] is None  # which of the two, nobody said


def test_a_shorter_context_is_no_diagnostic_for_a_failure_while_weights_load() -> None:
    shorter = Diagnostic(name="half the context", args={"context-length": 4096})
    assert "before there was one" in (misfit(shorter, "weights", loading_weights=True) or "")
    assert misfit(shorter, "memory_pool", loading_weights=False) is None
    loading = read(SGLANG, "[2026-11-29 14:39:42] Load weight begin. avail mem=139.13 GB\n")
    assert misfit(shorter, "weights", loading_weights=loading.loading_weights) is not None


def test_a_diagnostic_is_tried_at_its_stages_only() -> None:
    graphs = Diagnostic(name="no graphs", args={"other": 1}, stages=("graph_capture",))
    assert misfit(graphs, "graph_capture", loading_weights=False) is None
    assert "this one came at memory_pool" in (misfit(graphs, "memory_pool", loading_weights=False) or "")


@pytest.mark.parametrize("name", ["sglang-baseline", "vllm-baseline", "llamacpp-cuda", "study-baseline"])
def test_no_stock_diagnostic_but_speculation_off_fits_a_failure_of_the_weights(name: str) -> None:
    arm = load_arm(name)
    assert all(misfit(diagnostic, "weights", loading_weights=True) for diagnostic in arm.diagnostics)
