"""The verdict of a study: that of each of its runs, and what only the study as a whole shows. Derived, never stored.

A study is as good as its worst run: one INVALID run makes it INVALID, and ``compare`` leaves that run out and names it.
An arm that did not start is no fault of the record: DEGRADED, it is not measured. Further:

    INVALID    no seal (it can still be resumed; what is compared then is preliminary), a file that differs from its
               hash, a cell whose run or launch is not the one the record says, a baseline without any measured cell
    DEGRADED   cells failed, dropped or not run; no control launch; one launch only; a smoke start that failed
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from analysis import identity
from analysis.study_loading import CellRun, Material, load_study
from analysis.verdict import Severity, Verdict
from evidence.errors import EvidenceError
from evidence.layout import STUDY
from evidence.recover import ENDED
from evidence.study_records import Cell, Study
from evidence.verify import verify

StudyScope = Literal["study", "run", "latency", "rate", "acceptance", "outputs"]
HASHES = ("hash_mismatch", "file_missing", "file_extra")

REMEDIES = {
    "not_sealed": "run it to its end with `python -m study run FILE --resume`, or close it with "
    "`python -m analysis recover STUDY` where its host is gone",
    "recovered": "what was measured stands; for the rest run the study again",
    "hash_differs": "restore the folder from a copy, or run the study again",
    "cell_unreadable": "restore the run from a copy, or read it with the version of this program that wrote it",
    "cell_mismatch": "study.json and the folders do not belong together: restore them from a copy",
    "baseline_not_measured": "find why the baseline fails in its launch folder, and run the study again",
    "cell_failed": "read the stage and the symptom, then the launch folder's log; the arm may need other settings",
    "cell_dropped": "give the study a longer budget",
    "cell_not_run": "run it to its end with `python -m study run FILE --resume`",
    "no_control": "set control_launches = 1 or more: without it nothing says how far the baseline agrees with itself",
    "one_launch": "set launches to 4 or more: one launch says nothing of how launches differ",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyReason:
    """As a run's reason, with its cell (None: the study as a whole) and whether it bars the cell's run."""

    code: str
    severity: Severity
    scope: StudyScope
    seen: str
    remedy: str
    cell: int | None = None
    run_id: str | None = None
    bars: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyVerdict:
    """``reasons`` are the study's own, then those of its runs. ``notes`` limit nothing and may help."""

    verdict: Verdict
    reasons: tuple[StudyReason, ...]
    notes: tuple[str, ...]

    def barred(self) -> dict[int, tuple[str, ...]]:
        """By cell: why its run may enter no comparison, beside what its own verdict says."""
        found: dict[int, tuple[str, ...]] = {}
        for one in self.reasons:
            if one.bars and one.cell is not None:
                found[one.cell] = (*found.get(one.cell, ()), one.seen)
        return found

    def refused(self) -> str | None:
        """Why nothing in the study may be compared: its own record was changed."""
        return next((one.seen for one in self.reasons if one.bars and one.cell is None), None)


def check_study(material: Material) -> StudyVerdict:
    """Judge a study as read. ``material`` must come from a study's folder."""
    if material.folder is None:
        raise ValueError("only a study's folder has a verdict")
    own = (*_record(material), *_cells(material), *_design(material))
    runs = tuple(_runs(material))
    reasons = (*own, *runs)
    worst: Verdict = "VALID" if not reasons else "DEGRADED"
    if any(one.severity == "INVALID" for one in reasons):
        worst = "INVALID"
    return StudyVerdict(verdict=worst, reasons=reasons, notes=tuple(_notes(material)))


def check_study_folder(path: Path) -> tuple[Material, StudyVerdict]:
    """Read and judge a study; runs that may not be used are barred. Raises EvidenceError where it cannot be read."""
    material = load_study(path)
    found = check_study(material)
    barred = found.barred()
    cells = tuple(replace(one, barred=barred.get(one.index, ())) for one in material.cells)
    return replace(material, cells=cells), found


def _reason(code: str, severity: Severity, seen: str, cell: Cell | None = None, *, bars: bool = False) -> StudyReason:
    return StudyReason(
        code=code,
        severity=severity,
        scope="study",
        seen=seen,
        remedy=REMEDIES[code],
        cell=None if cell is None else cell.index,
        bars=bars,
    )


def _record(material: Material) -> Iterator[StudyReason]:
    folder = material.folder
    assert folder is not None
    if folder.seal is None:
        open_cells = sum(cell.state in ("planned", "running") for cell in folder.study.cells)
        seen = f"the study has no seal: {open_cells} of {len(folder.study.cells)} cells have no end yet"
        yield _reason("not_sealed", "INVALID", seen)
    elif folder.seal.recovered:
        yield _reason(
            "recovered", "DEGRADED", "the folder was closed afterwards: what ran the study did not live to seal it"
        )
    for problem in folder.problems:
        cells = [cell for cell in folder.study.cells if _names(cell, problem.file)]
        for cell in cells:
            yield _reason("hash_differs", "INVALID", f"cell {cell.index}: {problem}", cell, bars=True)
        if not cells:
            yield _reason("hash_differs", "INVALID", str(problem), bars=problem.file == STUDY)


