"""What client and server counted of the same thing must agree: tokens made, tokens read, requests, drafts.

The window runs from a scrape at rest to a scrape at rest, so only the requests measured between them count. Server
counters may be printed rounded; a comparison then holds within that rounding, and says so. Where a request did not
complete, the server may have made tokens the client never saw: the client's sum is then a lower bound, and the sum with
what those requests may have made at most an upper one.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from analysis.cached_share import silent_is_zero
from analysis.facts import Finding
from analysis.request_checks import Check, failed, not_observable
from evidence.records import Request
from infra.engines.acceptance import Acceptance
from infra.engines.adapter import Adapter
from infra.engines.fields import count_of
from infra.engines.meaning import Counted, Nowhere, growth, known
from infra.engines.readings import Absent, Measured, Reading, Unmeasured, value_or_none, why_none
from infra.engines.window import Delta, Window, total

# A request that ended so cannot have made the engine work.
NEVER_SERVED = frozenset({"connect_refused", "connect_failed", "tls_failed", "http_error", "client_error"})
MOST_COPIES = 64  # of one server that may have been added by mistake
OFF = "speculation is off by the server's resolved configuration"
COUNT_CHECKS = (
    "generated tokens",
    "requests counted",
    "prompt tokens",
    "cached prompt tokens",
    "drafts summed",
    "accepted by position",
    "rate within the engine's step time",
)


def count_checks(
    requests: Sequence[Request],
    windows: Sequence[Window],
    adapter: Adapter | None,
    why: str | None,
    *,
    n_unfinished: int,
    speculative: bool | None,
    plan: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Check, ...]:
    """All checks of measured requests against the counters. ``why`` says why there is nothing to compare with.

    ``n_unfinished`` requests started and have no line that says how they ended. ``plan`` is by plan id: without it
    nothing is known of the most that a request may have made.
    """
    why = why or next((window.why for window in windows if window.why is not None), None)
    if why is not None or not windows or adapter is None:
        return tuple(not_observable(name, why or "no window") for name in COUNT_CHECKS)
    lost = n_lost(requests, n_unfinished)
    meaning = adapter.meaning
    completed = [request for request in requests if request.outcome == "completed"]
    cached = [value_or_none(adapter.cold_proof(r.server_fields, r.usage).n_cached) for r in completed]
    parts = [adapter.request_acceptance(r.server_fields, r.usage, speculative=speculative) for r in completed]
    return (
        _compared(
            COUNT_CHECKS[0],
            [r.n_completion_tokens for r in completed],
            lost,
            growth(meaning.generated, windows),
            most=_most_generated(requests, n_unfinished, plan or {}),
        ),
        _requests(COUNT_CHECKS[1], len(completed), lost, adapter.finished(windows)),
        _compared(
            COUNT_CHECKS[2],
            [r.n_prompt_tokens for r in completed],
            lost,
            growth(meaning.prompt, windows),
            most=_most_prompt(requests, n_unfinished),
        ),
        _cached(COUNT_CHECKS[3], completed, cached, lost, growth(meaning.cached, windows)),
        _or_off(_drafts(COUNT_CHECKS[4], parts, lost, adapter, windows), speculative),
        _positions(COUNT_CHECKS[5], adapter, windows),
        _or_off(_within_window(COUNT_CHECKS[6], adapter, windows, speculative), speculative),
    )


def _or_off(check: Check, speculative: bool | None) -> Check:
    """What cannot be seen of drafts where none are made: that is then the reason."""
    return not_observable(check.name, OFF) if speculative is False and check.state == "not observable" else check


def n_lost(requests: Sequence[Request], n_unfinished: int) -> int:
    """How many requests may have made the server work without a count of it on the client."""
    return n_unfinished + sum(_is_lost(request) for request in requests)


def _is_lost(request: Request) -> bool:
    return request.outcome != "completed" and request.outcome not in NEVER_SERVED


def _most_generated(
    requests: Sequence[Request], n_unfinished: int, plan: Mapping[str, Mapping[str, Any]]
) -> float | None:
    """The most tokens that requests without a count may have made, by their ``max_tokens``; None when one has none."""
    ended = {request.plan_id for request in requests}
    limits = [
        (count_of(plan.get(r.plan_id), "max_tokens"), _times_sent(r))
        for r in requests
        if _is_lost(r) or (r.outcome == "completed" and r.n_completion_tokens is None)
    ]
    if n_unfinished:
        others = [line for plan_id, line in plan.items() if line.get("phase") == "measured" and plan_id not in ended]
        known_limits = [limit for line in others if (limit := count_of(line, "max_tokens")) is not None]
        if len(known_limits) < max(len(others), 1):
            return None
        limits += [(max(known_limits), 2)] * n_unfinished  # it may have been sent again, and no line says so
    return _most(limits)


def _most_prompt(requests: Sequence[Request], n_unfinished: int) -> float | None:
    """The same of prompt tokens: a prompt whose size no answer told may be longer than any that was told."""
    silent = [r for r in requests if _is_lost(r) or (r.outcome == "completed" and r.n_prompt_tokens is None)]
    return None if n_unfinished else _most([(r.n_prompt_tokens, _times_sent(r)) for r in silent])


def _times_sent(request: Request) -> int:
    return 1 if request.connection is None or request.connection.sent_before_s is None else 2


def _most(limits: Sequence[tuple[int | None, int]]) -> float | None:
    found = [limit * times for limit, times in limits if limit is not None]
    return sum(found) if len(found) == len(limits) else None


def _compared(
    name: str,
    counts: Sequence[float | None],
    lost: int,
    server: Delta,
    *,
    blame: bool = True,
    most: float | None = None,
) -> Check:
    """Client's sum against the server's growth. ``blame``: a difference condemns the run, not this check alone.

    ``most`` is what requests without a count may have added at most; None where that is not known.
    """
    if not isinstance(server.reading, Measured):
        return not_observable(name, why_none(server.reading) or "")
    uncounted = sum(count is None for count in counts)
    client = sum(count or 0 for count in counts)
    theirs, within = server.reading.value, server.uncertainty
    rounded = f" (within {within:g}: the counter is printed rounded)" if within else ""
    seen = f"client {client:g}, server {theirs:g}{rounded}{_copies(client, theirs)}"
    if client - theirs > within:
        return _blamed(name, seen, "counts_differ") if blame else failed(name, seen, "acceptance")
    if lost or uncounted:
        if blame and most is not None and theirs - client > within + most:
            cut = f"{lost + uncounted} requests without a count can have added {most:g} at most"
            return _blamed(name, f"{seen}; {cut}", "foreign_traffic")
        return not_observable(
            name, f"{lost + uncounted} requests did not complete or carry no count; {seen}, the client's a lower bound"
        )
    if theirs - client > within:
        return _blamed(name, seen, "foreign_traffic") if blame else failed(name, seen, "acceptance")
    return Check(name=name, state="pass", seen=seen)


def _copies(client: float, server: float) -> str:
    times = server / client if client else 0.0
    if times < 2 or times > MOST_COPIES or times != int(times):
        return ""
    return f", exactly {times:g} times as much: one server added {times:g} times, or every request made twice over"


def _blamed(name: str, seen: str, code: str) -> Check:
    finding = (
        Finding(code="foreign_traffic", scope="run", seen=f"the server counted more {name} than this client: {seen}")
        if code == "foreign_traffic"
        else Finding(code="counts_differ", scope="run", seen=f"the server counted fewer {name} than it sent: {seen}")
    )
    return Check(name=name, state="fail", seen=seen, finding=finding)


def _requests(name: str, completed: int, lost: int, server: Delta) -> Check:
    """More requests on the server than this client can have sent are somebody else's."""
    if not isinstance(server.reading, Measured):
        return not_observable(name, why_none(server.reading) or "")
    theirs = server.reading.value
    seen = f"client {completed} completed{f' and {lost} cut short' if lost else ''}, server {theirs:g}"
    seen += "" if lost else _copies(completed, theirs)
    if theirs < completed:
        return _blamed(name, seen, "counts_differ")
    if theirs > completed + lost:
        return _blamed(name, seen, "foreign_traffic")
    if lost:
        return not_observable(name, f"{seen}: which of those cut short were counted is not known")
    return Check(name=name, state="pass", seen=seen)


