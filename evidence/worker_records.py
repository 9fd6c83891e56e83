"""What the master of a run with many workers writes about them, and what a worker writes beside its own lines.

Schema history
    1  first version: worker event (``workers.jsonl``), worker clock (``clocks.jsonl``), shard (``shard.json``), kept
       shard (``workers/<n>/kept.json``), totals.

A worker's lines are the same bytes on its own disk (its shard) and in the master's folder (the mirror); how they get
there is in evidence/replication.py.
"""

from typing import Literal

from evidence.records import SCHEMA_VERSION, Count, Record, Seconds, Sha256, Version

WorkerEventKind = Literal[
    "joined",  # it has the run and a number, and takes part from the next level on
    "refused",  # a stranger: a worker of another run, or one that came when none was wanted
    "dealt",  # the planned requests it was given for one level
    "lost",  # it went silent; what of its lines is here stands in this line
    "returned",  # a lost one was heard again; its lines are taken, and it gets no more requests
    "finished",  # its totals were proven against the mirror: every line it wrote is here
    "incomplete",  # it said its totals, and the mirror does not have them all
    "kept",  # its lines stay where ``kept.json`` says; digests and counts are here
]


class FileTotal(Record):
    """One file of a worker's folder as a whole."""

    n_bytes: Count
    sha256: Sha256


class Totals(Record):
    """What a worker's folder holds: started = completed + failed + cancelled + unfinished, and every file's digest."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    started: Count
    completed: Count
    failed: dict[str, Count]  # by outcome, "cancelled" excluded
    cancelled: Count
    unfinished: Count
    files: dict[str, FileTotal]  # by path within the worker's folder, e.g. "wire/segments.bin"


class WorkerEvent(Record):
    """One line of ``workers.jsonl``: something that became of a worker, as the master saw it."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    at_unix_s: float
    at_monotonic_s: float  # the master's clock
    event: WorkerEventKind
    worker: Count | None  # None for a stranger, which has no number
    client: str | None  # the name Locust knows it by
    host: str | None
    pid: Count | None
    level: str | None = None  # None outside of a level, and for the warm-up
    plan_ids: tuple[str, ...] = ()  # event "dealt": in the order they are to be sent
    n_batches: Count | None = None  # the last one applied
    files: dict[str, Count] | None = None  # bytes of each file that are here
    shard: str | None = None  # where the worker keeps its own copy, as it said
    detail: str | None = None  # in words, where there is more to say


class WorkerClock(Record):
    """One line of ``clocks.jsonl``: a worker's clocks against the master's, from the quickest of some pings.

    With the master's readings t0 (sent) and t3 (answer read) and the worker's t1 (read) and t2 (answered):
    offset = ((t1 - t0) + (t2 - t3)) / 2, the formula of NTP (RFC 5905, section 8), and the error is at most half of the
    round trip (t3 - t0) - (t2 - t1), whatever the two ways share of it.
    """

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    at_unix_s: float
    at_monotonic_s: float  # the master's clock, when the quickest ping was sent
    n_pings: Count
    offset_monotonic_s: float  # the worker's monotonic clock minus the master's
    offset_unix_s: float  # the worker's wall clock minus the master's
    bound_s: Seconds  # half the round trip: neither offset is further off


class ShardFacts(Record):
    """``shard.json``: whose lines a shard folder holds. Written before the first of them."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    host: str
    pid: Count
    client: str | None
    manifest_sha256: Sha256  # of the master's ``manifest.json``, of which the shard has a copy
    began_at_unix_s: float


class Kept(Record):
    """``workers/<n>/kept.json``: the worker's lines are elsewhere; what they are is sealed here."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    where: str  # the folder on the worker's host, or the URL it was copied to
    host: str | None  # None where the worker did not say
    why: str
    totals: Totals
