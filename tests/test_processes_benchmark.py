"""The benchmark of several processes, in its smallest form: cells at once, and one ordinary run of two workers."""

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

from benchmarks import processes, whole_run
from benchmarks.process_table import table, with_multiples
from benchmarks.processes import main, needs
from evidence.reading import open_run
from infra.fake_engine import running_fake_engine
from tests.locust_runs import environment
from tests.warm_locust import start_warm

LINUX = hasattr(os, "sched_getaffinity") and sys.platform == "linux"
pytestmark = pytest.mark.skipif(not LINUX, reason="pins processes and shares ports as Linux does")


@pytest.fixture
def sigterm_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_as_it_was")
def test_two_cells_begin_together_and_the_table_tells_them_beside_what_was_offered(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "N_REQUESTS", 1)
    command = ("--parts", "cells", "--processes", "2", "--streams", "3", "--seconds", "0.2", "--repeats", "1")
    assert main([*command, "--oversubscribe", "--json", str(tmp_path / "found")]) == 0
    found = json.loads((tmp_path / "found").read_text())
    (row,) = found["rows"]
    assert (row["n_processes"], len(row["chunks_per_s_each"])) == (2, 2)
    assert row["chunks_per_s"] == pytest.approx(sum(row["chunks_per_s_each"]))
    assert row["times_one"] is None, "one process alone was not measured"
    one_s = 0.05 + 9 / 50  # ten chunks; three streams begin over as long
    assert row["offered_chunks_per_s"] == pytest.approx(2 * 3 * 10 / (one_s * 2 / 3 + one_s))
    assert found["table"][0]["of_offered"] == pytest.approx(row["chunks_per_s"] / row["offered_chunks_per_s"])
    assert row["chunks_per_s"] > 0
    assert (found["fault"], found["host"]["shared"]) == (None, True)


def test_a_whole_run_of_two_workers_tells_its_steady_window_from_its_folder(tmp_path, monkeypatch):
    def warm(argv: list[str], cores: Sequence[int], *, realtime: bool, limit_s: float) -> tuple[int, str, str]:
        process = start_warm(argv[3:], environment())
        said, told = process.communicate(timeout=limit_s)
        return process.wait(), said, told

    monkeypatch.setattr(whole_run, "_ran", warm)
    monkeypatch.setattr(whole_run, "REQUEST_S", 0.2)
    cores = sorted(os.sched_getaffinity(0))
    row = whole_run.whole_run(2, cores, 3, 50.0, seconds=0.3, realtime=False, runs=tmp_path, limit_s=60.0)
    assert row["all_ended"], row
    assert (row["workers"], row["ended_by"], row["n_started"]) == (2, "time", row["n_completed"])
    assert row["verdict"] in ("DEGRADED", "INVALID"), "an engine nobody can name is no VALID run"
    assert "model_revision_unknown" in row["reasons"]
    assert row["chunks_per_s"] == pytest.approx(sum(row["chunks_per_s_each"]))
    assert row["chunks_per_s"] > 0
    assert row["offered_chunks_per_s"] == pytest.approx(6 * 8 / (0.05 + 7 / 50)), "eight chunks, seven gaps"
    run = open_run(next(tmp_path.glob("run-*")))
    unknown = whole_run._told(dataclasses.replace(run, health={}))
    assert (unknown["workers"], unknown["cpu_ratio"], unknown["cpu_us_per_chunk"]) == (0, [None, None], None)
    assert unknown["chunks_per_s_each"] == row["chunks_per_s_each"], "a worker without a health file"


def test_forks_of_a_fake_engine_share_its_port_and_end_with_it():
    with running_fake_engine(processes=3, cpu=sorted(os.sched_getaffinity(0))) as engine:
        first = psutil.Process(engine.process.pid)
        forks = first.children()
        assert len(forks) == 2
        for process in (first, *forks):
            (listener,) = (one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
            assert str(listener.laddr.port) == engine.url.rpartition(":")[2]
    assert psutil.wait_procs(forks, timeout=10)[1] == []


def _row(n: int, repeat: int, per_s: float) -> dict[str, Any]:
    return {
        "part": "cells",
        "load": "2 x 50/s each",
        "n_processes": n,
        "repeat": repeat,
        "chunks_per_s": per_s,
        "offered_chunks_per_s": 100.0 * n,
        "coalesced_ratio": [0.01 * k for k in range(n)],
    }


def test_a_multiple_compares_within_one_repeat_and_the_table_has_the_median_and_the_worst_process():
    rows = with_multiples([_row(1, 0, 100.0), _row(4, 0, 400.0), _row(1, 1, 50.0), _row(4, 1, 190.0), _row(4, 2, 1.0)])
    assert [row["times_one"] for row in rows] == [1.0, 4.0, 1.0, 3.8, None]
    one, four = table(rows)
    assert (one["times_one"], four["times_one"]) == (1.0, pytest.approx(3.9))
    assert (four["chunks_per_s"], four["of_offered"]) == (190.0, pytest.approx(0.475))
    assert (four["coalesced_ratio"], four["coalesced_ratio_worst"]) == (pytest.approx(0.015), 0.03)


def test_what_the_cores_do_not_suffice_for_is_known_beforehand():
    assert [needs("cells", n) for n in (1, 4, 8)] == [2, 8, 16]
    assert [needs("runs", n) for n in (1, 2, 8)] == [2, 3, 12]
    assert whole_run.shares(8, range(16)) == (list(range(7)), list(range(7, 16)))
    assert whole_run.shares(1, [4, 5]) == ([4], [5])
