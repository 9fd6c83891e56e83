"""From a run as read to the facts a verdict is derived from. Pure: everything it needs is handed in."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis import identity
from analysis.client_floor import floors
from analysis.columns import packed
from analysis.facts import Finding, RunFacts
from analysis.lateness import lateness
from analysis.level_facts import level_facts, shares_between, shares_prefix
from analysis.levels import LevelView
from analysis.measures import Row, first_chunk_unknown
from analysis.pass_facts import passes_differ
from analysis.profiled import profiled, profiler_fault
from analysis.server import ServerSide
from analysis.unread_answers import Unread
from evidence.errors import LEVEL_CODES, Problem, ProblemCode
from evidence.kept import elsewhere
from evidence.reading import Run
from evidence.records import Json, Launch, Request, Scrape

HASH_CODES: frozenset[ProblemCode] = frozenset({"hash_mismatch", "file_missing", "file_extra"})
COUNT_CODES: frozenset[ProblemCode] = frozenset(
    {
        "counts_mismatch",
        "plan_count_mismatch",
        "plan_id_duplicate",
        "plan_id_unknown",
        "sequence_duplicate",
        "sequence_gap",
        "started_twice",
        "ended_without_started",
        *LEVEL_CODES,
    }
)
MESSAGE_CHARS = 120  # of an error message, in a reason
STOPPED = "stopped by SIG"  # how a recorder's notice of a signal begins
# Said by other facts, in words of their own.
ELSEWHERE: frozenset[ProblemCode] = frozenset(
    {
        "seal_missing",
        "recovered",
        "torn_tail",
        "planned_not_started",
        "unfinished",
        "wire_unreferenced",  # segments of an unfinished request
        "output_sha256_mismatch",
    }
)


def gather(
    run: Run,
    launch: Launch | None,
    rows: Sequence[Row],
    problems: Sequence[Problem],
    server: ServerSide,
    *,
    levels: Sequence[LevelView] = (),
    n_unsent: int = 0,
    gpu_shared: str | None = None,
    unread: Unread | None = None,
) -> RunFacts:
    """The facts of one run; what the server's side shows comes from ``server``.

    ``n_unsent`` plan lines were left by design and are not among the run's plan.
    """
    manifest = run.manifest
    measured = [row for row in rows if row.request.phase == "measured"]
    completed = [row for row in measured if row.request.outcome == "completed"]
    counted = [row for row in completed if row.request.n_completion_tokens is not None]
    measured_ids = {str(line["plan_id"]) for line in run.plan if line.get("phase") == "measured"}
    started = {(one.worker, one.sequence): one.plan_id for one in run.started}
    started |= {(row.request.worker, row.request.sequence): row.request.plan_id for row in rows}
    not_closed = window_not_closed(run.scrapes)
    late_for_latency, late_for_rate = lateness(rows, run.health)
    return RunFacts(
        sealed=run.seal is not None,
        recovered=run.seal is not None and run.seal.recovered,
        hash_problems=_said(problems, HASH_CODES),
        schema_problems=tuple(str(one) for one in problems if one.code not in HASH_CODES | COUNT_CODES | ELSEWHERE),
        lines_elsewhere=tuple(
            f"worker {number}: {one.totals.started} requests, in {one.where} on {one.host}"
            for number, one in elsewhere(run.path, run.kept).items()
        ),
        torn_bytes=run.torn,
        planned=manifest.n_planned - n_unsent,
        started=len(started),
        ended=len({(row.request.worker, row.request.sequence) for row in rows}),
        unread=unread,
        count_problems=_said(problems, COUNT_CODES),
        measured_started=sum(plan_id in measured_ids for plan_id in started.values()),
        measured_completed=len(completed),
        measured_failed=_failed(row.request for row in measured),
        warmup_failed=_failed(row.request for row in rows if row.request.phase == "warmup"),
        error_said=_error_said([row.request for row in rows]),
        stopped=next((one.text for one in run.notices if one.text.startswith(STOPPED)), None),
        completed_without_count=len(completed) - len(counted),
        first_chunk_unknown=sum(first_chunk_unknown(row) for row in counted),
        outputs_missing=tuple(row.request.prompt_id for row in completed if not _output_is_faithful(row.request)),
        profiled=profiled(manifest.scenario),
        profiler_fault=profiler_fault(run.path, manifest.scenario),
        cold_asked=cold_asked(manifest.scenario),
        cold_proven=server.cold_proven,
        cold_seen=server.cold_why,
        speculative=identity.speculative(manifest, launch) is True,
        speculation_refuted=identity.speculation_refuted(manifest, launch),
        arm_contradicted=identity.arm_contradicted(manifest, launch),
        model_differs=identity.model_differs(manifest, (row.request for row in measured)),
        synthetic_acceptance=identity.synthetic_acceptance(manifest, launch),
        acceptance_state=server.acceptance.state,
        acceptance_why=server.acceptance.why,
        findings=server.findings if not_closed is None else (*server.findings, not_closed),
        metrics_missing=server.metrics_missing if not_closed is None else None,
        own_server=identity.own_server(manifest),
        floors=tuple(floors(manifest.calibration, completed)),
        unknown=tuple(identity.unknown_parts(manifest, launch)),
        late_for_latency=late_for_latency,
        late_for_rate=late_for_rate,
        n_sent_again=sum(
            row.request.connection is not None and row.request.connection.sent_before_s is not None for row in measured
        ),
        levels=level_facts(levels),
        gpu_shared=gpu_shared,
        passes_differ=passes_differ(measured, silent_zero=server.silent_zero),
        cached_shares_differ=None
        if shares_prefix(manifest.scenario)
        else shares_between(levels, silent_zero=server.silent_zero),
        clock_steps=tuple(row.request.clock_step_s for row in measured if row.request.clock_step_s is not None),
    )


def window_not_closed(scrapes: Sequence[Scrape]) -> Finding | None:
    """A metrics endpoint that answered before the measured requests and not after them; None when all did, or none."""
    for url in dict.fromkeys(scrape.url for scrape in scrapes):
        answered = {role: [s for s in scrapes if s.url == url and s.role == role] for role in ("before", "after")}
        if any(s.http_status == 200 for s in answered["before"]) and not any(
            s.http_status == 200 for s in answered["after"]
        ):
            last = answered["after"][-1] if answered["after"] else None
            why = "was not scraped after them" if last is None else f"not after them ({last.error or last.http_status})"
            seen = f"{url} answered before the measured requests and {why}"
            return Finding(code="window_not_closed", scope="run", seen=seen)
    return None


def cold_asked(scenario: Json) -> bool:
    """Whether the scenario asks for a cold cache."""
    cache = scenario.get("cache") if isinstance(scenario, Mapping) else None
    return isinstance(cache, Mapping) and cache.get("policy") == "cold"


def _said(problems: Sequence[Problem], codes: frozenset[ProblemCode]) -> tuple[str, ...]:
    return tuple(str(problem) for problem in problems if problem.code in codes)


def _failed(requests: Iterable[Request]) -> dict[str, int]:
    return dict(Counter(request.outcome for request in requests if request.outcome != "completed"))


def _error_said(requests: Sequence[Request]) -> dict[str, str]:
    """By outcome, the message of most requests, on one line and short; an outcome says enough without one."""
    said: dict[str, Counter[str]] = {}
    for request in requests:
        if request.error is not None:
            plain = "".join(char if char.isprintable() else " " for char in request.error.message[: 2 * MESSAGE_CHARS])
            said.setdefault(request.outcome, Counter())[" ".join(plain.split())] += 1
    return {outcome: _clipped(counted.most_common(1)[0][0]) for outcome, counted in said.items()}


def _clipped(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS else f"{text[: MESSAGE_CHARS - 3]}..."


def _output_is_faithful(request: Request) -> bool:
    """The text on file has its digest, and is not empty where visible text was received."""
    if hashlib.sha256(request.output_text.encode("utf-8", "replace")).hexdigest() != request.output_sha256:
        return False
    kept = request.output_text or request.reasoning_text or request.tool_calls_text
    return bool(kept) or not any(packed(request.chunks).characters)
