"""The committed records of the GPU study, analysed anew: the README's table and the page of findings say the same."""

import argparse
import functools
import json
import re
from pathlib import Path

import pytest

from analysis import compare_markdown, sweep
from analysis.bundle import unpack
from analysis.compare_report import Asked, compare_all
from analysis.loading import load_run
from analysis.own_gpus import own_gpus
from analysis.study_check import check_study_folder
from analysis.summary import summarise
from evidence.reading import open_run

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "sglang-h200"
PAGE = (EXAMPLE / "README.md").read_text(encoding="utf-8")
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h200")


@functools.cache
def laid_out(at: Path, name: str) -> Path:
    """One bundle unpacked, every hash verified: the study's folder, or the run's."""
    manifest = unpack(EXAMPLE / f"{name}.bundle.tar.xz", at / name)
    assert [folder.path for folder in manifest.folders if folder.problems] == []
    return at / name / manifest.id


@functools.cache
def compared(at: Path, name: str) -> dict:
    report, _ = compare_all(*check_study_folder(laid_out(at, name)), Asked())
    return report


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_all_of_it_is_small_enough_to_be_cloned():
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) <= MOST_BYTES


def test_the_readmes_table_is_what_the_records_say_today(at):
    shown = re.search(
        r"<!-- results:begin -->\n(.*?)\n<!-- results:end -->", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert shown is not None
    told = ["\n".join(compare_markdown.lines(compared(at, name))) for name in ("main", "drafts")]
    assert shown[1] == "\n\n".join(told)


def test_the_control_is_as_wide_as_the_page_says_and_its_answers_are_the_same(at):
    control = compared(at, "main")["control"]
    assert f"[{control['interval'][0]:.3f},\n{control['interval'][1]:.3f}]".replace("\n", " ") in PAGE.replace(
        "\n", " "
    )
    assert (control["outputs_equal"], control["outputs_compared"], control["outputs_class"]) == (90, 90, "identical")
    for arm in compared(at, "main")["arms"]:
        assert arm["verdict"] == "not resolved"
        assert f"| {arm['ratio']:.3f} | [{arm['interval'][0]:.3f}, {arm['interval'][1]:.3f}] |" in PAGE
        assert f"| {arm['mde']:.1%}".replace("%", " %") in PAGE


def test_a_random_head_is_a_measured_zero_and_another_vocabulary_is_not_measured(at):
    arms = {one["arm"].removeprefix("sglang-smollm2-"): one for one in compared(at, "drafts")["arms"]}
    found = arms["eagle3-random"]["acceptance"]
    assert (found["state"], found["n_drafted"], found["n_accepted"]) == ("zero", 9117, 0)
    lost = arms["badvocab"]["not_measured"]
    assert lost["stage"] == "draft"
    assert "target vocab_size=49152 and draft vocab_size=49088" in lost["symptom"]
    assert (Path(lost["folder"]) / "engine.log").is_file()
    for name in ("standalone-distilled", "standalone-self", "eagle3-random"):
        cost, low_high = arms[name]["cycle_cost"], arms[name]["prompt_sampling_interval"]
        said = f"| {cost['tokens_per_step']:.3f} | {cost['cost']:.2f} | {arms[name]['ratio']:.3f} | "
        assert said + f"[{low_high[0]:.3f}, {low_high[1]:.3f}] |" in PAGE


def test_prompts_sent_again_are_found_out_by_their_rate(at):
    run = load_run(laid_out(at, "repeats"))
    assert {reason.code for reason in run.reasons} == {"passes_differ"}
    (seen,) = {reason.seen for reason in run.reasons}
    assert "decode at 2.24 times the rate when sent again (2; 95 % interval over prompts [1.36, 3.67])" in seen


def test_requests_queue_where_the_pool_is_full(at):
    study = laid_out(at, "capacity")
    manifests = {one: json.loads((one / "manifest.json").read_bytes()) for one in (study / "runs").iterdir()}
    (path,) = (one for one, told in manifests.items() if told["arm"]["name"] == "sglang-smollm2-pool4k")
    levels = summarise(load_run(path, raw_limit_bytes=0))["levels"]
    queued = {one["label"]: one["server"]["queue_s"]["mean"] * 1e3 for one in levels}
    shown = {f"users={row[0]}": row[1] for row in rows_of(PAGE) if len(row) == 10 and row[0].isdigit()}
    assert {label: f"{value:.2f}" if value < 10 else f"{value:.1f}" for label, value in queued.items()} == shown


def test_a_longer_prompt_makes_a_cycle_dearer_by_the_counters_around_each_level(at):
    _, report, _ = sweep.command(argparse.Namespace(run=laid_out(at, "context"), attainment=0.9))
    (arm,) = report["arms"]
    told = {one["level"]: (one["cycle_cost"] or {}).get("cost") for one in arm["levels"]}
    assert {level: None if cost is None else round(cost, 2) for level, cost in told.items()} == {
        "tokens=256": 3.0, "tokens=512": None, "tokens=1024": 3.16, "tokens=2048": 4.16, "tokens=3500": 4.65,
    }  # fmt: skip
    unknown = next(one for one in arm["levels"] if one["level"] == "tokens=512")
    assert "a first segment held more than the first token" in unknown["why"]["cycle_cost"]


def test_a_neighbours_gpu_is_none_of_the_runs_own(at):
    """Both GPUs were at work, and sampled; the study gave its servers the first one."""
    path = next(iter(sorted((laid_out(at, "main") / "runs").iterdir())))
    run = load_run(path, raw_limit_bytes=0)
    assert {gpu.index for sample in run.gpu for gpu in sample.gpus} == {0}
    assert {len(sample.gpus) for sample in open_run(path).gpu} == {2}
    assert own_gpus(run.manifest).named == ("0",)
    bare = run.manifest.model_copy(update={"launch_id": None})
    assert own_gpus(bare).named is None
    two_kinds = run.manifest.hardware | {"gpus": [{"name": "A"}, {"name": "B"}]}
    assert own_gpus(run.manifest.model_copy(update={"hardware": two_kinds})).named is None
