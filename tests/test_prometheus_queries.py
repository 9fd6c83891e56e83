"""A run's windows from a Prometheus server: raw samples, honest readings, checked against the run's own scrapes."""

import json
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import recorded_runs as recorded
from prometheus_server import ask, backfill, needs_prometheus, running_prometheus

from analysis.openmetrics import export
from analysis.prometheus_windows import agree, answers_of, bounds_of, window_readings
from evidence.folder import RunWriter
from evidence.reading import open_run
from evidence.verify import verify
from evidence.window_records import Window, WindowSeries
from infra.engines.prometheus_growth import Answer, Bounds, Series, gauge, growth
from infra.engines.prometheus_readings import readings
from infra.engines.prometheus_series import ENGINE_SERIES, series_to_ask
from infra.engines.readings import Absent, Measured, Unmeasured, state_of
from infra.fake_engine import running_fake_engine
from infra.telemetry.prometheus_queries import RunWindow, fetch_windows, run_window, selector
from infra.telemetry.scrape import Scraper

ROOT = Path(__file__).parents[1]
BOUNDS = Bounds(rest_since_s=95.0, start_s=100.0, end_s=110.0, rest_until_s=115.0)


def answer(*points: tuple[float, float], name: str = "c_total", **labels: str) -> Answer:
    return Answer(name=name, series=(Series(labels=labels, points=points),))


def test_growth_is_a_number_when_both_ends_were_sampled_at_rest():
    found = growth(answer((96, 7), (101, 9), (109, 20), (112, 30)), BOUNDS)
    assert found.reading == Measured(23)


def test_growth_is_an_interval_when_no_sample_fell_into_the_rest():
    found = growth(answer((90, 5), (101, 9), (109, 20), (120, 30)), BOUNDS)
    assert (found.low, found.high) == (11, 25)
    assert isinstance(found.reading, Unmeasured) and "between 11 and 25" in found.reading.why


def test_nothing_counted_in_between_is_a_measured_zero():
    found = growth(answer((90, 5), (101, 5), (109, 5), (120, 5)), BOUNDS)
    assert found.reading == Measured(0) and state_of(found.reading) == "zero"


def test_no_series_is_absent_and_no_answer_is_unmeasured():
    assert isinstance(growth(Answer(name="c", series=()), BOUNDS).reading, Absent)
    assert growth(Answer(name="c", series=(), why="timed out"), BOUNDS).reading == Unmeasured(why="timed out")


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([(96, 7), (105, 3), (112, 9)], "restart"),
        ([(105, 7), (112, 9)], "before the window"),
        ([(96, 7), (105, 9)], "after the window"),
        ([(96, 7), (105, float("nan")), (112, 9)], "not a finite number"),
    ],
)
def test_a_window_that_cannot_be_read_says_why_and_gives_no_number(points, why):
    found = growth(answer(*points), BOUNDS)
    assert isinstance(found.reading, Unmeasured) and why in found.reading.why
    assert found.low is None and found.high is None


def test_a_drop_outside_the_window_does_not_matter():
    assert growth(answer((50, 900), (96, 7), (112, 9), (114, 0)), BOUNDS).reading == Measured(2)


def test_a_series_that_is_new_counts_from_zero_where_the_server_was_scraped_before():
    assert growth(answer((105, 7), (112, 9)), BOUNDS, scraped_before=True).reading == Measured(9)


def test_ranks_that_repeat_each_other_count_once_and_ranks_that_share_are_added():
    points = ((96.0, 1.0), (112.0, 4.0))
    ranks = Answer(
        name="c",
        series=tuple(
            Series(labels={"tp_rank": str(tp), "dp_rank": str(dp)}, points=points) for tp in (0, 1) for dp in (0, 1)
        ),
    )
    assert growth(ranks, BOUNDS, once={"tp_rank": "0"}).reading == Measured(6)


def test_a_stale_gauge_is_never_a_value_of_the_window():
    assert isinstance(gauge(answer((99, 5), (111, 5)), BOUNDS, over="mean"), Unmeasured)
    assert gauge(answer((99, 50), (101, 1), (109, 3), (111, 70)), BOUNDS, over="mean") == Measured(2)
    assert gauge(answer((99, 50), (101, 1), (109, 3), (111, 70)), BOUNDS, over="max") == Measured(3)


