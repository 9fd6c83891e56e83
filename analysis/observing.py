"""From a run as read to the observations that are compared."""

from analysis.loading import LoadedRun
from analysis.measures import Row
from analysis.pairing import Observation


def observe(run: LoadedRun, *, arm: str, launch: int) -> tuple[Observation, ...]:
    """The measured requests of one run, in the order sent; those planned and never ended are observations too.

    ``value`` is the decode rate (N - n_first) / (t_last - t_first); None, with its reason, for a request that failed or
    has no rate.
    """
    rows = sorted(run.measured, key=lambda row: row.request.sent_at_monotonic_s or float("inf"))
    found = [_observation(row, arm, launch, order) for order, row in enumerate(rows)]
    ended = {row.request.plan_id for row in run.measured}
    for plan_id, line in run.plan.items():
        if line.get("phase") == "measured" and plan_id not in ended:
            found.append(
                Observation(
                    arm=arm,
                    launch=launch,
                    prompt_id=str(line["prompt_id"]),
                    domain=str(line["domain"]),
                    level=line.get("level"),
                    repeat=int(line["repeat"]),
                    value=None,
                    order=len(found),
                    why="planned, and no line says how it ended",
                )
            )
    return tuple(found)


def _observation(row: Row, arm: str, launch: int, order: int) -> Observation:
    request, measures = row.request, row.measures
    completed = request.outcome == "completed"
    value, n_first = measures.decode_tok_per_s.value, measures.n_first_tokens.value
    timed = completed and value is not None and n_first is not None and request.n_completion_tokens is not None
    decode_tokens = (request.n_completion_tokens or 0) - int(n_first or 0) if timed else None
    return Observation(
        arm=arm,
        launch=launch,
        prompt_id=request.prompt_id,
        domain=request.domain,
        level=request.level,
        repeat=request.repeat,
        value=value if completed else None,
        order=order,
        why=measures.decode_tok_per_s.why if completed else f"failed: {request.outcome}",
        n_tokens=request.n_completion_tokens if completed else None,
        decode_tokens=decode_tokens,
        decode_s=None if decode_tokens is None or not value else decode_tokens / value,
        ttft_s=measures.ttft_s.value if completed else None,
        e2e_s=measures.e2e_s.value if completed else None,
    )
