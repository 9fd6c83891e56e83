"""From a scenario and its prompts to a plan: every request to be sent, in order, with the exact text.

Schema history
    1  first version of the plan line.

Pure: the same scenario and prompts give the same plan, and the same digest, on any machine, under any Python and for
any number of workers. The order is therefore not a random generator's: prompts are sorted by
``sha256("{seed}:{stream}:{prompt_id}")``, with the stream "measured" or "warmup". Adding a prompt does not move the
others against each other.

Under ``cache.policy = "warm"`` the warm-up ends with every measured prompt once, in the same order and to the same
length: what the server keeps of prompts and of its own answers is there when measuring begins.

A plan may be passed over several times: the seeded order is cycled, and under ``cache.policy = "cold"`` every repeat of
a prompt carries a salt in front of its text, so that a prefix kept by the server cannot answer for it. The salt comes
from the seed, so it is the same in every arm.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prompts.load import WARMUP, Prompt
from scenarios.schema import Endpoint, Scenario, Section
from scenarios.strict_toml import Problem, ScenarioError, nearest

SCHEMA_VERSION: Literal[1] = 1

Json = Any  # a value that came as JSON and is kept as it came


class Message(Section):
    """One message of a chat request."""

    role: Literal["system", "user"]
    content: str


class PlannedRequest(Section):
    """One line of ``plan.jsonl``: a request that is to be sent exactly once."""

    schema_version: Literal[1] = SCHEMA_VERSION
    plan_id: str  # "w0000" for the first warm-up request, "m0000" for the first measured one
    sequence: int  # place in the plan, from 0, warm-up first
    phase: Literal["warmup", "measured"]
    domain: str
    prompt_id: str
    prompt_sha256: str  # of the prompt's own text, without salt
    level: str | None  # None where the kind has no levels
    pass_index: int  # which pass over the mix, from 0
    repeat: int  # how often this prompt stands earlier in the plan
    endpoint: Endpoint
    messages: tuple[Message, ...] | None  # None for completions
    prompt: str | None  # None for chat
    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool
    salt: str | None  # None: the text is sent as it stands in the prompt file
    check: Json | None  # the task check the answer will be judged by; None: there is none


@dataclass(frozen=True, kw_only=True, slots=True)
class Stock:
    """The prompts a scenario may draw from, as listed in their files: ours, and the user's own after them."""

    by_domain: Mapping[str, tuple[Prompt, ...]]
    warmup: tuple[Prompt, ...]
    sha256: Mapping[str, str]  # by prompt file: "prompts/code.jsonl", own files as the scenario names them


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every request of a run in order. ``digest`` is SHA-256 over the canonical lines, see ``plan_digest``."""

    scenario: Scenario
    requests: tuple[PlannedRequest, ...]
    prompts_sha256: Mapping[str, str]  # as in Stock
    digest: str

    @property
    def warmup(self) -> tuple[PlannedRequest, ...]:
        return tuple(request for request in self.requests if request.phase == "warmup")

    @property
    def measured(self) -> tuple[PlannedRequest, ...]:
        return tuple(request for request in self.requests if request.phase == "measured")


def expand(scenario: Scenario, stock: Stock, *, passes: int = 1, source: Path | None = None) -> Plan:
    """The plan of a scenario over its stock, passed over ``passes`` times after one warm-up.

    ``source`` is the scenario file, for errors only. Raises ScenarioError where the scenario asks for prompts the stock
    does not have, and ValueError for fewer than one pass.
    """
    if passes < 1:
        raise ValueError(f"passes = {passes}: must be 1 or above")
    chosen = _chosen(scenario, stock, source)
    warmup = _warmup(scenario, stock, source)
    order = _ordered(scenario, chosen)
    requests = [_planned(scenario, prompt, place, place, "warmup", 0) for place, prompt in enumerate(warmup)]
    if scenario.cache.policy == "warm":
        for place, prompt in enumerate(order, start=len(requests)):
            priming = _planned(scenario, prompt, place, place, "warmup", 0)
            requests.append(priming.model_copy(update={"max_tokens": scenario.request.max_tokens[prompt.domain]}))
    n_before = len(requests)
    for place, (prompt, cycle) in enumerate(_cycled(order, passes * len(order))):
        requests.append(_planned(scenario, prompt, n_before + place, place, "measured", cycle))
    digest = plan_digest(request.model_dump(mode="json") for request in requests)
    return Plan(scenario=scenario, requests=tuple(requests), prompts_sha256=dict(stock.sha256), digest=digest)


def deal(plan: Plan, n_workers: int, worker: int) -> tuple[PlannedRequest, ...]:
    """The part of one worker (from 0), in plan order: each phase is dealt in turn, so each request occurs exactly once.

    Raises ValueError for a worker that is not one of ``n_workers``.
    """
    if not 0 <= worker < n_workers:
        raise ValueError(f"worker = {worker} of {n_workers}: workers count from 0; pass a number below {n_workers}")
    return plan.warmup[worker::n_workers] + plan.measured[worker::n_workers]


def plan_digest(lines: Iterable[Mapping[str, Json]]) -> str:
    """SHA-256 over the lines as canonical JSON (keys sorted, ASCII, no spaces, a newline after each).

    Takes plan lines as dicts, so that it can be derived again from a ``plan.jsonl`` that was read back.
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update(json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n")
    return digest.hexdigest()


def scenario_sha256(scenario: Scenario) -> str:
    """SHA-256 of the resolved scenario. Key order counts: it orders the domains under "blocked" and "listed"."""
    text = json.dumps(scenario.model_dump(mode="json"), separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def shuffled(prompts: Iterable[Prompt], seed: int, stream: str) -> tuple[Prompt, ...]:
    """The prompts in the seeded order of a stream; where they stood before does not matter."""

    def key(prompt: Prompt) -> tuple[str, str]:
        return hashlib.sha256(f"{seed}:{stream}:{prompt.id}".encode()).hexdigest(), prompt.id

    return tuple(sorted(prompts, key=key))


def _chosen(scenario: Scenario, stock: Stock, source: Path | None) -> dict[str, tuple[Prompt, ...]]:
    problems, chosen = [], {}
    there = ", ".join(f"{domain} ({len(known)})" for domain, known in stock.by_domain.items())
    for domain, asked in scenario.mix.domains.items():
        key, have = f"mix.domains.{domain}", stock.by_domain.get(domain, ())
        if not have:
            meant = nearest(domain, tuple(stock.by_domain))
            hint = f'did you mean "{meant}"?' if meant else "correct it, or name a file with such prompts in mix.files"
            message = f"there are no prompts of this domain, only {there}; {hint}"
            problems.append(Problem(key=key, value=asked, message=message))
        elif asked != "all" and asked > len(have):
            message = f'there are only {len(have)} prompts of this domain; write {len(have)} or less, or "all"'
            problems.append(Problem(key=key, value=asked, message=message))
        else:
            chosen[domain] = have if asked == "all" else have[:asked]
    if problems:
        raise ScenarioError(source, *problems)
    return chosen


def _warmup(scenario: Scenario, stock: Stock, source: Path | None) -> tuple[Prompt, ...]:
    asked, have = scenario.warmup.requests, stock.warmup
    if asked > len(have):
        message = f"there are only {len(have)} warm-up prompts and none is sent twice; write {len(have)} or less"
        raise ScenarioError(source, Problem(key="warmup.requests", value=asked, message=message))
    first = have[:asked]
    return first if scenario.mix.order == "listed" else shuffled(first, scenario.seed, "warmup")


def _ordered(scenario: Scenario, chosen: Mapping[str, tuple[Prompt, ...]]) -> tuple[Prompt, ...]:
    listed = tuple(prompt for prompts in chosen.values() for prompt in prompts)
    if scenario.mix.order == "listed":
        return listed
    if scenario.mix.order == "shuffled":
        return shuffled(listed, scenario.seed, "measured")
    return tuple(p for prompts in chosen.values() for p in shuffled(prompts, scenario.seed, "measured"))


def _cycled(order: Sequence[Prompt], n_requests: int) -> Iterator[tuple[Prompt, int]]:
    """``n_requests`` prompts, the order begun again as often as needed, each with the number of its cycle from 0."""
    for place in range(n_requests):
        yield order[place % len(order)], place // len(order)


def _planned(
    scenario: Scenario, prompt: Prompt, sequence: int, place: int, phase: Literal["warmup", "measured"], cycle: int
) -> PlannedRequest:
    request, mix = scenario.request, scenario.mix
    salt = None
    if scenario.cache.policy == "cold" and cycle > 0:
        salt = hashlib.sha256(f"{scenario.seed}:salt:{prompt.id}:{cycle}".encode()).hexdigest()[:16]
    lead = "" if salt is None else f"[{salt}]\n"
    messages = None
    if mix.endpoint == "chat":
        texts = [("system", mix.system)] if mix.system is not None else []
        texts.append(("user", prompt.text))
        messages = tuple(
            Message.model_validate({"role": role, "content": text if at else lead + text})
            for at, (role, text) in enumerate(texts)
        )
    smallest = min(request.max_tokens[domain] for domain in mix.domains)
    return PlannedRequest(
        plan_id=f"{'w' if phase == 'warmup' else 'm'}{place:04d}",
        sequence=sequence,
        phase=phase,
        domain=WARMUP if phase == "warmup" else prompt.domain,
        prompt_id=prompt.id,
        prompt_sha256=hashlib.sha256(prompt.text.encode()).hexdigest(),
        level=None,
        pass_index=cycle,
        repeat=cycle,
        endpoint=mix.endpoint,
        messages=messages,
        prompt=lead + prompt.text if mix.endpoint == "completions" else None,
        max_tokens=smallest if phase == "warmup" else request.max_tokens[prompt.domain],
        temperature=request.temperature,
        seed=request.seed,
        ignore_eos=request.ignore_eos,
        salt=salt,
        check=prompt.check.model_dump(mode="json") if prompt.check is not None else None,
    )
