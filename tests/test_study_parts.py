"""The parts of the study driver that start nothing: sizes, budgets, environments, what is expected of the demo."""

import io
from pathlib import Path
from typing import Any

import pytest
import studies

from evidence.study_records import Cell, Smoke
from infra.launching.ports import FIRST, N_PORTS, free_port
from infra.launching.recipes import load_arm
from scenarios.strict_toml import ScenarioError
from scenarios.study_file import StudyFile, load_study
from study import demo, pace
from study.arms import load_arms
from study.begin import new_study, taken_up
from study.environment import OverrideError, read_overrides, recorded
from study.order import cells_of, drop_for
from study.pace import Bar, Pace
from study.replay import command
from study.starts import preflight
from study.workload import Workload, workload_of
from tests.locust_runs import ROOT, scenario
from tests.model_folders import folder, qwen_1_5b
from tests.study_arms import write_arm, write_study
from tests.terminal import Terminal

POISSON = '[arrivals]\nprocess = "poisson"'


def a_workload(folder: Path, kind: str, section: str) -> Workload:
    text = (
        f'name = "k"\nkind = "{kind}"\n[mix]\ndomains = {{ code = 2, prose = 2 }}\n'
        f"[request]\nmax_tokens = {{ code = 40, prose = 80 }}\n[warmup]\nrequests = 2\n{section}\n"
    )
    (folder / "k.toml").write_text(text, encoding="utf-8")
    return workload_of(folder / "k.toml", passes=1, tok_per_s=10.0)


@pytest.mark.parametrize(
    ("kind", "section", "locustfile", "n_requests", "assumed_s"),
    [
        ("sequential", "", "sequential", 6, 8 + 8 + 16),
        ("concurrency", "[levels]\nusers = [1, 4]\nrequests = 8", "sweep", 18, 6 * 8 + 6 * 8 / 4 + 8),
        ("concurrency", "[levels]\nusers = [1, 4]\nsteady_s = 30.0", "sweep", 64 + 164 + 2, 2 * 36 + 8),
        ("context", "[context]\ntarget_tokens = [512, 1024]\nrequests = 3", "sweep", 8, 6 * 6 + 8),
        ("arrivals", f"{POISSON}\nrate_per_s = [1.0, 2.0]\nrequests = 10", "arrivals", 22, 10 + 5 + 12 + 8),
    ],
)
def test_every_kind_has_its_locustfile_and_its_estimate(tmp_path, kind, section, locustfile, n_requests, assumed_s):
    found = a_workload(tmp_path, kind, section)
    assert found.locustfile == f"locustfiles/{locustfile}.py"
    assert (found.n_requests, found.assumed_s) == (n_requests, pytest.approx(assumed_s))
    words = command(locustfile=found.locustfile, url="u", scenario=tmp_path / "k.toml", arm="a", run_dir=tmp_path)
    assert words[4] == found.locustfile
    assert "--no-profile" in words


def cells(n: int, *, done_s: float | None, arms: tuple[str, ...] = ("a", "b")) -> tuple[Cell, ...]:
    """``n`` pairs of two arms; the first pair done in so many seconds a cell where that is given."""
    made = []
    for pair in range(n):
        for arm in arms:
            done = pair == 0 and done_s is not None
            changes: dict[str, Any] = (
                {"state": "done", "took_s": done_s} if done else {"state": "planned", "took_s": None}
            )
            attempt = 1 if done else 0
            made.append(studies.cell(len(made), arm, pair=pair, attempt=attempt, **changes))
    return tuple(made)


def a_pace(tmp_path: Path, budget_s: float, monkeypatch: pytest.MonkeyPatch, *, now_s: float) -> Pace:
    clock = {"s": 0.0}
    monkeypatch.setattr(pace.time, "monotonic", lambda: clock["s"])
    made = Pace(a_workload(tmp_path, "sequential", ""), budget_s)
    clock["s"] = now_s
    return made


