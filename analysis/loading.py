"""A run folder, read once, measured and judged: what every command of this room starts from. Nothing here writes."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import identity
from analysis.bounded import bounded
from analysis.facts import RunFacts
from analysis.gather import gather
from analysis.gpu_alone import shared_gpu
from analysis.levels import LevelView, levels_of
from analysis.measures import Row, measure
from analysis.own_gpus import own_gpus
from analysis.raw_check import LIMIT_BYTES, raw_check
from analysis.request_checks import not_observable
from analysis.run_clock import RunClock, run_clock
from analysis.server import ServerSide, server_side
from analysis.unread_answers import unread_answers
from analysis.unsent import unsent_by_design, without_these
from analysis.verdict import Reason, judge
from evidence.errors import EvidenceError, Problem
from evidence.gpu_records import GpuSample
from evidence.kept import elsewhere
from evidence.launch_folder import open_launch
from evidence.reading import Run
from evidence.records import Json, Launch, Manifest, Seal
from evidence.verify import open_verified, verify

LINES_ELSEWHERE = "lines elsewhere: digests of workers are sealed here, their lines are not"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """A run with everything that is derived from it. ``launch`` is None where none is cited or it cannot be read."""

    path: Path
    manifest: Manifest
    launch: Launch | None
    launch_missing: str | None
    plan: Mapping[str, Mapping[str, Json]]  # by plan id, without the lines that were left by design
    rows: tuple[Row, ...]  # every ended request, warm-up too
    places: tuple[tuple[str, int], ...]  # file and line of each row's record, the line counted from 1
    unfinished: tuple[str, ...]  # plan ids that started and never ended
    seal: Seal | None
    problems: tuple[Problem, ...]
    server: ServerSide
    levels: tuple[LevelView, ...]  # () for a kind without levels
    clock: RunClock  # that its requests are placed on
    facts: RunFacts
    reasons: tuple[Reason, ...]
    launch_path: Path | None = None  # of the launch folder, where ``launch`` was read
    gpu: tuple[GpuSample, ...] = ()

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that are not warm-up."""
        return tuple(row for row in self.rows if row.request.phase == "measured")


def load_run(path: Path, *, raw_limit_bytes: int | None = LIMIT_BYTES) -> LoadedRun:
    """Read, verify, measure and judge a run folder. Raises EvidenceError where it cannot be read at all.

    ``raw_limit_bytes`` of raw segments at most are read again against the records, None for all.
    """
    with without_collector():
        return _loaded(path, raw_limit_bytes)


@contextmanager
def without_collector() -> Iterator[None]:
    """A large run is millions of objects that live to the end: looking for cycles among them takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _loaded(path: Path, raw_limit_bytes: int | None) -> LoadedRun:
    run, problems = open_verified(path)
    against_raw = raw_check(run, limit_bytes=raw_limit_bytes).as_check()
    begun = frozenset([*(one.plan_id for one in run.started), *(one.plan_id for one in run.requests)])
    noticed = run.seal.noticed if run.seal is not None else ()
    unsent = unsent_by_design(run.plan, begun, run.levels, run.manifest.scenario, noticed=noticed)
    away = elsewhere(run.path, run.kept)
    problems = problems if away else without_these(problems, unsent, begun, run.plan)
    everything = {str(line["plan_id"]): line for line in run.plan}
    plan = tuple(line for plan_id, line in everything.items() if plan_id not in unsent) if unsent else run.plan
    launch, launch_path, launch_missing = _cited_launch(run)
    limit = identity.draft_limit(run.manifest, launch)
    requests = (bounded(request) for request in run.requests)
    rows = tuple(Row(request=one, measures=measure(one, max_draft_tokens=limit)) for one in requests)
    run = replace(run, plan=plan, requests=tuple(row.request for row in rows))
    speculative = identity.speculative(run.manifest, launch)
    server = server_side(run, speculative=speculative, more_checks=(against_raw,))
    if away:
        server = replace(server, checks=tuple(not_observable(one.name, LINES_ELSEWHERE) for one in server.checks))
    ended = {(request.worker, request.sequence) for request in run.requests}
    unended = tuple(one for one in run.started if (one.worker, one.sequence) not in ended)
    unfinished = tuple(one.plan_id for one in unended)
    clock = run_clock(run.requests, run.clocks, run.started)
    levels = levels_of(
        plan=everything,
        records=run.levels,
        rows=rows,
        unfinished=unended,
        unsent=unsent,
        scenario=run.manifest.scenario,
        clock=clock,
    )
    gpu = own_gpus(run.manifest).samples(run.gpu)
    shared = shared_gpu(launch, launch_path, gpu)
    left = unread_answers(run, unended, limit_bytes=raw_limit_bytes)
    facts = gather(
        run, launch, rows, problems, server, levels=levels, n_unsent=len(unsent), gpu_shared=shared, unread=left
    )
    return LoadedRun(
        path=path,
        manifest=run.manifest,
        launch=launch,
        launch_missing=launch_missing,
        plan={str(line["plan_id"]): line for line in run.plan},
        rows=rows,
        places=run.places,
        unfinished=unfinished,
        seal=run.seal,
        problems=problems,
        server=server,
        levels=levels,
        clock=clock,
        facts=facts,
        reasons=judge(facts),
        launch_path=launch_path,
        gpu=gpu,
    )


def _cited_launch(run: Run) -> tuple[Launch | None, Path | None, str | None]:
    """The launch folder a run cites, looked for as written, from the run's folder and from its parents."""
    cited = run.manifest.launch_dir
    if cited is None:
        return None, None, "the run cites no launch"
    named = Path(cited)
    places = (
        [named] if named.is_absolute() else [run.path / named, *(root / named for root in run.path.resolve().parents)]
    )
    failure = f"the launch folder {cited} is not there"
    for place in places:
        if place.is_dir():
            try:
                launch = open_launch(place).launch
                doubt = _doubt(place, launch, run.manifest.launch_id)
            except EvidenceError as error:
                failure = f"the launch folder {cited} cannot be read: {error.what}"
                continue
            if doubt is None:
                return launch, place, None
            failure = f"the launch folder {cited} is not believed: {doubt}"
    return None, None, failure


def _doubt(place: Path, launch: Launch, cited_id: str | None) -> str | None:
    """Why a launch folder does not show what the run cites; one that is not sealed yet has no hashes to differ."""
    if cited_id is not None and launch.launch_id != cited_id:
        return f"it is the launch {launch.launch_id!r}, and the run cites {cited_id!r}"
    problem = next((one for one in verify(place) if one.code not in ("seal_missing", "recovered")), None)
    return None if problem is None else str(problem)
