"""Whole runs: real headless Locust against the fake engine (faults, kills, full disk) and against the real one."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.measures import measure
from evidence.reading import read_segments
from evidence.recover import recover
from evidence.verify import verify
from infra.fake_engine import FakeEngine, running_fake_engine
from infra.wire.stream import events, read_stream
from tests.locust_runs import Ran, analysis, command, ended, run_cold, run_locust, scenario, start_locust
from tests.prometheus_server import ask, running_prometheus
from tests.warm_locust import WarmProcess

QUICK = {"ttft_s": 0.02, "gap_s": 0.004}


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with running_fake_engine(fake=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def good(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("good")
    ran = run_cold(command(engine.url, scenario(folder), folder / "runs", "--note", "a good one"))
    assert ran.exit_code == 0, ran.stderr
    return ran


def test_a_good_run_is_sealed_and_its_folder_is_the_last_line(good):
    run = good.run
    assert run.seal is not None
    assert (run.seal.planned, run.seal.started, run.seal.completed) == (4, 4, 4)
    assert verify(good.folder) == ()
    assert run.manifest.note == "a good one"


def test_a_run_ends_by_printing_what_check_says_on_standard_error(good):
    assert "DEGRADED" in good.stderr  # a server with a label only: its model and container are not identified
    assert good.stdout.strip() == str(good.folder)


def test_the_window_lies_between_scrapes_at_rest_and_warm_up_before_it(good):
    run = good.run
    roles = [scrape.role for scrape in run.scrapes]
    assert roles.index("before") < roles.index("after")
    before = next(s for s in run.scrapes if s.role == "before")
    after = next(s for s in run.scrapes if s.role == "after")
    for request in run.requests:
        inside = before.receive_monotonic_s < request.sent_at_monotonic_s < after.send_monotonic_s
        assert inside == (request.phase == "measured")


def test_the_raw_segments_on_disk_give_the_same_facts_again(good):
    run = good.run
    for request in run.requests:
        segments = read_segments(run, request.wire)
        facts = read_stream(segments, ended="complete")
        assert facts.text == request.output_text
        assert facts.usage == request.usage
        assert [c.cum_tokens for c in facts.chunks] == [mark[2] for mark in request.chunks]


def test_no_chunk_is_stamped_before_the_server_wrote_it(good):
    """Causality holds for every single stamp; how close they are is the benchmark's to say."""
    run = good.run
    n_compared = 0
    for request in run.requests:
        assert request.stamp_source == "kernel"
        segments = read_segments(run, request.wire)
        by_segment = {segment: after_s for after_s, segment, *_ in request.chunks}
        for segment, payload in events(segments):
            if segment in by_segment and b'"written_ns":' in payload:
                written_s = json.loads(payload)["written_ns"] / 1e9
                assert request.sent_at_monotonic_s + by_segment[segment] >= written_s - 50e-6
                n_compared += 1
    assert n_compared >= 8 * len(run.requests)


def test_conformance_of_the_recorded_chunks_is_kept(good):
    found = json.loads((good.folder / "server" / "conformance.json").read_text(encoding="utf-8"))
    assert found["n_chunks"] > 0
    assert found["n_refused"] == 0, found


def test_summary_numbers_are_those_of_the_raw_records(good):
    code, found = analysis("summary", str(good.folder))
    assert code == 0
    code_group = next(group for group in found["groups"] if group["domain"] == "code")
    (request,) = [r for r in good.run.requests if r.domain == "code"]
    n_first = [mark[2] for mark in request.chunks if mark[1] == request.chunks[0][1]][-1]
    rate = (request.n_completion_tokens - n_first) / (request.last_token_after_s - request.first_token_after_s)
    assert code_group["decode_tok_per_s"]["median"] == pytest.approx(rate)
    assert code_group["ttft_s"]["median"] == request.first_token_after_s
    assert code_group["e2e_s"]["median"] == request.end_after_s
    assert measure(request, max_draft_tokens=0).ttft_s.value == request.first_token_after_s


def test_the_openai_transport_records_the_same_answers(engine, good, tmp_path):
    ran = run_locust(engine.url, scenario(tmp_path), tmp_path / "runs", "--transport", "openai")
    assert ran.run.seal.completed == 4, ran.stderr
    texts = {r.plan_id: (r.output_text, r.n_completion_tokens, r.finish_reason) for r in ran.run.requests}
    assert texts == {r.plan_id: (r.output_text, r.n_completion_tokens, r.finish_reason) for r in good.run.requests}
    assert {r.stamp_source for r in ran.run.requests} == {"user"}


