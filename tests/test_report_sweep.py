"""The report's sections on levels, capacity and the GPU's time: numbers of the commands, links that lead on."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from analysis import report_traces
from analysis.__main__ import main
from analysis.trace import trace
from tests.level_factory import Played, make_level_run, make_sweep_study
from tests.test_report import HOSTILE, Page, at, made
from tests.traces import BASE, kernel, write

FAST = Played(accepted=2, cost=lambda n: 1.6 + 0.25 * n, blocks=300)
USERS = (1, 4, 16)


def swept(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["sweep", str(path), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    root = tmp_path_factory.mktemp("study")
    path = make_sweep_study(root, "concurrency", USERS, {"base": Played(), "fast": FAST}, n=18, launches=2, control=1)
    return path, made(path, root / "report.html")[1]


def charts(page: Page) -> list[str | None]:
    return [found.get("data-chart") for name, found in page.tags if name == "figure"]


def test_every_number_of_the_sweep_is_that_of_the_command(study, capsys):
    path, page = study
    found = swept(path, capsys)
    own = [(where, value) for where, value, _ in page.numbers if where.startswith("sweep.")]
    assert len(own) > 100
    for where, value in own:
        assert repr(at({"sweep": found}, where)) == value, where
    paths = {where for where, _ in own}
    assert {"sweep.levels.0.ttft_s.median", "sweep.arms.0.levels.0.throughput.ratio"} <= paths
    assert {"sweep.capacity.0.tokens", "sweep.levels.0.launches.0.server.queue_s.mean"} <= paths


def test_the_charts_draw_the_commands_numbers_with_the_arms_apart(study, capsys):
    path, page = study
    found = swept(path, capsys)
    drawn = page.data["sweep"]
    assert {"curve", "sweep", "breakeven"} <= set(charts(page))
    assert len({one["series"] for one in drawn["levels"]}) == 3  # baseline, arm, control
    for shown, said in zip(drawn["levels"], found["levels"], strict=True):
        assert (shown["tok"], shown["ttft"]["median"]) == (said["full_output_tok_per_s"], said["ttft_s"]["median"])
    assert drawn["arms"][0]["break_even"] == found["arms"][0]["break_even"]
    assert found["arms"][0]["break_even"]["throughput"]["said"] in page.text


def test_each_level_leads_to_its_requests_and_each_quantile_to_the_request_that_has_it(study):
    _, page = study
    assert len(page.ids) == len(set(page.ids))
    missing = {link for link in page.links if link.startswith("#") and unquote(link[1:]) not in page.ids}
    assert missing == set()
    assert {one["href"] for one in page.data["sweep"]["levels"]} <= set(page.ids)
    cells = page.html.split('data-path="sweep.levels.0.ttft_s.median"')[0].rpartition('<a href="#r')[2]
    number = int(cells.partition('"')[0])
    row = page.requests[number]
    assert row["level"] == "users=1" and row["ttft_s"] == page.data["sweep"]["levels"][0]["ttft"]["median"]


def test_a_run_by_itself_has_its_levels_and_claims_no_ratio(tmp_path):
    path = make_level_run(tmp_path / "runs", "arrivals", (1.0, 8.0), n=12)
    _, page = made(path, tmp_path / "report.html")
    assert made(path, tmp_path / "report.html")[1].html == page.html  # the same evidence, the same bytes
    assert "sweep" in page.ids and "capacity" in page.ids
    assert "breakeven" not in charts(page) and {"curve", "sweep"} <= set(charts(page))
    assert "E2E* ms" in page.text and "from the instant a request was scheduled for" in page.text
    assert "nothing is said between or beyond the levels that were run" in page.text


def test_goodput_stands_beside_the_comparison_where_objectives_are_set(study, capsys):
    path, page = study
    main(["compare", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    shown = {where: value for where, value, _ in page.numbers if ".goodput." in where}
    assert shown
    for where, value in shown.items():
        assert repr(at({"compare": found}, where)) == value


def test_the_capacity_section_keeps_its_sources_apart_and_says_what_a_driver_difference_is_not(study):
    _, page = study
    assert "The three are different things and are never mixed" in page.text
    assert "is not the cost of an algorithm" in page.text and "30 layers x 3 KV heads" in page.text


def test_a_hostile_arm_name_does_not_run(tmp_path):
    made_run = make_level_run(tmp_path / "runs", "concurrency", (1, 2), n=4, arm_name=HOSTILE)
    _, page = made(made_run, tmp_path / "report.html")
    assert [name for name, _ in page.tags if name in ("img", "iframe")] == []
    assert sum(name == "script" for name, _ in page.tags) == 2


def test_a_thousand_requests_over_levels_stay_below_five_megabytes(tmp_path):
    path = make_level_run(tmp_path / "runs", "concurrency", (1, 2, 4, 8), n=250)
    said, _ = made(path, tmp_path / "report.html")
    assert said["n_requests"] == 1000 and said["n_bytes"] < 5_000_000


def traced(tmp_path: Path, *files: Path) -> tuple[Path, Page]:
    path = make_level_run(tmp_path / "runs", "concurrency", (1,), n=4)
    (path / "traces").mkdir()
    for file in files:
        shutil.copy(file, path / "traces")
    return path, made(path, tmp_path / "report.html")[1]


def test_the_shares_of_a_runs_traces_are_those_of_trace(tmp_path):
    path, page = traced(tmp_path, BASE)
    (rank,) = trace(sorted((path / "traces").iterdir()), run=path)["ranks"]
    ((drawn,),) = page.data["traces"]
    assert dict(map(tuple, drawn["shares"])) == {name: one["share"] for name, one in rank["classes"].items()}
    assert sum(share for _, share in drawn["shares"]) == pytest.approx(1)
    assert "traces" in page.ids and "shares" in charts(page) and "1754" in page.text


def test_a_trace_cut_short_is_named_and_gives_no_share(tmp_path):
    whole = write(tmp_path / "a.trace.json", [kernel("gemm", 0, 5), kernel("gemm", 9, 5)], packed=False)
    cut = tmp_path / "cut.trace.json"
    cut.write_bytes(whole.read_bytes()[:-40])
    _, page = traced(tmp_path, cut)
    assert page.data["traces"] == [] and "the trace was not read whole" in page.text


def test_a_report_of_trace_kept_beside_the_run_stands_in_place_of_reading(tmp_path, monkeypatch):
    path, _ = traced(tmp_path, BASE)
    kept = path.with_name(f"{path.name}.trace.json")
    kept.write_text(json.dumps(trace(sorted((path / "traces").iterdir()), run=path)))
    monkeypatch.setattr(report_traces, "MOST_BYTES", 0)
    assert "shares" in charts(made(path, tmp_path / "report.html")[1])
    kept.write_text('{"ranks": 3}')
    assert "is no report of trace --json" in made(path, tmp_path / "report.html")[1].text


def test_traces_too_large_for_a_page_are_named_with_the_command_that_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr(report_traces, "MOST_BYTES", 1000)
    _, page = traced(tmp_path, BASE)
    assert page.data["traces"] == [] and "python -m analysis trace --json --run" in page.text
