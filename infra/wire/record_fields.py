"""What a record takes from the stream alone: the one place where facts of a response become fields of its record.

The client makes its record by it, and a check makes the same fields again from the raw segments that were kept, so
that a record which says anything else than its own bytes is found. Fields that the bytes cannot tell (which request it
was, what the other side of the connection did, when nothing came) are not here.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from infra.wire.stream import StreamFacts

# Instants, each the offset of the segment that completed the thing.
INSTANTS = (
    "headers_after_s",
    "first_event_after_s",
    "first_token_after_s",
    "first_visible_after_s",
    "last_token_after_s",
    "end_after_s",
)


def stream_fields(facts: StreamFacts, offsets_s: Sequence[float]) -> dict[str, Any]:
    """The fields by the record's names; ``offsets_s`` are seconds from t0, one a segment, () where there is no t0.

    ``end_after_s`` is None where no segment ended the body: then the reader's own clock says when it gave up.
    """

    def at(segment: int | None) -> float | None:
        return None if segment is None or not offsets_s else offsets_s[segment]

    return {
        "http_status": facts.http_status,
        "headers_after_s": at(facts.headers_segment),
        "first_event_after_s": at(facts.first_event_segment),
        "first_token_after_s": at(facts.first_token_segment),
        "first_visible_after_s": at(facts.first_visible_segment),
        "last_token_after_s": at(facts.last_token_segment),
        "end_after_s": at(facts.end_segment),
        "coalesced_events": facts.coalesced_events,
        "chunks": tuple([(offsets_s[chunk[0]], *chunk) for chunk in facts.chunks]) if offsets_s else (),
        "chunk_semantics": facts.chunk_semantics,
        "usage": facts.usage,
        "token_source": facts.token_source,
        "n_completion_tokens": facts.n_completion_tokens,
        "n_prompt_tokens": facts.n_prompt_tokens,
        "finish_reason": facts.finish_reason,
        "outcome": facts.outcome,
        "output_text": facts.text,
        "output_sha256": hashlib.sha256(facts.text.encode("utf-8", "surrogatepass")).hexdigest(),
        "reasoning_text": facts.reasoning,
        "tool_calls_text": facts.tool_calls_text,
        "model_served": facts.model_served,
        "server_fields": facts.server_fields,
    }
