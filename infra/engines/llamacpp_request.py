"""llama.cpp's server: what to ask of a request, and what its answer's ``timings`` and ``usage`` prove.

``timings`` ride on the last chunk, and on each chunk when ``timings_per_token`` is asked for: ``predicted_n`` is then
the engine's own count of tokens so far. ``draft_n`` and ``draft_n_accepted`` are sent only when something was drafted,
so their absence alone cannot tell "off" from "nothing drafted". Verify steps are not told per request.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.engines.acceptance import Acceptance, counted, nowhere, pooled, undrafted
from infra.engines.fields import ColdProof, cached_by_usage, cold_by, count_of
from infra.engines.per_step import not_per_step, steps_by_accepted
from infra.engines.readings import Absent, Unmeasured

_NO_STEPS = Absent(why="llama.cpp tells no verify steps per request")
_OFF = nowhere(Absent(why="speculation is off by the server's resolved configuration"))


def request_extras(*, cold_per_request: bool) -> dict[str, Any]:
    """Fields to add to every request's body: a token count in each chunk, usage at the end, no reuse of the prompt."""
    extras: dict[str, Any] = {"stream_options": {"include_usage": True}, "timings_per_token": True}
    if cold_per_request:
        extras["cache_prompt"] = False
    return extras


def cold_proof(server_fields: Mapping[str, Any], usage: Any) -> ColdProof:
    """Whether this request's prompt was worked out anew, by ``timings.cache_n`` and ``usage``'s cached tokens.

    It proves the prompt's cache only: the table of ``ngram-mod`` outlives requests, has no reset, and shows nowhere.
    """
    told = {
        "timings.cache_n": count_of(server_fields.get("timings"), "cache_n"),
        "usage's cached_tokens": cached_by_usage(usage),
    }
    return cold_by(told, "neither timings.cache_n nor usage's cached_tokens came with the answer")


def request_acceptance(server_fields: Mapping[str, Any], *, speculative: bool | None) -> Acceptance:
    """Acceptance of one request from its ``timings``, in four states."""
    timings = server_fields.get("timings")
    n_tokens = count_of(timings, "predicted_n")
    if n_tokens is None or not isinstance(timings, Mapping):
        return nowhere(Absent(why="the answer carried no readable timings"))
    has_drafts = "draft_n" in timings or "draft_n_accepted" in timings
    if not has_drafts and speculative is False:
        return _OFF
    if not has_drafts and speculative is None:
        why = "no drafts in timings: nothing was drafted, or speculation is off"
        return nowhere(Unmeasured(why=why))
    if not has_drafts:
        return undrafted(
            source="timings",
            why="speculation is on, and nothing was drafted for this request",
            n_verify_steps=_NO_STEPS,
            tokens_per_target_step=steps_by_accepted(n_tokens, 1, 0),
        )
    drafted, accepted = count_of(timings, "draft_n"), count_of(timings, "draft_n_accepted")
    if not drafted or accepted is None:
        said = f"draft_n {timings.get('draft_n')!r}, draft_n_accepted {timings.get('draft_n_accepted')!r}"
        return nowhere(Unmeasured(why=f"timings that cannot be read: {said}"))
    return counted(
        source="timings",
        n_drafted=drafted,
        n_accepted=accepted,
        n_verify_steps=_NO_STEPS,
        tokens_per_target_step=steps_by_accepted(n_tokens, 1, accepted),
    )


def pooled_acceptance(all_server_fields: Sequence[Mapping[str, Any]], *, speculative: bool | None) -> Acceptance:
    """Acceptance of a group of ended requests: counts are summed, not rates averaged."""
    parts = [request_acceptance(fields, speculative=speculative) for fields in all_server_fields]
    tokens = [count_of(fields.get("timings"), "predicted_n") for fields in all_server_fields]
    accepted = [count_of(fields.get("timings"), "draft_n_accepted") or 0 for fields in all_server_fields]
    known = [n for n in tokens if n is not None]
    if len(known) < len(tokens):
        untold = Unmeasured(why=f"{len(tokens) - len(known)} of {len(tokens)} requests told no tokens")
        return pooled(parts, not_per_step(untold))
    n_with_tokens = sum(n > 0 for n in known)  # each with a first token that no decode step made
    return pooled(parts, steps_by_accepted(sum(known), n_with_tokens, sum(accepted)))
