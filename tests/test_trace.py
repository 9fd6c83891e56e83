"""Profiler traces: read as a stream, shares that sum, passes counted, requests beside them, failures by name."""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import run_factory as factory
import traces
from hypothesis import given
from hypothesis import strategies as st
from traces import kernel, mark, write

from analysis.trace import add_arguments, command, trace
from analysis.trace_classes import CLASSES, kernel_class
from analysis.trace_lanes import nanoseconds, read_file
from analysis.trace_marks import role_of
from analysis.trace_shares import lane_report
from analysis.trace_stream import TraceReader

ROOT = Path(__file__).resolve().parent.parent
CUSTOM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)"


def only(path: Path) -> dict:
    report = trace([path])
    assert report["failures"] == []
    return report["ranks"][0]


def run_command(*words: str | Path) -> tuple[int, dict, list[str]]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return command(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize(
    ("path", "n_events", "n_kernels", "busy_ms", "name", "from_unix_s"),
    [
        (traces.BASE, 13_095, 1_754, 1.00, "step[DECODE bs=1]", 1790857026 + 5108344.149458409),
        (traces.NGRAM, 20_009, 2_021, 1.66, "step[TARGET_VERIFY bs=1]", 1790857026 + 5108223.193125831),
    ],
)
def test_the_captured_traces_give_their_known_numbers(path, n_events, n_kernels, busy_ms, name, from_unix_s):
    report = trace([path])
    rank = report["ranks"][0]
    assert (report["files"][0]["n_events"], rank["n_kernels"]) == (n_events, n_kernels)
    assert rank["passes"]["names"] == {name: 5}
    assert round(rank["passes"]["gpu_busy_s_per_pass"] * 1e3, 2) == busy_ms
    assert (rank["rank"], rank["world_size"], rank["gpu"]) == ("0", 1, "NVIDIA H200")
    assert rank["window"]["from_unix_s"] == pytest.approx(from_unix_s, abs=1e-6)


@pytest.mark.parametrize("path", [traces.BASE, traces.NGRAM])
def test_classes_and_idle_sum_to_the_window_and_streams_are_whole(path):
    rank = only(path)
    shares = [one["share"] for one in rank["classes"].values()]
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    assert sum(rank["classes"][name]["time_s"] for name in CLASSES) == pytest.approx(rank["busy_s"], abs=1e-12)
    n_activities = rank["n_kernels"] + rank["n_copies"] + rank["n_sets"]
    assert sum(one["n"] for one in rank["streams"]) == n_activities
    assert sum(rank["classes"][name]["n"] for name in CLASSES) == n_activities
    assert rank["classes"]["matrix"]["n"] == 605


@pytest.mark.parametrize("path", [traces.BASE, traces.NGRAM])
@pytest.mark.parametrize("block_bytes", [2, 7, 4096])
def test_the_size_of_a_block_changes_nothing(path, block_bytes, tmp_path):
    text = gzip.decompress(path.read_bytes())
    if block_bytes < 4096:  # byte by byte is slow: the head, and the tail from an event's start
        head = text[: text.index(b'"python_function"')]
        head = head[: head.rindex(b"{")].rstrip().rstrip(b",") + text[text.rindex(b"\n  ],") :]
        path = tmp_path / "short.json.gz"
        path.write_bytes(gzip.compress(head))
    whole, pieces = TraceReader(path), TraceReader(path, block_bytes=block_bytes)
    assert list(whole.events()) == list(pieces.events())
    assert whole.fault is None and pieces.fault is None
    assert (whole.header, whole.sha256) == (pieces.header, pieces.sha256)


@given(st.data())
def test_a_trace_cut_anywhere_is_a_named_failure_and_never_an_empty_trace(data):
    text = json.dumps(traces.document([kernel("k", n, 1) for n in range(5)], name="é🙂")).encode()
    n_bytes = data.draw(st.integers(0, len(text) - 1))
    packed = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.json"
        path.write_bytes(gzip.compress(text, mtime=0)[: n_bytes // 2 + 1] if packed else text[:n_bytes])
        found = read_file(path, block_bytes=data.draw(st.sampled_from([2, 3, 1 << 20])))
    if packed and n_bytes // 2 + 1 >= len(gzip.compress(text, mtime=0)):
        assert found.fault is None
    else:
        assert found.fault is not None
        assert found.fault.code in {"empty_file", "truncated_json", "truncated_gzip", "malformed_json"}
        assert found.n_events <= 5


def test_a_cut_trace_shows_what_could_be_read_and_states_no_share(tmp_path):
    text = gzip.decompress(traces.BASE.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(text[:3_600_000])
    code, report, lines = run_command(path)
    assert code == 2
    assert [one["code"] for one in report["failures"]] == ["truncated_json"]
    assert report["files"][0]["n_events"] == 12_719
    rank = report["ranks"][0]
    assert 0 < rank["n_kernels"] < 1_754 and rank["busy_s"] > 0
    assert {one["share"] for one in rank["classes"].values()} == {None}
    assert rank["idle_s"] is None and rank["passes"]["gpu_busy_s_per_pass"] is None
    assert rank["collective"]["share"] is None and rank["collective"]["why"] == "the trace was not read whole"
    assert any("truncated_json" in line for line in lines) and any("12719 events could be read" in x for x in lines)


def test_a_gzip_stream_cut_short_is_named_and_its_events_count(tmp_path):
    path = tmp_path / "cut.json.gz"
    path.write_bytes(traces.BASE.read_bytes()[:200_000])
    code, report, _ = run_command(path)
    assert code == 2 and report["failures"][0]["code"] == "truncated_gzip"
    assert report["files"][0]["n_events"] == 8_151
    assert "200000 bytes" in report["failures"][0]["seen"]


def test_a_damaged_gzip_stream_is_named(tmp_path):
    data = bytearray(traces.BASE.read_bytes())
    data[len(data) - 6] ^= 1  # its check sum
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(data)
    assert read_file(path).fault.code == "damaged_gzip"
    data[100_000:100_200] = b"\xff" * 200
    path.write_bytes(data)
    assert read_file(path).fault.code in {"damaged_gzip", "malformed_json"}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b" \n", "truncated_json"),
        (b"hello", "malformed_json"),
        (b"{}", "no_trace_events"),
        (b'{"a": 1', "truncated_json"),
        (b'{"a" 1}', "malformed_json"),
        (b'{"traceEvents": {}}', "malformed_json"),
        (b'{"traceEvents": [1]}', "malformed_json"),
        (b'{"traceEvents": [], "traceEvents": []}', "malformed_json"),
        (b'{"traceEvents": []} x', "malformed_json"),
        (b'{"traceEvents": [{"a": nope}]}' + b" " * 99, "malformed_json"),
        (b'{"traceEvents": [{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", "malformed_json"),
        (b'{"traceEvents": [{"ts": ' + b"1" * 9_999 + b"}]}", "malformed_json"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, data, code):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    found = read_file(path)
    assert found.fault is not None and found.fault.code == code
    assert run_command(path)[0] == 2


def test_a_file_that_was_never_written_says_why_there_may_be_none(tmp_path):
    code, report, lines = run_command(tmp_path / "absent.trace.json.gz")
    assert code == 2 and report["failures"][0]["code"] == "no_trace_file"
    assert "no step fell into" in report["failures"][0]["remedy"] and lines


def test_a_window_that_closed_before_any_request_is_a_named_failure(tmp_path):
    cpu_only = [{"ph": "X", "cat": "python_function", "name": "idle", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]
    code, report, _ = run_command(write(tmp_path / "t.json.gz", cpu_only))
    assert code == 1 and [one["code"] for one in report["failures"]] == ["window_without_steps"]
    assert "closed before a request ran" in report["failures"][0]["seen"]
    assert report["ranks"] == []


def test_steps_without_a_gpu_activity_ask_for_the_gpu(tmp_path):
    _, report, _ = run_command(write(tmp_path / "t.json.gz", mark("step[DECODE bs=1]", 0, 5, 1)))
    assert "GPU among the activities" in report["failures"][0]["remedy"]


def test_a_bare_array_reads_with_and_without_its_bracket(tmp_path):
    events = [kernel("k", 1, 2), kernel("k", 5, 2)]
    for name, text in {"whole": json.dumps(events), "open": json.dumps(events)[:-1] + ",\n"}.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        found = read_file(path)
        assert found.fault is None and found.n_events == 2
        assert found.base_ns is None


def test_overlaps_count_once_and_an_instant_of_both_is_the_computation(tmp_path):
    events = [kernel("gemm", 0, 100), kernel(CUSTOM, 50, 100, stream=8), kernel("x", 200, 50, cat="gpu_memset")]
    rank = only(write(tmp_path / "t.json.gz", events))
    us = {name: round(one["time_s"] * 1e6, 3) for name, one in rank["classes"].items()}
    assert us == {"matrix": 100, "attention": 0, "other": 0, "collective": 50, "copy": 0, "set": 50, "idle": 50}
    assert rank["busy_s"] == pytest.approx(200e-6)
    assert rank["classes"]["collective"]["alone_or_not_s"] == pytest.approx(100e-6)
    assert rank["collective"]["share"] == pytest.approx(0.2)
    assert [(one["stream"], one["n"]) for one in rank["streams"]] == [("7", 2), ("8", 1)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from(["gemm", CUSTOM, "fmha", "z"]))))
def test_the_union_equals_counting_microseconds_one_by_one(found):
    from analysis.trace_lanes import Lane, RankTrace, TraceFile

    lane = Lane("0")
    for start, length, name in [*found, (0, 0, "z")]:
        lane.add("kernel", name, "7", start * 1000, length * 1000)
    file = TraceFile(
        path=Path("t"),
        header={},
        ranks=(),
        n_events=0,
        n_bytes=0,
        n_text_bytes=0,
        sha256=None,
        n_unusable=0,
        fault=None,
    )
    rank = lane_report(file, RankTrace(None, {"0": lane}), lane)
    seconds = {tick: set() for tick in range(81)}
    for start, length, name in found:
        for tick in range(start, start + length):
            seconds[tick].add(kernel_class(name))
    for name in CLASSES:
        first = [next((one for one in CLASSES if one in there), None) for there in seconds.values()]
        assert round(rank["classes"][name]["time_s"] * 1e6) == first.count(name)
        assert round(rank["classes"][name]["alone_or_not_s"] * 1e6) == sum(name in there for there in seconds.values())
    assert round(rank["busy_s"] * 1e6) == sum(bool(there) for there in seconds.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        (CUSTOM, "collective"),
        ("void sglang::cross_device_reduce_2stage<__half, 2>(sglang::RankData*)", "collective"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(P)", "collective"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "collective"),
        ("void deep_ep::intranode::dispatch<8, 512>(int4*)", "collective"),
        ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", "matrix"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "matrix"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "matrix"),
        ("fused_moe_kernel", "matrix"),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32", "matrix"),
        ("_fwd_grouped_kernel_stage1", "attention"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90>>", "attention"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<true, 2u>(Params)", "attention"),
        ("fmhaSm100fKernel_QkvE4m3OBfloat16", "attention"),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", "other"),
        ("create_flashinfer_kv_indices_triton", "other"),
        ("get_num_kv_splits_triton", "other"),
        ("void flashinfer::norm::GemmaRMSNormKernel<8u>(float*)", "other"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>", "other"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)", "set"),
        ("copy_all_layer_kv_cache_tiled", "copy"),
    ],
)
def test_a_kernel_is_classed_by_its_name(name, expected):
    assert kernel_class(name) == expected


def test_collectives_are_counted_for_each_target_pass_of_each_rank(tmp_path):
    paths = []
    for rank, slow in ((0, 30), (1, 10)):
        events = []
        for n in range(4):
            at = 1000 * n
            events += mark("step[TARGET_VERIFY bs=1]", at, 10, n, gpu=(at + 5, 400))
            events += [kernel("gemm", at + 5, 100), kernel(CUSTOM, at + 105, slow), kernel(CUSTOM, at + 200, slow)]
        told = {"backend": "nccl", "rank": rank, "world_size": 4}
        paths.append(write(tmp_path / f"x-TP-{rank}.trace.json.gz", events, distributedInfo=told))
    code, report, lines = run_command(*paths)
    assert code == 0
    found = [(one["rank"], one["collective"]["n_per_pass"], one["collective"]["s_per_pass"]) for one in report["ranks"]]
    assert found == [("0", 2, pytest.approx(60e-6)), ("1", 2, pytest.approx(20e-6))]
    assert report["across_ranks"]["collective_min_s"] == pytest.approx(80e-6)
    assert any("Traces of 2 of 4 ranks" in note for note in report["notes"])
    assert any("waits inside it" in note for note in report["notes"])
    assert any("a target pass: 2.00 of them" in line for line in lines)


def ranks(tmp_path: Path, durations: Sequence[Sequence[int]], *, world: int) -> list[Path]:
    """A trace a rank: a verify pass a millisecond, in each two collectives of the rank's own microseconds."""
    paths = []
    for rank, own in enumerate(durations):
        events = []
        for n in range(len(own) // 2):
            at = 1000 * n
            events += mark("step[TARGET_VERIFY bs=1]", at, 10, n, gpu=(at + 5, 900))
            events += [kernel("gemm", at + 5, 100)]
            events += [kernel(CUSTOM, at + 200, own[2 * n]), kernel(CUSTOM, at + 600, own[2 * n + 1])]
        told = {"backend": "nccl", "rank": rank, "world_size": world}
        paths.append(write(tmp_path / f"x-TP-{rank}.trace.json.gz", events, distributedInfo=told))
    return paths


def test_the_last_rank_to_arrive_bounds_the_transfer_and_the_others_waited(tmp_path):
    _, report, lines = run_command(*ranks(tmp_path, [(10, 90, 12, 20), (70, 30, 15, 20)], world=2))
    waiting = report["across_ranks"]["waiting"]
    assert (waiting["n"], waiting["why"]) == (4, None)
    assert waiting["transfer_at_most_s"] == pytest.approx(72e-6)
    assert waiting["s_per_pass"] == pytest.approx(36e-6)
    assert waiting["waited_s"] == pytest.approx([60e-6, 63e-6])
    assert "4 collectives matched rank by rank: at most 0.07 ms of transfer" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("durations", "world", "why"),
    [
        ([(10, 20), (10, 20)], 4, "traces of 2 of 4 ranks were given"),
        ([(10, 20), (10, 20, 30, 40)], 2, "the ranks ran 2 to 4 collectives"),
    ],
)
def test_waiting_is_not_told_apart_where_ranks_lack_or_differ(tmp_path, durations, world, why):
    waiting = trace(ranks(tmp_path, durations, world=world))["across_ranks"]["waiting"]
    assert waiting["transfer_at_most_s"] is None and why in waiting["why"]


def test_windows_that_begin_with_another_collective_are_not_matched_by_their_number(tmp_path):
    """Rank 0 lacks its first, rank 1 its last."""
    for rank, places in ((0, (1, 2, 3)), (1, (0, 1, 2))):
        events = [kernel(CUSTOM, 1000 * place, 40) for place in places]
        told = {"rank": rank, "world_size": 2}
        write(tmp_path / f"x-TP-{rank}.trace.json.gz", events, distributedInfo=told)
    waiting = trace(sorted(tmp_path.glob("*.gz")))["across_ranks"]["waiting"]
    assert waiting["transfer_at_most_s"] is None
    assert "3 of 3 collectives have no instant that all ranks spent in them" in waiting["why"]


def test_two_windows_of_one_rank_are_not_put_together(tmp_path):
    report = trace([traces.BASE, traces.NGRAM])
    assert report["across_ranks"]["busy_min_s"] is None and "each rank once" in report["across_ranks"]["why"]


def test_a_trace_without_kernels_states_no_collective_share(tmp_path):
    rank = only(write(tmp_path / "t.json.gz", [kernel("Memcpy HtoD", 0, 5, cat="gpu_memcpy")]))
    assert rank["collective"]["share"] is None and "no kernel" in rank["collective"]["why"]


def test_steps_of_the_draft_model_are_no_target_passes(tmp_path):
    events = [
        *mark("draft", 0, 100, 1, gpu=(0, 90)),
        *mark("step[DECODE bs=1]", 10, 20, 2, gpu=(10, 20)),
        *mark("step[DECODE bs=1]", 40, 20, 3, gpu=(40, 20)),
        *mark("step[TARGET_VERIFY bs=1]", 100, 50, 4, gpu=(110, 60)),
        *mark("draft_extend", 150, 20, 5, gpu=(175, 20)),
        kernel("gemm", 10, 60),
        kernel("gemm", 110, 50),
        kernel("gemm", 175, 10),
    ]
    rank = only(write(tmp_path / "t.json.gz", events))
    assert rank["passes"]["names"] == {"step[TARGET_VERIFY bs=1]": 1}
    us = {(one["name"], one["inside_draft"]): round(one["gpu_busy_s"] * 1e6) for one in rank["marks"]}
    assert us == {
        ("draft", False): 60,
        ("draft_extend", False): 10,
        ("step[DECODE bs=1]", True): 40,
        ("step[TARGET_VERIFY bs=1]", False): 50,
    }
    parts = [rank["cycle"][name] for name in ("verify_s", "draft_s", "rest_s")]
    assert parts == [pytest.approx(50e-6), pytest.approx(70e-6), pytest.approx(0)] and rank["cycle"]["why"] is None
    assert rank["passes"]["inside_s_per_pass"] == pytest.approx(50e-6)
    assert rank["passes"]["outside_s_per_pass"] == pytest.approx(70e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step[DECODE bs=1]", ("target", 1)),
        ("step[EXTEND bs=2 toks=9]", ("target", 2)),
        ("step[TARGET_VERIFY bs=8]", ("verify", 8)),
        ("step[DRAFT_EXTEND_V2 bs=1]", ("draft_extend", 1)),
        ("step[IDLE bs=0]", None),
        ("draft", ("draft", None)),
        ("draft_extend", ("draft_extend", None)),
        ("execute_context_0(0)_generation_1(1)", ("engine_step", None)),
        ("execute_new_0_cached_1", ("engine_step", None)),
        ("gpu_model_runner: forward", ("target", None)),
        ("scheduler.run_batch", None),
    ],
)
def test_marks_of_the_engines_have_roles(name, expected):
    assert role_of(name) == expected


def test_an_ngram_cycle_has_no_draft_time_and_says_why():
    cycle = only(traces.NGRAM)["cycle"]
    assert cycle["n"] == 5 and cycle["draft_s"] is None and "n-gram" in cycle["why"]
    assert (cycle["verify_s"] + cycle["rest_s"]) * 1e3 == pytest.approx(1.66, abs=0.005)
    assert only(traces.BASE)["cycle"]["verify_s"] is None


def test_names_that_differ_from_step_to_step_are_one_kind(tmp_path):
    events = [kernel("gemm", 0, 1)]
    for n in range(40):
        events += mark(f"execute_context_{n}({n * 7})_generation_{n}({n})", n, 0.5, n, gpu=(n, 0.5))
    rank = only(write(tmp_path / "t.json.gz", events))
    assert rank["passes"]["names"] == {"execute_context_N(N)_generation_N(N)": 40}
    assert rank["passes"]["what"] == "engine steps, drafting included" and len(rank["marks"]) == 1


def test_streams_without_end_are_told_together(tmp_path):
    rank = only(write(tmp_path / "t.json.gz", [kernel("k", n, 1, stream=n) for n in range(400)]))
    assert len(rank["streams"]) == 257
    assert {one["stream"]: one["n"] for one in rank["streams"]}["others"] == 144


def test_a_merged_trace_is_read_rank_by_rank(tmp_path):
    events = []
    for label in ("[TP00]", "[TP01]"):
        events += mark("step[DECODE bs=1]", 0, 10, 1, pid=f"{label} 3087")
        events += [kernel("gemm", 0, 10 if label == "[TP00]" else 20, pid=f"{label} 0")]
    report = trace([write(tmp_path / "merged-x.trace.json.gz", events)])
    assert [(one["rank"], one["device"], one["passes"]["n"]) for one in report["ranks"]] == [
        ("TP00", "0", 1),
        ("TP01", "0", 1),
    ]
    assert any("merged trace" in note for note in report["notes"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5108344149458.409", 5_108_344_149_458_409),
        ("0.704", 704),
        ("1.5", 1500),
        (3, 3000),
        ("-0.5", -500),
        ("1e3", 1_000_000),
        ("NaN", None),
        ("Infinity", None),
        (True, None),
        (None, None),
        (10**40, None),
        ("soon", None),
    ],
)
def test_times_are_whole_nanoseconds_or_nothing(value, expected):
    assert nanoseconds(value) == expected


def test_events_without_a_time_are_counted_and_left_out(tmp_path):
    bad = [{**kernel("k", 1, 1), "dur": -1}, {**kernel("k", 1, 1), "ts": "x"}, kernel("k", float("nan"), 1)]
    report = trace([write(tmp_path / "t.json.gz", [kernel("k", 0, 1), *bad])])
    assert report["files"][0]["n_unusable_events"] == 3 and report["ranks"][0]["n_kernels"] == 1
    assert any("3 events have no time" in note for note in report["notes"])
    json.dumps(report, allow_nan=False)


def test_requests_of_a_run_stand_beside_the_passes(tmp_path):
    """The factory's requests are sent 5 s apart and last 0.35 s: the window lies in the second."""
    run = factory.make_run(
        tmp_path / "runs", [factory.request(), factory.request(prompt_id="code_02"), factory.request()]
    )
    at = 5.1e6  # microseconds after the trace's instant 0, which is the first request's
    events = [kernel("gemm", at, 100)]
    for n in range(3):
        events += mark("step[DECODE bs=1]", at + 1000 * n, 10, n, gpu=(at + 1000 * n, 100))
        events += [kernel("gemm", at + 1000 * n, 100)]
    path = write(tmp_path / "t.json.gz", events, baseTimeNanoseconds=int(factory.UNIX_S) * 10**9)
    code, report, lines = run_command(path, "--run", run)
    assert code == 0
    window = report["requests"]["windows"][0]
    assert [(one["prompt_id"], one["n_passes_alone"]) for one in window["requests"]] == [("code_02", 3)]
    assert window["requests"][0]["from_after_s"] == pytest.approx(0.1)
    assert window["requests"][0]["gpu_busy_s"] == pytest.approx(300e-6)
    assert (window["n_passes_of_several"], window["n_passes_of_none"]) == (0, 0)
    assert any("does not say that this launch was profiled" in note for note in report["notes"])
    assert any("code_02" in line for line in lines)


@pytest.mark.parametrize(
    ("at_s", "seen"),
    [
        (-3.0, "the window closed 3.000 s before the run's first request was sent"),
        (8.0, "after the run's last request had ended"),
        (2.0, "between two requests"),
    ],
)
def test_a_window_without_a_request_of_the_run_is_a_named_failure(tmp_path, at_s, seen):
    run = factory.make_run(tmp_path / "runs", [factory.request(), factory.request()])
    base_ns = (int(factory.UNIX_S) - 100) * 10**9
    path = write(tmp_path / "t.json.gz", [kernel("gemm", (100 + at_s) * 1e6, 0.2)], baseTimeNanoseconds=base_ns)
    code, report, _ = run_command(path, "--run", run)
    assert code == 1 and [one["code"] for one in report["failures"]] == ["no_request_in_window"]
    assert seen in report["failures"][0]["seen"]


def test_passes_while_two_requests_run_belong_to_neither(tmp_path):
    long = factory.request(chunks=[(0.1, 0, 1, 5), (9.0, 1, 2, 5)])
    run = factory.make_run(tmp_path / "runs", [long, factory.request()])
    events = [*mark("step[DECODE bs=2]", 5.1e6, 10, 1, gpu=(5.1e6, 50)), kernel("gemm", 5.1e6, 50)]
    path = write(tmp_path / "t.json.gz", events, baseTimeNanoseconds=int(factory.UNIX_S) * 10**9)
    window = trace([path], run=run)["requests"]["windows"][0]
    assert window["n_passes_of_several"] == 1
    assert [one["n_passes_alone"] for one in window["requests"]] == [0, 0]


def test_a_trace_without_a_base_time_is_not_laid_beside_requests(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    path = write(tmp_path / "t.json.gz", [kernel("gemm", 0, 1)], baseTimeNanoseconds=None)
    code, report, lines = run_command(path, "--run", run)
    assert report["requests"]["windows"][0]["requests"] is None and code == 0
    assert any("baseTimeNanoseconds" in line for line in lines)


def test_hostile_names_cannot_move_the_cursor(tmp_path):
    events = [kernel("\x1b[2J\ngemm\u202e", 0, 1), *mark("step[DECODE bs=1]", 0, 1, 1, gpu=(0, 1))]
    _, _, lines = run_command(write(tmp_path / "t.json.gz", events))
    assert all(line.isprintable() for line in lines)


def test_analysis_of_a_trace_writes_nothing(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    trace([traces.BASE], run=run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.slow
def test_three_hundred_megabytes_are_read_in_little_memory(tmp_path):
    """A trace of a gzip member repeated: 300 MB of text of which one block at a time may be in memory."""
    noise = {
        "ph": "X",
        "cat": "python_function",
        "name": "f" * 700,
        "pid": 1,
        "tid": 1,
        "ts": 1.5,
        "dur": 2.5,
        "args": {},
    }
    events = [*[noise] * 1100, *[kernel("gemm", n, 0.5) for n in range(100)]]
    block = json.dumps(events)[1:-1].encode() + b",\n"
    n_blocks = 300_000_000 // len(block) + 1
    path = tmp_path / "big.trace.json.gz"
    with path.open("wb") as out:
        out.write(gzip.compress(b'{"baseTimeNanoseconds": 1, "traceEvents": [\n'))
        packed = gzip.compress(block)
        for _ in range(n_blocks):
            out.write(packed)
        out.write(gzip.compress(b'{"ph": "M"}]}'))
    code = (
        "import resource, sys; from pathlib import Path; from analysis.trace_lanes import read_file\n"
        "import analysis.trace_shares\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "found = read_file(Path(sys.argv[1]))\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(found.n_events, found.n_text_bytes, found.fault, after - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    n_events, n_text, fault, grown_kib = done.stdout.split()
    assert int(n_events) == 1200 * n_blocks + 1 and int(n_text) > 300_000_000 and fault == "None"
    assert int(grown_kib) < 32 * 1024
