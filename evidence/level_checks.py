"""Lines of ``levels.jsonl`` against the plan, the scenario, and the lines of the requests that name the level.

Instants are compared on the master's monotonic clock. A worker of another process has its own, which ``clocks.jsonl``
carries over; of a worker that was not measured nothing is said. Counts of a level that was stopped, or of a run that
lost a worker's lines, were written while requests were still under way, and are less than the lines.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from evidence.contents import Contents
from evidence.errors import Problem
from evidence.kept import elsewhere
from evidence.layout import LEVELS
from evidence.level_records import Level
from evidence.lines import Located
from evidence.records import Request
from evidence.worker_records import WorkerClock

SLACK_S = 0.05  # an instant is read a moment after what it marks
OTHER_CLOCK_SLACK_S = 0.25  # on top of the bound of the measurement: clocks drift from one to the next
_LOSING = frozenset({"lost", "incomplete", "returned", "kept"})


def level_problems(contents: Contents) -> Iterator[Problem]:
    """Every level line that says other than the plan, the scenario or the requests; none where there are no levels."""
    seen: set[str] = set()
    for one in contents.levels:
        if one.record.label in seen:
            yield Problem("level_duplicate", f"level {one.record.label!r} stands twice", one.file, one.line)
        seen.add(one.record.label)
    yield from _against_plan(contents)
    yield from _counts(contents)
    yield from _instants(contents)


def _against_plan(contents: Contents) -> Iterator[Problem]:
    planned: Counter[str] = Counter()
    for line in contents.plan:
        label = line.fields.get("level")
        if isinstance(label, str) and line.fields.get("phase") == "measured":
            planned[label] += 1
    if not planned:
        return
    places = {label: place for place, label in enumerate(planned)}
    for file, number, level in contents.levels:
        if level.label not in planned:
            yield Problem("level_differs", f"level {level.label!r} is not in the plan", file, number)
            continue
        told = {"index": places[level.label], "n_planned": planned[level.label], **_by_label(level)}
        told |= _by_scenario(contents)
        for name, value in told.items():
            there = getattr(level, name)
            if there != value:
                detail = f"{name} of {level.label!r} is {there!r}, by plan and scenario {value!r}"
                yield Problem("level_differs", detail, file, number)


def _by_label(level: Level) -> dict[str, object]:
    """What the label itself says; a rate stands in it rounded, and is compared as it is written there."""
    name, _, value = level.label.partition("#")[0].partition("=")
    if name == "users" and value.isdigit():
        return {"users": int(value)}
    if name == "tokens" and value.isdigit():
        return {"target_tokens": int(value), "users": 1}
    if name == "rate" and (level.rate_per_s is None or f"{level.rate_per_s:g}" != value):
        return {"rate_per_s": value}
    return {}


def _by_scenario(contents: Contents) -> dict[str, object]:
    scenario = None if contents.manifest is None else contents.manifest.scenario
    if not isinstance(scenario, dict) or scenario.get("kind") not in ("concurrency", "context", "arrivals"):
        return {}
    told: dict[str, object] = {"kind": scenario["kind"]}
    part = scenario.get("levels")
    if scenario["kind"] == "concurrency" and isinstance(part, dict) and "steady_s" in part:
        told["steady_s"] = part["steady_s"]
    return told


def _counts(contents: Contents) -> Iterator[Problem]:
    if contents.seal is None or contents.seal.recovered or _lines_lost(contents):
        return
    plan = {line.plan_id: line.fields.get("level") for line in contents.plan}
    started = Counter(plan.get(one.record.plan_id) for one in contents.started)
    ended: dict[object, Counter[str]] = defaultdict(Counter)
    for _, _, request in contents.requests:
        kind = request.outcome if request.outcome in ("completed", "cancelled") else "failed"
        ended[plan.get(request.plan_id)][kind] += 1
    for file, number, level in contents.levels:
        here = {"n_started": started[level.label]}
        here |= {f"n_{kind}": ended[level.label][kind] for kind in ("completed", "failed", "cancelled")}
        for name, n_lines in here.items():
            there = getattr(level, name)
            if there > n_lines or (there < n_lines and level.ended_by != "stopped"):
                detail = f"{name} of {level.label!r} is {there}, the requests' lines give {n_lines}"
                yield Problem("level_counts_mismatch", detail, file, number)


def _lines_lost(contents: Contents) -> bool:
    return bool(elsewhere(contents.path, contents.kept)) or any(one.record.event in _LOSING for one in contents.workers)


def _instants(contents: Contents) -> Iterator[Problem]:
    for file, number, level in contents.levels:
        drain_s, drained_s = level.drain_after_s, level.drained_after_s
        if drain_s is not None and drained_s is not None and drained_s < drain_s:
            detail = f"{level.label!r} was drained {drained_s} s after it began, and began to drain {drain_s} s after"
            yield Problem("level_instants", detail, file, number)
    for (_, _, before), (file, number, after) in pairwise(contents.levels):
        end_s = before.began_at_monotonic_s + (before.drained_after_s or 0.0)
        if after.began_at_monotonic_s < end_s - SLACK_S:
            early_s = end_s - after.began_at_monotonic_s
            detail = f"{after.label!r} began {early_s:.3f} s before {before.label!r} was over"
            yield Problem("level_instants", detail, file, number)
    yield from _scrapes(contents)
    levels = {one.record.label: one.record for one in reversed(contents.levels)}  # the first, where one stands twice
    clocks: dict[int, list[WorkerClock]] = defaultdict(list)
    for line in contents.clocks:
        clocks[line.record.worker].append(line.record)
    carried = bool(contents.clocks or contents.workers)
    for located in contents.requests:
        request = located.record
        named = levels.get(request.level) if request.level is not None else None
        if named is not None and (clocks.get(request.worker) or not carried):
            yield from _sent(located, named, clocks.get(request.worker, ()))


def _scrapes(contents: Contents) -> Iterator[Problem]:
    """At rest before a level and after it the server is scraped by the same clock."""
    found = {(one.record.role, one.record.level): one.record for one in contents.scrapes}
    for file, number, level in contents.levels:
        before, after = found.get(("before", level.label)), found.get(("after", level.label))
        if before is not None and before.send_monotonic_s > level.began_at_monotonic_s + SLACK_S:
            detail = f"{level.label!r} began before the scrape that was made ahead of it"
            yield Problem("level_instants", detail, file, number)
        end_s = level.began_at_monotonic_s + (level.drained_after_s or 0.0)
        if after is not None and after.receive_monotonic_s < end_s - SLACK_S:
            detail = f"{level.label!r} was over after the scrape that was made behind it"
            yield Problem("level_instants", detail, file, number)


def _sent(located: Located[Request], level: Level, clocks: Sequence[WorkerClock]) -> Iterator[Problem]:
    """``clocks`` are the measurements of the request's worker; none where its clock is the master's."""
    file, number, request = located
    at_s, slack_s = request.sent_at_monotonic_s, SLACK_S
    if at_s is None:
        return
    if clocks:
        own_s = at_s
        near = min(clocks, key=lambda line: abs(line.at_monotonic_s + line.offset_monotonic_s - own_s))
        at_s, slack_s = at_s - near.offset_monotonic_s, OTHER_CLOCK_SLACK_S + near.bound_s
    after_s = at_s - level.began_at_monotonic_s
    if after_s < -slack_s:
        detail = f"{request.plan_id!r} was sent {-after_s:.3f} s before {level.label!r} of {LEVELS} began"
        yield Problem("sent_outside_level", detail, file, number)
    elif level.drained_after_s is not None and after_s > level.drained_after_s + slack_s:
        late_s = after_s - level.drained_after_s
        detail = f"{request.plan_id!r} was sent {late_s:.3f} s after {level.label!r} of {LEVELS} was over"
        yield Problem("sent_outside_level", detail, file, number)