def test_a_budget_drops_nothing_before_the_first_pair_is_measured(tmp_path, monkeypatch):
    timed = a_pace(tmp_path, 60.0, monkeypatch, now_s=20.0)
    smokes = (Smoke(arm="a", launch_dir=None, ok=True, took_s=5.0, stage=None, symptom=None),)
    assert timed.expected_s("a", cells(4, done_s=None), smokes) == pytest.approx(5.0 + 10.0 + 32.0)
    assert timed.over_budget(cells(4, done_s=None), smokes) is False
    assert timed.left_s(cells(4, done_s=10.0), smokes) == pytest.approx(60.0)
    assert timed.over_budget(cells(4, done_s=10.0), smokes) is True
    assert timed.over_budget(cells(3, done_s=10.0), smokes) is False


def test_under_abba_a_pair_is_dropped_with_its_mirror_image_and_alone_once_that_has_begun():
    planned = cells(4, done_s=10.0)
    dropped = drop_for(planned, "launches", "abba")
    assert {planned[index].pair for index in dropped} == {2, 3}
    begun = tuple(
        cell.model_copy(update={"state": "running", "attempt": 1}) if cell.index == 4 else cell for cell in planned
    )
    assert {planned[index].pair for index in drop_for(begun, "launches", "abba")} == {3}
    left = tuple(cell.model_copy(update={"state": "dropped"}) if cell.index in dropped else cell for cell in planned)
    assert drop_for(left, "launches", "abba") is None


def test_an_arm_that_never_started_keeps_no_pair_from_being_dropped():
    planned = tuple(
        cell.model_copy(update={"state": "failed"}) if cell.arm == "c" else cell
        for cell in cells(4, done_s=10.0, arms=("a", "b", "c"))
        if not (cell.arm == "c" and cell.state == "done")
    )
    assert {cell.pair for cell in planned if cell.index in drop_for(planned, "launches")} == {3}


def test_profiled_launches_come_last_and_are_dropped_before_what_is_timed():
    asked = StudyFile(
        name="s", scenario="x.toml", baseline="a", arms=("a", "b"), launches=2, order="abba", profile_launches=1
    )
    made = cells_of(asked, 3)
    assert [(cell.arm, cell.role) for cell in made[4:]] == [("a", "profile"), ("b", "profile")]
    assert drop_for(made, "profile") == (5,)
    assert asked.drop_order[0] == "profile"


def test_profiled_launches_without_a_window_are_refused_by_file_and_key(tmp_path):
    file = write_study(tmp_path, ["cpu-q4", "cpu-q4-selfdraft"], profile_launches=1)
    asked = load_study(file)
    workload = workload_of(tmp_path / "tiny.toml", passes=1)
    with pytest.raises(ScenarioError, match=r"profile_launches = 1: needs a window, and tiny.toml has none"):
        new_study(file, asked, workload, load_arms(file, asked, None), None, {})


def test_what_failed_to_start_elsewhere_is_tried_again_and_what_failed_in_the_middle_is_not():
    lost = studies.cell(
        0, "a", state="failed", attempt=0, stage="weights", symptom="no memory", launch_dir="launches/x"
    )
    broke = studies.cell(1, "b", state="failed", attempt=1, stage="measure", symptom="exit 3")
    running = studies.cell(2, "b", state="running", attempt=1)
    old = studies.study((lost, broke, running)).model_copy(update={"environment": {"HF_HOME": "/there"}})
    found = taken_up(old, old.model_copy(update={"environment": {}}))
    assert [cell.state for cell in found.cells] == ["planned", "failed", "planned"]
    assert (found.cells[0].stage, found.cells[0].launch_dir, found.environment) == (None, None, {})


def test_models_are_looked_up_in_a_folder_for_preflight_and_launch(tmp_path):
    file = write_study(tmp_path, ["sglang-baseline", "sglang-ngram"])
    models = tmp_path / "models"
    folder(models / "Llama-3.1-8B-Instruct", config=qwen_1_5b())
    asked = load_study(file)
    local, hub = load_arms(file, asked, models), load_arms(file, asked, None)
    assert local["sglang-ngram"].arm.target.path == str(models / "Llama-3.1-8B-Instruct")
    assert local["sglang-ngram"].sha256 == hub["sglang-ngram"].sha256
    assert preflight("sglang-baseline", hub["sglang-baseline"].arm, None).verdict == "not looked at"
    assert preflight("sglang-baseline", local["sglang-baseline"].arm, models).verdict in ("good", "refuse")


