"""Dashboards: what lies on disk is what the code makes, and every panel's query is answered by the real Prometheus."""

import json
import math
import re
from pathlib import Path

import pytest
import recorded_runs as recorded
import yaml
from prometheus_server import ask, backfill, needs_prometheus, promtool, running_prometheus

from analysis.openmetrics import export
from analysis.openmetrics_text import SampleBook
from infra.boards import grafana_dashboards
from infra.boards.grafana_dashboards import DASHBOARDS, FOLDER, differences, main, write
from infra.boards.grafana_model import DATASOURCE_UID

ROOT = Path(__file__).parents[1]
GRAFANA = ROOT / "infra" / "grafana"
KNOWN_UNITS = {"s", "short", "reqps", "percentunit", "percent", "bytes", "watt", "hertz", "celsius", "Bps"}
# In the shape of the DCGM exporter's and the node exporter's series; the values are made up and say nothing.
HOST_SERIES = {
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "gauge",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "counter",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "counter",
    "node_cpu_seconds_total": "counter",
    "node_memory_MemAvailable_bytes": "gauge",
}


def boards() -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


def panels() -> list[tuple[str, dict]]:
    return [(board["uid"], panel) for board in boards() for panel in board["panels"]]


def test_the_files_are_what_the_code_makes():
    assert differences(FOLDER) == []
    assert main(["--check"]) == 0


def test_a_file_that_was_edited_is_missing_or_strange_is_told(tmp_path, capsys):
    write(tmp_path)
    assert differences(tmp_path) == []
    first = tmp_path / f"{DASHBOARDS[0].uid}.json"
    first.write_text(first.read_text().replace("Time to first token", "TTFT"))
    (tmp_path / f"{DASHBOARDS[1].uid}.json").unlink()
    (tmp_path / "mine.json").write_text("{}")
    assert main(["--check", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "differs" in said and "is missing" in said and "mine.json is not made" in said
    assert main(["--write", "--folder", str(tmp_path)]) == 0
    assert differences(tmp_path) == []


def test_every_dashboard_has_its_own_uid_and_title_and_names_the_data_source_by_uid():
    found = boards()
    assert len(found) == len(grafana_dashboards.DASHBOARDS) >= 5
    assert len({board["uid"] for board in found}) == len({board["title"] for board in found}) == len(found)
    for board in found:
        assert re.fullmatch(r"[a-z0-9-]{1,40}", board["uid"])
        assert board["description"] and board["panels"]
        assert board["graphTooltip"] == 1  # one crosshair: server and client share a time axis
        assert {one["datasource"]["uid"] for one in board["templating"]["list"]} == {DATASOURCE_UID}


@pytest.mark.parametrize(("uid", "panel"), panels(), ids=[f"{uid}: {panel['title']}" for uid, panel in panels()])
def test_every_panel_has_what_grafana_needs_and_a_reader_too(uid, panel):
    assert panel["description"], "a panel says what it shows and what it does not"
    assert panel["type"] in {"timeseries", "bargauge", "table", "stat"}
    assert panel["fieldConfig"]["defaults"]["unit"] in KNOWN_UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": DATASOURCE_UID}
    assert panel["targets"]
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs)
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == DATASOURCE_UID
        assert target["expr"] and target["legendFormat"]
        assert target["instant"] is not target["range"]
        assert "increase(" not in target["expr"]  # it extrapolates
    place = panel["gridPos"]
    assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0


def test_panels_do_not_lie_on_each_other():
    for board in boards():
        taken = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_grafana_is_provisioned_with_the_data_source_the_dashboards_name():
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    assert sources["apiVersion"] == 1
    (source,) = sources["datasources"]
    assert (source["uid"], source["type"]) == (DATASOURCE_UID, "prometheus")
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/dashboards.yml").read_text())
    assert providers["apiVersion"] == 1
    (provider,) = providers["providers"]
    compose = yaml.safe_load((ROOT / "compose.yml").read_text())
    mounts = [str(one) for one in compose["services"]["grafana"]["volumes"]]
    assert any(one.startswith(f"./infra/grafana/dashboards:{provider['options']['path']}") for one in mounts)
    scraped = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]