def test_every_engine_has_its_series_and_an_unknown_one_none():
    for engine in ENGINE_SERIES:
        names = [name for name, _ in series_to_ask(engine)]
        assert names[0] == "up" and len(set(names)) == len(names)
    assert series_to_ask(None) == series_to_ask("other") == ()
    assert readings({}, BOUNDS, None) == {}


def test_the_window_of_a_level_lies_between_its_scrapes_and_rest_begins_with_the_first_equal_one():
    roles = ["idle-check"] * 4 + ["before", "during", "idle-check", "idle-check", "idle-check", "after"]
    found = [
        recorded.scrape("x 1\n", float(n), run_id="run-x", url="http://h:1/metrics", role=role, level="2")
        for n, role in enumerate(roles)
    ]
    at_s = recorded.AT_S
    window = run_window(found, run_id="run-x", level="2", at_rest_before=True, at_rest_after=True)
    assert (window.rest_since_unix_s, window.start_unix_s) == (at_s + 1, at_s + 4.01)
    assert (window.end_unix_s, window.rest_until_unix_s) == (at_s + 6, at_s + 9.01)
    restless = run_window(found, run_id="run-x", level="2", at_rest_before=False, at_rest_after=False)
    assert (restless.rest_since_unix_s, restless.end_unix_s, restless.rest_until_unix_s) == (None, at_s + 9, None)
    assert run_window(found, run_id="run-x", level="4", at_rest_before=True, at_rest_after=True) is None
    assert run_window(found[:5], run_id="run-x", level="2", at_rest_before=True, at_rest_after=True) is None


def test_labels_are_quoted_as_promql_wants_them():
    assert selector("up", {}) == "up"
    assert selector("up", {"a": 'x"y\\z\n'}) == 'up{a="x\\"y\\\\z\\n"}'


WINDOW = RunWindow(
    run_id="run-vllm", level=None, rest_since_unix_s=recorded.AT_S, start_unix_s=recorded.AT_S + 2.2,
    end_unix_s=recorded.AT_S + 5.5, rest_until_unix_s=recorded.AT_S + 5.95,
)  # fmt: skip


@needs_prometheus
def test_readings_of_a_backfilled_vllm_are_the_captured_truth(tmp_path):
    """91 tokens, 30 drafts of which 54 of 90 tokens were accepted; one request of 19.1 ms a token."""
    run = recorded.recorded_run(tmp_path / "runs", "vllm")
    export([run], tmp_path / "run.om")
    backfill(tmp_path / "run.om", tmp_path / "data")
    with running_prometheus(tmp_path / "data") as url:
        windows = fetch_windows(url, WINDOW, "vllm", {"run_id": "run-vllm"})
    found = readings(answers_of(windows), bounds_of(windows[0], 0.05), "vllm")
    # rest_until ends before the next sample, which is of the last body: what it adds is not known to lie outside
    assert isinstance(found["generated_tokens"], Unmeasured)
    later = [
        w.model_copy(update={"rest_until_unix_s": recorded.AT_S + 9, "end_unix_s": recorded.AT_S + 4.5})
        for w in windows
    ]
    found = readings(answers_of(later), bounds_of(later[0], 0.05), "vllm")
    assert found["generated_tokens"] == Measured(91)
    assert found["requests"] == Measured(1)
    assert found["acceptance_rate"] == Measured(54 / 90)
    assert found["acceptance_length"] == Measured(1 + 54 / 30)
    assert found["server_tpot_s"].value == pytest.approx(0.0191, abs=1e-4)
    assert isinstance(found["gpu_utilisation_ratio"], Absent)  # no exporter: absent, not zero


@contextmanager
def prometheus_of(engine_url: str, folder: Path) -> Iterator[str]:
    """The shipped configuration, its engine target set, scraping ten times a second."""
    shutil.copytree(ROOT / "infra/prometheus", folder / "config")
    config = folder / "config/prometheus.yml"
    config.write_text(
        config.read_text().replace(
            "scrape_interval: 1s\n  scrape_timeout: 1s", "scrape_interval: 100ms\n  scrape_timeout: 100ms"
        )
    )
    assert "100ms" in config.read_text()
    netloc = urlsplit(engine_url).netloc
    (folder / "config/targets/engine.json").write_text(json.dumps([{"targets": [netloc], "labels": {"arm": "fake"}}]))
    for other in ("client", "dcgm", "node"):
        (folder / f"config/targets/{other}.json").write_text("[]")
    with running_prometheus(folder / "data", config) as url:
        give_up_s = time.monotonic() + 20  # it reads its targets' files first after five seconds
        while not ask(url, "query", query="up"):
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        yield url