def test_an_environment_for_the_study_is_recorded_and_never_stands_against_an_arms_own(monkeypatch):
    arms = [load_arm("vllm-baseline")]
    assert read_overrides(["CUDA_VISIBLE_DEVICES=0,1"], arms) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    for word, said in (("X", "write NAME=VALUE"), ("VLLM_SERVER_DEV_MODE=0", "the arm vllm-baseline sets it to '1'")):
        with pytest.raises(OverrideError, match=said):
            read_overrides([word], arms)
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = recorded({"CUDA_VISIBLE_DEVICES": "0,1", "MY_API_KEY": "sk-hidden"})
    assert (found["HF_HOME"], found["CUDA_VISIBLE_DEVICES"]) == ("/models", "0,1")
    assert "sk-" not in str(found)


def test_a_port_is_given_out_once_and_below_those_of_outgoing_connections():
    given = [free_port() for _ in range(3)]
    assert len(set(given)) == 3
    assert all(FIRST <= port < FIRST + N_PORTS for port in given)


def test_the_demo_is_the_study_the_readme_names_and_expects_its_bad_pair_to_fail():
    asked = load_study(ROOT / demo.STUDY)
    assert set(demo.MADE_TO_FAIL) < set(asked.arms)
    workload = workload_of(ROOT / "scenarios" / asked.scenario, passes=asked.passes)
    measured = workload.scenario.mix.domains
    assert (sum(measured.values()), set(workload.scenario.request.max_tokens.values())) == (6, {48})
    made = cells_of(asked, 1)
    ended = tuple(
        cell.model_copy(update={"state": "failed" if cell.arm in demo.MADE_TO_FAIL else "done"}) for cell in made
    )
    whole = studies.study(ended).model_copy(update={"arms": asked.arms})
    assert demo.unexpected(whole) == []
    lost = tuple(cell.model_copy(update={"state": "failed"}) if cell.arm == "cpu-f32-ngram" else cell for cell in ended)
    assert demo.unexpected(whole.model_copy(update={"cells": lost})) == ["cpu-f32-ngram: 4 failed"]
    alive = tuple(cell.model_copy(update={"state": "done"}) for cell in ended)
    assert demo.unexpected(whole.model_copy(update={"cells": alive})) == ["cpu-f32-badpair was to fail and did not"]


def test_an_arm_may_be_a_recipe_beside_the_study_file(tmp_path):
    scenario(tmp_path)
    file = write_study(tmp_path, [write_arm(tmp_path, "mine"), "cpu-q4"])
    loaded = load_arms(file, load_study(file), None)
    assert list(loaded) == ["mine", "cpu-q4"]
    assert loaded["mine"].named == str(tmp_path / "mine.toml")
    with pytest.raises(ScenarioError, match="two recipes of one name"):
        load_study(write_study(tmp_path, ["mine.toml", "mine"]))


CELL = studies.cell(0, "cpu-f32", pair=0, state="running", took_s=None, attempt=1)


def test_a_log_file_gets_a_plain_line_a_cell_and_one_every_half_minute(monkeypatch):
    clock = {"s": 0.0}
    monkeypatch.setattr(pace.time, "monotonic", lambda: clock["s"])
    out = io.StringIO()
    bar = Bar("demo", 2, 8, out)
    bar.begin(CELL, 2, 4)
    for second in range(45):
        clock["s"] = float(second)
        bar.tick(min(second, 8), 60.0, 90.0)
    bar.end()
    bar.close()
    assert out.getvalue().splitlines() == [
        "cpu-f32, pair 1 of 4; 2 to go, about 2.5 min left, 0 of 8 requests ended",
        "cpu-f32, pair 1 of 4; 2 to go, about 2.0 min left, 8 of 8 requests ended",
    ]
    assert "\r" not in out.getvalue()


def test_a_terminal_gets_one_bar_that_is_drawn_over():
    out = Terminal()
    bar = Bar("demo", 1, 8, out)
    bar.begin(CELL, 1, 1)
    bar.tick(8, 60.0, 0.0)
    bar.end()
    bar.close()
    assert out.getvalue().startswith("\r")
    assert out.getvalue().count("\n") == 0
