"""``study run``: arms x paired launches in the planned order, each cell a fresh launch and one run over all passes.

First every arm's files are looked at (preflight) and every arm is started once for a moment (the smoke start); its
resolved settings are compared with the baseline's, and a study whose arms differ in more than they say is stopped
before anything is measured. A cell that fails is recorded and the study goes on. ``study.json`` is rewritten after
every step, so that a study can be taken up again, on another machine too: cells that are done stay, one that was
interrupted is run anew. Every server gets a port of its own: several studies run on one host at a time.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.errors import EvidenceError
from evidence.launch_folder import open_launch
from evidence.receipts import not_exported
from evidence.study_folder import StudyWriter, open_study
from evidence.study_records import Cell, Smoke, Study
from infra.launching.floor import FloorError
from infra.launching.models import ModelError
from scenarios.strict_toml import Problem, ScenarioError, read_toml
from scenarios.study_file import StudyFile, is_study, load_study
from study.arms import StudyArm, load_arms
from study.begin import StudyStopped, new_study, taken_up, unfinished
from study.cells import inside, run_cell
from study.environment import OverrideError, read_overrides, recorded
from study.order import drop_for
from study.pace import Bar, Pace
from study.starts import preflight, smoke_start, unmatched
from study.workload import Workload, workload_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What was typed: the study file and how it is to be run on this machine."""

    file: Path
    run_dir: Path = Path("runs")
    resume: bool = False
    budget_minutes: float | None = None
    models: Path | None = None  # a folder where models lie by the names arms use
    environment: Sequence[str] = field(default=())  # NAME=VALUE, set for every engine and run


