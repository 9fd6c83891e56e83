"""How many requests a folder holds of each kind, and where a request is not what was planned. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evidence.contents import Contents
from evidence.kept import elsewhere
from evidence.records import Json, Request

_COPIED_FROM_PLAN = ("prompt_id", "domain", "phase", "level", "pass_index", "repeat")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of a run; a request is counted once, by worker and sequence, and by the first line that says how it ended.

    A request whose ending is on file was started, even where the tail of ``started.jsonl`` was lost with it. Hence
    started = completed + failed + cancelled + unfinished, always; what does not fit together is a problem of
    ``verify``.
    """

    planned: int
    started: int
    completed: int
    failed: dict[str, int]  # by outcome, "cancelled" excluded
    cancelled: int
    unfinished: int


def count(contents: Contents) -> Counts:
    """The counts of what was read, and of workers whose lines are elsewhere by their own totals.

    ``planned`` is the manifest's number, without one that of the plan's lines.
    """
    started = {(one.record.worker, one.record.sequence) for one in contents.started}
    outcomes: dict[tuple[int, int], str] = {}
    for one in contents.requests:
        outcomes.setdefault((one.record.worker, one.record.sequence), one.record.outcome)
    tally = Counter(outcomes.values())
    totals = [one.totals for one in elsewhere(contents.path, contents.kept).values()]
    for kept in totals:
        tally.update({"completed": kept.completed, "cancelled": kept.cancelled, **kept.failed})
    return Counts(
        planned=len(contents.plan) if contents.manifest is None else contents.manifest.n_planned,
        started=len(started | outcomes.keys()) + sum(one.started for one in totals),
        completed=tally.pop("completed", 0),
        cancelled=tally.pop("cancelled", 0),
        failed={outcome: n for outcome, n in sorted(tally.items()) if n},
        unfinished=len(started - outcomes.keys()) + sum(one.unfinished for one in totals),
    )


def differences(request: Request, planned: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    """The fields a request copies from its plan line and has otherwise: (name, in the request, in the plan)."""
    for name in _COPIED_FROM_PLAN:
        if name in planned and planned[name] != getattr(request, name):
            yield name, getattr(request, name), planned[name]
