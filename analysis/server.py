"""The server's side of a run: the windows between its scrapes, acceptance, proof of a cold cache, and what agrees."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analysis.cached_share import silent_is_zero
from analysis.conservation import count_checks, n_lost
from analysis.facts import Finding
from analysis.latency_checks import latency_checks
from analysis.prometheus_windows import agree
from analysis.request_checks import Check, not_observable, request_checks
from analysis.step_checks import step_check
from analysis.windows import Windows, at_rest, broken_findings, open_windows, read_all
from evidence.reading import Run
from evidence.records import Request, Scrape
from infra.engines.acceptance import Acceptance, nowhere
from infra.engines.adapter import Adapter, adapter_for
from infra.engines.fields import ColdProof, cached_by_usage, cold_by
from infra.engines.meaning import growth
from infra.engines.readings import Absent, Measured, Unmeasured, value_or_none
from infra.engines.window import Window

ALL = "all"
# States of a reset's reply that leave the cache cold, or were not to.
DONE = ("reset", "per request", "restarted", "not asked")
ColdPer = Literal["cell", "request"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSide:
    """``windows`` is one a server, () with the reason in ``no_window``. ``completed`` are the measured ones."""

    adapter: Adapter | None
    windows: tuple[Window, ...]
    opened: Windows
    no_window: str | None
    metrics_missing: str | None  # why no counters could be read at all
    speculative: bool | None
    completed: tuple[Request, ...]
    n_lost: int  # requests that may have made the server work without a count of it here
    acceptance: Acceptance  # of the run
    cold_proven: bool
    cold_why: str
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # servers added, left out or taken once; mixtures
    silent_zero: bool = False  # answers that say nothing of cached tokens took none: the server counts no more


def server_side(run: Run, *, speculative: bool | None, more_checks: Sequence[Check] = ()) -> ServerSide:
    """From a run as read. ``speculative``: whether the engine was resolved to speculate (None: nobody says)."""
    measured_ids = {str(line["plan_id"]) for line in run.plan if line.get("phase") == "measured"}
    ended = {(request.worker, request.sequence) for request in run.requests}
    version, cache = run.manifest.server.get("version"), _part(run.manifest.scenario, "cache")
    return judge_server(
        requests=[request for request in run.requests if request.phase == "measured"],
        scrapes=run.scrapes,
        plan={str(line["plan_id"]): line for line in run.plan},
        adapter=run.manifest.adapter or _text(run.manifest.server.get("engine")),
        version=_text(version),
        speculative=speculative,
        cold_per="cell" if _part(cache, "per") == "cell" else "request",
        resets=resets_of(run.server.get("resets.json")),
        telemetry_unix_s=[sample.at_unix_s for sample in run.gpu if sample.gpus],
        more_checks=(*more_checks, *agree(run.windows, run.scrapes)),
        n_unfinished=sum(
            one.plan_id in measured_ids and (one.worker, one.sequence) not in ended for one in run.started
        ),
    )


def resets_of(path: Path | None) -> tuple[tuple[str, str], ...] | None:
    """The (state, why) of every reset on record in ``server/resets.json``; None where there is no such file."""
    if path is None:
        return None
    try:
        replies = json.loads(path.read_bytes())["replies"]
        return tuple((str(reply["state"]), str(reply["why"])) for reply in replies)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return (("unreadable", f"{path.name}: {error}"),)


def judge_server(
    *,
    requests: Sequence[Request],
    scrapes: Sequence[Scrape],
    plan: Mapping[str, Mapping[str, Any]],
    adapter: str | None,
    speculative: bool | None,
    version: str | None = None,
    cold_per: ColdPer = "request",
    n_unfinished: int = 0,
    resets: Sequence[tuple[str, str]] | None = None,
    telemetry_unix_s: Sequence[float] | None = None,
    more_checks: Sequence[Check] = (),
) -> ServerSide:
    """The same on plain records: measured requests, all scrapes in the order taken, the plan by plan id.

    ``resets`` are the (state, why) of each reset's reply, None where none is on record; ``telemetry_unix_s`` the
    instants of the samples of the server's host, where there are any.
    """
    completed = tuple(request for request in requests if request.outcome == "completed")
    reader = adapter_for(adapter, version)
    reads = read_all(scrapes, reader, adapter)
    opened = open_windows(reads, reader)
    windows = opened.all()
    lost = n_lost(requests, n_unfinished)
    checks = (
        at_rest(reads, reader),
        *count_checks(
            requests, windows, reader, opened.why, n_unfinished=n_unfinished, speculative=speculative, plan=plan
        ),
        *latency_checks(requests, reads, windows, reader, opened.why, n_unfinished=n_unfinished),
        step_check(completed, reader, speculative=speculative),
        *request_checks(requests, plan),
        _coverage(requests, telemetry_unix_s),
        *more_checks,
    )
    acceptance = _acceptance(completed, windows, reader, opened.why, speculative, None if lost else len(completed))
    silent_zero = _silent_zero(completed, reader, windows, lost)
    cold_proven, cold_why = _cold(completed, reader, cold_per, silent_zero)
    undone = next((f"{state}: {why}" for state, why in resets or () if state not in DONE), None)
    if undone is not None:
        cold_proven, cold_why = False, f"the reset was not done ({undone})"
    inactive = _inactive(acceptance, windows, speculative)
    return ServerSide(
        adapter=reader,
        windows=windows,
        opened=opened,
        no_window=opened.why,
        metrics_missing=opened.why,
        speculative=speculative,
        completed=completed,
        n_lost=lost,
        acceptance=acceptance,
        cold_proven=cold_proven,
        cold_why=cold_why,
        checks=checks,
        findings=(
            *broken_findings(windows),
            *inactive,
            *(check.finding for check in checks if check.finding is not None),
        ),
        notes=opened.notes,
        silent_zero=silent_zero,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _acceptance(
    completed: Sequence[Request],
    windows: Sequence[Window],
    adapter: Adapter | None,
    no_window: str | None,
    speculative: bool | None,
    n_requests: int | None,
) -> Acceptance:
    """By the counters of the window; by the answers themselves where the server publishes no counters of it."""
    if adapter is None:
        return nowhere(Unmeasured(why=no_window or "no reader of what this server tells"))
    by_answers = adapter.pooled_acceptance([(r.server_fields, r.usage) for r in completed], speculative=speculative)
    if no_window is None:
        found = adapter.acceptance(windows, speculative=speculative, n_requests=n_requests)
        untold = isinstance(found.rate, Absent) and speculative is not False
        return by_answers if untold and by_answers.source is not None else found
    if by_answers.source is not None or not completed:
        return by_answers
    return nowhere(Unmeasured(why=f"no counters ({no_window}), and {by_answers.why}"))


def _inactive(acceptance: Acceptance, windows: Sequence[Window], speculative: bool | None) -> list[Finding]:
    """A server that should speculate by its configuration, worked, and shows that it did not."""
    why = acceptance.why or ""
    if not speculative or not windows or "configured but inactive" not in why:
        return []
    return [Finding(code="check_failed", scope="run", seen=f"speculation: {why}")]


def _silent_zero(completed: Sequence[Request], adapter: Adapter | None, windows: Sequence[Window], lost: int) -> bool:
    if adapter is None or not windows or any(window.why is not None for window in windows):
        return False
    told = [value_or_none(cold_proof(request, adapter).n_cached) for request in completed]
    return silent_is_zero(told, lost, growth(adapter.meaning.cached, windows))


def _cold(completed: Sequence[Request], adapter: Adapter | None, per: ColdPer, silent_zero: bool) -> tuple[bool, str]:
    """No prompt token from a cache: in every completed measured request, or in the first one after a cell's reset.

    Later requests of a cell share what earlier ones left, the chat template to begin with.
    """
    if not completed:
        return False, "no request completed"
    judged = completed
    if per == "cell":
        placed = [(r.sent_at_unix_s, n, r) for n, r in enumerate(completed) if r.sent_at_unix_s is not None]
        if len(placed) < len(completed):
            n = len(completed) - len(placed)
            return False, f"{n} of {len(completed)} requests have no instant of sending: which came first is not known"
        judged = [min(placed)[2]]
    proofs = [(r.plan_id, cold_proof(r, adapter)) for r in judged]
    warm = [f"{plan_id}: {proof.why}" for plan_id, proof in proofs if proof.proven is False]
    silent = [] if silent_zero else [f"{plan_id}: {proof.why}" for plan_id, proof in proofs if proof.proven is None]
    by = ", by the server's counter where an answer is silent" if silent_zero else ""
    for found, says in ((warm, "took prompt tokens from a cache"), (silent, "said nothing about a cache")):
        if found:
            of = f"{len(found)} of {len(judged)} requests" if per == "request" else "the cell's first request"
            return False, f"{of} {says} ({found[0]})"
    if per == "request":
        return True, f"{len(proofs)} of {len(completed)} requests took no cached prompt token{by}"
    return True, f"the cell's first request took no cached prompt token{by}"


def cold_proof(request: Request, adapter: Adapter | None) -> ColdProof:
    """What one answer says of its prompt's cache; for an engine without a reader, by its usage alone."""
    if adapter is not None:
        return adapter.cold_proof(request.server_fields, request.usage)
    return cold_by({"usage's cached_tokens": cached_by_usage(request.usage)}, "usage says nothing of cached tokens")