def _cached(name: str, completed: Sequence[Request], cached: Sequence[float | None], lost: int, server: Delta) -> Check:
    """0 <= cached <= prompt for each request, their sum the server's; the share is always shown."""
    told = [(r, n) for r, n in zip(completed, cached, strict=True) if n is not None]
    over = [r.plan_id for r, n in told if r.n_prompt_tokens is not None and n > r.n_prompt_tokens]
    if over:
        return failed(name, f"{len(over)} requests report more cached than prompt tokens ({over[0]})", "run")
    sized = [(r.n_prompt_tokens, n) for r, n in told if r.n_prompt_tokens is not None]
    n_prompt = sum(size for size, _ in sized)
    share = f", {sum(n for _, n in sized) / n_prompt:.1%} of the prompts" if n_prompt else ""
    if len(told) < len(completed) and silent_is_zero(cached, lost, server):
        seen = f"client {sum(n for _, n in told):g}, server the same: the {len(completed) - len(told)} answers that"
        return Check(name=name, state="pass", seen=f"{seen} say nothing took none")
    if not told:
        theirs = known(server)
        also = "" if theirs is None else f" (the server counts {theirs:g})"
        return not_observable(name, f"no answer says how much of its prompt came from a cache{also}")
    if isinstance(server.reading, Absent):
        return Check(name=name, state="pass", seen=f"client {sum(n for _, n in told):g}{share}; {server.reading.why}")
    check = _compared(name, list(cached), lost, server, blame=False)
    if check.state == "not observable":
        return not_observable(name, f"{check.why}{share}")
    return Check(name=name, state=check.state, seen=check.seen + share, finding=check.finding)


