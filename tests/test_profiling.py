"""Profiler windows: opened beside a request, their traces in the run's folder, their failures by name, never timed."""

import gzip
import json
from pathlib import Path

import traces

from analysis.loading import load_run
from analysis.profiled import traces_of
from analysis.trace import trace
from evidence.profile_records import ProfileWindow, read_profile
from evidence.reading import open_run
from evidence.verify import verify
from infra import profiling
from infra.fake_engine import running_fake_engine
from infra.profiling import ends_well, n_ranks, refusal_of, start_profile, stop_profile, wait_for_traces, writes_to
from scenarios.study_file import load_study
from study.arms import load_arms, profiled
from study.cells import run_cell
from study.order import cells_of
from study.workload import workload_of
from tests.locust_runs import analysis, run_locust, scenario
from tests.played_engine import playing
from tests.study_arms import write_arm, write_study

WINDOW = "scrape_interval_s = 0.2\nprofile = { steps = 5, after_requests = 1 }"
SLOW = {"ttft_s": 0.02, "gap_s": 0.01}


def a_scenario(folder: Path, *, tokens: int = 30, timeout_s: float = 5.0) -> Path:
    return scenario(
        folder,
        mix="domains = { code = 3 }",
        request=f"max_tokens = {{ code = {tokens} }}",
        limits=f"timeout_s = {timeout_s}",
        telemetry=WINDOW,
    )


def window_of(run: Path) -> ProfileWindow:
    found = read_profile(run)
    assert isinstance(found, ProfileWindow)
    return found


def reasons(run: Path) -> dict[tuple[str, str], str]:
    return {(one.code, one.scope): one.severity for one in load_run(run).reasons}


def test_a_server_without_a_profiler_is_refused_before_anything_is_sent(tmp_path):
    with running_fake_engine() as fake:
        refused = run_locust(fake.url, a_scenario(tmp_path), tmp_path / "runs")
    assert refused.exit_code == 2
    assert "llama.cpp has no profiler that can be started" in refused.stderr
    assert "--no-profile" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_window_that_closed_before_a_request_ran_is_a_failure_with_a_name_and_no_empty_trace(tmp_path):
    options = {"owner": "sglang", "metrics": "missing", "profile_trace": traces.BASE, "fake": SLOW}
    with running_fake_engine(profile_never=True, **options) as fake:
        ran = run_locust(fake.url, a_scenario(tmp_path, timeout_s=1.0), tmp_path / "runs")
        again = start_profile("sglang", fake.url, steps=5, folder=tmp_path, headers=(), timeout_s=5.0)
    window = window_of(ran.folder)
    assert (window.http_status, window.fault, window.traces) == (200, "profiler_window_empty", ())
    assert window.why is not None and "no trace came: give the requests more tokens" in window.why
    found = reasons(ran.folder)
    assert (found["profiler_window_empty", "run"], found["profiled", "rate"]) == ("DEGRADED", "INVALID")
    assert refusal_of("sglang", again).startswith("POST /start_profile: HTTP 400: Profiling is already in progress")
    code, report = analysis("trace", "--run", str(ran.folder))
    assert (code, "holds no traces" in report["error"]) == (2, True)


