"""What lies in a folder of runs, each with its verdict. Reading a verdict means reading the run: nothing is stored."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import identity
from analysis.loading import LoadedRun, load_run
from analysis.study_check_view import entry_fields
from analysis.tables import Notes, table
from analysis.verdict import overall
from evidence.errors import EvidenceError
from evidence.inventory import FolderInfo, find_folders
from evidence.launch_folder import open_launch

UNDER_WAY = "a study that is being written has no verdict yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One folder. ``verdict`` is None for what is no run, and where ``why`` says that it cannot be read."""

    path: str
    kind: str
    id: str
    state: str  # sealed, recovered, being written, not sealed
    created_at_unix_s: float | None = None
    arm: str | None = None  # recipe or label
    scenario: str | None = None
    n_completed: int | None = None  # measured requests
    n_planned: int | None = None  # warm-up too
    verdict: str | None = None
    codes: tuple[str, ...] = ()  # of the verdict's reasons
    why: str | None = None


def inventory(folder: Path) -> tuple[Entry, ...]:
    """Runs and launches in a folder and in its plain sub-folders. Raises EvidenceError where it cannot be listed."""
    return tuple(_entry(info) for info in _found(folder))


def lines(entries: tuple[Entry, ...]) -> list[str]:
    """The inventory as a table."""
    if not entries:
        return ["no run or launch folder here"]
    notes = Notes()
    rows = []
    for entry in entries:
        made = entry.created_at_unix_s
        rows.append(
            [
                entry.id,
                notes.dash(entry.why) if made is None else time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(made)),
                entry.arm or notes.dash(entry.why or "neither recipe nor label on record"),
                notes.dash(entry.why or "a launch measures nothing")
                if entry.n_completed is None
                else f"{entry.n_completed}",
                entry.state,
                entry.verdict or notes.dash(entry.why or "a launch has no verdict of its own"),
            ]
        )
    shown = table(["id", "made", "arm", "completed", "state", "verdict"], rows, left=(0, 1, 2, 4, 5))
    reasons = notes.lines()
    return [*shown, *(["", *reasons] if reasons else [])]


def _found(folder: Path) -> Iterator[FolderInfo]:
    for info in find_folders(folder):
        if info.kind == "unknown" and not info.being_written:
            inside = [one for one in find_folders(info.path) if one.kind != "unknown"]
            yield from inside or [info]
        else:
            yield info


def _entry(info: FolderInfo) -> Entry:
    if info.recovered:
        state = "recovered"
    elif info.sealed:
        state = "sealed"
    else:
        state = "being written" if info.being_written else "not sealed"
    entry = Entry(path=str(info.path), kind=info.kind, id=info.id, state=state)
    try:
        if info.kind == "run":
            return _run(entry, load_run(info.path))
        if info.kind == "study":
            judged = replace(entry, **entry_fields(info.path))
            return replace(judged, verdict=None, codes=(), why=UNDER_WAY) if info.being_written else judged
        if info.kind == "launch":
            launch = open_launch(info.path).launch
            return replace(
                entry,
                created_at_unix_s=launch.started_at_unix_s,
                arm=launch.arm.get("name") if isinstance(launch.arm, dict) else None,
                why=f"a launch, {launch.outcome} at stage {launch.stage}",
            )
        if info.kind == "shard":
            return replace(entry, why="a worker's own lines: `python -m analysis recover RUN --shard` joins them")
    except EvidenceError as error:
        return replace(entry, why=str(error))
    return replace(entry, why="neither a run nor a launch can be read here")


def _run(entry: Entry, run: LoadedRun) -> Entry:
    scenario = run.manifest.scenario if isinstance(run.manifest.scenario, dict) else {}
    return replace(
        entry,
        created_at_unix_s=run.manifest.created_at_unix_s,
        arm=identity.arm_name(run.manifest),
        scenario=scenario.get("name"),
        n_completed=run.facts.measured_completed,
        n_planned=run.manifest.n_planned,
        verdict=overall(run.reasons),
        codes=tuple(dict.fromkeys(reason.code for reason in run.reasons)),
    )
