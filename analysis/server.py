"""The server's side of a run: the window between its scrapes, acceptance, proof of a cold cache, and what agrees.

Windows are judged on the raw scrapes of each metrics URL by itself; several URLs are several servers that share the
load, and their counts are added. One URL behind which several processes answer has no window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.conservation import n_lost, window_checks
from analysis.facts import Finding
from analysis.quantiles import distribution
from analysis.request_checks import Check, not_observable, request_checks
from evidence.reading import Run
from evidence.records import Request, Scrape
from infra.engines import llamacpp
from infra.engines.acceptance import Acceptance, nowhere
from infra.engines.llamacpp_request import cold_proof, count_of, pooled_acceptance
from infra.engines.readings import Unmeasured
from infra.engines.window import BrokenCode, Snapshot, Window
from infra.wire.exposition import ExpositionError

ALL = "all"
EQUAL_SCRAPES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSide:
    """``windows`` is one a metrics URL, () with the reason in ``no_window``. ``completed`` are the measured ones."""

    windows: tuple[Window, ...]
    no_window: str | None
    metrics_missing: str | None  # why no counters could be read at all
    speculative: bool | None
    completed: tuple[Request, ...]
    acceptance: Acceptance  # of the run
    cold_proven: bool
    cold_why: str
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]


def server_side(run: Run, *, speculative: bool | None) -> ServerSide:
    """From a run as read. ``speculative``: whether the engine was resolved to speculate (None: nobody says)."""
    measured_ids = {str(line["plan_id"]) for line in run.plan if line.get("phase") == "measured"}
    ended = {(request.worker, request.sequence) for request in run.requests}
    return judge_server(
        requests=[request for request in run.requests if request.phase == "measured"],
        scrapes=run.scrapes,
        plan={str(line["plan_id"]): line for line in run.plan},
        adapter=run.manifest.adapter,
        speculative=speculative,
        n_unfinished=sum(
            one.plan_id in measured_ids and (one.worker, one.sequence) not in ended for one in run.started
        ),
    )


def judge_server(
    *,
    requests: Sequence[Request],
    scrapes: Sequence[Scrape],
    plan: Mapping[str, Mapping[str, Any]],
    adapter: str | None,
    speculative: bool | None,
    n_unfinished: int = 0,
) -> ServerSide:
    """The same on plain records: measured requests, all scrapes in the order taken, the plan by plan id."""
    completed = tuple(request for request in requests if request.outcome == "completed")
    windows, no_window = open_windows(scrapes, adapter)
    by_timings = pooled_acceptance([r.server_fields for r in completed], speculative=speculative)
    if no_window is None:
        n_requests = None if n_lost(requests, n_unfinished) else len(completed)
        acceptance = llamacpp.acceptance(*windows, speculative=speculative, n_requests=n_requests)
    elif by_timings.source is not None or not completed:
        acceptance = by_timings
    else:
        acceptance = nowhere(Unmeasured(why=f"no counters ({no_window}), and {by_timings.why}"))
    cold_proven, cold_why = _cold(completed)
    checks = (
        _at_rest(scrapes, adapter),
        *window_checks(requests, windows, no_window, n_unfinished=n_unfinished),
        *request_checks(requests, plan),
    )
    return ServerSide(
        windows=windows,
        no_window=no_window,
        metrics_missing=no_window,
        speculative=speculative,
        completed=completed,
        acceptance=acceptance,
        cold_proven=cold_proven,
        cold_why=cold_why,
        checks=checks,
        findings=(*_broken(windows), *(check.finding for check in checks if check.finding is not None)),
    )


def open_windows(scrapes: Sequence[Scrape], adapter: str | None) -> tuple[tuple[Window, ...], str | None]:
    """A window for each metrics URL, or () and why its counters cannot be read; a broken window is one and says so."""
    urls = list(dict.fromkeys(scrape.url for scrape in scrapes))
    if not urls:
        return (), "nothing was scraped"
    if adapter != llamacpp.ENGINE:
        why = next((s.error for s in scrapes if s.role == "before" and s.error), None)
        return (), why or f"no reader of the series of {adapter or 'this server'}"
    windows: list[Window] = []
    for url in urls:
        found = _window([scrape for scrape in scrapes if scrape.url == url])
        if isinstance(found, str):
            return (), f"{url}: {found}"
        stamp = found.before.identity
        if stamp is None or stamp not in [window.before.identity for window in windows]:
            windows.append(found)  # a second address of one process would count everything twice
    return tuple(windows), None


def _window(scrapes: Sequence[Scrape]) -> Window | str:
    befores = [i for i, scrape in enumerate(scrapes) if scrape.role == "before"]
    afters = [i for i, scrape in enumerate(scrapes) if scrape.role == "after"]
    if not befores or not afters:
        return f"no scrape {'before' if not befores else 'after'} the measured requests"
    first, last = befores[-1], afters[-1]
    if last < first:
        return "the last scrape before the measured requests comes after the one behind them"
    ends: list[Snapshot] = []
    for index in (first, last):
        read = read_scrape(scrapes[index])
        if isinstance(read, str):
            return f"the scrape {scrapes[index].role} the measured requests: {read}"
        ends.append(read)
    between = [read_scrape(scrape) for scrape in scrapes[first + 1 : last]]
    return llamacpp.window(ends[0], ends[1], [one for one in between if not isinstance(one, str)])


def read_scrape(scrape: Scrape) -> Snapshot | str:
    """The scrape as read, or why it cannot be."""
    if scrape.error is not None or scrape.body is None:
        return scrape.error or "no body"
    if not scrape.complete:
        return "nothing shows that the body is whole"
    try:
        return llamacpp.snapshot(scrape.body, scrape.headers)
    except ExpositionError as error:
        return str(error)


def _broken(windows: Sequence[Window]) -> tuple[Finding, ...]:
    found: dict[BrokenCode, Finding] = {}
    for window in windows:
        for broken in window.broken:
            if broken.code in found:
                continue
            if broken.code == "restart":
                found[broken.code] = Finding(code="restart", scope="run", seen=broken.seen)
            elif broken.code == "not_a_counter":
                found[broken.code] = Finding(code="check_failed", scope="acceptance", seen=broken.seen)
            else:
                found[broken.code] = Finding(code="several_servers", scope="run", seen=broken.seen)
    return tuple(found.values())


def _at_rest(scrapes: Sequence[Scrape], adapter: str | None) -> Check:
    """The last three idle-check scrapes and the one that opens the window show the same counters, at each URL."""
    name = "at rest before the window"
    if adapter != llamacpp.ENGINE:
        return not_observable(name, f"no reader of the series of {adapter or 'this server'}")
    n_judged = 0
    for url in dict.fromkeys(scrape.url for scrape in scrapes):
        own = [scrape for scrape in scrapes if scrape.url == url]
        opening = next((i for i, scrape in reversed(list(enumerate(own))) if scrape.role == "before"), None)
        idle = [s for s in own[: opening or 0] if s.role == "idle-check"][-EQUAL_SCRAPES:]
        if opening is None or len(idle) < EQUAL_SCRAPES:
            return not_observable(name, f"{url}: {len(idle)} idle-check scrapes before the window's first")
        keys = []
        for scrape in (*idle, own[opening]):
            read = read_scrape(scrape)
            if isinstance(read, str):
                return not_observable(name, f"{url}: {read}")
            keys.append(llamacpp.idle_key(read))
        if any(key != keys[0] for key in keys):
            return Check(name=name, state="fail", seen=f"{url}: the counters moved without a request of this client's")
        n_judged += 1
    if not n_judged:
        return not_observable(name, "nothing was scraped")
    return Check(name=name, state="pass", seen=f"{EQUAL_SCRAPES} equal scrapes and the window's first, {n_judged} URL")


def _cold(completed: Sequence[Request]) -> tuple[bool, str]:
    """Every completed measured request says that none of its prompt came from a cache."""
    if not completed:
        return False, "no request completed"
    proofs = [(r.plan_id, cold_proof(r.server_fields, r.usage)) for r in completed]
    warm = [f"{plan_id}: {proof.why}" for plan_id, proof in proofs if proof.proven is False]
    silent = [f"{plan_id}: {proof.why}" for plan_id, proof in proofs if proof.proven is None]
    for found, says in ((warm, "took prompt tokens from a cache"), (silent, "say nothing about their cache")):
        if found:
            return False, f"{len(found)} of {len(completed)} requests {says} ({found[0]})"
    return True, f"{len(completed)} of {len(completed)} requests report no cached prompt token"


def group_acceptance(side: ServerSide, domain: str, level: str | None) -> dict[str, Any]:
    """Acceptance of a domain (or "all") at a level, for ``summary --json``; a domain's is by request timings."""
    levels = {request.level for request in side.completed}
    if domain == ALL and levels <= {level}:
        return side.acceptance.as_json()
    broken = next((window.why for window in side.windows if window.why is not None), None)
    if broken is not None:
        return nowhere(Unmeasured(why=f"the window is not usable: {broken}")).as_json()
    group = [r.server_fields for r in side.completed if domain in (ALL, r.domain) and r.level == level]
    return pooled_acceptance(group, speculative=side.speculative).as_json()