def test_the_reply_and_the_folder_are_each_engines_own(tmp_path):
    routes = {"/start_profile": [[404, "application/json", '{"detail":"Not Found"}'], [200, "text/plain", ""]]}
    with playing(routes | {"/stop_profile": [[200, "text/plain", ""]]}) as server:
        refused = start_profile("vllm", server.url, steps=5, folder=None, headers=(), timeout_s=5.0)
        opened = start_profile("vllm", server.url, steps=5, folder=None, headers=(), timeout_s=5.0)
        assert stop_profile(server.url, headers=(), timeout_s=5.0).done
    assert "start the server with --profiler-config" in refusal_of("vllm", refused)
    assert (opened.body, opened.done) == ({"max_iterations": 5}, True)
    own = {"profiler_config.torch_profiler_dir": "/theirs", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    assert (writes_to("vllm", own, tmp_path), writes_to("vllm", {}, tmp_path)) == (Path("/theirs"), None)
    assert (writes_to("sglang", {}, tmp_path), n_ranks(own), n_ranks({})) == (tmp_path, 4, None)
    gone = start_profile("sglang", "http://127.0.0.1:9", steps=1, folder=tmp_path, headers=(), timeout_s=1.0)
    assert gone.status is None and refusal_of("sglang", gone).startswith("POST /start_profile: ")


def test_a_trace_that_is_still_written_is_waited_for_and_one_cut_short_is_told(tmp_path, monkeypatch):
    whole = gzip.compress(json.dumps(traces.document([traces.kernel("k", 1, 1)])).encode())
    (tmp_path / "old.json.gz").write_bytes(whole)
    before = profiling.traces_in(tmp_path)
    new = tmp_path / "1-TP-0.trace.json.gz"
    new.write_bytes(whole[:-5])
    monkeypatch.setattr(profiling, "_UNCHANGED_S", 0.05)
    monkeypatch.setattr(profiling, "_LOOK_EVERY_S", 0.01)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 30:
            new.write_bytes(whole)

    (found,) = wait_for_traces(tmp_path, before, n_expected=1, within_s=30.0, sleep=sleep)
    assert (found.path, found.whole) == (new, True)
    new.write_bytes(whole[:-5])
    (cut,) = wait_for_traces(tmp_path, before, n_expected=1, within_s=0.2)
    assert cut.whole is False
    (tmp_path / "plain.json").write_bytes(b'{"traceEvents": [')
    assert ends_well(tmp_path / "plain.json") is False


def test_a_profiled_cell_is_a_launch_of_its_own_whose_trace_lies_beside_the_request_it_was_opened_in(tmp_path):
    changes = {"profile-trace": str(traces.BASE), "gap-s": 0.015}
    arms = [
        write_arm(tmp_path, "fake-sglang", engine="sglang", changes=changes),
        write_arm(tmp_path, "fake-other"),
    ]
    file = write_study(tmp_path, arms, profile_launches=1, telemetry=WINDOW)
    asked = load_study(file)
    cell = cells_of(asked, 1)[-2]
    assert (cell.arm, cell.role) == ("fake-sglang", "profile")
    folder = tmp_path / "study-x"
    (folder / "runs").mkdir(parents=True)
    found = run_cell(
        cell.model_copy(update={"attempt": 1}),
        load_arms(file, asked, None)[cell.arm],
        study=folder,
        scenario=tmp_path / "tiny.toml",
        workload=workload_of(tmp_path / "tiny.toml", passes=1),
        passes=1,
        progress=lambda _: None,
    )
    assert found["state"] == "done", found
    run = open_run(folder / found["run_dir"])

    window = window_of(run.path)
    assert (window.fault, window.why, window.engine) == (None, None, "sglang")
    assert window.body == {"num_steps": 5, "activities": ["CPU", "GPU"], "output_dir": window.output_dir}
    assert (window.n_ended_before, window.n_under_way, window.n_under_way_at_reply) == (1, 1, 1)
    (kept,) = window.traces
    assert kept.name.startswith("traces/") and kept.name.endswith("-TP-0.trace.json.gz")
    assert (kept.whole, kept.n_bytes, verify(run.path)) == (True, (run.path / kept.name).stat().st_size, ())
    assert [path.name for path in (folder / "runs").iterdir()] == [run.path.name]

    report = trace(traces_of(run.path), run=run.path)
    assert (report["failures"], report["requests"]["profiled_by_plan"]) == ([], True)
    (aligned,) = report["requests"]["windows"]
    second = [request.plan_id for request in run.requests if request.phase == "measured"][1]
    assert [one["plan_id"] for one in aligned["requests"]] == [second]
    told = reasons(run.path)
    assert (told["profiled", "latency"], told["profiled", "rate"]) == ("INVALID", "INVALID")


def test_vllm_is_started_with_its_profiler_for_a_profiled_launch_only(tmp_path):
    loaded = load_arms(
        tmp_path / "study.toml", load_study(write_study(tmp_path, ["vllm-baseline", "vllm-ngram"])), None
    )
    plain = loaded["vllm-ngram"].arm
    with_it = profiled(plain, tmp_path)
    assert "--profiler-config" not in plain.command_line("h", 1)
    line = with_it.command_line("h", 1)
    told = json.loads(line[line.index("--profiler-config") + 1])
    assert told == {"profiler": "torch", "torch_profiler_dir": str(tmp_path)}
    sglang = load_arms(
        tmp_path / "study.toml", load_study(write_study(tmp_path, ["sglang-baseline", "sglang-ngram"])), None
    )
    assert profiled(sglang["sglang-ngram"].arm, tmp_path) is sglang["sglang-ngram"].arm