@pytest.fixture(scope="module")
def backfilled(tmp_path_factory) -> str:
    """A Prometheus that holds three exported runs and a host's series."""
    folder = tmp_path_factory.mktemp("prometheus")
    runs = [recorded.recorded_run(folder / "runs", engine) for engine in recorded.BODIES]
    export(runs, folder / "runs.om")
    book = SampleBook()
    for name, kind in HOST_SERIES.items():
        for second in range(-30, 10):
            labels = {"gpu": "0", "Hostname": "host", "instance": "host:9400", "arm": "llama.cpp-arm", "mode": "idle"}
            book.add(
                family=name.removesuffix("_total"), kind=kind if name.endswith("_total") else "gauge", name=name,
                labels=labels, at_unix_s=recorded.AT_S + second, value=100.0 + second, words="",
            )  # fmt: skip
    with (folder / "host.om").open("w") as out:
        book.write(out)
    for text in ("runs.om", "host.om"):
        backfill(folder / text, folder / "data")
    with running_prometheus(folder / "data") as url:
        yield url


def filled_in(expr: str, *, run_id: str = ".*", arm: str = ".*") -> str:
    known = {"$run_id": run_id, "$arm": arm, "$__rate_interval": "4s", "$__interval": "4s", "$__range": "20s"}
    for name in sorted(known, key=len, reverse=True):
        expr = expr.replace(name, known[name])
    assert "$" not in expr, expr
    return expr


def numbers(url: str, target: dict, **chosen: str) -> list[float]:
    """Every finite number the query gives in the time of the recorded runs."""
    expr = filled_in(target["expr"], **chosen)
    if target["instant"]:
        found = ask(url, "query", query=expr, time=recorded.AT_S + 12)
        return [float(one["value"][1]) for one in found if math.isfinite(float(one["value"][1]))]
    found = ask(url, "query_range", query=expr, start=recorded.AT_S - 2, end=recorded.AT_S + 12, step=1)
    return [float(v) for one in found for _, v in one["values"] if math.isfinite(float(v))]


@needs_prometheus
@pytest.mark.parametrize(("uid", "panel"), panels(), ids=[f"{uid}: {panel['title']}" for uid, panel in panels()])
def test_every_query_of_every_panel_is_answered_from_recorded_runs(backfilled, uid, panel):
    for target in panel["targets"]:
        assert numbers(backfilled, target), f"nothing for {target['expr']}"


@needs_prometheus
def test_the_choice_of_a_run_and_an_arm_leaves_the_others_out(backfilled):
    board = next(one for one in boards() if one["uid"] == "llm-arms")
    target = next(one for one in board["panels"] if one["title"] == "Requests by outcome")["targets"][0]
    assert sum(numbers(backfilled, target)) == 6  # two measured requests of three runs
    assert sum(numbers(backfilled, target, run_id="run-vllm", arm="vllm-arm")) == 2
    assert numbers(backfilled, target, run_id="run-vllm", arm="sglang-arm") == []


@needs_prometheus
def test_the_variables_find_the_runs_and_their_arms(backfilled):
    found = ask(backfilled, "query", query="llm_client_info", time=recorded.AT_S + 3)
    told = {(one["metric"]["run_id"], one["metric"]["arm"]) for one in found}
    assert told == {("run-llamacpp", "llama.cpp-arm"), ("run-vllm", "vllm-arm"), ("run-sglang", "sglang-arm")}


@needs_prometheus
def test_acceptance_on_the_dashboard_is_the_captured_truth(backfilled):
    """One request: 96 of 120 accepted in 40 steps (llama.cpp); 54 of 90 in 30 drafted steps (vLLM), 24/18/12 by place;
    the last bodies add drafts of which none was accepted."""
    rate = next(p for uid, p in panels() if uid == "llm-arms" and p["title"] == "Acceptance rate")["targets"][0]
    found = ask(backfilled, "query", query=filled_in(rate["expr"]), time=recorded.AT_S + 12)
    vllm = next(float(one["value"][1]) for one in found if one["metric"]["arm"] == "vllm-arm")
    assert vllm == pytest.approx(54 / (90 + 60))
    position = next(p for uid, p in panels() if p["title"] == "Accepted by position in the draft")["targets"][0]
    found = ask(backfilled, "query", query=filled_in(position["expr"]), time=recorded.AT_S + 12)
    by_place = {
        one["metric"]["position"]: float(one["value"][1]) for one in found if one["metric"]["arm"] == "vllm-arm"
    }
    assert by_place == pytest.approx({"0": 24 / 50, "1": 18 / 50, "2": 12 / 50})


@needs_prometheus
def test_the_shipped_configuration_is_one_prometheus_takes():
    done = promtool("check", "config", str(ROOT / "infra/prometheus/prometheus.yml"))
    assert done.returncode == 0, done.stderr
