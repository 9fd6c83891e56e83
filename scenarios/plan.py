"""From a scenario and its prompts to a plan: every request to be sent, in order, with the exact text.

Pure: the same scenario and prompts give the same plan, and the same digest, on any machine, under any Python and for
any number of workers.

Under ``cache.policy = "warm"`` the warm-up ends with every measured prompt once, in the same order and to the same
length: what the server keeps of prompts and of its own answers is there when measuring begins.

A plan may be passed over several times: the seeded order is cycled, and under ``cache.policy = "cold"`` every repeat of
a prompt carries a salt in front of its text, so that a prefix kept by the server cannot answer for it. The salt comes
from the seed, so it is the same in every arm.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from prompts.load import Prompt
from scenarios.lengths import Counter
from scenarios.load_plan import load_plan
from scenarios.mixing import chosen, ordered, shuffled, warmup_prompts
from scenarios.planned import (
    LoadRequest,
    Message,
    Plan,
    PlanLevel,
    PlannedRequest,
    Stock,
    plan_digest,
    plan_of,
    read_planned,
)
from scenarios.planning import line
from scenarios.schema import Scenario
from scenarios.strict_toml import Problem, ScenarioError

__all__ = [
    "LoadRequest",
    "Message",
    "Plan",
    "PlanLevel",
    "PlannedRequest",
    "Stock",
    "deal",
    "deal_level",
    "dealt_level",
    "expand",
    "needs_tokenizer",
    "plan_digest",
    "read_planned",
    "scenario_sha256",
    "shuffled",
]


def expand(
    scenario: Scenario,
    stock: Stock,
    *,
    passes: int = 1,
    source: Path | None = None,
    count: Counter | None = None,
    limit_tokens: int | None = None,
    outline: bool = False,
) -> Plan:
    """The plan of a scenario over its stock, passed over ``passes`` times after one warm-up.

    ``source`` is the scenario file, for errors and for a trace beside it. ``count`` is the server's tokenizer, needed
    where prompts have a length to meet; ``limit_tokens`` its context, prompt and answer together (None: not known).
    With ``outline`` no tokenizer is needed: texts keep their own length, and the plan is for looking at, not sending.
    Raises ScenarioError where the scenario asks for what cannot be had, and
    ValueError for fewer than one pass.
    """
    if passes < 1:
        raise ValueError(f"passes = {passes}: must be 1 or above")
    made = _sequential(scenario, stock, passes, source)
    plan = made or load_plan(
        scenario, stock, passes=passes, source=source, count=count, limit_tokens=limit_tokens, outline=outline
    )
    profile, n_measured = scenario.telemetry.profile, len(plan.measured)
    if profile is not None and profile.after_requests >= n_measured:
        message = f"is never reached, the plan has {n_measured} measured requests; write a smaller number"
        raise ScenarioError(
            source, Problem(key="telemetry.profile.after_requests", value=profile.after_requests, message=message)
        )
    return plan


def needs_tokenizer(scenario: Scenario) -> bool:
    """Whether a plan of this scenario may take the server's tokenizer. A trace does unless its lines are prompt ids."""
    return scenario.context is not None or (scenario.arrivals is not None and scenario.arrivals.trace is not None)


def deal(plan: Plan, n_workers: int, worker: int) -> tuple[PlannedRequest, ...]:
    """The part of one worker (from 0), in plan order: each phase is dealt in turn, so each request occurs exactly once.

    Raises ValueError for a worker that is not one of ``n_workers``.
    """
    _one_of(n_workers, worker)
    return plan.warmup[worker::n_workers] + plan.measured[worker::n_workers]


def deal_level(plan: Plan, label: str, shares: Sequence[int], worker: int) -> tuple[PlannedRequest, ...]:
    """The part of one worker (from 0) of ``dealt_level``. Raises ValueError for one that is not there, too."""
    _one_of(len(shares), worker)
    return dealt_level(plan, label, shares)[worker]


def dealt_level(plan: Plan, label: str, shares: Sequence[int]) -> list[tuple[PlannedRequest, ...]]:
    """A level's requests by worker, each part in plan order: each request is one worker's and no other's.

    ``shares`` has a number for each worker: its users in a closed loop, 1 each in an open one. Requests go round all
    shares, spread evenly: with users (3, 1) the workers get 0 0 1 0, 0 0 1 0 and so on. A worker with none gets none.
    Raises ValueError for a negative share and for shares that are all 0.
    """
    if not shares or min(shares) < 0 or sum(shares) == 0:
        raise ValueError(f"shares = {list(shares)}: give 0 or more for each worker, and more than 0 in all")
    seats = sorted(
        ((2 * seat + 1) / (2 * share), number) for number, share in enumerate(shares) for seat in range(share)
    )
    turn = [number for _, number in seats]
    parts: list[list[PlannedRequest]] = [[] for _ in shares]
    for place, request in enumerate(plan.of_level(label)):
        parts[turn[place % len(turn)]].append(request)
    return [tuple(part) for part in parts]


def scenario_sha256(scenario: Scenario) -> str:
    """SHA-256 of the resolved scenario. Key order counts: it orders the domains under "blocked" and "listed"."""
    text = json.dumps(scenario.model_dump(mode="json"), separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _sequential(scenario: Scenario, stock: Stock, passes: int, source: Path | None) -> Plan | None:
    """None: the scenario is of another kind."""
    if scenario.kind != "sequential":
        return None
    taken = chosen(scenario, stock, source)
    warmup = warmup_prompts(scenario, stock, source)
    order = ordered(scenario, taken)
    requests = [
        line(scenario, prompt, PlannedRequest, phase="warmup", place=at, sequence=at, repeat=0, pass_index=0)
        for at, prompt in enumerate(warmup)
    ]
    if scenario.cache.policy == "warm":
        requests += [
            line(
                scenario,
                prompt,
                PlannedRequest,
                phase="warmup",
                place=at,
                sequence=at,
                repeat=0,
                pass_index=0,
                max_tokens=scenario.request.max_tokens[prompt.domain],
            )
            for at, prompt in enumerate(order, start=len(requests))
        ]
    n_before = len(requests)
    requests += [
        line(
            scenario,
            prompt,
            PlannedRequest,
            phase="measured",
            place=place,
            sequence=n_before + place,
            repeat=cycle,
            pass_index=cycle,
        )
        for place, (prompt, cycle) in enumerate(_cycled(order, passes * len(order)))
    ]
    return plan_of(scenario, requests, stock)


def _cycled(order: Sequence[Prompt], n_requests: int) -> Iterator[tuple[Prompt, int]]:
    """``n_requests`` prompts, the order begun again as often as needed, each with the number of its cycle from 0."""
    for place in range(n_requests):
        yield order[place % len(order)], place // len(order)


def _one_of(n_workers: int, worker: int) -> None:
    if not 0 <= worker < n_workers:
        raise ValueError(f"worker = {worker} of {n_workers}: workers count from 0; pass a number below {n_workers}")
