"""SGLang: what to ask of a request, and what its answer proves.

The native ``/generate`` carries ``meta_info``; a chat stream carries ``sglext.spec_tokens_details`` where the version
knows ``return_spec_tokens_details`` (0.5.19 and later: 0.5.17 does not, and refuses ``return_meta_info`` in a stream).
Missing values are written there as 0, 0.0 or []: only ``spec_verify_ct`` above zero is evidence. ``spec_accept_length``
is completion tokens / verify steps, with the prefill token and trimmed at a stop; it is worked out anew here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.engines.acceptance import Acceptance, Source, counted, nowhere, pooled, undrafted
from infra.engines.fields import ColdProof, cached_by_usage, cold_by, count_of, counts_in, part_of
from infra.engines.per_step import PerStep, not_per_step, per_step
from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.versions import at_least

DETAILS_SINCE = (0, 5, 19)
# 0.5.19 writes the old names beside the new ones, 0.5.23 no longer.
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def request_extras(version: str | None) -> dict[str, Any]:
    """Fields to add to every request's body: usage at the end and so far, and details where the version knows them."""
    extras: dict[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    if at_least(version, DETAILS_SINCE):
        extras |= {"return_spec_tokens_details": True, "return_cached_tokens_details": True}
    return extras


def cold_proof(fields: Mapping[str, Any], usage: Any) -> ColdProof:
    """Whether this request's prompt was worked out anew. The trie of NGRAM outlives requests and shows nowhere."""
    by_source = [
        count_of(part_of(fields, "sglext", "cached_tokens_details"), place) for place in ("device", "host", "storage")
    ]
    told = [n for n in by_source if n is not None]
    return cold_by(
        {
            "usage's cached_tokens": cached_by_usage(usage),
            "meta_info.cached_tokens": count_of(fields.get("meta_info"), "cached_tokens"),
            "sglext.cached_tokens_details": sum(told) if told else None,
        },
        "the answer says nothing of cached tokens: start the server with --enable-cache-report",
    )


def request_acceptance(fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
    """Acceptance of one request, in four states."""
    details, source = _details(fields)
    if details is None:
        if speculative is False:
            return nowhere(Absent(why="speculation is off by the server's resolved configuration"))
        return nowhere(Absent(why="the answer carried no spec_tokens_details or meta_info"))
    n_steps = count_of(details, "spec_verify_ct")
    steps = _per_step(fields, usage, n_steps or 0)
    if not n_steps:
        if isinstance(steps.decode_tokens, Measured) and steps.decode_tokens.value == 0:
            why = "a single token: no decode step was needed"
            return undrafted(source=source, why=why, n_verify_steps=Measured(0), tokens_per_target_step=steps)
        if speculative is False:
            return nowhere(Absent(why="speculation is off by the server's resolved configuration"))
        return nowhere(Unmeasured(why=f"spec_verify_ct {details.get('spec_verify_ct')!r}: no verify step was counted"))
    correct, proposed = _first(details, _CORRECT), _first(details, _PROPOSED)
    if correct is None:
        return nowhere(Unmeasured(why="the details name no correct drafts"))
    if not proposed:
        why = f"{n_steps} verify steps and no proposed drafts"
        return undrafted(source=source, why=why, n_verify_steps=Measured(n_steps), tokens_per_target_step=steps)
    return counted(
        source=source,
        n_drafted=proposed,
        n_accepted=correct,
        n_verify_steps=Measured(n_steps),
        tokens_per_target_step=steps,
        drafted_are="window_slots",
        note="drafts accepted behind a stop are counted here",
    )


def histogram(fields: Mapping[str, Any]) -> list[int] | None:
    """How many verify steps accepted 0, 1, 2, ... drafts; None where it is not told."""
    details, _ = _details(fields)
    found = (
        None
        if details is None
        else next((counts_in(details.get(name)) for name in _HISTOGRAM if name in details), None)
    )
    return found or None


def pooled_acceptance(answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None) -> Acceptance:
    """Acceptance of a group of ended requests: counts are summed, not rates averaged."""
    parts = [request_acceptance(fields, usage, speculative=speculative) for fields, usage in answers]
    decoded = [part.n_decode_tokens for part in parts]
    steps = [part.n_verify_steps for part in parts]
    numbers = [[one.value for one in column if isinstance(one, Measured)] for column in (decoded, steps)]
    if not parts or any(len(column) < len(parts) for column in numbers):
        return pooled(parts, not_per_step(Unmeasured(why="not every request tells its tokens and verify steps")))
    return pooled(parts, per_step(sum(numbers[0]), sum(numbers[1])))


def _details(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Source]:
    streamed = part_of(fields, "sglext", "spec_tokens_details")
    if isinstance(streamed, Mapping):
        return streamed, "sglext"
    native = fields.get("meta_info")
    if isinstance(native, Mapping) and "spec_verify_ct" in native:
        return native, "meta_info"
    return None, "sglext"


def _first(details: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((count_of(details, name) for name in names if name in details), None)


def _per_step(fields: Mapping[str, Any], usage: Any, n_steps: int) -> PerStep:
    tokens = count_of(usage, "completion_tokens")
    if tokens is None:
        tokens = count_of(fields.get("meta_info"), "completion_tokens")
    if tokens is None:
        return not_per_step(Unmeasured(why="the answer counts no completion tokens"))
    return per_step(max(tokens - 1, 0), n_steps)
