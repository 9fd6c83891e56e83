"""Studies whose starts are dear: an arm's first cell stands for its smoke start."""

from pathlib import Path

import pytest

from evidence.study_folder import open_study
from study.run import Asked, run_command
from tests.study_arms import SPECULATES, write_arm, write_study


def test_without_smoke_starts_every_launch_is_a_cell(tmp_path: Path) -> None:
    plain = write_arm(tmp_path, "fake-plain")
    drafts = write_arm(tmp_path, "fake-drafts", baseline="fake-plain", changes=SPECULATES)
    file = write_study(tmp_path, [plain, drafts], smoke_starts=False)

    code, path = run_command(Asked(file=file, run_dir=tmp_path / "runs"))

    assert path is not None
    study = open_study(path).study
    assert (code, study.smokes) == (0, ())
    assert [cell.state for cell in study.cells] == ["done", "done"]
    assert len(list((path / "launches").iterdir())) == len(study.cells)


def test_without_smoke_starts_arms_that_do_not_match_stop_the_study_after_a_cell_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [write_arm(tmp_path, "fake-plain"), write_arm(tmp_path, "fake-short", changes={"ctx-size": 4096})]
    file = write_study(tmp_path, arms, smoke_starts=False, launches=2, seed=3)

    code, path = run_command(Asked(file=file, run_dir=tmp_path / "runs"))

    said = capsys.readouterr().err
    assert code == 1
    assert "settings that must match do not" in said
    assert "ctx-size" in said
    assert path is not None
    cells = open_study(path).study.cells
    assert [cell.state for cell in cells] == ["done", "done", "planned", "planned"]
    assert {cell.arm for cell in cells[:2]} == {"fake-plain", "fake-short"}
