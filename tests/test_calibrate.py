"""A client that knows its error: calibrated by an ordinary run, cited by later ones, and judged by."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.__main__ import main as analysis_main
from analysis.client_floor import beyond, floors, unverified
from analysis.facts import Floor
from analysis.measures import Row, measure
from analysis.tables import fine_ms
from analysis.verdict import judge
from evidence.calibration_records import Calibration, doubts, read_calibration
from evidence.errors import EvidenceError
from evidence.inventory import find_folders
from evidence.layout import SEAL
from evidence.reading import open_run
from evidence.records import Request
from infra.fake_engine import running_fake_engine
from locustfiles._calibration import cited_calibration
from locustfiles._options import UsageError
from study.__main__ import main
from study.calibrate import (
    FEWEST_TOKENS,
    CalibrationError,
    _client,
    _refuse_without_verdict,
    load_of,
    streams_of,
)
from study.calibration_text import time_text
from study.client_error import Differences
from tests.locust_runs import ROOT, environment, run_locust, scenario
from tests.run_factory import request
from tests.test_verdict import GOOD


def calibrate(*arguments: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [sys.executable, "-m", "study", "calibrate", *arguments, "--json"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A runs folder with one small calibration, and what the command printed."""
    runs = tmp_path_factory.mktemp("calibrated") / "runs"
    code, printed, said = calibrate("--streams", "4", "--seconds", "1", "--run-dir", str(runs))
    assert code == 0, said
    return runs, printed


def test_a_calibration_is_an_ordinary_run_and_a_record_beside_it(made: tuple[Path, dict[str, Any]]):
    runs, printed = made
    found, digest = read_calibration(Path(printed["file"]))
    assert len(digest) == 64
    run = open_run((Path(printed["file"]).parent / found.run_dir).resolve())
    assert (run.path / SEAL).is_file()
    assert run.manifest.run_id == found.run_id
    assert run.manifest.label == "calibration"
    assert [level.users for level in run.levels] == [4]
    assert Path(printed["file"]).parent == runs / "calibrations"
    assert [one.path.resolve() for one in find_folders(runs)] == [run.path], "no folder of runs for who lists them"


def test_it_has_the_floor_of_every_metric_and_says_which_quantile_it_is(made: tuple[Path, dict[str, Any]]):
    _, printed = made
    assert set(printed["client_floor_s"]) == {"ttft_s", "ttfv_s", "chunk_gap_s", "tpot_s", "e2e_s"}
    assert set(printed["errors"]) == {"ttft_s", "chunk_gap_s", "tpot_s", "e2e_s", "decode_tok_per_s"}
    assert printed["n_requests"] == 12
    assert printed["n_left_out"] == 0
    assert printed["floor_quantile"]["ttft_s"] == "largest"
    assert printed["client_floor_s"]["ttft_s"] == printed["errors"]["ttft_s"]["largest"]
    gaps = printed["errors"]["chunk_gap_s"]
    assert gaps["n"] == 12 * (printed["truth"]["n_tokens"] - 1)
    assert 0 <= gaps["p50"] <= gaps["largest"]


def test_the_health_of_the_run_stands_in_the_record(made: tuple[Path, dict[str, Any]]):
    _, printed = made
    assert 0 <= printed["client"]["coalesced_ratio"] <= 1
    assert printed["client"]["lag_max_s"] > 0
    run = open_run(Path(printed["file"]).parent / printed["run_dir"])
    lines = [line for line in run.health[0] if line.n_chunks]
    assert sum(line.n_chunks or 0 for line in lines) == sum(len(one.chunks) for one in run.requests)
    assert sum((line.n_connected or 0) + (line.n_reused or 0) for line in lines) == len(run.requests)
    assert all(line.kernel_to_user_p99_s is None or line.kernel_to_user_p99_s >= 0 for line in lines)


