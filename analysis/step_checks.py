"""What a request's own account of its verify steps must satisfy: its histogram, its counts and its tokens.

With h_j steps that accepted j drafts: the h_j add up to the steps, j h_j to what was accepted, accepted is at most what
was drafted, and tokens - (steps + accepted) lies between minus the draft window and one: the first token comes from
prefill, and a stop may cut the last step. Where the engine counts drafted steps only, undrafted ones account for more.
"""

from collections.abc import Sequence

from analysis.request_checks import Check, each
from evidence.records import Request
from infra.engines import sglang_request, vllm_request
from infra.engines.acceptance import Acceptance
from infra.engines.adapter import Adapter
from infra.engines.readings import Measured, value_or_none

NAME = "verify steps of each request"


def step_check(completed: Sequence[Request], adapter: Adapter | None, *, speculative: bool | None) -> Check:
    """Over the completed requests that tell their verify steps."""
    if adapter is None:
        return each(NAME, [], lambda _: None, "acceptance", "no reader of what the answers carry")
    told = {
        request.plan_id: found
        for request in completed
        if isinstance(
            (
                found := adapter.request_acceptance(request.server_fields, request.usage, speculative=speculative)
            ).n_verify_steps,
            Measured,
        )
    }
    undrafted = not adapter.meaning.undrafted_counted
    return each(
        NAME,
        [request for request in completed if request.plan_id in told],
        lambda request: _problem(request, told[request.plan_id], undrafted=undrafted),
        "acceptance",
        "no completed request tells its verify steps",
    )


def _problem(request: Request, told: Acceptance, *, undrafted: bool) -> str | None:
    steps, accepted, drafted = (
        int(value_or_none(one) or 0) for one in (told.n_verify_steps, told.n_accepted, told.n_drafted)
    )
    if accepted > drafted:
        return f"{accepted} accepted of {drafted} drafted"
    bars = _histogram(request)
    if bars is not None and sum(bars) != steps:
        return f"its histogram holds {sum(bars)} steps and it counts {steps}"
    if bars is not None and (by_bars := sum(j * n for j, n in enumerate(bars))) != accepted:
        return f"its histogram holds {by_bars} accepted drafts and it counts {accepted}"
    tokens = request.n_completion_tokens
    if tokens is None or steps == 0:
        return None
    window = -(-drafted // steps)
    over = tokens - (steps + accepted)
    if over < -window or (over > 1 and not undrafted):
        return f"{tokens} tokens from {steps} verify steps and {accepted} accepted drafts of at most {window} a step"
    return None


def _histogram(request: Request) -> list[int] | None:
    return sglang_request.histogram(request.server_fields) or vllm_request.histogram(request.server_fields)
