"""A study as a report reads it: each measured cell's run, its comparison, and which run stands beside which.

Pair p of an arm is its run of paired launch p beside the baseline's; the k-th control run stands beside the baseline's
of launch k. The comparison is the object of ``compare --json``, made from the same runs by the same function.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.compare_report import Asked, compare_all
from analysis.errors import AnalysisError
from analysis.loading import LoadedRun
from analysis.report_gather import Entry, RunView, view_run
from analysis.study_check import StudyVerdict, check_study_folder
from analysis.study_loading import Material
from evidence.study_folder import StudyFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """One paired launch of an arm (or of the control): the baseline's run and the other."""

    pair: int
    base: RunView
    other: RunView


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyView:
    """``runs`` are those that could be read, in the order run. ``compared`` is what ``compare --json`` prints."""

    path: Path
    folder: StudyFolder
    material: Material
    verdict: StudyVerdict
    runs: tuple[RunView, ...]
    run_of: Mapping[int, RunView]  # by the cell's index
    compared: Mapping[str, Any]

    def paired(self, arm: str | None) -> tuple[Paired, ...]:
        """The paired launches of an arm, of the control for None."""
        bases = {run.pair: run for run in self.runs if run.role == "baseline" and run.pair is not None}
        found = []
        for run in self.runs:
            fits = run.role == "control" if arm is None else run.role == "arm" and run.arm == arm
            if fits and run.pair is not None and run.pair in bases:
                found.append(Paired(pair=run.pair, base=bases[run.pair], other=run))
        return tuple(sorted(found, key=lambda one: one.pair))


def view_study(path: Path) -> StudyView:
    """Read a study for a report. Raises EvidenceError and AnalysisError where it cannot be read."""
    material, verdict = check_study_folder(path)
    if material.folder is None:
        raise AnalysisError("these runs are no study", "name the folder of a study", path=path)
    runs: list[RunView] = []
    run_of: dict[int, RunView] = {}
    n_requests = 0
    for cell in sorted(material.cells, key=lambda one: one.index):
        loaded: LoadedRun = cell.run
        run = view_run(
            loaded, index=len(runs), first_number=n_requests, role=cell.role, pair=cell.pair, arm_named=cell.arm
        )
        n_requests += len(run.entries)
        runs.append(run)
        run_of[cell.index] = run
    return StudyView(
        path=path,
        folder=material.folder,
        material=material,
        verdict=verdict,
        runs=tuple(runs),
        run_of=run_of,
        compared=compare_all(material, verdict, Asked())[0],
    )


def pairs_of(paired: Paired) -> Iterator[tuple[Entry | None, Entry | None]]:
    """The requests of one paired launch brought together by prompt, level and repeat."""
    ours, theirs = (
        {(e.request.prompt_id, e.request.level, e.request.repeat): e for e in run.measured}
        for run in (paired.base, paired.other)
    )
    for key in dict.fromkeys([*ours, *theirs]):
        yield ours.get(key), theirs.get(key)
