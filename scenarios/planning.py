"""One prompt made into one line of the plan: its text with salt and system message, its limits, its place."""

import hashlib
from typing import Any, Literal, TypeVar

from prompts.load import WARMUP, Prompt
from scenarios.planned import Message, PlannedRequest
from scenarios.schema import Scenario

LineT = TypeVar("LineT", bound=PlannedRequest)


def salt_of(scenario: Scenario, prompt_id: str, repeat: int | str) -> str:
    """The text that keeps a repeated prompt from a server's prefix cache; from the seed, so the same in every arm."""
    return hashlib.sha256(f"{scenario.seed}:salt:{prompt_id}:{repeat}".encode()).hexdigest()[:16]


def asked(scenario: Scenario, text: str, salt: str | None) -> dict[str, Any]:
    """``messages`` and ``prompt`` of a request with this text; a salt stands in front of all of it."""
    lead, mix = "" if salt is None else f"[{salt}]\n", scenario.mix
    if mix.endpoint == "completions":
        return {"messages": None, "prompt": lead + text}
    if mix.system is None:
        return {"messages": (Message(role="user", content=lead + text),), "prompt": None}
    system = Message(role="system", content=lead + mix.system)
    return {"messages": (system, Message(role="user", content=text)), "prompt": None}


def line(
    scenario: Scenario,
    prompt: Prompt,
    kind: type[LineT],
    *,
    phase: Literal["warmup", "measured"],
    place: int,
    sequence: int,
    repeat: int,
    pass_index: int,
    text: str | None = None,
    salt_within: bool = False,
    **more: Any,
) -> LineT:
    """The line of a prompt; ``more`` overrides single fields of it.

    ``text`` stands in for the prompt's own; with ``salt_within`` the salt is somewhere in it already. Under
    ``cache.policy = "cold"`` a measured prompt that stands earlier in the plan is salted, unless ``more`` has a salt of
    its own (None: no salt). Warm-up runs to the smallest limit of the mix.
    """
    request, mix = scenario.request, scenario.mix
    cold = scenario.cache.policy == "cold" and repeat > 0
    salt = more.pop("salt", salt_of(scenario, prompt.id, repeat) if cold else None)
    fields = {
        "plan_id": f"{'w' if phase == 'warmup' else 'm'}{place:04d}",
        "sequence": sequence,
        "phase": phase,
        "domain": WARMUP if phase == "warmup" else prompt.domain,
        "prompt_id": prompt.id,
        "prompt_sha256": hashlib.sha256(prompt.text.encode()).hexdigest(),
        "level": None,
        "pass_index": pass_index,
        "repeat": repeat,
        "endpoint": mix.endpoint,
        **asked(scenario, prompt.text if text is None else text, None if salt_within else salt),
        "max_tokens": min(request.max_tokens[domain] for domain in mix.domains)
        if phase == "warmup"
        else request.max_tokens[prompt.domain],
        "temperature": request.temperature,
        "seed": request.seed,
        "ignore_eos": request.ignore_eos,
        "salt": salt,
        "check": prompt.check.model_dump(mode="json") if prompt.check is not None else None,
    }
    return kind.model_validate(fields | more)
