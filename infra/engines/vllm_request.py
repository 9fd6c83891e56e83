"""vLLM: what to ask of a request, and what its answer proves.

``metrics.speculative_decoding`` rides on the last usage chunk of a stream where the server runs with
``--per-request-spec-decode-metrics``. It counts drafted steps only: steps without a draft are in none of its numbers,
so all target steps follow from the tokens. It is null for a request with ``n`` above one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.engines.acceptance import Acceptance, counted, nowhere, pooled, undrafted
from infra.engines.fields import ColdProof, cached_by_usage, cold_by, count_of, counts_in, part_of
from infra.engines.per_step import PerStep, not_per_step, steps_by_accepted
from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.versions import at_least

ZERO_IS_WRITTEN_SINCE = (0, 32)
_FLAG = "--per-request-spec-decode-metrics summary"


def request_extras() -> dict[str, Any]:
    """Fields to add to every request's body: usage at the end and so far."""
    return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def cold_proof(usage: Any, version: str | None) -> ColdProof:
    """Whether this request's prompt was worked out anew; older versions wrote a count of 0 as null."""
    silent = "usage says nothing of cached tokens: start the server with --enable-prompt-tokens-details"
    if at_least(version, ZERO_IS_WRITTEN_SINCE) is False:
        silent += f" (and {version} writes 0 as null)"
    return cold_by({"usage's cached_tokens": cached_by_usage(usage)}, silent)


def request_acceptance(fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
    """Acceptance of one request, in four states."""
    if speculative is False:
        return nowhere(Absent(why="speculation is off by the server's resolved configuration"))
    told = part_of(fields, "metrics", "speculative_decoding")
    if not isinstance(told, Mapping):
        is_null = (
            "speculative_decoding" in (fields.get("metrics") or {})
            if isinstance(fields.get("metrics"), Mapping)
            else False
        )
        if is_null:
            return nowhere(Unmeasured(why="metrics.speculative_decoding is null: nothing drafted, or n above one"))
        return nowhere(Absent(why=f"no metrics.speculative_decoding: start the server with {_FLAG}"))
    names = ("num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps")
    drafted, accepted, steps = (count_of(told, name) for name in names)
    if drafted is None or accepted is None or steps is None:
        shown = ", ".join(f"{name} {told.get(name)!r}" for name in names)
        return nowhere(Unmeasured(why=f"counts that cannot be read: {shown}"))
    per_target = _per_step(usage, accepted, steps)
    if drafted == 0:
        why = "nothing was drafted for this request"
        return undrafted(
            source="speculative_decoding", why=why, n_verify_steps=Measured(steps), tokens_per_target_step=per_target
        )
    return counted(
        source="speculative_decoding",
        n_drafted=drafted,
        n_accepted=accepted,
        n_verify_steps=Measured(steps),
        tokens_per_target_step=per_target,
    )


def histogram(fields: Mapping[str, Any]) -> list[int] | None:
    """How many drafted steps accepted 0, 1, 2, ... drafts; None where it is not told."""
    found = part_of(fields, "metrics", "speculative_decoding", "acceptance_histogram")
    if isinstance(found, Mapping) and found and all(str(key).isdigit() for key in found):
        found = [found.get(str(place), found.get(place, 0)) for place in range(max(int(key) for key in found) + 1)]
    return counts_in(found) or None


def pooled_acceptance(answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None) -> Acceptance:
    """Acceptance of a group of ended requests: counts are summed, not rates averaged."""
    parts = [request_acceptance(fields, usage, speculative=speculative) for fields, usage in answers]
    tokens = [count_of(usage, "completion_tokens") for _, usage in answers]
    accepted = [part.n_accepted.value for part in parts if isinstance(part.n_accepted, Measured)]
    if any(not n for n in tokens) or len(accepted) < len(parts):
        return pooled(parts, not_per_step(Unmeasured(why="not every request tells its tokens and accepted drafts")))
    n_verify = sum(part.n_verify_steps.value for part in parts if isinstance(part.n_verify_steps, Measured))
    n_tokens = sum(n or 0 for n in tokens)
    return pooled(parts, steps_by_accepted(n_tokens, len(tokens), sum(accepted), n_verify_steps=n_verify))


def _per_step(usage: Any, n_accepted: int, n_verify_steps: int) -> PerStep:
    tokens = count_of(usage, "completion_tokens")
    if not tokens:
        return not_per_step(Unmeasured(why="the answer counts no completion tokens"))
    return steps_by_accepted(tokens, 1, n_accepted, n_verify_steps=n_verify_steps)
