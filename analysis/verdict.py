"""The verdict: one pure function from the facts of a run to a list of reasons. It is derived, never stored.

VALID     no reason at all.
DEGRADED  usable, with the limits the reasons name.
INVALID   no number in the reason's scope may enter a comparison; the scope "run" covers every other scope.

Decided where the rules leave room:
- A planned request that never started, or one that started and never ended, is a count that does not balance: a
  stopped or killed run is INVALID as a whole, even after ``recover`` has closed it. What it measured stays readable.
- A run killed between its last request and its seal, and closed afterwards, is DEGRADED: nothing is missing from its
  requests, but what its recorder would have noticed at the end is.
- An answer that came whole but without usage has failed for rates, while its latencies stand.
- A server whose metrics could be read before the measured requests and not after them may have died or been replaced:
  INVALID as a whole.
- A run in which no measured request was answered has no number and is INVALID, however few its requests.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analysis.facts import RunFacts, Scope
from analysis.lateness import Late
from analysis.level_limits import INVALIDATE, LEVEL_REMEDIES, level_limits
from analysis.tables import fine_ms

Severity = Literal["DEGRADED", "INVALID"]
Verdict = Literal["VALID", "DEGRADED", "INVALID"]
SCOPES: tuple[Scope, ...] = ("run", "latency", "rate", "acceptance", "outputs")
TIMES: tuple[Scope, ...] = ("latency", "rate")

TOLERATED_FAILURES = 2  # up to this many failures degrade, whatever their share
TOLERATED_SHARE = 0.01
FLOOR_DEGRADES = 0.1  # client floor as a share of the metric's median
FLOOR_INVALIDATES = 0.5
STEP_S = 0.001  # both clocks are slewed alike: a change of their difference beyond reading errors is a step

CUT_OFF = "let the run finish: its stop cut these requests off, and nothing else failed"
REMEDIES: dict[str, str] = {
    "not_sealed": "wait for the run's end, or close the folder with `python -m analysis recover RUN`; repeat the run",
    "recovered": "repeat the run; read this one for what happened until its recorder ended",
    "hash_differs": "the folder was changed after it was sealed: restore it from a copy, or repeat the run",
    "schema_violated": "read the place named; a folder of another version needs the version that wrote it",
    "torn": "half-written ends are kept and not read: repeat the run",
    "plan_incomplete": "let the run finish its plan: a part of it is another mix",
    "unfinished": "the recorder ended while requests were under way: repeat the run",
    "lines_elsewhere": "bring them with `python -m analysis recover RUN --shard DIR`: each is held against its digest",
    "counts_do_not_balance": "every planned request must start and end exactly once: repeat the run",
    "nothing_measured": "read the outcomes and their messages in requests.jsonl, put the server right, repeat the run",
    "requests_failed": "what failed may be the slow part: find the cause in the errors on record and repeat the run",
    "warmup_failed": "the first measured requests may have met an unprepared engine: repeat the run",
    "no_token_counts": "use a server, or a proxy, that sends usage in its streams (stream_options.include_usage)",
    "first_chunk_tokens_unknown": "rates are intervals; have the server count in each chunk (`python -m infra probe`)",
    "outputs_not_saved": "outputs cannot be compared or judged: repeat the run",
    "cold_not_proven": "use an engine that reports cached tokens and can be reset, or ask for cache policy `as-is`",
    "profiled": "a profiled launch is never timed: read its traces with `python -m analysis trace --run RUN`, and time"
    " another run with --no-profile",
    "profiler_never_opened": "give the requests more tokens, or lower telemetry.profile.after_requests",
    "profiler_refused": "read the server's reply in profile.json, and start it with its profiler on",
    "profiler_window_empty": "open the window while a request runs: more tokens a request, fewer steps a window",
    "trace_elsewhere": "run the client on the server's host, or fetch the traces and name them to `analysis trace`",
    "trace_incomplete": "ask for fewer steps, so that every rank has written its trace when the run ends",
    "does_not_speculate": "the engine serves without the speculation its arm names: read its log and launch it anew",
    "arm_contradicted": "the run names another arm than the one that was launched: name the right one",
    "launch_unknown": "launch the server by `python -m infra launch ARM`, or give it a --label in place of an --arm",
    "synthetic_acceptance": "such a run tests arithmetic only: remove the setting to measure",
    "acceptance_unmeasured": "switch on the server's metrics or per-request timings; with nothing drafted, ask for more"
    " tokens",
    "no_metrics": "start the server with its metrics endpoint on, or name it with --metrics-url; without it the counts"
    " of client and server cannot be compared",
    "restart": "the engine restarted while it was measured: find why in its log, and repeat the run",
    "foreign_traffic": "someone else used the server: measure on a server of your own",
    "several_servers": "several servers answered behind one address: measure one, or name each with --metrics-url",
    "counts_differ": "client and server do not agree on what was served: look for other traffic or a wrong endpoint",
    "window_not_closed": "see in its log whether the engine died; a restart or foreign traffic cannot be ruled out",
    "records_differ_from_raw": "records were changed after they were written: restore the folder, or repeat the run",
    "check_failed": "two records of the same thing disagree: read both before using either",
    "client_floor": "measure from an idle machine, with fewer streams a process or more processes",
    "client_late": "give the client a core of its own, and keep other work off it; then repeat the run",
    "gpu_shared": "stop what else holds this GPU and launch the server anew: its memory and its time were shared",
    "passes_differ": "have the cache reset for each request (policy `cold`, per `request`), or send each prompt once:"
    " these medians mix two states of the server",
    "sent_again": "the server closes kept connections at any moment: raise its keep-alive limit",
    "clock_stepped": "kernel stamps are wall-clock, so such requests carry user stamps: keep the clock from stepping",
    "container_digest_unknown": "name the image's digest in the arm, or launch the server from an arm",
    "model_revision_unknown": "name the model's revision or file hash in the arm: nobody can repeat an unnamed model",
    "model_differs": "read /v1/models (`python -m infra probe`) and name the model that is served with --model",
    **LEVEL_REMEDIES,
    "version_unknown": "have the server, or its arm, say which version it is",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One thing seen that limits what the run can show, and what to do about it."""

    code: str
    severity: Severity
    scope: Scope
    seen: str
    remedy: str


