"""The record of ``levels.jsonl``: one level of a load run, from its beginning until drained (history: records.py)."""

from typing import Literal

from evidence.records import SCHEMA_VERSION, Count, Record, Seconds, Version

LevelKind = Literal["concurrency", "context", "arrivals"]
LevelEnd = Literal["requests", "time", "plan exhausted", "worker lost", "stopped"]


class Level(Record):
    """One line, written when a level has been drained or was cut short.

    Offsets count from ``began_at_monotonic_s``, the instant from which its requests could be taken.
    """

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    index: Count  # its place in the plan's levels, from 0
    label: str  # as in the plan lines and request records
    kind: LevelKind
    users: Count | None  # None in open loop
    rate_per_s: float | None  # asked, over all workers; None in closed loop and for a trace
    target_tokens: Count | None
    steady_s: Seconds | None  # asked; None where the level goes by its number of requests
    spawn_rate_per_s: float | None = None  # users let go a second at the level's beginning; None in open loop
    began_at_unix_s: float
    began_at_monotonic_s: float
    full_after_s: Seconds | None  # all users let go; None: the requests ran out before, or open loop
    drain_after_s: Seconds | None  # from here on no request was taken
    drained_after_s: Seconds | None  # from here on none was under way; None: it was cut short before
    n_planned: Count
    n_started: Count
    n_completed: Count
    n_failed: Count  # any other outcome but "cancelled"
    n_cancelled: Count
    n_cap_hits: Count | None = None  # requests that waited because max_in_flight were under way; None in closed loop
    ended_by: LevelEnd  # "worker lost": what was left of the plan had been dealt to one that was lost