def test_a_later_run_cites_it_and_its_summary_carries_the_floor(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs, printed = made
    with running_fake_engine(fake={"ttft_s": 0.02, "gap_s": 0.004}) as engine:
        cited = run_locust(engine.url, scenario(tmp_path), runs)
    manifest = cited.run.manifest
    assert manifest.calibration["calibration_id"] == printed["calibration_id"]
    assert manifest.calibration["differs"] == []
    assert "calibration" not in {one.what for one in manifest.missing}
    analysis_main(["summary", str(cited.folder), "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert summary["client_floor_s"] == printed["client_floor_s"]
    assert summary["calibration"]["n_streams"] == 4
    assert not any("under way" in said for said in summary["calibration"]["beyond"])


@pytest.mark.parametrize("arguments", [("--streams", "0"), ("--chunks-per-s", "nan"), ("--scenario", "none.toml")])
def test_a_load_that_is_none_is_a_usage_error(
    arguments: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    try:
        code: Any = main(["calibrate", *arguments, "--run-dir", str(tmp_path)])
    except SystemExit as stopped:  # argparse
        code = stopped.code
    assert code == 2
    assert arguments[1] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_calibration_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path):
    with pytest.raises(EvidenceError, match="study calibrate"):
        read_calibration(tmp_path / "none.json")


@pytest.mark.parametrize(("n_streams", "per_s"), [(1, 50.0), (16, 50.0), (64, 50.0), (512, 40.0), (3, 1000.0)])
def test_the_load_takes_about_the_time_asked_and_has_enough_requests_where_it_can(n_streams: int, per_s: float):
    load = load_of(n_streams, per_s, 20.0)
    each = load.n_requests // n_streams
    assert load.n_tokens >= FEWEST_TOKENS
    assert 15.0 < each * load.request_s < 25.0
    assert load.n_requests >= 662 or n_streams < 16


def test_streams_come_from_the_largest_level_of_a_scenario(tmp_path: Path):
    assert streams_of(scenario(tmp_path)) == 1
    path = tmp_path / "levels.toml"
    path.write_text(
        'name = "l"\nkind = "concurrency"\n[mix]\ndomains = { code = 1 }\n[request]\nmax_tokens = { code = 8 }\n'
        "[levels]\nusers = [2, 24, 8]\nrequests = 24\n"
    )
    assert streams_of(path) == 24


@pytest.mark.parametrize(("n", "name"), [(662, "p99"), (661, "p95"), (130, "p95"), (129, "p90"), (63, "largest")])
def test_the_floor_is_the_highest_quantile_that_its_values_bear(n: int, name: str):
    found = Differences()
    found.by_metric["ttft_s"] = [-k / 1000 for k in range(n)]
    floor = found.floor("ttft_s")
    assert floor is not None
    assert floor[1] == name
    assert floor[0] >= 0
    error = found.error("ttft_s")
    assert error is not None
    assert error.bias < 0 <= error.p50
    assert (error.p99 is None) == (n < 662)


def rows(*ttft_by_level: tuple[str, float]) -> list[Row]:
    found = []
    for level, ttft_s in ttft_by_level:
        one = request().model_copy(update={"level": level, "first_token_after_s": ttft_s})
        found.append(Row(request=one, measures=measure(one, max_draft_tokens=None)))
    return found


def test_a_floor_stands_beside_the_smallest_median_of_a_level():
    found = {one.metric: one for one in floors({"client_floor_s": {"ttft_s": 0.01}}, rows(("a", 0.2), ("b", 0.04)))}
    assert (found["ttft_s"].level, found["ttft_s"].median_s) == ("b", 0.04)


def test_a_floor_of_the_chunk_gap_is_shown_and_judges_nothing():
    (found,) = floors({"client_floor_s": {"chunk_gap_s": 0.5}}, rows(("a", 0.2)))
    assert (found.metric, found.floor_s, found.median_s) == ("chunk_gap_s", 0.5, None)


def under_way(n: int, *, worker: int = 0) -> list[Request]:
    """``n`` requests at once, of a chunk each 10 ms."""
    marks = tuple((0.1 + 0.01 * k, k, k + 1, 1) for k in range(101))
    changes = {"sent_at_monotonic_s": 5.0, "end_after_s": 1.2, "chunks": marks, "worker": worker}
    return [request().model_copy(update=changes) for _ in range(n)]


def test_a_run_within_its_calibration_has_nothing_said_of_it():
    assert beyond({"n_streams": 4, "total_chunks_per_s": 400.0}, under_way(4)) == []


def test_more_streams_and_more_chunks_than_calibrated_are_said_with_both_numbers():
    said = beyond({"n_streams": 4, "total_chunks_per_s": 400.0}, under_way(8))
    assert said == [
        "8 requests under way at once in one process, calibrated at 4",
        "800 chunks/s in one process, calibrated at 400",
    ]


def test_streams_dealt_to_two_processes_are_counted_for_each():
    both = [*under_way(4, worker=0), *under_way(4, worker=1)]
    assert beyond({"n_streams": 4, "total_chunks_per_s": None}, both) == []


def choose(
    made: Calibration, users: int = 1, n_workers: int = 1, hardware: dict[str, Any] | None = None, **options: Any
) -> Any:
    """What a run of so many users cites, and why none."""
    hardware = made.hardware if hardware is None else hardware
    fixed = {"calibration": None, "cite_calibration": True, "transport": "wire"}
    plan: Any = SimpleNamespace(levels=(SimpleNamespace(users=users),), scenario=SimpleNamespace(arrivals=None))
    asked: Any = SimpleNamespace(**(fixed | options))
    return cited_calibration(asked, plan, n_workers=n_workers, hardware=hardware, versions=made.versions)


def test_the_best_fit_is_the_lightest_calibration_that_covers_the_run(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
):
    found, _ = read_calibration(Path(made[1]["file"]))
    folder = tmp_path / "runs" / "calibrations"
    folder.mkdir(parents=True)
    for name, n_streams, versions in (("a", 64, {}), ("b", 16, {}), ("c", 8, {}), ("d", 16, {"gevent": "0"})):
        one = found.model_copy(
            update={"calibration_id": name, "n_streams": n_streams, "versions": {**found.versions, **versions}}
        )
        (folder / f"{name}.json").write_text(one.model_dump_json())
    (folder / "torn.json").write_text("{")

    def best(users: int, n_workers: int = 1) -> str:
        return choose(found, users, n_workers, run_dir=tmp_path / "runs")[0]["calibration_id"]

    assert [best(users) for users in (1, 8, 9, 16, 17, 64, 200)] == ["c", "c", "b", "b", "a", "a", "a"]
    assert best(32, n_workers=2) == "b"
    assert choose(found, run_dir=tmp_path / "runs", transport="openai")[0] is None


def test_a_named_calibration_that_does_not_fit_is_cited_with_what_differs(made: tuple[Path, dict[str, Any]]):
    found, _ = read_calibration(Path(made[1]["file"]))
    cited, _ = choose(found, run_dir=made[0], transport="openai", calibration=Path(made[1]["file"]))
    assert cited["differs"] == ["transport: wire there, openai here"]


def test_a_run_may_be_asked_to_cite_none(made: tuple[Path, dict[str, Any]]):
    found, _ = read_calibration(Path(made[1]["file"]))
    cited, missing = choose(found, run_dir=made[0], cite_calibration=False)
    assert cited is None
    assert missing.why == "the run was asked to cite none"


def test_a_file_that_is_no_calibration_is_refused(made: tuple[Path, dict[str, Any]], tmp_path: Path):
    wrong = tmp_path / "c.json"
    wrong.write_text("{}")
    found, _ = read_calibration(Path(made[1]["file"]))
    with pytest.raises(UsageError, match="is no calibration"):
        choose(found, run_dir=tmp_path, calibration=wrong)


def test_two_processors_that_nobody_knows_are_not_the_same_one(made: tuple[Path, dict[str, Any]], tmp_path: Path):
    found, _ = read_calibration(Path(made[1]["file"]))
    unknown = found.model_copy(update={"hardware": found.hardware | {"client_cpu_model": None}})
    path = tmp_path / "unknown.json"
    path.write_text(unknown.model_dump_json())
    cited, _ = choose(unknown, run_dir=tmp_path, calibration=path)
    assert cited["differs"][0] == "client_cpu_model: unknown there, unknown here"


def test_calibrations_that_cannot_be_read_are_named_where_none_is_cited(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
):
    folder = tmp_path / "runs" / "calibrations"
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"torn-{number}.json").write_text("{")
    found, _ = read_calibration(Path(made[1]["file"]))
    cited, missing = choose(found, run_dir=tmp_path / "runs", hardware={"client_cpu_model": "another"})
    assert cited is None
    assert "torn-2.json" in missing.why and "torn-3.json" not in missing.why
    assert missing.why.endswith("(and 2 more)")


def test_what_no_health_line_tells_is_unknown_and_weighs_in_no_mean():
    def line(**changes: Any) -> SimpleNamespace:
        names = ("lag_max_s", "kernel_to_user_max_s", "coalesced_chunks", "n_chunks", "cpu_ratio", "load_1m")
        return SimpleNamespace(**(dict.fromkeys(names) | {"in_flight": 1, "gc_pause_max_s": 0.0} | changes))

    def client(*lines: SimpleNamespace) -> Any:
        return _client(SimpleNamespace(health={0: lines}))  # type: ignore[arg-type]  only its health is read

    nothing = client(line())
    assert (nothing["cpu_ratio_mean"], nothing["coalesced_ratio"]) == (None, None)
    found = client(line(), line(cpu_ratio=0.5, n_chunks=10, coalesced_chunks=1), line(n_chunks=90))
    assert (found["cpu_ratio_mean"], found["coalesced_ratio"]) == (0.5, 0.1)


def test_a_calibration_that_cannot_be_traced_to_its_run_is_cited_with_what_is_in_doubt(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
):
    runs = made[0]
    found, _ = read_calibration(Path(made[1]["file"]))
    assert doubts(Path(made[1]["file"]), found) == []
    forged = {
        "not there": found.model_copy(update={"run_dir": "../none"}),
        "differs": found.model_copy(update={"run_seal_sha256": "0" * 64}),
        "in the future": found.model_copy(update={"made_at_unix_s": found.made_at_unix_s + 1e6}),
    }
    for said, one in forged.items():
        (doubt,) = doubts(runs / "calibrations" / "forged.json", one)
        assert said in doubt and doubt.endswith("not verified")
    lone = tmp_path / "runs" / "calibrations" / "forged.json"
    lone.parent.mkdir(parents=True)
    lone.write_text(found.model_dump_json())
    cited, _ = choose(found, run_dir=tmp_path / "runs")
    assert "is not there: not verified" in cited["differs"][0]
    assert unverified(cited, tmp_path / "runs" / "run-1") == [], "it is said with what differs"
    assert "is not there" in unverified({**cited, "differs": []}, tmp_path / "runs" / "run-1")[0]


def test_a_traced_calibration_is_taken_before_a_forged_one_that_fits_better(made: tuple[Path, dict[str, Any]]):
    found, _ = read_calibration(Path(made[1]["file"]))
    forged = made[0] / "calibrations" / "forged.json"
    lighter = {"n_streams": 1, "calibration_id": "forged", "run_seal_sha256": "0" * 64}
    forged.write_text(found.model_copy(update=lighter).model_dump_json())
    try:
        cited, _ = choose(found, run_dir=made[0])
    finally:
        forged.unlink()
    assert cited["calibration_id"] == found.calibration_id


def test_a_file_that_is_no_calibration_is_refused_without_a_librarys_address(tmp_path: Path):
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(EvidenceError, match=r"is no calibration: calibration_id: Field required") as caught:
        read_calibration(tmp_path / "c.json")
    assert "further information" not in str(caught.value)


def test_a_run_that_the_check_cannot_judge_calibrates_nothing(tmp_path: Path):
    (tmp_path / "run-1").mkdir()
    with pytest.raises(CalibrationError, match="came to no verdict, so nothing is calibrated; it ended with 2"):
        _refuse_without_verdict(tmp_path / "run-1")


def test_times_of_a_calibration_are_printed_in_a_unit_that_can_be_read():
    assert [time_text(value) for value in (6.4e-7, 2.09e-4, 0.02125)] == ["0.64 us", "209 us", "21.25 ms"]
    assert fine_ms(3e-6) == "0.0030"
    assert fine_ms(0.00043) == "0.43"


def test_equal_floors_of_two_times_are_one_finding_in_milliseconds():
    both = tuple(Floor(metric=name, scope="latency", floor_s=2e-5, median_s=1e-4) for name in ("ttft_s", "ttfv_s"))
    (reason,) = (one for one in judge(replace(GOOD, floors=both)) if one.code == "client_floor")
    assert reason.seen == "client floor of ttft_s and ttfv_s: 0.0200 ms beside a median of 0.10 ms"