def _names(cell: Cell, file: str) -> bool:
    return any(folder is not None and file.startswith(f"{folder}/") for folder in (cell.run_dir, cell.launch_dir))


def _cells(material: Material) -> Iterator[StudyReason]:
    assert material.folder is not None
    study, root = material.folder.study, material.folder.path
    cited: Counter[str | None] = Counter(cell.run_dir for cell in study.cells)
    started: Counter[str | None] = Counter(cell.launch_dir for cell in study.cells if cell.state == "done")
    for one in (*material.cells, *material.profiles):
        assert one.cell is not None
        for seen in _mismatches(one, cited, started):
            yield _reason("cell_mismatch", "INVALID", f"cell {one.index}: {seen}", one.cell, bars=True)
        for seen in _launch_problems(root, one.cell):
            yield _reason("hash_differs", "INVALID", f"cell {one.index}: {seen}", one.cell, bars=True)
    codes = {"failed": "cell_failed", "dropped": "cell_dropped", "planned": "cell_not_run", "running": "cell_not_run"}
    for lost in material.not_measured:
        where = "" if lost.folder is None else f" ({lost.folder})"
        seen = f"cell {lost.index}, {lost.arm} ({lost.role}), pair {lost.pair}: {lost.stage}: {lost.symptom}{where}"
        if lost.stage == "read":
            yield _reason("cell_unreadable", "INVALID", seen, lost.cell)
        else:
            found = _reason(codes[lost.state], "DEGRADED", seen, lost.cell)
            ended = str(lost.symptom).startswith(ENDED)
            yield replace(found, remedy=REMEDIES["recovered"]) if ended else found


def _mismatches(one: CellRun, cited: Mapping[str | None, int], started: Mapping[str | None, int]) -> Iterator[str]:
    cell, manifest = one.cell, one.run.manifest
    assert cell is not None
    if cited[cell.run_dir] > 1:
        yield f"{cell.run_dir} is the run of {cited[cell.run_dir]} cells"
    if cell.launch_dir is not None and started[cell.launch_dir] > 1:
        yield f"{cell.launch_dir} is the launch of {started[cell.launch_dir]} cells: each needs one of its own"
    named = identity.arm_name(manifest)
    if named != cell.arm:
        yield f"its run says that it measured {named!r}, not {cell.arm!r}"
    if cell.launch_dir is not None and manifest.launch_id not in (None, Path(cell.launch_dir).name):
        yield f"its run cites {manifest.launch_id}, not {cell.launch_dir}"


def _launch_problems(root: Path, cell: Cell) -> Iterator[str]:
    if cell.launch_dir is None:
        return
    try:
        problems = verify(root / cell.launch_dir)
    except EvidenceError as error:
        yield str(error)
        return
    for problem in problems:
        if problem.code in HASHES:
            yield f"{cell.launch_dir}/{problem}"


def _design(material: Material) -> Iterator[StudyReason]:
    assert material.folder is not None
    study: Study = material.folder.study
    if study.status == "planned" and not material.cells:
        return
    if not material.of(study.baseline, "baseline"):
        seen = f"no cell of the baseline {study.baseline} was measured: nothing can be compared"
        yield _reason("baseline_not_measured", "INVALID", seen)
    elif not material.of(study.baseline, "control"):
        yield _reason("no_control", "DEGRADED", "the baseline was never compared with itself")
    if len({cell.pair for cell in study.cells if cell.state != "dropped"}) == 1:
        yield _reason("one_launch", "DEGRADED", "one paired launch: what is compared holds for these prompts only")


def _runs(material: Material) -> Iterator[StudyReason]:
    for one in material.cells:
        for reason in one.run.reasons:
            yield StudyReason(
                code=reason.code,
                severity=reason.severity,
                scope=reason.scope,
                seen=reason.seen,
                remedy=reason.remedy,
                cell=one.index,
                run_id=one.run.manifest.run_id,
            )
    for one in material.profiles:  # never timed: only what is wrong with the run as a whole limits what it shows
        for reason in one.run.reasons:
            if reason.scope == "run":
                yield StudyReason(
                    code=reason.code,
                    severity="DEGRADED",
                    scope="study",
                    seen=f"the profiled launch of {one.arm}: {reason.seen}",
                    remedy=reason.remedy,
                    cell=one.index,
                    run_id=one.run.manifest.run_id,
                )


def _notes(material: Material) -> Iterator[str]:
    assert material.folder is not None
    study, root = material.folder.study, material.folder.path
    for smoke in study.smokes:
        if not smoke.ok:
            yield f"the smoke start of {smoke.arm} failed: {smoke.stage}: {smoke.symptom}"
    cited = {cell.run_dir for cell in study.cells}
    stray = sorted(str(p.relative_to(root)) for p in (root / "runs").glob("*") if str(p.relative_to(root)) not in cited)
    if stray:
        yield f"runs that no cell names (interrupted attempts): {', '.join(stray)}"
    if study.status == "planned":
        yield "the study is planned: nothing in it was measured"
