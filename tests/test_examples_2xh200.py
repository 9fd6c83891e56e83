"""The committed records of two GPUs, read anew: the page says what they say."""

import functools
import json
from pathlib import Path

import pytest

from analysis.bundle import unpack
from analysis.compare_report import Asked, compare_all
from analysis.profiled import traces_of
from analysis.study_check import check_study_folder
from analysis.study_loading import load_pairs
from analysis.tables import ms
from analysis.trace import trace

EXAMPLE = Path(__file__).parent.parent / "examples" / "sglang-2xh200"
PAGE = (EXAMPLE / "README.md").read_text(encoding="utf-8")
MOST_BYTES = 5_000_000
LOST = {"recovered", "planned_not_started", "unfinished"}  # of the launch under way when its host was taken away


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("2xh200")


@functools.cache
def laid_out(at: Path, name: str) -> Path:
    """One bundle unpacked, every hash verified: the study's folder, or the run's."""
    manifest = unpack(EXAMPLE / f"{name}.bundle.tar.xz", at / name)
    assert {one for folder in manifest.folders for one in folder.problems} <= LOST
    return at / name / manifest.id


def study(at: Path, name: str) -> dict:
    report, _ = compare_all(*check_study_folder(laid_out(at, name)), Asked())
    return report["arms"][0]


def runs(at: Path, base: list[str], arm: list[str]) -> dict:
    pairs = load_pairs([laid_out(at, one) for one in base], [laid_out(at, one) for one in arm])
    report, _ = compare_all(pairs, None, Asked())
    return report["arms"][0]


def row(cost: dict, digits: int) -> str:
    """Step, cycle and break-even as the page's tables show them."""
    step, cycle = (f"{cost[key] * 1e3:.{digits}f} ms" for key in ("t_base_s", "t_cycle_s"))
    return f"| {step} | {cycle} | {cost['cost']:.3f} |"


def test_all_of_it_is_small_enough_to_be_cloned():
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) <= MOST_BYTES


@pytest.mark.parametrize(("name", "interval"), [("tp1", "[1.201, 1.237]"), ("tp2", "[1.225, 1.347]")])
def test_steps_and_cycles_of_the_large_shape_are_the_pages(at, name, interval):
    arm = study(at, name)
    assert f"{row(arm['cycle_cost'], 1)} {interval} |" in PAGE
    assert arm["n_launches"] == 3
    assert (arm["outputs_equal"], arm["outputs_compared"]) == (18, 18)


def test_the_study_whose_host_was_taken_away_stands_on_what_it_measured(at):
    material, judged = check_study_folder(laid_out(at, "tp2"))
    assert judged.verdict == "DEGRADED"
    assert {one.code for one in judged.reasons} == {"recovered", "cell_failed", "cell_dropped", "no_control"}
    assert material.folder is not None
    assert [cell.state for cell in material.folder.study.cells] == ["done"] * 6 + ["failed", "dropped"]


def test_without_peer_to_peer_a_cycle_costs_what_the_page_says(at):
    arm = runs(at, ["nop2p-baseline-1", "nop2p-baseline-2"], ["nop2p-ngram-1", "nop2p-ngram-2"])
    assert row(arm["cycle_cost"], 1) in PAGE
    assert arm["n_launches"] == 1


@pytest.mark.parametrize("name", ["small-tp1", "small-tp2"])
def test_steps_and_cycles_of_the_small_shape_are_the_pages(at, name):
    arm = runs(at, [f"{name}-baseline-1", f"{name}-baseline-2"], [f"{name}-ngram-1", f"{name}-ngram-2"])
    assert row(arm["cycle_cost"], 2) in PAGE


def collectives(report: dict, positions: int) -> str:
    """A row of the page's table of collectives, after its name."""
    waiting = report["across_ranks"]["waiting"]
    (n,) = {rank["collective"]["n_per_pass"] for rank in report["ranks"]}
    each = waiting["s_per_pass"] * 1e3
    waited = " and ".join(ms(one) for one in waiting["waited_s"])
    return f"| {n:.0f} | {each:.2f} ms | {each / positions:.2f} ms | {waited} ms |"


def shares(report: dict) -> str:
    """A row of the page's table of shares, after its name: milliseconds by class, each rank's."""
    classes = ("matrix", "attention", "collective", "copy", "other", "idle")
    told = [[ms(rank["classes"][name]["time_s"]) for rank in report["ranks"]] for name in classes]
    return "| " + " | ".join(" / ".join(one) for one in told) + " |"


@pytest.mark.parametrize(("arm", "name", "positions"), [("baseline", "baseline", 1), ("ngram", "NGRAM", 12)])
def test_both_ranks_traces_are_the_pages_rows(at, arm, name, positions):
    path = laid_out(at, f"profiled-tp2-{arm}")
    report = trace(traces_of(path), run=path)
    of = f"{name}, {positions} position{'s' * (positions > 1)}"
    assert f"\n| {of} {collectives(report, positions)}\n" in PAGE
    assert f"\n| TP=2, {name} {shares(report)}\n" in PAGE
    windows = report["requests"]["windows"]
    assert {(one["prompt_id"], one["n_passes_alone"]) for window in windows for one in window["requests"]} == {
        ("code_01", 6)
    }


@pytest.mark.parametrize(("arm", "name", "positions"), [("baseline", "baseline", 1), ("ngram", "NGRAM", 12)])
def test_kept_readings_of_traces_are_the_pages_rows(arm, name, positions):
    report = json.loads((EXAMPLE / "traces" / f"nop2p-{arm}.trace.json").read_bytes())
    of = f"without peer-to-peer: {name}, {positions} position{'s' * (positions > 1)}"
    assert f"\n| {of} {collectives(report, positions)}\n" in PAGE
    assert f"\n| no peer-to-peer, {name} {shares(report)}\n" in PAGE
    for rank in report["ranks"]:
        names = {one["name"].partition("(")[0] for one in rank["top"]["collective"]}
        assert names == {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllGather_RING_LL"}


def test_hosts_and_cores_are_those_of_the_pages_conditions(at):
    names = ["tp1", "small-tp1-baseline-1", "tp2", "profiled-tp2-ngram", "nop2p-ngram-1", "small-tp2-ngram-1"]
    found = {}
    for name in names:
        manifest = json.loads(next(iter(sorted(laid_out(at, name).glob("**/manifest.json")))).read_bytes())
        hardware = manifest["hardware"]
        found[name] = (hardware["gpus"][0]["uuid"], hardware["client_cores_usable"])
    hosts = {name: uuid for name, (uuid, _) in found.items()}
    assert [cores for _, cores in found.values()] == [16, 16, 32, 32, 32, 32]
    assert hosts["tp1"] == hosts["small-tp1-baseline-1"] == hosts["tp2"]
    assert hosts["profiled-tp2-ngram"] == hosts["nop2p-ngram-1"] == hosts["small-tp2-ngram-1"] != hosts["tp1"]