# fault of the fake engine -> outcome of every request
OUTCOMES = {
    "401": "http_error",
    "404": "http_error",
    "429": "http_error",
    "500": "http_error",
    "hang": "timeout_headers",
    "stall": "timeout_stalled",
    "close-chunked": "truncated",
    "close-plain": "truncated",
    "reset": "truncated",
    "html": "not_a_stream",
    "json": "not_a_stream",
    "json-error": "error_in_stream",
    "error-first": "error_in_stream",
    "error-later-string": "error_in_stream",
    "no-usage": "no_usage",
    "usage-twice": "completed",
    "usage-shrinks": "usage_inconsistent",
    "no-done": "completed",
    "no-finish": "no_finish_reason",
    "abort": "finish_error",
    "comments": "completed",
    "no-space": "completed",
    "crlf": "completed",
    "packed": "completed",
    "bytes": "completed",
    "split-utf8": "completed",
    "empty-first-delta": "completed",
    "zero-tokens": "completed",
    "one-token": "completed",
    "close-after": "completed",
    "bad-json": "malformed",
    "gzip": "malformed",
}


def test_every_fault_has_its_named_outcome_and_leaves_a_sealed_folder(engine, tmp_path):
    """One run; each prompt asks the fake engine for another fault."""
    lines = [{"id": f"f_{f}", "domain": "fault", "text": f"fake-{f}: say something to me"} for f in OUTCOMES]
    (tmp_path / "faults.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    mix = 'domains = { fault = "all" }\norder = "listed"\nfiles = ["faults.jsonl"]'
    file = scenario(
        tmp_path, warmup="requests = 0", limits="timeout_s = 1.0", mix=mix, request="max_tokens = { fault = 6 }"
    )
    ran = run_locust(engine.url, file, tmp_path / "runs")
    assert ran.exit_code == 1, ran.stderr
    assert verify(ran.folder) == ()
    assert {r.prompt_id.removeprefix("f_"): r.outcome for r in ran.run.requests} == OUTCOMES
    for request in ran.run.requests:
        assert (request.error is None) == (request.outcome == "completed"), request.prompt_id
    assert ran.run.seal.failed == {
        name: sum(outcome == name for outcome in OUTCOMES.values()) for name in set(OUTCOMES.values()) - {"completed"}
    }


def test_a_server_that_is_not_there_is_refused_before_anything_is_made(tmp_path):
    ran = run_locust("http://127.0.0.1:9", scenario(tmp_path), tmp_path / "runs")
    assert ran.exit_code == 2
    assert "nothing answers at http://127.0.0.1:9" in ran.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mix": "domains = { code = 0 }"}, "mix.domains.code"),
        ({"mix": "domains = { code = 31 }"}, "mix.domains.code"),
        ({"mixx": "a = 1"}, "mixx"),
        ({"mix": 'domains = { code = 1 }\nfiles = ["none.jsonl"]'}, "none.jsonl"),
        ({"cache": 'policy = "tepid"'}, "cache.policy"),
    ],
)
def test_a_scenario_that_cannot_run_is_refused_with_file_key_and_value(engine, tmp_path, change, said):
    ran = run_locust(engine.url, scenario(tmp_path, **change), tmp_path / "runs")
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_arm_that_is_none_and_a_host_with_v1_are_usage_errors(engine, tmp_path):
    file = scenario(tmp_path)
    for host, name, said in [
        (engine.url, ("--arm", "cpu-f23"), "cpu-f32"),
        (engine.url + "/v1", ("--label", "x"), "/v1"),
    ]:
        refused = run_locust(host, file, tmp_path / "runs", name=name)
        assert refused.exit_code == 2, refused.stderr
        assert said in refused.stderr


def test_a_key_is_sent_and_reaches_no_file(tmp_path):
    secret = "sk-planted-0123456789abcdef"
    with running_fake_engine(fake=QUICK, api_key=secret) as locked:
        refused = run_locust(locked.url, scenario(tmp_path), tmp_path / "runs")
        assert refused.exit_code == 2
        assert "OPENAI_API_KEY" in refused.stderr
        header = ("--header", f"X-Other=Bearer {secret}")
        ran = run_locust(locked.url, scenario(tmp_path), tmp_path / "runs", *header, OPENAI_API_KEY=secret)
        assert ran.run.seal.completed == 4
    for path in ran.folder.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_a_path_prefix_is_kept_before_every_path(tmp_path):
    with running_fake_engine(fake=QUICK, prefix="/llm/a") as prefixed:
        ran = run_locust(prefixed.url, scenario(tmp_path), tmp_path / "runs")
    assert ran.exit_code == 0, ran.stderr
    assert ran.run.seal.completed == 4


