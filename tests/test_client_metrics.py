"""The live exporter: reads a run's folder while it is written, and leaves the process that measures alone."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import evidence_samples as sample
import pytest
import recorded_runs as recorded
from prometheus_client.parser import text_string_to_metric_families

from evidence.errors import EvidenceError
from evidence.follow import Follower
from evidence.records import Health
from infra.telemetry.client_metrics import ClientMetricsError, RunMetrics, start

ROOT = Path(__file__).parents[1]


def values(metrics: RunMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (one.name, tuple(sorted((k, v) for k, v in one.labels.items() if k not in ("run_id", "arm") and v))): one.value
        for family in metrics.collect()
        for one in family.samples
    }


def one(metrics: RunMetrics, name: str, **labels: str) -> float:
    return values(metrics)[(name, tuple(sorted(labels.items())))]


def test_a_request_counts_once_its_record_is_on_file(tmp_path):
    run = sample.create(tmp_path)
    metrics = RunMetrics(run.path)
    worker = run.worker(0)
    assert one(metrics, "llm_client_in_flight") == 0
    worker.started(sample.started(0))
    assert one(metrics, "llm_client_in_flight") == 1
    assert one(metrics, "llm_client_requests_total", outcome="completed", domain="code") == 0  # planned: from zero on
    worker.ended(sample.ended(0, wire=worker.wire(0, sample.SEGMENTS)))
    assert one(metrics, "llm_client_in_flight") == 0
    assert one(metrics, "llm_client_requests_total", outcome="completed", domain="code") == 1
    assert one(metrics, "llm_client_output_tokens_total", domain="code") == 2
    assert one(metrics, "llm_client_ttft_seconds_count", domain="code") == 1
    assert one(metrics, "llm_client_ttft_seconds_bucket", domain="code", le="0.02") == 1
    assert one(metrics, "llm_client_ttft_seconds_bucket", domain="code", le="0.01") == 0
    assert one(metrics, "llm_client_e2e_seconds_sum", domain="code") == 0.05
    run.close()


def test_a_failed_request_has_no_latency_and_its_outcome_stands(tmp_path):
    run = sample.create(tmp_path)
    worker = run.worker(0)
    worker.started(sample.started(0))
    worker.ended(sample.ended(0, wire=worker.wire(0, sample.SEGMENTS), outcome="truncated", finish_reason=None))
    metrics = RunMetrics(run.path)
    assert one(metrics, "llm_client_requests_total", outcome="truncated", domain="code") == 1
    assert one(metrics, "llm_client_e2e_seconds_count", domain="code") == 0
    run.close()


def test_health_shows_the_last_interval_of_each_worker_and_nothing_that_was_not_measured(tmp_path):
    run = sample.create(tmp_path)
    for number, lag_s in ((0, 0.01), (0, 0.02), (1, None)):
        run.worker(number).health(
            Health(
                at_monotonic_s=1.0,
                interval_s=1.0,
                lag_p50_s=None,
                lag_max_s=lag_s,
                cpu_ratio=None,
                gc_pauses=0,
                gc_pause_max_s=0.0,
                in_flight=0,
            )
        )
    found = values(RunMetrics(run.path))
    lags = {labels: value for (name, labels), value in found.items() if name == "llm_client_lag_seconds"}
    assert lags == {(("stat", "max"), ("worker", "0")): 0.02}
    assert not any(name == "llm_client_cpu_ratio" for name, _ in found)
    run.close()


def test_every_series_carries_the_run_and_its_arm_or_label(tmp_path):
    metrics = RunMetrics(recorded.recorded_run(tmp_path, "vllm"))
    samples = [found for family in metrics.collect() for found in family.samples]
    assert {found.labels["run_id"] for found in samples} == {"run-vllm"}
    assert {found.labels["arm"] for found in samples} == {"vllm-arm"}
    (info,) = [found for found in samples if found.name == "llm_client_info"]
    assert info.labels["engine"] == "vllm" and info.labels["scenario"] == "tiny"


def test_a_half_written_line_is_waited_for_and_a_strange_one_is_counted(tmp_path):
    run = recorded.recorded_run(tmp_path, "vllm", seal=False)
    file = run / "workers/0/requests.jsonl"
    whole = file.read_bytes()
    first, second, third, _ = whole.split(b"\n")
    file.write_bytes(first + b"\n" + second[:40])
    follower = Follower(run)
    assert len(follower.look().requests) == 1
    file.write_bytes(whole[: len(first) + len(second) + 2] + b'{"no": "record"}\n' + third)
    news = follower.look()
    assert (len(news.requests), news.n_unreadable, news.sealed) == (1, 1, False)
    with file.open("ab") as more:
        more.write(b"\n")
    assert len(follower.look().requests) == 1
    assert follower.look().requests == ()


def test_a_folder_without_a_manifest_is_refused_and_the_newest_run_is_turned_to(tmp_path):
    with pytest.raises(EvidenceError, match="begun"):
        RunMetrics(tmp_path)
    metrics = RunMetrics(None, tmp_path)
    assert values(metrics) == {}
    recorded.recorded_run(tmp_path, "vllm", run_id="run-1")
    recorded.recorded_run(tmp_path, "sglang", run_id="run-2")
    (tmp_path / "run-3").mkdir()  # begun, its manifest not there yet
    (tmp_path / "run-3" / "manifest.json.partial").write_bytes(b"{")
    samples = [found for family in metrics.collect() for found in family.samples]
    assert {found.labels["run_id"] for found in samples} == {"run-2"}


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_the_exporter_is_a_process_of_its_own_that_ends_with_its_parents_wish(tmp_path):
    live = start(recorded.recorded_run(tmp_path, "llama.cpp"), port=0)
    try:
        found = {family.name for family in text_string_to_metric_families(fetched(live.url))}
        assert {"llm_client_requests", "llm_client_ttft_seconds", "llm_client_in_flight"} <= found
        assert live.url.startswith("http://127.0.0.1:")
    finally:
        live.stop()
    live.stop()
    with pytest.raises(OSError):
        fetched(live.url)


def test_a_port_that_is_taken_is_a_reason_and_no_run_is_lost_for_it(tmp_path):
    run = recorded.recorded_run(tmp_path, "llama.cpp")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClientMetricsError, match=r"in use.*another port"):
            start(run, port=taken.getsockname()[1])
    with pytest.raises(ClientMetricsError, match="manifest"):
        start(tmp_path / "none", port=0)


def test_the_exporter_does_not_outlive_a_parent_that_is_killed(tmp_path):
    run = recorded.recorded_run(tmp_path, "llama.cpp")
    code = (
        "import sys, time; from pathlib import Path; from infra.telemetry.client_metrics import start\n"
        f"live = start(Path({str(run)!r}), port=0); print(live.url, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    url = parent.stdout.readline().decode().strip()
    assert "llm_client_requests" in fetched(url)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        try:
            fetched(url)
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError("it still serves")


def test_it_starts_under_patched_threads_and_sockets(tmp_path):
    run = recorded.recorded_run(tmp_path, "llama.cpp")
    code = (
        "import gevent.monkey; gevent.monkey.patch_all()\n"
        "import gevent, urllib.request; from pathlib import Path; from infra.telemetry.client_metrics import start\n"
        "beats = []\n"
        "def beat():\n"
        "    while True: beats.append(1); gevent.sleep(0.01)\n"
        "gevent.spawn(beat)\n"
        f"live = start(Path({str(run)!r}), port=0)\n"
        "n = len(beats); assert n > 3, n  # the loop ran on while the exporter started\n"
        "assert b'llm_client_requests' in urllib.request.urlopen(live.url).read()\n"
        "live.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
