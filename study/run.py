"""``study run``: arms x paired launches in the planned order, each cell a fresh launch and one run over all passes.

First every arm is started once for a moment (the smoke start) and its resolved settings are compared with the
baseline's; a study whose arms differ in more than they say is stopped before anything is measured. A cell that fails
is recorded and the study goes on. ``study.json`` is rewritten after every step, so that a study can be taken up again,
on another machine too: cells that are done stay, one that was interrupted is run anew.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.errors import EvidenceError
from evidence.study_folder import StudyWriter, open_study
from evidence.study_records import Cell, Smoke, Study
from infra.launching.floor import FloorError
from infra.launching.launch import LaunchError, launching
from infra.launching.models import ModelError
from infra.launching.recipes import load_arm
from infra.launching.resolved import compare_launches
from scenarios.plan import Plan
from scenarios.stock import plan_from_file
from scenarios.study_file import load_study
from study.begin import StudyStopped, new_study, taken_up, unfinished
from study.order import drop_for
from study.replay import command, replay

ASSUMED_TOK_PER_S = 20.0
LOGS = "logs"
TAIL_BYTES = 2000


class StudyRun:
    """One invocation. ``study`` is the record as last written."""

    def __init__(self, file: Path, study: Study, writer: StudyWriter, plan: Plan, budget_minutes: float | None) -> None:
        self.study = study
        self.path = writer.path
        self._file = file
        self._writer = writer
        self._plan = plan
        self._arms = {name: load_arm(name) for name in study.arms}
        self._resolved: dict[str, dict[str, Any]] = {}
        self._budget_s = None if budget_minutes is None else budget_minutes * 60
        self._began_s = time.monotonic()
        self._ended = False

    @classmethod
    def begin(cls, file: Path, run_dir: Path, *, resume: bool, budget_minutes: float | None) -> "StudyRun":
        """Make the study's folder, or with ``resume`` find it. Raises ScenarioError, ArmError, EvidenceError."""
        asked = load_study(file)
        plan = plan_from_file(file.parent / asked.scenario, passes=asked.passes)
        fresh = new_study(file, asked, plan, budget_minutes)
        if asked.status == "planned":
            raise StudyStopped(f'{file}: status = "planned"; set status = "to-run" where the hardware is at hand')
        if resume:
            path = unfinished(run_dir, fresh)
            writer = StudyWriter.resume(path)
            study = taken_up(open_study(path).study)
        else:
            writer = StudyWriter.create(run_dir, fresh)
            study = fresh
        return cls(file, study, writer, plan, budget_minutes)

    def go(self) -> int:
        """Smoke starts, then every cell; 0 when each cell is done, 1 when one failed or was dropped for its arm."""
        try:
            self._say(f"study {self.study.study_id}: {self.path}")
            self._smoke_starts()
            self._stop_where_unmatched()
            self._say(self._estimate())
            self._run_cells()
            self._writer.seal(self.study, time.time())
            self._ended = True
        finally:
            if not self._ended:
                self._writer.close()
        return 0 if all(cell.state == "done" for cell in self.study.cells) else 1

    def _smoke_starts(self) -> None:
        for name in self.study.arms:
            self._say(f"smoke start of {name}")
            smoke = self._smoke(name)
            kept = tuple(s for s in self.study.smokes if s.arm != name)
            self._update(smokes=(*kept, smoke))
            if not smoke.ok:
                self._say(f"  not measured: stage {smoke.stage}: {(smoke.symptom or '').splitlines()[:1]}")
                self._fail_all_of(smoke)
        baseline = next(smoke for smoke in self.study.smokes if smoke.arm == self.study.baseline)
        if not baseline.ok:
            self._writer.seal(self.study, time.time())
            self._ended = True
            raise StudyStopped(
                f"the baseline {baseline.arm} does not start (stage {baseline.stage}: {baseline.symptom}); "
                f"nothing can be compared. See {self.path / (baseline.launch_dir or '')}"
            )

    def _smoke(self, name: str) -> Smoke:
        began_s = time.monotonic()
        try:
            with launching(self._arms[name], launch_root=self._writer.launches) as engine:
                took_s = time.monotonic() - began_s
                self._resolved[name] = engine.launch.model_dump(mode="json")
                folder = self._inside(engine.folder)
            return Smoke(arm=name, launch_dir=folder, ok=True, took_s=took_s, stage=None, symptom=None)
        except LaunchError as error:
            return Smoke(
                arm=name,
                launch_dir=self._inside(error.folder),
                ok=False,
                took_s=time.monotonic() - began_s,
                stage=error.launch.stage,
                symptom=error.launch.symptom,
            )

    def _fail_all_of(self, smoke: Smoke) -> None:
        for cell in self.study.cells:
            if cell.arm == smoke.arm and cell.state == "planned":
                self._change(
                    cell,
                    state="failed",
                    launch_dir=smoke.launch_dir,
                    stage=smoke.stage,
                    symptom=smoke.symptom,
                )

    def _stop_where_unmatched(self) -> None:
        baseline = self._resolved[self.study.baseline]
        found: list[str] = []
        for name, launch in self._resolved.items():
            if name == self.study.baseline:
                continue
            differences, why = compare_launches(baseline, launch)
            found += [f"{name}: {difference}" for difference in differences]
            if why is not None:
                self._update(noticed=(*self.study.noticed, f"{name}: settings not compared: {why}"))
        if found:
            self._update(noticed=(*self.study.noticed, *found))
            listed = "\n  ".join(found)
            raise StudyStopped(
                f"settings that must match do not (baseline {self.study.baseline}):\n  {listed}\n"
                "make them equal in infra/arms, or name them as varied"
            )

    def _run_cells(self) -> None:
        n_requests = len(self._plan.requests)
        todo = [cell for cell in self.study.cells if cell.state == "planned"]
        with tqdm(total=len(todo) * n_requests, unit="req", file=sys.stderr, desc=self.study.name) as bar:
            while True:
                self._keep_to_budget()
                cell = next((cell for cell in self.study.cells if cell.state == "planned"), None)
                if cell is None:
                    break
                left = sum(cell.state == "planned" for cell in self.study.cells)
                bar.set_description(f"{cell.arm} pair {cell.pair + 1}/{self.study.launches}, {left} cells left")
                before = bar.n
                self._run_cell(cell, lambda n: bar.update(before + min(n, n_requests) - bar.n))  # noqa: B023  called at once
                bar.update(before + n_requests - bar.n)

    def _run_cell(self, cell: Cell, progress: Callable[[int], None]) -> None:
        cell = self._change(cell, state="running", attempt=cell.attempt + 1, started_at_unix_s=time.time())
        began_s = time.monotonic()
        changes: dict[str, Any]
        try:
            with launching(self._arms[cell.arm], launch_root=self._writer.launches) as engine:
                changes = {"launch_dir": self._inside(engine.folder), **self._measure(cell, engine.url, progress)}
        except LaunchError as error:
            changes = {
                "state": "failed",
                "launch_dir": self._inside(error.folder),
                "stage": error.launch.stage,
                "symptom": error.launch.symptom,
            }
        self._change(cell, ended_at_unix_s=time.time(), took_s=time.monotonic() - began_s, **changes)

    def _measure(self, cell: Cell, url: str, progress: Callable[[int], None]) -> dict[str, Any]:
        argv = command(
            url=url,
            scenario=self._file.parent / self.study.scenario_file,
            arm=cell.arm,
            run_dir=self._writer.runs,
            passes=self.study.passes,
            seed=cell.order_seed,
        )
        known = set(self._writer.runs.iterdir())
        log = self.path / LOGS / f"cell-{cell.index:03d}-{cell.attempt}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as stderr:
            done = replay(argv, stderr=stderr, tick=lambda: progress(_n_ended(self._writer.runs, known)))
        if done.folder is None or done.exit_code not in (0, 1):
            tail = log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()
            run = None if done.folder is None else self._inside(done.folder)
            return {"state": "failed", "run_dir": run, "stage": "measure", "symptom": f"exit {done.exit_code}: {tail}"}
        return {"state": "done", "run_dir": self._inside(done.folder)}

    def _keep_to_budget(self) -> None:
        if self._budget_s is None:
            return
        while time.monotonic() - self._began_s + self._left_s() > self._budget_s:
            for what in self.study.drop_order:
                dropped = drop_for(self.study.cells, what)
                if dropped:
                    break
            else:
                return
            why = f"dropped: the budget of {self._budget_s / 60:g} minutes would be passed"
            for index in dropped:
                self._change(self.study.cells[index], state="dropped", symptom=why)
            self._say(f"{why}: {what}, cells {', '.join(map(str, dropped))}")

    def _left_s(self) -> float:
        planned = [cell for cell in self.study.cells if cell.state == "planned"]
        return sum(self._expected_s(cell.arm) for cell in planned)

    def _expected_s(self, arm: str) -> float:
        """Mean of the arm's finished cells, else of all, else its smoke start and the assumed rate."""
        took = [(cell.arm, cell.took_s) for cell in self.study.cells if cell.took_s is not None]
        own = [s for name, s in took if name == arm] or [s for _, s in took]
        if own:
            return sum(own) / len(own)
        start_s = next((smoke.took_s for smoke in self.study.smokes if smoke.arm == arm), 0.0)
        return start_s + sum(request.max_tokens for request in self._plan.requests) / ASSUMED_TOK_PER_S

    def _estimate(self) -> str:
        planned = [cell for cell in self.study.cells if cell.state == "planned"]
        minutes = self._left_s() / 60
        return (
            f"{len(planned)} cells to run, about {minutes:.1f} minutes if decoding runs at {ASSUMED_TOK_PER_S:g} tok/s"
        )

    def _change(self, cell: Cell, **changes: Any) -> Cell:
        new = Cell.model_validate({**cell.model_dump(), **changes})
        self._update(cells=tuple(new if one.index == cell.index else one for one in self.study.cells))
        return new

    def _update(self, **changes: Any) -> None:
        self.study = self.study.model_copy(update=changes)
        self._writer.update(self.study)

    def _inside(self, folder: Path) -> str:
        return str(folder.resolve().relative_to(self.path.resolve()))

    def _say(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)


def _n_ended(runs: Path, known: set[Path]) -> int:
    """Lines in the requests files of the run that is new."""
    files = [file for run in set(runs.iterdir()) - known for file in run.glob("workers/*/requests.jsonl")]
    return sum(file.read_bytes().count(b"\n") for file in files)


def run_command(file: Path, run_dir: Path, *, resume: bool, budget_minutes: float | None) -> tuple[int, Path | None]:
    """Run a study; returns the exit code and the study's folder. Errors other than ScenarioError are said here."""
    run: StudyRun | None = None
    try:
        run = StudyRun.begin(file, run_dir, resume=resume, budget_minutes=budget_minutes)
        return run.go(), run.path
    except StudyStopped as error:
        print(error, file=sys.stderr)
        return 1, run.path if run else None
    except (FloorError, ModelError) as error:
        print(error, file=sys.stderr)
        return 2, run.path if run else None
    except EvidenceError as error:
        print(error, file=sys.stderr)
        return error.exit_code, run.path if run else None
    except KeyboardInterrupt:
        again = f"python -m study run {file} --resume"
        print(f"stopped; what is done is kept. To go on: {again}", file=sys.stderr)
        return 1, run.path if run else None