def _coverage(requests: Sequence[Request], telemetry_unix_s: Sequence[float] | None) -> Check:
    """The share of the host's samples that fall inside the run's window: outside it they say nothing of the run."""
    name = "telemetry coverage"
    if not telemetry_unix_s:
        return not_observable(name, "no telemetry of the server's host")
    sent = [r.sent_at_unix_s for r in requests if r.sent_at_unix_s is not None]
    ended = [r.sent_at_unix_s + r.took_s for r in requests if r.sent_at_unix_s is not None]
    if not sent:
        return not_observable(name, "no request was sent")
    begin, end = min(sent), max(ended)
    inside = sum(begin <= at <= end for at in telemetry_unix_s)
    seen = f"{inside} of {len(telemetry_unix_s)} samples lie inside the run's window"
    return Check(name=name, state="pass" if inside else "fail", seen=seen)


def group_acceptance(
    side: ServerSide, domain: str, level: str | None, group: Sequence[Request] | None = None
) -> dict[str, Any]:
    """Acceptance of a domain (or "all") at a level, for ``summary --json``; a domain's is by the answers themselves.

    ``group`` are its completed requests, where the caller has them at hand.
    """
    if domain == ALL and all(request.level == level for request in side.completed):
        return side.acceptance.as_json()
    broken = next((window.why for window in side.windows if window.why is not None), None)
    if broken is not None:
        return nowhere(Unmeasured(why=f"the window is not usable: {broken}")).as_json()
    if side.adapter is None:
        return side.acceptance.as_json()
    if group is None:
        group = [r for r in side.completed if domain in (ALL, r.domain) and r.level == level]
    own = side.opened.at(level) if domain == ALL and level is not None else ()
    if own:
        n_requests = None if side.n_lost else len(group)
        found = side.adapter.acceptance(own, speculative=side.speculative, n_requests=n_requests)
        if isinstance(found.n_verify_steps, Measured) or isinstance(found.rate, Measured):
            return found.as_json()
    answers = [(r.server_fields, r.usage) for r in group]
    return side.adapter.pooled_acceptance(answers, speculative=side.speculative).as_json()