def judge(facts: RunFacts) -> tuple[Reason, ...]:
    """Every reason that limits the run, the heaviest first; an empty tuple means VALID.

    Where lines are sealed and elsewhere, nothing is said of what they would show.
    """
    rows = (_folder, _elsewhere, _identity) if facts.lines_elsewhere else ROWS
    reasons = [reason for row in rows for reason in row(facts)]
    return tuple(sorted(reasons, key=lambda reason: (reason.severity != "INVALID", SCOPES.index(reason.scope))))


def overall(reasons: Sequence[Reason]) -> Verdict:
    """The heaviest severity of all, whatever its scope."""
    if any(reason.severity == "INVALID" for reason in reasons):
        return "INVALID"
    return "DEGRADED" if reasons else "VALID"


def by_scope(reasons: Sequence[Reason]) -> dict[Scope, Verdict]:
    """A verdict for each scope; what is said of the whole run holds in every scope."""
    return {scope: overall([r for r in reasons if r.scope in ("run", scope)]) for scope in SCOPES}


def _degraded(code: str, scope: Scope, seen: str, remedy: str | None = None) -> Reason:
    """``remedy``: one that fits better than the code's own."""
    return Reason(code=code, severity="DEGRADED", scope=scope, seen=seen, remedy=remedy or REMEDIES[code])


def _invalid(code: str, scope: Scope, seen: str, remedy: str | None = None) -> Reason:
    return Reason(code=code, severity="INVALID", scope=scope, seen=seen, remedy=remedy or REMEDIES[code])


