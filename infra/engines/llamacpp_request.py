"""llama.cpp's server: what to ask of a request, and what its answer's ``timings`` and ``usage`` prove.

``timings`` ride on the last chunk, and on each chunk when ``timings_per_token`` is asked for: ``predicted_n`` is then
the engine's own count of tokens so far. ``draft_n`` and ``draft_n_accepted`` are sent only when something was drafted,
so their absence alone cannot tell "off" from "nothing drafted". Verify steps are not told per request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.engines.acceptance import Acceptance, counted, nowhere, pooled, tokens_per_target_step
from infra.engines.readings import Absent, Measured, Reading, Unmeasured

_NO_STEPS = Absent(why="llama.cpp tells no verify steps per request")


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdProof:
    """``proven`` is None when the answer says nothing about its cache."""

    proven: bool | None
    n_cached: Reading  # prompt tokens taken from a cache
    why: str


def request_extras(*, cold_per_request: bool) -> dict[str, Any]:
    """Fields to add to every request's body: a token count in each chunk, usage at the end, no reuse of the prompt."""
    extras: dict[str, Any] = {"stream_options": {"include_usage": True}, "timings_per_token": True}
    if cold_per_request:
        extras["cache_prompt"] = False
    return extras


def count_of(fields: Any, name: str) -> int | None:
    """A whole number of at least zero, or None: a bool, a fraction or a word is no count."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def cached_by_usage(usage: Any) -> int | None:
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    return count_of(details, "cached_tokens")


def cold_proof(server_fields: Mapping[str, Any], usage: Any) -> ColdProof:
    """Whether this request's prompt was worked out anew, by ``timings.cache_n`` and ``usage``'s cached tokens.

    It proves the prompt's cache only: the table of ``ngram-mod`` outlives requests, has no reset, and shows nowhere.
    """
    told = {
        "timings.cache_n": count_of(server_fields.get("timings"), "cache_n"),
        "usage's cached_tokens": cached_by_usage(usage),
    }
    known = {name: n for name, n in told.items() if n is not None}
    if not known:
        why = "neither timings.cache_n nor usage's cached_tokens came with the answer"
        return ColdProof(proven=None, n_cached=Absent(why=why), why=why)
    shown = ", ".join(f"{name} {n}" for name, n in known.items())
    if len(set(known.values())) > 1:
        why = f"two counts of cached tokens disagree: {shown}"
        return ColdProof(proven=False, n_cached=Unmeasured(why=why), why=why)
    n_cached = next(iter(known.values()))
    return ColdProof(proven=n_cached == 0, n_cached=Measured(n_cached), why=shown)


def request_acceptance(server_fields: Mapping[str, Any], *, speculative: bool | None) -> Acceptance:
    """Acceptance of one request from its ``timings``, in four states."""
    timings = server_fields.get("timings")
    n_tokens = count_of(timings, "predicted_n")
    if n_tokens is None or not isinstance(timings, Mapping):
        return nowhere(Absent(why="the answer carried no readable timings"))
    has_drafts = "draft_n" in timings or "draft_n_accepted" in timings
    if not has_drafts and speculative is False:
        return nowhere(Absent(why="speculation is off by the server's resolved configuration"))
    if not has_drafts and speculative is None:
        why = "no drafts in timings: nothing was drafted, or speculation is off"
        return nowhere(Unmeasured(why=why))
    if not has_drafts:
        unmeasured = Unmeasured(why="speculation is on, and nothing was drafted for this request")
        return Acceptance(
            source="timings",
            n_drafted=Measured(0),
            n_accepted=Measured(0),
            n_verify_steps=_NO_STEPS,
            rate=unmeasured,
            length=unmeasured,
            tokens_per_target_step=tokens_per_target_step(n_tokens, 1, 0),
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
        tokens_per_target_step=tokens_per_target_step(n_tokens, 1, accepted),
    )


def pooled_acceptance(all_server_fields: Sequence[Mapping[str, Any]], *, speculative: bool | None) -> Acceptance:
    """Acceptance of a group of ended requests: counts are summed, not rates averaged."""
    parts = [request_acceptance(fields, speculative=speculative) for fields in all_server_fields]
    tokens = [count_of(fields.get("timings"), "predicted_n") for fields in all_server_fields]
    accepted = [count_of(fields.get("timings"), "draft_n_accepted") or 0 for fields in all_server_fields]
    known = [n for n in tokens if n]
    if len(known) < len(tokens):
        per_step: Reading = Unmeasured(why=f"{len(tokens) - len(known)} of {len(tokens)} requests told no tokens")
    else:
        per_step = tokens_per_target_step(sum(known), len(known), sum(accepted))
    return pooled(parts, per_step)