def request_timings(requests: Sequence[Request]) -> dict[str, Any]:
    """The server's own latencies of completed requests, for ``summary --json``: each with a median, or null and why."""
    per_token: list[float] = []
    for request in requests:
        timings = request.server_fields.get("timings")
        n_tokens = count_of(timings, "predicted_n")
        took_ms = timings.get("predicted_ms") if isinstance(timings, Mapping) else None
        if n_tokens is not None and n_tokens > 1 and isinstance(took_ms, int | float) and took_ms > 0:
            per_token.append(took_ms / 1000 / (n_tokens - 1))
    no_ttft = "the server tells how long it worked on the prompt, and no time to first token"
    no_tpot = "no completed request with timings of two tokens or more"
    return {
        "ttft_s": _latency(None, no_ttft if per_token else "the server tells no time to first token", "", "", ""),
        "tpot_s": _latency(
            distribution(per_token).median,
            None if per_token else no_tpot,
            "timings.predicted_ms / (predicted_n - 1)",
            "each request counts once",
            f"{len(per_token)} of {len(requests)} requests",
        ),
    }


def _latency(median_s: float | None, why: str | None, series: str, weighting: str, coverage: str) -> dict[str, Any]:
    known = median_s is not None
    return {
        "median": median_s,
        "series": series if known else None,
        "unit_of_observation": "per token" if known else None,
        "weighting": weighting if known else None,
        "coverage": coverage if known else None,
        "why": why,
    }
