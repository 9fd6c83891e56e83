"""Whole runs of several levels: real headless Locust against the fake engine, closed loop and open loop."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from evidence.reading import Run
from evidence.verify import verify
from infra.fake_engine import FakeEngine, running_fake_engine
from tests.load_runs import load_scenario, run_load, stop_load
from tests.locust_runs import Ran

QUICK = {"ttft_s": 0.02, "gap_s": 0.004}


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with running_fake_engine(fake=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def swept(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    file = load_scenario(
        tmp_path_factory.mktemp("swept"),
        "concurrency",
        levels="users = [2, 4, 1]\nrequests = 12",
        warmup="requests = 1",
    )
    return run_load("sweep", engine.url, file)


def spans(run: Run, level: str) -> list[tuple[float, float]]:
    """From when each request of a level was sent until its end, in the order sent."""
    own = [r for r in run.requests if r.level == level]
    return sorted((r.sent_at_monotonic_s or 0.0, (r.sent_at_monotonic_s or 0.0) + (r.end_after_s or 0.0)) for r in own)


def most_at_once(run: Run, level: str) -> int:
    steps = [(at, 1) for at, _ in spans(run, level)] + [(at, -1) for _, at in spans(run, level)]
    most = now = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def test_a_sweep_is_sealed_and_its_counts_balance_level_by_level(swept):
    run = swept.run
    assert run.seal is not None, swept.stderr
    assert verify(swept.folder) == ()
    assert [level.label for level in run.levels] == ["users=2", "users=4", "users=1"]
    for level in run.levels:
        assert (level.n_planned, level.n_started, level.n_completed, level.ended_by) == (12, 12, 12, "requests")
    assert Counter(r.level for r in run.requests) == {None: 1, "users=2": 12, "users=4": 12, "users=1": 12}


def test_a_level_has_as_many_requests_under_way_as_it_has_users(swept):
    run = swept.run
    assert [most_at_once(run, level.label) for level in run.levels] == [2, 4, 1]


def test_a_level_begins_after_the_one_before_has_been_drained_and_scraped_at_rest(swept):
    run = swept.run
    ends = [0.0]
    for level in run.levels:
        scrapes = [scrape for scrape in run.scrapes if scrape.level == level.label]
        (before,) = [scrape for scrape in scrapes if scrape.role == "before"]
        (after,) = [scrape for scrape in scrapes if scrape.role == "after"]
        own = spans(run, level.label)
        assert ends[-1] < before.send_monotonic_s < level.began_at_monotonic_s <= own[0][0]
        drained_s = level.began_at_monotonic_s + (level.drained_after_s or 0.0)
        assert max(end for _, end in own) - 0.001 <= drained_s <= after.send_monotonic_s
        checks = [scrape for scrape in scrapes if scrape.role == "idle-check"]
        assert sum(scrape.receive_monotonic_s < before.send_monotonic_s for scrape in checks) >= 3
        assert sum(drained_s <= scrape.send_monotonic_s < after.send_monotonic_s for scrape in checks) >= 3
        ends.append(after.receive_monotonic_s)
    assert not [scrape for scrape in run.scrapes if scrape.level is None]


def test_all_users_are_up_before_the_requests_run_out(swept):
    for level in swept.run.levels:
        assert level.full_after_s is not None
        assert level.spawn_rate_per_s is not None
        assert level.full_after_s >= (level.users - 1) / level.spawn_rate_per_s
        assert level.full_after_s < level.drain_after_s < level.drained_after_s


def test_progress_without_a_terminal_is_a_line_a_level(swept):
    lines = [line for line in swept.stderr.splitlines() if line.startswith("t users=")]
    assert [line.split(":")[0] for line in lines] == ["t users=2 (1 of 3)", "t users=4 (2 of 3)", "t users=1 (3 of 3)"]
    assert "1 of 37 requests, 0 in flight, 0 failed" in lines[0]


def test_a_list_that_does_not_increase_runs_as_written_and_is_said(swept):
    assert "does not increase" in swept.stderr


def test_a_timed_level_with_a_fifth_of_errors_ends_by_time_and_names_each(engine, tmp_path):
    lines = [
        {"id": f"q{n}", "domain": "own", "text": f"fake-500: {n}" if n % 5 == 0 else f"say {n}"} for n in range(10)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    file = load_scenario(
        tmp_path,
        "concurrency",
        mix='domains = { own = "all" }\nfiles = ["own.jsonl"]\norder = "listed"',
        request="max_tokens = { own = 8 }",
        levels="users = [3]\nsteady_s = 0.7\nat_most_requests = 400",
    )
    ran = run_load("sweep", engine.url, file)
    (level,) = ran.run.levels
    assert level.ended_by == "time"
    assert level.drain_after_s >= level.full_after_s + 0.7
    outcomes = Counter(r.outcome for r in ran.run.requests if r.phase == "measured")
    assert set(outcomes) == {"completed", "http_error"}
    assert (level.n_completed, level.n_failed) == (outcomes["completed"], outcomes["http_error"])
    assert level.n_started == level.n_completed + level.n_failed < level.n_planned
    assert ran.exit_code == 1, "a fifth of failures is no result"
    message = next(r.error.message for r in ran.run.requests if r.outcome == "http_error")
    assert f"{level.n_failed} http_error ({message})" in " ".join(ran.stderr.split())


@pytest.fixture(scope="module")
def arrived(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    file = load_scenario(
        tmp_path_factory.mktemp("arrived"),
        "arrivals",
        arrivals='process = "poisson"\nrate_per_s = [40.0, 200.0]\nrequests = 24\nmax_in_flight = 6',
    )
    return run_load("arrivals", engine.url, file)


def test_open_loop_sends_at_the_planned_instants_and_records_by_how_much_it_was_late(arrived):
    run = arrived.run
    due_s = {line["plan_id"]: line["scheduled_after_s"] for line in run.plan}
    began_s = {level.label: level.began_at_monotonic_s for level in run.levels}
    for request in run.requests:
        if request.phase == "warmup":
            assert request.send_lag_s is None
            continue
        late_s = request.sent_at_monotonic_s - began_s[request.level] - due_s[request.plan_id]
        assert request.send_lag_s == pytest.approx(late_s, abs=1e-5)
        assert request.send_lag_s >= 0


def test_open_loop_past_its_cap_holds_the_cap_and_counts_the_requests_that_waited(arrived):
    slow, fast = arrived.run.levels
    assert (slow.label, slow.n_cap_hits, slow.n_completed) == ("rate=40", 0, 24)
    assert fast.n_completed == 24
    assert fast.n_cap_hits > 0
    assert most_at_once(arrived.run, "rate=200") <= 6


def test_open_loop_drains_between_its_rates(arrived):
    slow, fast = (spans(arrived.run, level.label) for level in arrived.run.levels)
    assert max(end for _, end in slow) < min(begin for begin, _ in fast)
    assert all(earlier <= later for (earlier, _), (later, _) in pairwise(fast))


def test_a_stop_in_the_middle_of_a_level_seals_what_there_is(engine, tmp_path):
    """Ctrl-C; it is passed on as SIGTERM, so that both go the same way."""
    file = load_scenario(
        tmp_path,
        "concurrency",
        request="max_tokens = { code = 900, prose = 900, json = 900 }",
        warmup="requests = 0",
        levels="users = [3, 2]\nrequests = 6",
    )

    def all_under_way(folder: Path) -> bool:
        started = folder / "workers" / "0" / "started.jsonl"
        return started.exists() and started.read_bytes().count(b"\n") == 3

    ran = stop_load("sweep", engine.url, file, all_under_way, signal.SIGINT)
    run = ran.run
    assert run.seal is not None, ran.stderr
    assert (run.seal.started, run.seal.cancelled, run.seal.unfinished) == (3, 3, 0)
    (level,) = run.levels
    assert (level.ended_by, level.n_started, level.n_cancelled, level.drained_after_s) == ("stopped", 3, 3, None)
    assert {scrape.role for scrape in run.scrapes if scrape.level == "users=3"} >= {"before", "after"}
    assert ran.exit_code == 1
    said = " ".join(ran.stderr.split())
    assert "3 of 12 planned requests were started: stopped by SIGINT in the middle of users=3" in said
    assert "level_not_recorded" not in said, "the level that was never begun has no line to lack"


def test_sockets_that_run_out_are_failures_with_a_name_and_cost_no_run(engine, tmp_path):
    file = load_scenario(
        tmp_path,
        "concurrency",
        request="max_tokens = { code = 40, prose = 40, json = 40 }",
        levels="users = [64]\nrequests = 90",
    )
    ran = run_load("sweep", engine.url, file, open_files=96)
    run = ran.run
    assert run.seal is not None, ran.stderr
    assert run.seal.started == 92
    failed = [r for r in run.requests if r.outcome != "completed"]
    assert failed
    assert {r.outcome for r in failed} == {"connect_failed"}
    assert all("Too many open files" in r.error.message for r in failed)
    said = " ".join(ran.stderr.split())
    assert f"{len(failed)} connect_failed (" in said and "Too many open files" in said.partition("connect_failed (")[2]
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("locustfile", "kind", "more", "said"),
    [
        ("sweep", "concurrency", ("-u", "4"), "--users 4"),
        ("arrivals", "concurrency", (), "locustfiles/sweep.py"),
    ],
)
def test_what_a_level_decides_is_no_option_and_each_kind_has_its_locustfile(
    engine, tmp_path, locustfile, kind, more, said
):
    file = load_scenario(tmp_path, kind, levels="users = [1]\nrequests = 2")
    ran = run_load(locustfile, engine.url, file, *more)
    assert ran.exit_code == 2, ran.stderr
    assert said in ran.stderr
    assert not (tmp_path / "runs").exists()
