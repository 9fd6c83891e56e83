"""The runs of a comparison, by arm and paired launch: those of a study's folder, or those named on the command line.

Pair p of an arm is its cell p and the baseline's cell p; the control is the baseline launched once more, its k-th cell
paired with the baseline's k-th. A cell without a readable run is kept with its stage, symptom and folder: it was not
measured, which is not the same as not there.

Two runs are two launches only if something shows it. Runs that cite one launch, that one engine process answered (by
the start it tells), or of which nothing tells one from the other, are one launch with more repeats.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import identity
from analysis.errors import AnalysisError
from analysis.loading import LoadedRun, load_run
from evidence.errors import EvidenceError
from evidence.study_folder import StudyFolder, open_study
from evidence.study_records import Cell, CellRole, CellState

NOT_YET = {"planned": "it was not run", "running": "it is under way, or was interrupted"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRun:
    """A cell that was measured. ``barred`` says why its run may enter no comparison whatever its own verdict is."""

    arm: str
    role: CellRole
    pair: int
    index: int  # place in the order of the study
    run: LoadedRun
    cell: Cell | None = None  # None for a run named on the command line
    barred: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NotMeasured:
    """A cell without a run: failed, dropped, not run yet, or with a run that cannot be read."""

    arm: str
    role: CellRole
    pair: int
    index: int
    state: CellState
    stage: str
    symptom: str
    folder: str | None
    cell: Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Everything a comparison reads. ``folder`` is None where the runs were named one by one."""

    name: str
    baseline: str
    arms: tuple[str, ...]  # the baseline is not among them
    cells: tuple[CellRun, ...]
    not_measured: tuple[NotMeasured, ...]
    folder: StudyFolder | None
    profiles: tuple[CellRun, ...] = ()  # profiled launches: never timed, and in no comparison

    def of(self, arm: str, role: CellRole) -> dict[int, CellRun]:
        """The measured cells of one arm in one role, by pair."""
        return {one.pair: one for one in self.cells if (one.arm, one.role) == (arm, role)}

    def lacking(self, arm: str, role: CellRole) -> tuple[NotMeasured, ...]:
        """The cells of one arm in one role that have no run."""
        return tuple(one for one in self.not_measured if (one.arm, one.role) == (arm, role))


def load_study(path: Path) -> Material:
    """Read a study's folder and every run in it. Raises EvidenceError where ``study.json`` cannot be read."""
    folder = open_study(path)
    cells: list[CellRun] = []
    lacking: list[NotMeasured] = []
    for cell in folder.study.cells:
        found = _cell(path, cell)
        if isinstance(found, CellRun):
            cells.append(found)
        else:
            lacking.append(found)
    study = folder.study
    return Material(
        name=study.name,
        baseline=study.baseline,
        arms=tuple(arm for arm in study.arms if arm != study.baseline),
        cells=tuple(one for one in cells if one.role != "profile"),
        not_measured=tuple(lacking),
        folder=folder,
        profiles=tuple(one for one in cells if one.role == "profile"),
    )


def load_pairs(base: Sequence[Path], against: Sequence[Path]) -> Material:
    """Runs paired in the order given. Raises AnalysisError where they cannot be paired, EvidenceError where unread."""
    if len(base) != len(against):
        raise AnalysisError(
            f"--base names {len(base)} runs and --against {len(against)}",
            "name as many of the one as of the other, in the order in which they are paired",
            value=(len(base), len(against)),
        )
    places = [path.resolve() for path in (*base, *against)]
    twice = sorted({str(path) for path in places if places.count(path) > 1})
    if twice:
        raise AnalysisError(
            f"{', '.join(twice)} is named more than once",
            "name each run once: a run repeated is no new observation",
            value=twice,
        )
    ours, theirs = [load_run(path) for path in base], [load_run(path) for path in against]
    names = [_names(ours), _names(theirs)]
    if names[0] == names[1]:
        names[1] = f"{names[1]} (against)"
    roles: tuple[CellRole, CellRole] = ("baseline", "arm")
    cells = tuple(
        CellRun(arm=name, role=role, pair=pair, index=2 * pair + side, run=run)
        for side, (name, role, runs) in enumerate(zip(names, roles, (ours, theirs), strict=True))
        for pair, run in enumerate(runs)
    )
    return Material(
        name=f"{names[1]} against {names[0]}",
        baseline=names[0],
        arms=(names[1],),
        cells=cells,
        not_measured=(),
        folder=None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a pair stands among independent launches; ``nth`` counts the pairs before it in the same launch."""

    launch: int
    nth: int


def places(base: Mapping[int, CellRun], arm: Mapping[int, CellRun]) -> dict[int, Place]:
    """The launch of each pair: pairs that share a launch on either side are one launch, in the order of pairs."""
    groups: list[tuple[set[tuple[str, ...]], list[int]]] = []
    for pair in sorted({*base, *arm}):
        keys = {key for side in (base, arm) if pair in side for key in _launch_keys(side[pair])}
        touching = [group for group in groups if group[0] & keys]
        merged = (
            keys.union(*(group[0] for group in touching)),
            sorted([pair, *(one for group in touching for one in group[1])]),
        )
        groups = [group for group in groups if group not in touching] + [merged]
    groups.sort(key=lambda group: group[1][0])
    return {
        pair: Place(launch=launch, nth=nth)
        for launch, (_, pairs) in enumerate(groups)
        for nth, pair in enumerate(pairs)
    }


def _launch_keys(one: CellRun) -> set[tuple[str, ...]]:
    """What tells this run's launch from another's; a run of which nothing does shares one key with its like."""
    run = one.run
    keys: set[tuple[str, ...]] = set()
    if run.manifest.launch_id is not None:
        keys.add(("launch", run.manifest.launch_id))
    for opened in run.server.opened.opened:
        if opened.window.before.identity is not None:
            keys.add(("process", opened.url, opened.window.before.identity))
    return keys or {("untold", one.role, one.arm)}


def _cell(path: Path, cell: Cell) -> CellRun | NotMeasured:
    stage, symptom = cell.stage, cell.symptom
    folder = cell.run_dir or cell.launch_dir
    if cell.state == "done" and cell.run_dir is not None:
        try:
            run = load_run(_inside(path, cell.run_dir))
        except EvidenceError as error:
            stage, symptom = "read", str(error)
        else:
            return CellRun(arm=cell.arm, role=cell.role, pair=cell.pair, index=cell.index, run=run, cell=cell)
    elif cell.state == "done":
        stage, symptom = "read", "the cell is called done and names no run"
    return NotMeasured(
        arm=cell.arm,
        role=cell.role,
        pair=cell.pair,
        index=cell.index,
        state=cell.state,
        stage=stage or cell.state,
        symptom=symptom or NOT_YET.get(cell.state, "no symptom on record"),
        folder=None if folder is None else str(path / folder),
        cell=cell,
    )


def _inside(path: Path, name: str) -> Path:
    """The folder a cell names, which must lie in the study's own."""
    found = path / name
    if not found.resolve().is_relative_to(path.resolve()):
        raise EvidenceError(found, "lies outside the study's folder", "restore study.json from a copy", value=name)
    return found


def _names(runs: Iterable[LoadedRun]) -> str:
    return ", ".join(dict.fromkeys(identity.arm_name(run.manifest) or run.manifest.run_id for run in runs))
