"""Runs of many processes, with real ones: everything reaches the master's folder, or the seal says what does not."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from many_processes import Processes, processes, scenario

from evidence.joining import join
from evidence.reading import Run, open_run
from evidence.records import Seal
from evidence.verify import verify
from infra.fake_engine import running_fake_engine
from tests.locust_runs import ROOT

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
ANSWER = {"ttft_s": 0.03, "gap_s": 0.01}
SLOW = {"ttft_s": 0.5, "gap_s": 0.04}  # so that the first level lasts until the late worker has come


def balanced(seal: Seal) -> bool:
    return seal.started == seal.completed + sum(seal.failed.values()) + seal.cancelled + seal.unfinished


def shards(runs: Path) -> list[str]:
    return sorted(path.name.rpartition(".")[2] for path in runs.glob("*.shard-*"))


def sealed(run: Run) -> Seal:
    assert run.seal is not None
    return run.seal


def test_with_processes_every_line_is_with_the_master_during_the_run_and_nothing_is_left_over(tmp_path):
    """The cache is reset before each level: how many requests ago is known where one process alone sends the level.

    Both openai clients are primed before the first level is scraped, also that of the worker without a warm-up request.
    """
    cold = scenario(tmp_path, users=[2, 3, 1], requests=10, cache='policy = "cold"\nper = "cell"')
    with (
        running_fake_engine(fake=ANSWER, owner="sglang", metrics="missing") as fake,
        processes(tmp_path, fake.url, cold) as started,
    ):
        master = started.master("--processes", "2", "--transport", "openai")
        started.wait(lambda: started.n_ended(0) and started.n_ended(1), "a record of each worker with the master")
        assert not started.sealed()
        out, _ = master.communicate(timeout=60)
        assert master.returncode in (0, 1), started.said()  # 1 where this machine was too busy to keep time
    folder = Path(out.strip().splitlines()[-1])
    run = open_run(folder)
    assert (sealed(run).planned, sealed(run).completed) == (31, 31)
    assert {problem.code for problem in verify(folder)} == set()
    assert {request.worker for request in run.requests} == {0, 1}
    primed = [(folder / "workers" / str(worker) / "noticed.jsonl").read_text() for worker in (0, 1)]
    assert all(json.loads(one)["at_unix_s"] < run.levels[0].began_at_unix_s - 0.05 for one in primed)
    assert shards(started.runs) == []
    assert [event for event, _, _ in started.events()].count("finished") == 2
    assert all(abs(one.offset_monotonic_s) <= one.bound_s for one in run.clocks), "one machine has one clock"
    expected = ("no reader of the counters of this server", "one priming request")
    assert not [text for text in sealed(run).noticed if not any(one in text for one in expected)]
    levels = {level.label: level for level in run.levels}
    assert {label: level.n_completed for label, level in levels.items()} == {
        "users=2": 10,
        "users=3": 10,
        "users=1": 10,
    }
    ages = {level: {one.requests_since_reset for one in run.requests if one.level == level} for level in levels}
    assert ages == {"users=2": {None}, "users=3": {None}, "users=1": {*range(10)}}
    for request in run.requests:
        if request.level is not None:
            assert request.sent_at_monotonic_s >= levels[request.level].began_at_monotonic_s - 0.002


def orphan_says(port: int, run_id: str, manifest_of: str) -> None:
    """What a worker that outlived another run's master would send here, on Locust's own channel."""
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.setsockopt(zmq.IDENTITY, b"orphan_1")
    client.connect(f"tcp://127.0.0.1:{port}")
    batch = {"worker": 0, "number": 1, "file": "started.jsonl", "offset": 0, "sha256": "0" * 64, "data": b"{}\n"}
    for run in (run_id, manifest_of):
        client.send(msgpack.dumps(("evidence", {"kind": "batch", "run_id": run, **batch}, "orphan_1")))
    client.close(linger=2000)
    context.term()


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, Run, int]]:
    """One run in which much goes wrong: of two workers one is killed in the first level; an orphan of another run
    sends its lines; a third worker comes late."""
    tmp_path = tmp_path_factory.mktemp("eventful")
    with (
        running_fake_engine(fake=SLOW) as fake,
        processes(tmp_path, fake.url, scenario(tmp_path, users=[4, 4], requests=24)) as started,
    ):
        master = started.master("--master", "--master-bind-port", str(started.port), "--expect-workers", "2")
        workers = [started.worker(), started.worker()]
        started.wait(lambda: started.n_ended(0) > 1 and started.n_ended(1), "the first level")
        folder = started.run_folder()
        assert folder is not None
        orphan_says(started.port, "run-20260101T000000Z-ffffff", folder.name)
        late = started.worker()
        by_pid = {event["pid"]: event["worker"] for event in joined(folder)}
        victim = next(process for process in workers if by_pid[process.pid] == 1)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        started.wait(lambda: any(event[:2] == ("joined", 2) for event in started.events()), "the late worker's coming")
        fake.control(fake=ANSWER)
        out, _ = master.communicate(timeout=60)
        late.wait(20)
        assert out, started.said()
        yield started, open_run(folder), master.returncode


def joined(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "workers.jsonl").read_text(encoding="utf-8").splitlines()
    return [one for one in map(json.loads, lines) if one["event"] == "joined"]


def test_a_killed_worker_costs_its_own_part_and_the_seal_says_which(eventful):
    _, run, _ = eventful
    seal = sealed(run)
    assert balanced(seal)
    assert (seal.planned, seal.failed) == (49, {})
    assert seal.unfinished > 0, "what the killed worker had under way"
    assert seal.started < seal.planned, "what it had been dealt and never began"
    (lost,) = [text for text in seal.noticed if text.startswith("worker 1 ")]
    assert "was lost" in lost
    assert f"{run.manifest.run_id}.shard-1" in lost
    level = run.levels[0]
    assert (level.n_planned, level.ended_by) == (24, "worker lost")
    assert {problem.code for problem in verify(run.path)} <= {"unfinished", "planned_not_started", "wire_unreferenced"}


def test_the_run_goes_on_after_a_worker_is_lost(eventful):
    _, run, exit_code = eventful
    second = run.levels[1]
    assert (second.n_planned, second.n_completed) == (24, 24)
    assert exit_code == 1, "the run is not what was planned, and says so"


def test_a_late_worker_gets_no_request_of_the_level_under_way_and_some_of_the_next(eventful):
    started, run, _ = eventful
    assert ("joined", 2, "users=4") in started.events(), started.events()
    of_late = [request.level for request in run.requests if request.worker == 2]
    assert set(of_late) == {"users=4#2"}
    assert len(of_late) == 12
    assert any("worker 2 came late" in text for text in sealed(run).noticed)


def test_an_orphan_of_another_run_is_refused_and_named(eventful):
    started, run, _ = eventful
    assert [event for event in started.events() if event[0] == "refused"] == [("refused", None, None)]
    assert any("orphan_1" in text and "run-20260101T000000Z-ffffff" in text for text in sealed(run).noticed)
    first = run.started[0]
    assert (first.run_id, first.sequence) == (run.manifest.run_id, 0), "its bytes are in no file"


def test_only_the_lost_workers_shard_is_left_and_can_be_joined(eventful):
    started, run, _ = eventful
    assert shards(started.runs) == ["shard-1"]
    found = join(run.path, list(started.runs.glob("*.shard-1")))
    assert found.seal.started >= sealed(run).started
    assert balanced(found.seal)


def test_a_killed_master_ends_its_workers_and_their_shards_complete_its_folder(tmp_path):
    with (
        running_fake_engine(fake=ANSWER) as fake,
        processes(tmp_path, fake.url, scenario(tmp_path, users=[2], requests=200)) as started,
    ):
        master = started.master("--master", "--master-bind-port", str(started.port))
        worker = started.worker(runs=tmp_path / "elsewhere")
        started.wait(lambda: started.n_ended(0) > 3, "the first records")
        master.kill()
        master.wait()
        assert worker.wait(15) == 1, "a worker without a master ends by itself"
        folder = started.run_folder()
        assert folder is not None
    n_here = started.n_ended(0)
    (shard,) = (tmp_path / "elsewhere").glob("*.shard-0")
    found = join(folder, [shard])
    assert balanced(found.seal)
    assert found.seal.recovered
    assert found.seal.unfinished == 0, "the worker ended what it had under way"
    assert found.seal.completed + found.seal.cancelled >= n_here
    assert found.seal.started < 200
    assert {problem.code for problem in verify(folder)} <= {"recovered", "planned_not_started"}


def test_hundreds_of_simulated_workers_balance_shipped_and_kept():
    """The benchmark's crowd, small: the whole protocol without processes, a network or a server; in memory, for what
    is proven is who has which line, and not the disk."""
    command = ("-m", "benchmarks.master_ceiling", "--records", "120", "--workers", "120", "--chunks", "2")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        done = subprocess.run(
            [sys.executable, *command, "--dir", folder], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert list(Path(folder).iterdir()) == []
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    shipped, kept = found["crowd_ship"], found["crowd_keep"]
    assert (shipped["n_records"], shipped["shards_left"]) == (120, 0)
    assert (kept["n_records"], kept["shards_left"]) == (120, 120)
    assert kept["master_folder_bytes"] < shipped["master_folder_bytes"], "digests in place of bodies"


def ip(*arguments: str) -> bool:
    try:
        return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace at 10.213.77.2 with this one at .1; skipped where the system gives none."""
    name, near, far = f"shards-{os.getpid()}", f"sv0{os.getpid() % 10_000}", f"sv1{os.getpid() % 10_000}"
    try:
        made = (
            ip("netns", "add", name)
            and ip("link", "add", near, "type", "veth", "peer", "name", far)
            and ip("link", "set", far, "netns", name)
            and ip("addr", "add", "10.213.77.1/30", "dev", near)
            and ip("link", "set", near, "up")
            and ip("netns", "exec", name, "ip", "addr", "add", "10.213.77.2/30", "dev", far)
            and ip("netns", "exec", name, "ip", "link", "set", far, "up")
        )
        if not made:
            pytest.skip("no network namespaces here (needs root and veth)")
        yield name
    finally:
        ip("link", "del", near)
        ip("netns", "del", name)


