"""The two proofs of a ready engine: a verified streamed answer, and what ``/slots`` says of speculation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.dial import exchange
from infra.target import Target
from infra.wire.http1 import read_response
from infra.wire.stream import StreamFacts

# Short, and the same for every arm. It is counted by the engine like any other request: take deltas.
QUESTION = "Name three colours."
ANSWER_TOKENS = 8


class NotReady(Exception):
    """The engine is not as a ready one is. The message is the symptom: what was seen, verbatim where text was sent."""

    def __init__(self, what: str, seen: str = "") -> None:
        super().__init__("\n".join(part for part in (what, seen) if part))


class NotYet(NotReady):
    """The server answers that it is still at work on its start: ask again."""


def first_answer(
    url: str,
    model: str,
    timeout_s: float,
    *,
    extra: Mapping[str, Any] | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> StreamFacts:
    """One streamed chat answer, read whole and verified: complete, with text and the server's count of tokens.

    ``extra`` are fields of the engine's own; left out, llama.cpp's. Errors: NotReady; NotYet where the server says that
    it is loading; DialError where no answer can come.
    """
    target = Target.parse(url)
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"cache_prompt": False} if extra is None else extra),
        }
    ).encode()
    typed = [("Content-Type", "application/json"), *headers]
    request = target.request("POST", "/v1/chat/completions", typed, body)
    _, _, facts = exchange(target, request, timeout_s)
    if facts.outcome != "completed" or not facts.n_completion_tokens:
        error = f" {facts.error.kind}: {facts.error.message}" if facts.error else ""
        kind = NotYet if facts.http_status in (502, 503) else NotReady
        raise kind(f"first answer: {facts.outcome}{error}", facts.text)
    if not (facts.text or facts.reasoning or facts.tool_calls_text):
        raise NotReady(f"first answer: {facts.n_completion_tokens} tokens and no text")
    return facts


def only_model(url: str, timeout_s: float, headers: Sequence[tuple[str, str]] = ()) -> str:
    """The one model that ``/v1/models`` lists. Errors: NotReady where it lists none or several."""
    target = Target.parse(url)
    segments, _, _ = exchange(target, target.request("GET", "/v1/models", headers), timeout_s, method="GET")
    response = read_response(segment.data for segment in segments)
    status = response.head.status if response.head else None
    try:
        listed = json.loads(response.body)["data"]
        names = [str(entry["id"]) for entry in listed]
    except (ValueError, KeyError, TypeError):
        names = []
    if status in (502, 503):
        raise NotYet(f"/v1/models: HTTP {status}", response.body[:2000].decode("utf-8", "replace"))
    if status != 200 or len(names) != 1:
        said = f"it lists {', '.join(names)}; name one as served_name" if names else "it lists no model"
        raise NotReady(
            f"/v1/models: HTTP {status}: {said}", "" if names else response.body[:2000].decode("utf-8", "replace")
        )
    return names[0]


def slots(url: str, timeout_s: float) -> list[dict[str, Any]]:
    """The engine's slots as it describes them. Errors: NotReady, where it does not."""
    target = Target.parse(url)
    segments, _, _ = exchange(target, target.request("GET", "/slots"), timeout_s, method="GET")
    response = read_response(segment.data for segment in segments)
    try:
        found = json.loads(response.body)
    except ValueError:
        found = None
    if response.head is None or response.head.status != 200 or not isinstance(found, list) or not found:
        raise NotReady("/slots lists no slots", response.body[:2000].decode("utf-8", "replace"))
    return found


def speculates(found: list[dict[str, Any]]) -> bool | None:
    """True or False where all slots agree, None where they do not or one does not say."""
    said = {slot.get("speculative") for slot in found}
    answer = said.pop() if len(said) == 1 else None
    return answer if isinstance(answer, bool) else None