class StudyRun:
    """One invocation. ``study`` is the record as last written."""

    def __init__(
        self, asked: Asked, file: StudyFile, study: Study, writer: StudyWriter, workload: Workload, arms: Any
    ) -> None:
        self.study = study
        self.path = writer.path
        self._asked = asked
        self._scenario = asked.file.parent / file.scenario
        self._enforce = file.preflight == "enforce"
        self._starts_first = file.smoke_starts
        self._launches: dict[str, dict[str, Any]] = {}
        self._writer = writer
        self._workload = workload
        self._arms: Mapping[str, StudyArm] = arms
        self._pace = Pace(workload, None if asked.budget_minutes is None else asked.budget_minutes * 60)
        self._ended = False

    @classmethod
    def begin(cls, asked: Asked) -> "StudyRun":
        """Make the study's folder, or with ``resume`` find it.

        Raises ScenarioError, ArmError, OverrideError, StudyStopped, EvidenceError.
        """
        if not is_study(read_toml(asked.file)):
            alone = "run it with locust, as README.md shows, or name a study that has it as its scenario"
            problem = Problem(key=None, value=str(asked.file), message=f"is no study: it names no arms; {alone}")
            raise ScenarioError(asked.file, problem)
        file = load_study(asked.file)
        workload = workload_of(asked.file.parent / file.scenario, passes=file.passes)
        arms = load_arms(asked.file, file, asked.models)
        overrides = read_overrides(asked.environment, (one.arm for one in arms.values()))
        os.environ.update(overrides)  # engines and runs inherit it
        fresh = new_study(asked.file, file, workload, arms, asked.budget_minutes, recorded(overrides))
        if file.status == "planned":
            raise StudyStopped(f'{asked.file}: status = "planned"; set status = "to-run" where the hardware is at hand')
        if asked.resume:
            path = unfinished(asked.run_dir, fresh)
            writer = StudyWriter.resume(path)
            study = taken_up(open_study(path).study, fresh)
        else:
            writer = StudyWriter.create(asked.run_dir, fresh)
            study = fresh
        return cls(asked, file, study, writer, workload, arms)

    def go(self) -> int:
        """Preflights, smoke starts, then every cell; 0 when each cell is done, 1 when one failed or was dropped."""
        try:
            self._say(f"study {self.study.study_id}: {self.path}")
            self._preflights()
            if self._starts_first:
                self._smoke_starts()
                self._stop_where_unmatched(self._launches)
            self._say(self._estimate())
            self._run_cells()
            self._seal()
        finally:
            if not self._ended:
                self._writer.close()
        return 0 if all(cell.state == "done" for cell in self.study.cells) else 1

    def _preflights(self) -> None:
        for name, arm in self._arms.items():
            found = preflight(name, arm.arm, self._asked.models)
            self._update(preflights=(*self.study.preflights, found))
            if found.verdict == "not looked at":
                self._say(f"preflight of {name}: not looked at: {found.why}")
            for refused in found.refused:
                self._say(f"preflight of {name} refuses: {refused}")
            if found.refused and self._enforce:
                self._fail_all_of(name, None, "preflight", "; ".join(found.refused))
        self._stop_without_baseline("preflight")

    def _smoke_starts(self) -> None:
        for name, arm in self._arms.items():
            if not self._has_cells(name):
                continue
            self._say(f"smoke start of {name}")
            smoke, launch = smoke_start(name, arm, self._writer.launches)
            folder = None if smoke.launch_dir is None else inside(self.path, Path(smoke.launch_dir))
            smoke = smoke.model_copy(update={"launch_dir": folder})
            self._update(smokes=(*(s for s in self.study.smokes if s.arm != name), smoke))
            if launch is not None:
                self._launches[name] = launch
            else:
                first = next(iter((smoke.symptom or "").splitlines()), "no symptom")
                self._say(f"  not measured: {smoke.stage}: {first}")
                self._fail_all_of(name, folder, smoke.stage, smoke.symptom)
        self._stop_without_baseline("smoke start")

    def _has_cells(self, name: str) -> bool:
        return any(cell.arm == name and cell.state == "planned" for cell in self.study.cells)

    def _stop_without_baseline(self, after: str) -> None:
        """The study ends here where the baseline can never be measured, and has not been."""
        cells = [cell for cell in self.study.cells if cell.arm == self.study.baseline]
        lost = next((cell for cell in cells if cell.state == "failed" and cell.attempt == 0), None)
        if lost is None or any(cell.state in ("planned", "done") for cell in cells):
            return
        self._seal()
        raise StudyStopped(
            f"the baseline {self.study.baseline} fails its {after} (stage {lost.stage}: {lost.symptom}); "
            f"nothing can be compared. See {self.path / (lost.launch_dir or '')}"
        )

    def _fail_all_of(self, name: str, launch_dir: str | None, stage: str | None, symptom: str | None) -> None:
        for cell in self.study.cells:
            if cell.arm == name and cell.state == "planned":
                self._change(cell, state="failed", launch_dir=launch_dir, stage=stage, symptom=symptom)

    def _look_at_cell(self, name: str, launch_dir: str | None) -> None:
        """Without smoke starts: the settings of an arm's first cell, compared once the baseline's are known too."""
        if name in self._launches or launch_dir is None:
            return
        self._launches[name] = open_launch(self.path / launch_dir).launch.model_dump(mode="json")
        asked = {name, self.study.baseline} if name != self.study.baseline else set(self._launches)
        self._stop_where_unmatched({arm: launch for arm, launch in self._launches.items() if arm in asked})

    def _stop_where_unmatched(self, launches: Mapping[str, dict[str, Any]]) -> None:
        if self.study.baseline not in launches:  # every cell of it is done already, or none yet
            return
        differ, silent = unmatched(self.study.baseline, launches)
        if differ or silent:
            self._update(noticed=(*self.study.noticed, *silent, *differ))
        if differ:
            listed = "\n  ".join(differ)
            raise StudyStopped(
                f"settings that must match do not (baseline {self.study.baseline}):\n  {listed}\n"
                "make them equal in infra/arms, or name them as varied"
            )

    def _run_cells(self) -> None:
        if not self._starts_first:
            for cell in self.study.cells:
                if cell.state == "done":
                    self._look_at_cell(cell.arm, cell.launch_dir)
        todo = [cell for cell in self.study.cells if cell.state == "planned"]
        bar = Bar(self.study.name, len(todo), self._workload.n_requests)
        try:
            while True:
                self._keep_to_budget()
                left = [cell for cell in self.study.cells if cell.state == "planned"]
                if not left:
                    break
                bar.begin(left[0], len(left), self.study.launches)
                self._run_cell(left[0], bar)
                bar.end()
        finally:
            bar.close()

    def _run_cell(self, cell: Cell, bar: Bar) -> None:
        cell_s = self._pace.expected_s(cell.arm, self.study.cells, self.study.smokes)
        cell = self._change(cell, state="running", attempt=cell.attempt + 1, started_at_unix_s=time.time())
        after_s = self._pace.left_s(self.study.cells, self.study.smokes)
        found = run_cell(
            cell,
            self._arms[cell.arm],
            study=self.path,
            scenario=self._scenario,
            workload=self._workload,
            passes=self.study.passes,
            progress=lambda n_ended: bar.tick(n_ended, cell_s, after_s),
        )
        self._change(cell, **found)
        if found["state"] == "done" and not self._starts_first:
            self._look_at_cell(cell.arm, found["launch_dir"])
        if found["state"] == "failed":
            first = next(iter((found["symptom"] or "").splitlines()), "no symptom")
            self._say(f"cell {cell.index}, {cell.arm}: not measured: {found['stage']}: {first}")

    def _keep_to_budget(self) -> None:
        while self._pace.over_budget(self.study.cells, self.study.smokes):
            for what in self.study.drop_order:
                dropped = drop_for(self.study.cells, what, self.study.order)
                if dropped:
                    break
            else:
                return
            assert self._pace.budget_s is not None
            why = f"the budget of {self._pace.budget_s / 60:g} minutes would be passed"
            for index in dropped:
                self._change(self.study.cells[index], state="dropped", symptom=why)
            self._say(f"{why}: dropped of {what}: cells {', '.join(map(str, dropped))}")

    def _estimate(self) -> str:
        planned = [cell for cell in self.study.cells if cell.state == "planned"]
        smokes: tuple[Smoke, ...] = self.study.smokes
        minutes = self._pace.left_s(self.study.cells, smokes) / 60
        return f"{len(planned)} cells to run, about {minutes:.1f} minutes if {self._workload.assumption}"

    def _seal(self) -> None:
        self._writer.seal(self.study, time.time())
        self._ended = True
        if (said := not_exported(self.path)) is not None:
            self._say(said)

    def _change(self, cell: Cell, **changes: Any) -> Cell:
        new = Cell.model_validate({**cell.model_dump(), **changes})
        self._update(cells=tuple(new if one.index == cell.index else one for one in self.study.cells))
        return new

    def _update(self, **changes: Any) -> None:
        self.study = self.study.model_copy(update=changes)
        self._writer.update(self.study)

    def _say(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)


def run_command(asked: Asked) -> tuple[int, Path | None]:
    """Run a study; exit code and the study's folder. Errors but ScenarioError and ArmError are said here."""
    run: StudyRun | None = None
    try:
        run = StudyRun.begin(asked)
        return run.go(), run.path
    except StudyStopped as error:
        print(error, file=sys.stderr)
        return 1, run.path if run else None
    except (FloorError, ModelError, OverrideError) as error:
        print(error, file=sys.stderr)
        return 2, run.path if run else None
    except EvidenceError as error:
        print(error, file=sys.stderr)
        return error.exit_code, run.path if run else None
    except KeyboardInterrupt:
        again = f"python -m study run {asked.file} --resume"
        print(f"stopped; what is done is kept. To go on: {again}", file=sys.stderr)
        return 1, run.path if run else None