@pytest.mark.parametrize("mode", ["off", "garbled", "truncated", "hang"])
def test_metrics_that_are_off_or_broken_cost_no_run(tmp_path, mode):
    with running_fake_engine(fake=QUICK, metrics=mode) as running:
        ran = run_locust(running.url, scenario(tmp_path), tmp_path / "runs", patience_s=0.3)
    assert ran.run.seal.completed == 4
    code, found = analysis("check", str(ran.folder))
    assert found["verdict"] == "DEGRADED", found
    assert code == 0


@pytest.mark.parametrize(("mode", "code"), [("restart", "restart"), ("foreign", "foreign_traffic")])
def test_a_restart_or_foreign_traffic_in_the_window_makes_the_run_invalid(tmp_path, mode, code):
    with running_fake_engine(fake=QUICK, metrics=mode) as running:
        ran = run_locust(running.url, scenario(tmp_path), tmp_path / "runs")
    assert ran.exit_code == 1
    _, found = analysis("check", str(ran.folder))
    assert found["verdict"] == "INVALID"
    assert code in {reason["code"] for reason in found["reasons"]}


def _start_slow(tmp_path: Path, url: str, *more: str) -> tuple[WarmProcess, Path]:
    """A run of long answers, returned once a measured request is under way."""
    file = scenario(
        tmp_path,
        limits="timeout_s = 60.0",
        request="max_tokens = { code = 400, prose = 400, json = 400 }",
        warmup="requests = 0",
    )
    process = start_locust(command(url, file, tmp_path / "runs", *more))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for started in (tmp_path / "runs").glob("run-*/workers/0/started.jsonl"):
            if started.stat().st_size:
                time.sleep(0.4)
                return process, started.parents[2]
        time.sleep(0.05)
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_sealed_with_the_request_under_way_cancelled(engine, tmp_path, number):
    process, folder = _start_slow(tmp_path, engine.url)
    process.send_signal(number)
    ran = ended(process)
    assert ran.folder == folder
    seal = ran.run.seal
    assert seal is not None, ran.stderr
    assert (seal.planned, seal.started, seal.cancelled, seal.unfinished) == (3, 1, 1, 0)
    (request,) = ran.run.requests
    assert request.outcome == "cancelled"
    assert request.output_text  # what had come is kept
    assert ran.exit_code == 1
    assert verify(folder) != ()  # two planned requests were never started


def test_a_killed_run_stays_readable_is_no_result_and_can_be_closed(engine, tmp_path):
    process, folder = _start_slow(tmp_path, engine.url)
    process.kill()
    process.communicate(timeout=60)
    code, found = analysis("check", str(folder))
    assert code == 1
    assert found["verdict"] == "INVALID"
    code, _ = analysis("recover", str(folder))
    assert code == 0
    _, found = analysis("check", str(folder))
    assert found["verdict"] == "INVALID"
    with pytest.raises(Exception, match="sealed"):
        recover(folder)
    listed = analysis("list", str(folder.parent))[1]
    assert folder.name in json.dumps(listed)


def test_an_engine_that_dies_mid_run_leaves_named_outcomes(tmp_path):
    with running_fake_engine(fake=QUICK) as running:
        process, _folder = _start_slow(tmp_path, running.url)
        running.kill()
        ran = ended(process)
    assert [r.outcome for r in ran.run.requests] == ["truncated", "connect_refused", "connect_refused"]
    assert ran.run.seal is not None
    assert ran.exit_code == 1


@pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="mounting a small disk needs root"
)
def test_a_full_disk_ends_the_run_with_exit_code_3_and_keeps_what_was_measured(engine, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        file = scenario(
            tmp_path,
            mix="domains = { code = 10, prose = 10, json = 10 }",
            request="max_tokens = { code = 60, prose = 60, json = 60 }",
        )
        ran = run_locust(engine.url, file, disk)
        assert ran.exit_code == 3, ran.stderr
        assert "the disk is full" in ran.stderr
        folder = next(disk.glob("run-*"))
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    _, found = analysis("check", str(copy))
    assert found["verdict"] == "INVALID"
    seal = recover(copy)
    assert seal.recovered
    assert seal.started >= 1


def test_a_folder_that_may_not_be_written_is_exit_code_3(engine, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    ran = run_locust(engine.url, scenario(tmp_path), blocked / "runs")
    assert ran.exit_code == 3, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.engine
def test_a_run_on_the_real_engine_with_real_speculation_is_valid(tmp_path):
    from infra.launching.launch import launching
    from infra.launching.recipes import load_arm

    file = scenario(
        tmp_path,
        cache='policy = "cold"\nper = "request"',
        limits="timeout_s = 120.0",
        request="max_tokens = { code = 24, prose = 24, json = 24 }",
    )
    runs = tmp_path / "runs"
    with launching(load_arm("cpu-q4-selfdraft"), launch_root=runs / "launches") as launched:
        ran = run_locust(launched.url, file, runs, name=("--arm", "cpu-q4-selfdraft"))
        wrong = run_locust(launched.url, file, runs, name=("--arm", "cpu-q4"))
    assert wrong.exit_code == 2
    assert "was launched as cpu-q4-selfdraft" in wrong.stderr
    code, found = analysis("check", str(ran.folder))
    assert code == 0, found
    # A busy test machine may make this client late, and then the verdict has to say so; nothing else may limit the run.
    assert {reason["code"] for reason in found["reasons"]} <= {"client_late"}, found["reasons"]
    _, summary = analysis("summary", str(ran.folder))
    (whole,) = [group for group in summary["groups"] if group["domain"] == "all"]
    acceptance = whole["acceptance"]
    assert acceptance["state"] == "value"
    timings = [r.server_fields["timings"] for r in ran.run.requests if r.phase == "measured"]
    assert acceptance["n_drafted"] == sum(t["draft_n"] for t in timings)
    assert acceptance["n_accepted"] == sum(t["draft_n_accepted"] for t in timings)
    assert acceptance["rate"] > 0.9  # a model drafting for itself
    assert ran.run.manifest.launch_id == launched.launch.launch_id


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_a_prometheus_that_scrapes_the_server_is_asked_for_the_window_and_agrees(tmp_path):
    with running_fake_engine(fake=QUICK) as engine:
        target = engine.url.removeprefix("http://")
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "scrape_configs:\n"
            f"  - job_name: engine\n    scrape_interval: 100ms\n    static_configs: [{{targets: ['{target}']}}]\n",
            encoding="utf-8",
        )
        with running_prometheus(tmp_path / "data", config) as url:
            deadline = time.monotonic() + 30
            while not ask(url, "query", query="up == 1") and time.monotonic() < deadline:
                time.sleep(0.1)  # its discovery starts a few seconds after itself
            ran = run_locust(engine.url, scenario(tmp_path), tmp_path / "runs", "--prometheus-url", url)
    run = ran.run
    assert run.seal.completed == 4, ran.stderr
    assert len(run.windows) > 3
    assert all(window.error is None for window in run.windows), [w.error for w in run.windows if w.error]
    _, found = analysis("check", str(ran.folder))
    ours = [check for check in found["checks"] if "rometheus" in check["name"]]
    assert ours
    assert {check["state"] for check in ours} <= {"pass", "not observable"}, ours
    assert any(check["state"] == "pass" for check in ours), ours


def test_a_prometheus_that_is_not_there_costs_no_run(engine, tmp_path):
    ran = run_locust(engine.url, scenario(tmp_path), tmp_path / "runs", "--prometheus-url", "http://127.0.0.1:9")
    assert ran.run.seal.completed == 4
    assert ran.run.windows
    assert all(window.error is not None for window in ran.run.windows)


def test_gpus_are_sampled_or_their_absence_is_on_record(good):
    samples = good.run.gpu
    assert samples
    assert all(sample.gpus or sample.missing for sample in samples)


def test_live_metrics_of_the_client_are_served_during_the_run(engine, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process, folder = _start_slow(tmp_path, engine.url, "--client-metrics-port", str(port))
    try:
        deadline = time.monotonic() + 20
        body = ""
        while "llm_client_in_flight" not in body and time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                body = answer.read().decode()
            time.sleep(0.1)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert folder.name in body
    assert "llm_client_in_flight" in body