def _drafts(name: str, parts: Sequence[Acceptance], lost: int, adapter: Adapter, windows: Sequence[Window]) -> Check:
    """Sums of the requests' own counts are the counters' growth, for each of the three that both sides tell."""
    meaning = adapter.meaning
    pairs = [
        ("drafted", meaning.drafted, [part.n_drafted for part in parts]),
        ("accepted", meaning.accepted, [part.n_accepted for part in parts]),
        ("verify steps", meaning.verify_steps, [part.n_verify_steps for part in parts]),
    ]
    if all(isinstance(where, Nowhere) for _, where, _ in pairs):
        return not_observable(name, "; ".join(where.why for _, where, _ in pairs if isinstance(where, Nowhere)))
    if lost:
        return not_observable(name, f"{lost} requests did not complete: what was drafted for them is not known")
    seen: list[str] = []
    whys: list[str] = []
    agree = True
    for word, where, readings in pairs:
        server = growth(where, windows)
        theirs, ours = known(server), _sum(readings)
        if theirs is None or not isinstance(ours, Measured):
            whys.append(f"{word}: {(why_none(server.reading) if theirs is None else why_none(ours)) or ''}")
            continue
        agree = agree and abs(ours.value - theirs) <= server.uncertainty
        seen.append(f"{word} {ours.value:g} in {len(parts)} requests, {theirs:g} in the counters")
    if not seen:
        return not_observable(name, "; ".join(dict.fromkeys(whys)))
    shown = ", ".join(seen)
    return Check(name=name, state="pass", seen=shown) if agree else failed(name, shown, "acceptance")


def _sum(readings: Sequence[Reading]) -> Reading:
    """All of them added, or the reason of the first that is missing."""
    if not readings:
        return Unmeasured(why="no request completed")
    missing = next((one for one in readings if not isinstance(one, Measured)), None)
    return missing or Measured(sum(value_or_none(one) or 0.0 for one in readings))


def _positions(name: str, adapter: Adapter, windows: Sequence[Window]) -> Check:
    """A position is reached only after the one before; all positions together are all that was accepted."""
    meaning = adapter.meaning
    if not isinstance(meaning.per_position, Counted):
        return not_observable(name, meaning.per_position.why)
    positions = by_position(adapter, windows)
    if positions is None:
        return not_observable(name, "no accepted drafts by position")
    accepted, steps = growth(meaning.accepted, windows), growth(meaning.verify_steps, windows)
    n_accepted, n_steps = known(accepted), known(steps)
    if n_accepted is None:
        return not_observable(name, why_none(accepted.reading) or "")
    of = "" if n_steps is None else f" in {n_steps:g} verify steps"
    seen = f"{'/'.join(f'{n:g}' for n in positions)} by position, {n_accepted:g} accepted{of}"
    falling = all(later <= earlier for earlier, later in pairwise(positions))
    summed = abs(sum(positions) - n_accepted) <= accepted.uncertainty
    first = n_steps is None or positions[0] <= n_steps + steps.uncertainty
    return (
        Check(name=name, state="pass", seen=seen) if falling and summed and first else failed(name, seen, "acceptance")
    )


def by_position(adapter: Adapter, windows: Sequence[Window]) -> tuple[float, ...] | None:
    """Accepted drafts by position in the draft; None where the engine does not tell them apart."""
    where = adapter.meaning.per_position
    if isinstance(where, Nowhere):
        return None
    (name,) = where.names
    after = [sample for window in windows for sample in window.after.exposition.find(name)]
    label = next((key for key in ("position", "token_position") if any(key in s.labels for s in after)), "position")
    places = {sample.labels.get(label) for sample in after}
    found = [known(total(windows, name, {label: str(place)}, from_first=True)) for place in range(len(places))]
    if not found or any(one is None for one in found):
        return None
    return tuple(one for one in found if one is not None)


def _within_window(name: str, adapter: Adapter, windows: Sequence[Window], speculative: bool | None) -> Check:
    """A verify step commits at most its draft and one token more, so tokens per step stay below that."""
    limit = adapter.draft_limit(windows)
    if not isinstance(limit, Measured):
        return not_observable(name, limit.why)
    found = adapter.acceptance(windows, speculative=speculative)
    per_step = found.length if isinstance(found.length, Measured) else found.tokens_per_target_step
    if not isinstance(per_step, Measured):
        return not_observable(name, per_step.why)
    seen = f"{per_step.value:.4g} tokens a verify step, at most {limit.value + 1:g} are possible"
    return (
        Check(name=name, state="pass", seen=seen)
        if per_step.value <= limit.value + 1
        else failed(name, seen, "acceptance")
    )
