"""What client and server counted of the same thing must agree: tokens made, tokens read, drafts, and time.

The window runs from a scrape at rest to a scrape at rest, so only the requests measured between them count. Server
counters may be printed rounded; a comparison then holds within that rounding, and says so. Where a request did not
complete, the server may have made tokens the client never saw: the client's sum is then a lower bound.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from analysis.facts import Finding
from analysis.request_checks import Check, failed, not_observable
from evidence.records import Request
from infra.engines import llamacpp
from infra.engines.llamacpp_request import count_of
from infra.engines.readings import Measured, why_none
from infra.engines.window import Delta, Window, total

# A request that ended so cannot have made the engine work.
NEVER_SERVED = frozenset({"connect_refused", "connect_failed", "tls_failed", "http_error", "client_error"})


def window_checks(
    requests: Sequence[Request], windows: Sequence[Window], no_window: str | None, *, n_unfinished: int
) -> tuple[Check, ...]:
    """All checks of measured requests against the counters. ``no_window`` says why there is nothing to compare with.

    ``n_unfinished`` requests started and have no line that says how they ended.
    """
    why = no_window or next((window.why for window in windows if window.why is not None), None)
    names = ("generated tokens", "prompt tokens", "drafts summed", "accepted by position", "time to first token")
    if why is not None or not windows:
        compared = [not_observable(name, why or "no window") for name in names]
    else:
        lost = n_lost(requests, n_unfinished)
        compared = [
            _tokens(names[0], requests, lost, _generated(windows), lambda r: r.n_completion_tokens),
            _tokens(names[1], requests, lost, _prompt(windows), lambda r: r.n_prompt_tokens),
            _drafts(names[2], requests, lost, windows),
            _positions(names[3], windows),
            _first_token(names[4], requests, lost, windows),
        ]
    return (
        *compared,
        not_observable("requests counted", "llama.cpp counts no requests"),
        not_observable("inter-token time", "llama.cpp publishes no latency histogram"),
        not_observable("requests in flight", "llama.cpp publishes no time-mean of requests in flight"),
        not_observable("telemetry coverage", "no telemetry of the server's host"),
    )


def n_lost(requests: Sequence[Request], n_unfinished: int) -> int:
    """How many requests may have made the server work without a count of it on the client."""
    return n_unfinished + sum(r.outcome != "completed" and r.outcome not in NEVER_SERVED for r in requests)


def _generated(windows: Sequence[Window]) -> Delta:
    return total(windows, llamacpp.GENERATED_TOKENS)


def _prompt(windows: Sequence[Window]) -> Delta:
    """The engine counts cached prompt tokens apart."""
    worked_out, cached = total(windows, llamacpp.PROMPT_TOKENS), total(windows, llamacpp.PROMPT_CACHED)
    if not isinstance(worked_out.reading, Measured) or not isinstance(cached.reading, Measured):
        return worked_out if not isinstance(worked_out.reading, Measured) else cached
    return Delta(
        reading=Measured(worked_out.reading.value + cached.reading.value),
        uncertainty=worked_out.uncertainty + cached.uncertainty,
    )


def _tokens(
    name: str, requests: Sequence[Request], lost: int, server: Delta, count: Callable[[Request], int | None]
) -> Check:
    if not isinstance(server.reading, Measured):
        return not_observable(name, why_none(server.reading) or "")
    completed = [request for request in requests if request.outcome == "completed"]
    uncounted = sum(count(request) is None for request in completed)
    client = sum(count(request) or 0 for request in completed)
    theirs, within = server.reading.value, server.uncertainty
    rounded = f" (within {within:g}: the counter is printed rounded)" if within else ""
    seen = f"client {client}, server {theirs:g}{rounded}"
    if client - theirs > within:
        return _blamed(name, seen, "counts_differ")
    if lost or uncounted:
        return not_observable(
            name, f"{lost + uncounted} requests did not complete or carry no count; {seen}, the client's a lower bound"
        )
    if theirs - client > within:
        return _blamed(name, seen, "foreign_traffic")
    return Check(name=name, state="pass", seen=seen)


def _blamed(name: str, seen: str, code: str) -> Check:
    finding = (
        Finding(code="foreign_traffic", scope="run", seen=f"the server counted more {name} than this client: {seen}")
        if code == "foreign_traffic"
        else Finding(code="counts_differ", scope="run", seen=f"the server counted fewer {name} than it sent: {seen}")
    )
    return Check(name=name, state="fail", seen=seen, finding=finding)


def _drafts(name: str, requests: Sequence[Request], lost: int, windows: Sequence[Window]) -> Check:
    """Sums of the requests' own counts are the counters' growth; verify steps are told per run only."""
    drafted, accepted = total(windows, llamacpp.DRAFTED), total(windows, llamacpp.ACCEPTED)
    for delta in (drafted, accepted):
        if not isinstance(delta.reading, Measured):
            return not_observable(name, why_none(delta.reading) or "")
    if lost:
        return not_observable(name, f"{lost} requests did not complete: what was drafted for them is not known")
    served = [request for request in requests if request.outcome == "completed"]
    timings = [request.server_fields.get("timings") for request in served]
    silent = sum(count_of(one, "predicted_n") is None for one in timings)
    if silent or not served:
        return not_observable(name, f"{silent} of {len(served)} completed requests carry no timings")
    parts = []
    agree = True
    for field, delta in (("draft_n", drafted), ("draft_n_accepted", accepted)):
        ours = sum(count_of(one, field) or 0 for one in timings)
        theirs = delta.reading.value if isinstance(delta.reading, Measured) else 0.0
        agree = agree and abs(ours - theirs) <= delta.uncertainty
        parts.append(f"{field} {ours} in {len(served)} requests, {theirs:g} in the counters")
    seen = ", ".join(parts)
    return Check(name=name, state="pass", seen=seen) if agree else failed(name, seen, "acceptance")


def _positions(name: str, windows: Sequence[Window]) -> Check:
    """A position is reached only after the one before; all positions together are all that was accepted."""
    positions = llamacpp.per_position(*windows)
    accepted, steps = total(windows, llamacpp.ACCEPTED), total(windows, llamacpp.VERIFY_STEPS)
    if positions is None:
        return not_observable(name, "no accepted drafts by position")
    for delta in (accepted, steps):
        if not isinstance(delta.reading, Measured):
            return not_observable(name, why_none(delta.reading) or "")
    n_accepted = accepted.reading.value if isinstance(accepted.reading, Measured) else 0.0
    n_steps = steps.reading.value if isinstance(steps.reading, Measured) else 0.0
    seen = f"{'/'.join(f'{n:g}' for n in positions)} by position, {n_accepted:g} accepted in {n_steps:g} verify steps"
    falling = all(later <= earlier for earlier, later in pairwise(positions))
    summed = abs(sum(positions) - n_accepted) <= accepted.uncertainty
    first = positions[0] <= n_steps + steps.uncertainty
    return (
        Check(name=name, state="pass", seen=seen) if falling and summed and first else failed(name, seen, "acceptance")
    )


def _first_token(name: str, requests: Sequence[Request], lost: int, windows: Sequence[Window]) -> Check:
    """The client cannot have its first tokens sooner than the server had worked through the prompts."""
    server = total(windows, llamacpp.PROMPT_SECONDS)
    if not isinstance(server.reading, Measured):
        return not_observable(name, why_none(server.reading) or "")
    completed = [request for request in requests if request.outcome == "completed"]
    known = [r.first_token_after_s for r in completed if r.first_token_after_s is not None]
    if lost or len(known) < len(completed) or not known:
        return not_observable(name, f"{lost + len(completed) - len(known)} requests have no first token to compare")
    client_s, server_s = sum(known), server.reading.value
    seen = (
        f"client's times to first token {client_s:.4f} s, server's prompt work {server_s:.4f} s: "
        f"{(client_s - server_s) / len(known):.4f} s a request lie between"
    )
    if client_s + server.uncertainty < server_s:
        return failed(name, seen, "latency")
    return Check(name=name, state="pass", seen=seen)