def complete(url: str) -> int:
    body = {
        "model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True,
        "stream_options": {"include_usage": True},
        "fake": {"ttft_s": 0.02, "gap_s": 0.005, "drafted": 3, "accepted": [3, 0, 1]},
    }  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        text = reply.read().decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    usage = [event["usage"] for event in events if event.get("usage")]
    return usage[-1]["completion_tokens"]


@needs_prometheus
def test_a_live_engine_scraped_by_a_real_prometheus_agrees_with_the_direct_scrapes(tmp_path):
    with running_fake_engine() as engine, prometheus_of(engine.url, tmp_path) as url:
        scrapes: list = []
        scraper = Scraper([f"{engine.url}/metrics"], scrapes.append, run_id="run-live")
        complete(engine.url)  # warm-up: must not be counted
        before = scraper.idle_check("llama.cpp", interval_s=0.15, limit_s=5.0)
        scraper.scrape("before")
        n_tokens = sum(complete(engine.url) for _ in range(3))
        after = scraper.idle_check("llama.cpp", interval_s=0.15, limit_s=5.0)
        scraper.scrape("after")
        window = run_window(
            scrapes, run_id="run-live", level=None, at_rest_before=before.proven, at_rest_after=after.proven
        )
        labels = {"instance": urlsplit(engine.url).netloc}
        windows = fetch_windows(url, window, "llama.cpp", labels, wait_s=5.0, still_at_rest=True)
    checks = agree(windows, scrapes, clock_s=0.0)
    assert {check.state for check in checks} == {"pass"}, checks
    found = window_readings(windows, scrapes, n_requests=3, clock_s=0.0)
    assert found["generated_tokens"] == Measured(n_tokens)
    assert found["n_drafted"].value > 0
    assert 0 < found["acceptance_rate"].value < 1
    assert found["running_requests_max"].value == 1
    assert isinstance(found["server_ttft_s"], Absent)
    # another server's scrapes under the same name: the check says so and no reading is given
    strange = [s.model_copy(update={"body": scrapes[0].body}) if s.role == "after" else s for s in scrapes]
    assert any(check.state == "fail" for check in agree(windows, strange, clock_s=0.0))
    refused = window_readings(windows, strange, n_requests=3, clock_s=0.0)
    assert isinstance(refused["generated_tokens"], Unmeasured) and "disagrees" in refused["generated_tokens"].why


