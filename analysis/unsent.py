"""Plan lines that were not sent by design: they are no fault of a run, and stand in none of its counts.

A level ended by time holds more plan lines than the time allows; a search visits some of its levels only, and its
recorder notices at its end which ones. What such a level sent is its plan. Every other line that was not sent is
missing; so is all that a search left which was stopped before its end.
"""

import re
from collections.abc import Mapping, Sequence

from evidence.errors import Problem
from evidence.level_records import Level
from evidence.records import Json

_N_NAMED = 5
_SEARCH_ENDED = re.compile(r"search: .*; visited ", re.DOTALL)


def unsent_by_design(
    plan: Sequence[Mapping[str, Json]],
    started: frozenset[str],
    levels: Sequence[Level],
    scenario: Json,
    *,
    noticed: Sequence[str],
) -> dict[str, str]:
    """Why by plan id, of lines that were never started and need not have been. ``noticed`` is what the seal says."""
    by_time = {one.label for one in levels if one.ended_by == "time"}
    ended = any(_SEARCH_ENDED.match(text) for text in noticed)
    visited = {one.label for one in levels} if levels and ended and searches(scenario) else None
    found = {}
    for line in plan:
        plan_id, level = str(line.get("plan_id")), line.get("level")
        if level is None or plan_id in started:
            continue
        if level in by_time:
            found[plan_id] = "the level was ended by its time"
        elif visited is not None and level not in visited:
            found[plan_id] = "the search did not visit the level"
    return found


def visited(level: Mapping[str, Json]) -> bool:
    """Whether a level of ``summary --json`` was to be run: a search leaves candidates by design."""
    return bool(level["n_planned"] or level["n_started"])


def without_these(
    problems: Sequence[Problem], unsent: Mapping[str, str], begun: frozenset[str], plan: Sequence[Mapping[str, Json]]
) -> tuple[Problem, ...]:
    """The problems without what the folder's check says of plan lines that were left by design: it knows no reasons."""
    if not unsent:
        return tuple(problems)
    lacking = [str(line["plan_id"]) for line in plan if line["plan_id"] not in begun and line["plan_id"] not in unsent]
    named = ", ".join(lacking[:_N_NAMED]) + (f" and {len(lacking) - _N_NAMED} more" if lacking[_N_NAMED:] else "")
    said = f"{len(lacking)} planned requests were never started: {named}"
    found = (one._replace(detail=said) if one.code == "planned_not_started" else one for one in problems)
    return tuple(one for one in found if lacking or one.code != "planned_not_started")


def searches(scenario: Json) -> bool:
    """Whether a manifest's scenario is a search for the highest level that meets the objectives."""
    parts = [scenario.get(name) for name in ("levels", "arrivals")] if isinstance(scenario, Mapping) else []
    return any(isinstance(part, Mapping) and part.get("search") is True for part in parts)
