"""Which calibration of this client a run cites: the one that is named, or the one that fits best of those beside it.

A calibration fits when it was made with the same transport on a host of the same processor, number of cores,
kernel, Python and gevent. Of those that fit, the lightest one that covers the run's streams is taken, the newest first;
where none covers them, the heaviest, and the analysis says that the run goes beyond it. One that cannot be traced to
its own sealed run is taken only where no other fits, and what is in doubt is said with it.
"""

import os
from pathlib import Path

from evidence.calibration_records import Calibration, doubts, read_calibration
from evidence.errors import EvidenceError
from evidence.layout import CALIBRATIONS
from evidence.records import Json, Missing
from locustfiles._options import Options, UsageError
from scenarios.plan import Plan

SAME_HARDWARE = ("client_cpu_model", "client_cores")
SAME_VERSIONS = ("kernel", "python", "gevent", "greenlet")
WHAT = "calibration"
SAID = 3  # files that could not be read, in the manifest


def streams_a_process(plan: Plan, n_workers: int) -> int:
    """The most requests under way at once in one process, as far as the plan says."""
    users = [level.users for level in plan.levels if level.users is not None]
    if users:
        n_streams = max(users)
    elif plan.scenario.arrivals is not None:
        n_streams = plan.scenario.arrivals.max_in_flight
    else:
        n_streams = 1
    return -(-n_streams // max(1, n_workers))


def cited_calibration(
    options: Options, plan: Plan, *, n_workers: int, hardware: dict[str, Json], versions: dict[str, str]
) -> tuple[Json | None, Missing | None]:
    """What the manifest says of it, or why it cites none.

    Raises UsageError for a file that was named and is no calibration. A named one is cited although it does not fit:
    what differs is said with it.
    """
    if not options.cite_calibration:
        return None, Missing(what=WHAT, why="the run was asked to cite none")
    if options.calibration is not None:
        try:
            found, digest = read_calibration(options.calibration)
        except EvidenceError as error:
            raise UsageError(f"--calibration {error}") from None
        return _cited(options.calibration, found, digest, options, _differs(found, options, hardware, versions)), None
    fitting, unreadable = [], []
    for path in _files(options.run_dir):
        try:
            found, digest = read_calibration(path)
        except EvidenceError as error:
            unreadable.append(str(error))
            continue
        if not _differs(found, options, hardware, versions):
            fitting.append((path, found, digest))
    if not fitting:
        why = "no calibration that fits this client is beside the runs: python -m study calibrate"
        if unreadable:
            more = f" (and {len(unreadable) - SAID} more)" if len(unreadable) > SAID else ""
            why += f"; not read: {'; '.join(unreadable[:SAID])}{more}"
        return None, Missing(what=WHAT, why=why)
    n_streams = streams_a_process(plan, n_workers)
    fitting = [one for one in fitting if not doubts(one[0], one[1])] or fitting
    fitting.sort(key=lambda one: one[1].made_at_unix_s, reverse=True)
    covering = [one for one in fitting if one[1].n_streams >= n_streams]
    path, found, digest = (
        min(covering, key=lambda one: one[1].n_streams) if covering else max(fitting, key=lambda one: one[1].n_streams)
    )
    return _cited(path, found, digest, options, []), None


def _files(run_dir: Path) -> list[Path]:
    folders = dict.fromkeys(folder.resolve() for folder in (run_dir, run_dir.parent, Path("runs")))
    return [path for folder in folders for path in sorted((folder / CALIBRATIONS).glob("*.json"))]


def _differs(found: Calibration, options: Options, hardware: dict[str, Json], versions: dict[str, str]) -> list[str]:
    pairs: list[tuple[str, Json, Json]] = [("transport", found.transport, options.transport)]
    pairs += [(name, found.hardware.get(name), hardware.get(name)) for name in SAME_HARDWARE]
    pairs += [(name, found.versions.get(name), versions.get(name)) for name in SAME_VERSIONS]
    return [
        f"{name}: {_known(theirs)} there, {_known(ours)} here"
        for name, theirs, ours in pairs
        if theirs is None or theirs != ours  # what neither knows is not the same
    ]


def _known(value: Json) -> str:
    return "unknown" if value is None else str(value)


def _cited(path: Path, found: Calibration, digest: str, options: Options, differs: list[str]) -> Json:
    return {
        "calibration_id": found.calibration_id,
        "file": os.path.relpath(path.resolve(), options.run_dir.resolve()),
        "sha256": digest,
        "made_at_unix_s": found.made_at_unix_s,
        "run_id": found.run_id,
        "transport": found.transport,
        "n_streams": found.n_streams,
        "chunks_per_s": found.chunks_per_s,
        "total_chunks_per_s": found.total_chunks_per_s,
        "client_floor_s": found.client_floor_s,
        "floor_quantile": found.floor_quantile,
        "errors": {name: error.model_dump(mode="json") for name, error in found.errors.items()},
        "differs": [*differs, *doubts(path, found)],
    }