def _listed(items: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return "; ".join(items[:limit]) + more


def _counted(outcomes: Mapping[str, int], said: Mapping[str, str]) -> str:
    """Each outcome with what the error of most of its requests said."""
    return ", ".join(
        f"{number} {outcome}{f' ({said[outcome]})' if said.get(outcome) else ''}"
        for outcome, number in sorted(outcomes.items())
    )


def _folder(facts: RunFacts) -> Iterator[Reason]:
    if not facts.sealed:
        yield _invalid("not_sealed", "run", "the folder has no seal: its run is under way, or its recorder died")
    elif facts.recovered:
        yield _degraded("recovered", "run", "the folder was closed afterwards: its recorder did not live to seal it")
    if facts.hash_problems:
        yield _invalid("hash_differs", "run", _listed(facts.hash_problems))
    if facts.schema_problems:
        yield _invalid("schema_violated", "run", _listed(facts.schema_problems))
    if facts.torn_bytes:
        torn = _listed([f"{name} ({n_bytes} bytes)" for name, n_bytes in facts.torn_bytes.items()])
        yield _degraded("torn", "run", f"half-written ends: {torn}")


def _elsewhere(facts: RunFacts) -> Iterator[Reason]:
    yield _invalid(
        "lines_elsewhere", "run", f"digests are sealed here, the lines are not: {_listed(facts.lines_elsewhere)}"
    )


def _balance(facts: RunFacts) -> Iterator[Reason]:
    if facts.planned != facts.started:
        seen = f"{facts.started} of {facts.planned} planned requests were started"
        yield _invalid("plan_incomplete", "run", seen if facts.stopped is None else f"{seen}: {facts.stopped}")
    if facts.started != facts.ended:
        lost = facts.started - facts.ended
        seen = f"{facts.started} requests started, {facts.ended} ended: {lost} unaccounted"
        yield _invalid("unfinished", "run", seen if facts.unread is None else f"{seen}; {facts.unread}")
    if facts.count_problems:
        yield _invalid("counts_do_not_balance", "run", _listed(facts.count_problems))
    if facts.measured_completed + facts.measured_failed.get("no_usage", 0) == 0:
        outcomes = f": {_counted(facts.measured_failed, facts.error_said)}" if facts.measured_failed else ""
        yield _invalid("nothing_measured", "run", f"no measured request was answered{outcomes}")


def _failures(facts: RunFacts) -> Iterator[Reason]:
    whole_streams = {outcome: n for outcome, n in facts.measured_failed.items() if outcome != "no_usage"}
    scopes: tuple[tuple[Scope, Mapping[str, int]], ...] = (("latency", whole_streams), ("rate", facts.measured_failed))
    for scope, lost in scopes:
        n_lost = sum(lost.values())
        if n_lost:
            many = n_lost > TOLERATED_FAILURES and n_lost > TOLERATED_SHARE * facts.measured_started
            seen = f"{n_lost} of {facts.measured_started} measured requests did not complete: "
            seen += _counted(lost, facts.error_said)
            by_stop = facts.stopped is not None and set(lost) == {"cancelled"}
            remedy = CUT_OFF if by_stop else None
            yield (_invalid if many else _degraded)("requests_failed", scope, seen, remedy)
    if facts.warmup_failed:
        yield _degraded(
            "warmup_failed", "latency", f"of the warm-up requests {_counted(facts.warmup_failed, facts.error_said)}"
        )


def _tokens(facts: RunFacts) -> Iterator[Reason]:
    no_usage = facts.measured_failed.get("no_usage", 0)
    uncounted = facts.completed_without_count + no_usage
    if facts.completed_without_count or (no_usage and not facts.measured_completed):
        yield _invalid("no_token_counts", "rate", f"{uncounted} answers carry no token count of the server's")
    if facts.first_chunk_unknown:
        seen = f"tokens of the first chunk unknown in {facts.first_chunk_unknown} of {facts.measured_completed} answers"
        yield _degraded("first_chunk_tokens_unknown", "rate", seen)


def _outputs(facts: RunFacts) -> Iterator[Reason]:
    if facts.outputs_missing:
        yield _invalid("outputs_not_saved", "outputs", f"no faithful text for {_listed(facts.outputs_missing)}")


def _cold(facts: RunFacts) -> Iterator[Reason]:
    if facts.cold_asked and not facts.cold_proven:
        scopes: tuple[Scope, ...] = ("latency", "rate")
        for scope in scopes:
            yield _invalid("cold_not_proven", scope, f"asked `cold`, not proven: {facts.cold_seen or 'no proof kept'}")


def _profiled(facts: RunFacts) -> Iterator[Reason]:
    if facts.profiled is not None:
        scopes: tuple[Scope, ...] = ("latency", "rate")
        for scope in scopes:
            yield _invalid("profiled", scope, facts.profiled)
    if facts.profiler_fault is not None:
        code, seen = facts.profiler_fault
        yield _degraded(code, "run", seen)


def _acceptance(facts: RunFacts) -> Iterator[Reason]:
    if facts.speculation_refuted:
        yield _invalid("does_not_speculate", "run", facts.speculation_refuted)
    if facts.arm_contradicted:
        yield _invalid("arm_contradicted", "run", facts.arm_contradicted)
    if facts.synthetic_acceptance:
        yield _invalid("synthetic_acceptance", "run", f"acceptance is forced: {facts.synthetic_acceptance}")
    if facts.speculative and facts.acceptance_state in ("absent", "unmeasured"):
        seen = f"a speculative arm without measured acceptance: {facts.acceptance_why or facts.acceptance_state}"
        yield _degraded("acceptance_unmeasured", "acceptance", seen)
    if facts.metrics_missing:
        whose = "this server" if facts.own_server else "a server run by someone else"
        yield _degraded("no_metrics", "acceptance", f"no usable metrics endpoint on {whose}: {facts.metrics_missing}")


def _window(facts: RunFacts) -> Iterator[Reason]:
    for finding in facts.findings:
        yield _invalid(finding.code, finding.scope, finding.seen)


def _client(facts: RunFacts) -> Iterator[Reason]:
    for floor in facts.floors:
        if floor.median_s is None or floor.floor_s <= FLOOR_DEGRADES * floor.median_s:
            continue
        heavy = floor.floor_s > FLOOR_INVALIDATES * floor.median_s
        at = "" if floor.level is None else f" at {floor.level}"
        same = [one.metric for one in facts.floors if replace(one, metric=floor.metric) == floor]
        if same[0] != floor.metric:
            continue  # said with the first of them
        beside = f"{fine_ms(floor.floor_s)} ms beside a median of {fine_ms(floor.median_s)} ms{at}"
        seen = f"client floor of {' and '.join(same)}: {beside}"
        yield (_invalid if heavy else _degraded)("client_floor", floor.scope, seen)
    if facts.late_for_latency is not None:
        yield from _late("latency", facts.late_for_latency)
    if facts.late_for_rate is not None:
        yield from _late("rate", facts.late_for_rate)
    if facts.n_sent_again:
        seen = f"{facts.n_sent_again} of {facts.measured_started} requests were sent again on a new connection"
        yield _degraded("sent_again", "latency", seen)
    steps_s = [abs(step) for step in facts.clock_steps if abs(step) > STEP_S]
    if steps_s:
        seen = f"the wall clock was stepped during {len(steps_s)} requests, by up to {max(steps_s):.4f} s"
        yield _degraded("clock_stepped", "latency", seen)


def _late(scope: Scope, late: Late) -> Iterator[Reason]:
    """Above a tenth of what it moves lateness degrades; above a half, in more than a few requests, it invalidates."""
    if late.median_s is None or late.lag_s <= FLOOR_DEGRADES * late.median_s:
        return
    few = late.n_late <= TOLERATED_FAILURES or late.n_late <= TOLERATED_SHARE * late.n_requests
    heavy = late.lag_s > FLOOR_INVALIDATES * late.median_s and not few
    seen = (
        f"this client was late by up to {late.lag_s:.4f} s while it read the deciding tokens of {late.n_late} of "
        f"{late.n_requests} requests, beside a median {late.moved} of {late.median_s:.4f} s"
    )
    yield (_invalid if heavy else _degraded)("client_late", scope, seen)


def _levels(facts: RunFacts) -> Iterator[Reason]:
    for limit in level_limits(facts.levels, was_stopped=facts.stopped is not None):
        say = _invalid if limit.code in INVALIDATE else _degraded
        yield say(limit.code, limit.scope, limit.seen, limit.remedy)
    if facts.gpu_shared:
        for scope in TIMES:
            yield _degraded("gpu_shared", scope, facts.gpu_shared)
    if facts.passes_differ:
        for scope in (*TIMES, "acceptance"):
            yield _degraded("passes_differ", scope, facts.passes_differ.seen)
    if facts.cached_shares_differ:
        yield _degraded("cached_shares_differ", "latency", facts.cached_shares_differ)


def _identity(facts: RunFacts) -> Iterator[Reason]:
    for unknown in facts.unknown:
        yield _degraded(f"{unknown.what}_unknown", "run", unknown.seen)
    if facts.model_differs:
        yield _degraded("model_differs", "run", facts.model_differs)


ROWS: tuple[Callable[[RunFacts], Iterator[Reason]], ...] = (
    _folder,
    _balance,
    _failures,
    _tokens,
    _outputs,
    _cold,
    _profiled,
    _acceptance,
    _window,
    _client,
    _levels,
    _identity,
)