def test_a_worker_on_another_network_sends_its_lines_to_the_master(tmp_path, namespace):
    with (
        running_fake_engine(fake=ANSWER, host="10.213.77.1") as fake,
        processes(tmp_path, fake.url, scenario(tmp_path, users=[2], requests=12)) as started,
    ):
        bind = ("--master-bind-host", "10.213.77.1", "--master-bind-port", str(started.port))
        master = started.master("--master", *bind, "--expect-workers", "2")
        here = ("--master-host", "10.213.77.1")
        started.worker(*here)
        started.worker(*here, network=namespace, runs=tmp_path / "elsewhere")
        out, _ = master.communicate(timeout=60)
        assert master.returncode in (0, 1), started.said()  # 1 where this machine was too busy to keep time
    run = open_run(Path(out.strip().splitlines()[-1]))
    assert sealed(run).completed == 13
    assert {request.worker for request in run.requests} == {0, 1}
    assert shards(tmp_path / "elsewhere") == []


def test_a_refused_run_says_why_and_nothing_of_what_its_workers_say_meanwhile(tmp_path):
    with processes(tmp_path, "http://127.0.0.1:9", scenario(tmp_path, users=[2], requests=4)) as started:
        master = started.master("--processes", "2", "--users", "3")
        master.communicate(timeout=60)
        assert "--users" in started.said()
        assert "Unknown message" not in started.said()
