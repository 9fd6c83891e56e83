"""Study files and the order of their cells."""

from collections import Counter
from pathlib import Path

import pytest

from scenarios.strict_toml import ScenarioError
from scenarios.study_file import StudyFile, load_study
from study.order import cells_of, drop_for, order_seed

GOOD = {
    "name": "s",
    "scenario": "smoke.toml",
    "baseline": "a",
    "arms": ("a", "b", "c"),
    "launches": 4,
    "order": "abba",
    "control_launches": 1,
}


def study(**changes) -> StudyFile:
    return StudyFile.model_validate(GOOD | changes)


def test_every_arm_runs_once_in_every_pair_and_the_control_in_the_first():
    cells = cells_of(study(), seed=7)
    assert [cell.index for cell in cells] == list(range(13))
    for pair in range(4):
        count = Counter((cell.arm, cell.role) for cell in cells if cell.pair == pair)
        expected = {("a", "baseline"): 1, ("b", "arm"): 1, ("c", "arm"): 1}
        assert count == (expected | {("a", "control"): 1} if pair == 0 else expected)


@pytest.mark.parametrize("seed", range(5))
def test_abba_mirrors_each_pair_so_that_a_linear_drift_cancels(seed):
    cells = cells_of(study(control_launches=0), seed=seed)
    for arm in "abc":
        places = [cell.index for cell in cells if cell.arm == arm]
        base = [cell.index for cell in cells if cell.arm == "a"]
        assert places[0] + places[1] == base[0] + base[1]
        assert places[2] + places[3] == base[2] + base[3]


def test_the_same_file_and_seed_give_the_same_order_and_another_seed_another():
    orders = {tuple((c.arm, c.role) for c in cells_of(study(), seed=seed)) for seed in range(8)}
    assert len(orders) > 1
    assert cells_of(study(), seed=3) == cells_of(study(), seed=3)


def test_the_cells_of_a_pair_share_the_prompts_order_and_pairs_differ():
    cells = cells_of(study(), seed=1)
    assert all(cell.order_seed == order_seed(1, cell.pair) for cell in cells)
    assert len({cell.order_seed for cell in cells}) == 4


def test_a_budget_drops_whole_pairs_from_the_end_and_never_below_two():
    cells = cells_of(study(), seed=1)
    first = drop_for(cells, "launches")
    assert {cells[i].pair for i in first} == {3}
    left = tuple(c.model_copy(update={"state": "dropped"}) if c.index in first else c for c in cells)
    second = drop_for(left, "launches")
    assert {cells[i].pair for i in second} == {2}
    left = tuple(c.model_copy(update={"state": "dropped"}) if c.index in second else c for c in left)
    assert drop_for(left, "launches") is None
    (control,) = drop_for(left, "control")
    assert cells[control].role == "control"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('baseline = "z"', "baseline"),
        ('arms = ["a"]', "arms"),
        ('arms = ["a", "a"]', "twice"),
        ("launches = 3", "abba"),
        ("launches = 0", "launches"),
        ("control_launches = 9", "control_launches"),
        ('order = "random"', "order"),
        ("lanches = 2", "lanches"),
        ('scenario = "none.toml"', "none.toml"),
    ],
)
def test_a_study_file_that_cannot_be_run_is_refused_by_key(tmp_path: Path, change: str, said: str):
    lines = {
        "name": '"s"',
        "scenario": '"smoke.toml"',
        "baseline": '"a"',
        "arms": '["a", "b"]',
        "launches": "2",
        "order": '"abba"',
    }
    key, _, value = change.partition(" = ")
    lines[key] = value
    (tmp_path / "smoke.toml").write_text("", encoding="utf-8")
    file = tmp_path / "study.toml"
    file.write_text("".join(f"{k} = {v}\n" for k, v in lines.items()), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_study(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
