"""A run folder, read once, measured and judged: what every command of this room starts from. Nothing here writes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import identity
from analysis.bounded import bounded
from analysis.facts import RunFacts
from analysis.gather import gather
from analysis.measures import Row, measure
from analysis.server import ServerSide, server_side
from analysis.verdict import Reason, judge
from evidence.errors import EvidenceError, Problem
from evidence.launch_folder import open_launch
from evidence.reading import Run, open_run
from evidence.records import Json, Launch, Manifest, Seal
from evidence.verify import verify


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """A run with everything that is derived from it. ``launch`` is None where none is cited or it cannot be read."""

    path: Path
    manifest: Manifest
    launch: Launch | None
    launch_missing: str | None
    plan: Mapping[str, Mapping[str, Json]]  # by plan id
    rows: tuple[Row, ...]  # every ended request, warm-up too
    unfinished: tuple[str, ...]  # plan ids that started and never ended
    seal: Seal | None
    problems: tuple[Problem, ...]
    server: ServerSide
    facts: RunFacts
    reasons: tuple[Reason, ...]

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that are not warm-up."""
        return tuple(row for row in self.rows if row.request.phase == "measured")


def load_run(path: Path) -> LoadedRun:
    """Read, verify, measure and judge a run folder. Raises EvidenceError where it cannot be read at all."""
    problems = tuple(verify(path))  # first, so that its own reading is let go before ours is kept
    run = open_run(path)
    run = replace(run, requests=tuple(bounded(request) for request in run.requests))
    launch, launch_missing = _cited_launch(run)
    limit = identity.draft_limit(run.manifest, launch)
    rows = tuple(Row(request=request, measures=measure(request, max_draft_tokens=limit)) for request in run.requests)
    server = server_side(run, speculative=identity.speculative(run.manifest, launch))
    facts = gather(run, launch, rows, problems, server)
    ended = {(request.worker, request.sequence) for request in run.requests}
    return LoadedRun(
        path=path,
        manifest=run.manifest,
        launch=launch,
        launch_missing=launch_missing,
        plan={str(line["plan_id"]): line for line in run.plan},
        rows=rows,
        unfinished=tuple(one.plan_id for one in run.started if (one.worker, one.sequence) not in ended),
        seal=run.seal,
        problems=problems,
        server=server,
        facts=facts,
        reasons=judge(facts),
    )


def _cited_launch(run: Run) -> tuple[Launch | None, str | None]:
    """The launch folder a run cites, looked for as written, from the run's folder and from its parents."""
    cited = run.manifest.launch_dir
    if cited is None:
        return None, "the run cites no launch"
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
                return launch, None
            failure = f"the launch folder {cited} is not believed: {doubt}"
    return None, failure


def _doubt(place: Path, launch: Launch, cited_id: str | None) -> str | None:
    """Why a launch folder does not show what the run cites; one that is not sealed yet has no hashes to differ."""
    if cited_id is not None and launch.launch_id != cited_id:
        return f"it is the launch {launch.launch_id!r}, and the run cites {cited_id!r}"
    problem = next((one for one in verify(place) if one.code not in ("seal_missing", "recovered")), None)
    return None if problem is None else str(problem)