@contextmanager
def answering(body: bytes, status: int = 200, wait_s: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """A web server that gives one answer to everything, and the queries it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(parse_qs(urlsplit(self.path).query).get("query", [""])[0])
            time.sleep(wait_s)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"<html>login</html>", 200, "no answer of a Prometheus server"),
        (b"who are you", 401, "refused: HTTP Status Code 401"),
        (b'{"status": "success"}', 200, "no answer of a Prometheus server"),
        (b'{"status": "success", "data": {"result": {"a": 1}}}', 200, "its result is no list"),
        (b'{"status": "success", "data": {"result": [{"metric": {}}]}}', 200, "in a series"),
        (b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "x"]]}]}}', 200, "in a series"),
        (b'{"status": "error", "error": "bad"}', 400, "refused"),
        (b"[1, 2]", 200, "no answer of a Prometheus server"),
    ],
)
def test_whatever_answers_in_place_of_a_prometheus_is_a_reason_on_file(body, status, why):
    with answering(body, status) as (url, asked):
        windows = fetch_windows(url, WINDOW, "vllm")
    assert len(windows) == len(asked) > 10
    assert all(window.series is None and why in window.error for window in windows)
    found = readings(answers_of(windows), bounds_of(windows[0], 0.0), "vllm")
    assert all(isinstance(reading, (Unmeasured, Absent)) for reading in found.values())
    assert isinstance(found["generated_tokens"], Unmeasured)


def test_nobody_listening_is_told_once_and_not_waited_for_again():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:hidden1@127.0.0.1:{free.getsockname()[1]}"
    slept: list[float] = []
    windows = fetch_windows(url, WINDOW, "vllm", wait_s=5.0, sleep=slept.append)
    assert slept == []
    assert {window.error for window in windows} == {"no answer: connection refused: nobody listens there"}
    assert all("hidden1" not in window.model_dump_json() for window in windows)


def test_a_prometheus_that_does_not_answer_in_time_costs_one_limit_and_not_one_a_series():
    with answering(b"{}", wait_s=1.0) as (url, asked):
        windows = fetch_windows(url, WINDOW, "vllm", timeout_s=0.2)
    assert all(window.error == "no answer: timed out" for window in windows)
    assert len(asked) <= 2


@pytest.mark.parametrize("url", ["", "prometheus:9090", "ftp://host", "http://"])
def test_a_url_that_is_none_is_a_reason(url):
    (window,) = fetch_windows(url, WINDOW, "vllm")
    assert window.series is None and "not a URL" in window.error


def test_an_engine_that_is_not_known_is_asked_for_its_gpus_alone():
    with answering(b'{"status": "success", "data": {"result": []}}') as (url, asked):
        windows = fetch_windows(url, WINDOW, None)
    assert {window.adapter for window in windows} == {None}
    assert all(query.startswith("DCGM_") for query in asked)
    assert all(window.series == () for window in windows)


def test_no_query_leaves_the_arithmetic_to_promql():
    with answering(b'{"status": "success", "data": {"result": []}}') as (url, asked):
        fetch_windows(url, WINDOW, "sglang", {"instance": "h:1"})
    assert asked and all("(" not in query and query.endswith("s]") for query in asked)


def record(**changes) -> Window:
    fields = {
        "run_id": "run-x", "level": None, "prometheus_url": "http://p:9090", "adapter": "vllm", "name": "up",
        "query": "up[5s]", "asked_at_unix_s": 2.0, "from_unix_s": 0.0, "to_unix_s": 2.0, "rest_since_unix_s": None,
        "start_unix_s": 1.0, "end_unix_s": 2.0, "rest_until_unix_s": None, "error": None,
        "series": (WindowSeries(labels={"a": "b"}, samples=((1.0, "NaN"), (1.5, "+Inf"))),),
    }  # fmt: skip
    return Window(**(fields | changes))


def test_windows_are_lines_of_the_runs_folder_sealed_with_it(tmp_path):
    import run_factory as factory

    one = factory.request()
    plan = [factory.planned(one, 0)]
    writer = RunWriter.create(tmp_path, "run-x", factory.manifest(plan, run_id="run-x"), plan)
    writer.window(record())
    writer.window(record(series=None, error="timed out"))
    writer.seal()
    run = open_run(writer.path)
    assert run.windows == (record(), record(series=None, error="timed out"))
    assert "windows.jsonl" in run.seal.files
    file = writer.path / "windows.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"run-x"', b'"run-y"', 1))
    assert {"hash_mismatch", "wrong_id"} <= {problem.code for problem in verify(writer.path)}


def test_two_instances_behind_one_name_are_not_compared_with_one_scrape():
    series = tuple(WindowSeries(labels={"instance": f"h:{n}"}, samples=((0.5, "1"), (3.0, "5"))) for n in (1, 2))
    windows = (
        record(name="vllm:generation_tokens_total", series=series, rest_since_unix_s=0.0, rest_until_unix_s=9.0),
    )
    text = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 1\n"
    scrapes = [
        recorded.scrape(body, at, run_id="run-x", url="http://h:1/metrics", role=role)
        for body, at, role in ((text, 0.0, "before"), (text.replace(" 1\n", " 5\n"), 9.0, "after"))
    ]
    (check,) = [one for one in agree(windows, scrapes, clock_s=0.0) if one.name.endswith("generation_tokens_total")]
    assert check.state == "not observable" and "h:1, h:2" in check.why
    one = (windows[0].model_copy(update={"series": series[:1]}),)
    (check,) = [c for c in agree(one, scrapes, clock_s=0.0) if c.name.endswith("generation_tokens_total")]
    assert (check.state, check.seen) == ("pass", "direct 4, Prometheus 4")
