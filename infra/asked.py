"""One small streamed request to a running server, to see which evidence its answers carry in fact.

It is counted by the server like any other request, so it is sent only when asked for, and never during a run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.dial import DialError, exchange
from infra.engines.adapter import adapter_for
from infra.engines.fields import cached_by_usage, cold_by
from infra.engines.identify import EngineFacts, request_extras
from infra.engines.offers import Lack
from infra.engines.readings import Measured
from infra.target import Target
from infra.wire.stream import StreamFacts

QUESTION = "Count from one to twenty in words."
ANSWER_TOKENS = 32
FEWEST_TOKENS = 8  # a shorter answer shows neither hidden tokens nor a held-back stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What one answer carried, and what it lacked."""

    offers: tuple[str, ...]
    missing: tuple[Lack, ...]


def ask(base_url: str, facts: EngineFacts, model: str, *, headers: Mapping[str, str], timeout_s: float) -> Asked:
    """Send it with every field that makes this engine talk. A server's fault raises nothing."""
    target = Target.parse(base_url)
    extras = request_extras(facts.engine, cold_per_request=False, version=facts.version)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        "stream": True,
        **extras,
    }
    sent = [("Content-Type", "application/json"), *headers.items()]
    request = target.request("POST", "/v1/chat/completions", sent, json.dumps(body).encode())
    try:
        _, _, answer = exchange(target, request, timeout_s)
    except DialError as error:
        return Asked(offers=(), missing=(Lack(what="an answer", why=error.detail, supply=None),))
    if answer.outcome not in ("completed", "no_usage"):
        said = f"{answer.error.kind}: {answer.error.message}" if answer.error else answer.outcome
        supply = f"see whether it refuses {', '.join(extras)}" if answer.http_status in (400, 422) else None
        return Asked(offers=(), missing=(Lack(what="an answer", why=f"{answer.outcome} ({said})", supply=supply),))
    return judge(answer, facts)


def judge(answer: StreamFacts, facts: EngineFacts) -> Asked:
    """What an answer that came carries."""
    offers: list[str] = []
    missing: list[Lack] = []
    if answer.usage is None:
        missing.append(
            Lack(what="usage in its answer", why="no usage came", supply="no rate can be measured without it")
        )
    else:
        offers.append(f"usage in its answer ({answer.n_completion_tokens} tokens)")
    if answer.chunk_count_source is None:
        missing.append(
            Lack(what="token counts in its chunks", why="no chunk said how many", supply="rates become intervals")
        )
    else:
        offers.append(
            f"token counts in its chunks (by {answer.chunk_count_source}; a chunk is {answer.chunk_semantics})"
        )
    for what, why in (*_acceptance(answer, facts), *_cached(answer, facts)):
        if why is None:
            offers.append(what)
        else:
            missing.append(Lack(what=what, why=why, supply=None))
    missing += _odd(answer)
    return Asked(offers=tuple(offers), missing=tuple(missing))


def _acceptance(answer: StreamFacts, facts: EngineFacts) -> Sequence[tuple[str, str | None]]:
    adapter = adapter_for(facts.engine, facts.version)
    if adapter is None:
        return ()
    found = adapter.request_acceptance(answer.server_fields, answer.usage, speculative=facts.speculative)
    if found.source is None:
        return (("acceptance in its answer", found.why or "none"),)
    return ((f"acceptance in its answer ({found.source}, {found.state})", None),)


def _cached(answer: StreamFacts, facts: EngineFacts) -> Sequence[tuple[str, str | None]]:
    adapter = adapter_for(facts.engine, facts.version)
    if adapter is None:
        proof = cold_by({"usage's cached_tokens": cached_by_usage(answer.usage)}, "its usage says nothing of them")
    else:
        proof = adapter.cold_proof(answer.server_fields, answer.usage)
    if isinstance(proof.n_cached, Measured):
        return ((f"cached prompt tokens in its answer ({proof.why})", None),)
    return (("cached prompt tokens in its answer", proof.why),)


def _odd(answer: StreamFacts) -> list[Lack]:
    """Tokens that nobody sees, and a stream that came in one piece."""
    odd: list[Lack] = []
    tokens = answer.n_completion_tokens or 0
    shown = len(answer.text) + len(answer.reasoning or "") + len(answer.tool_calls_text or "")
    if tokens >= FEWEST_TOKENS and shown < tokens:
        odd.append(
            Lack(
                what="a part of its answer",
                why=f"{tokens} tokens were counted and {shown} characters came: a front or a parser takes thinking out",
                supply="measure the engine behind it, or read time to first visible content only",
            )
        )
    arrivals = len({chunk.segment for chunk in answer.chunks})
    if tokens >= FEWEST_TOKENS and len(answer.chunks) >= FEWEST_TOKENS and arrivals <= len(answer.chunks) // 4:
        odd.append(
            Lack(
                what="a stream as it is made",
                why=f"{len(answer.chunks)} chunks arrived in {arrivals} pieces: something holds the stream back",
                supply="look at a proxy's buffering, or measure the engine's own address",
            )
        )
    return odd


def as_json(asked: Asked | None) -> dict[str, Any] | None:
    """For ``probe --json``."""
    if asked is None:
        return None
    missing = [{"what": lack.what, "why": lack.why, "supply": lack.supply} for lack in asked.missing]
    return {"offers": list(asked.offers), "missing": missing}
