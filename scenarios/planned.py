"""The shapes of a plan: its lines, its levels, and the digest over them.

Schema history
    1  first version of the plan line. Kinds that load a server have a line with three fields more (``LoadRequest``);
       lines of kind ``sequential`` are what they were.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prompts.load import Prompt
from scenarios.schema import Scenario
from scenarios.section import Endpoint, Section

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


class LoadRequest(PlannedRequest):
    """A line of a kind that loads the server: warm-up too, where the three stand as None."""

    scheduled_after_s: float | None = None  # open loop: when it is due, from the level's begin; None: closed loop
    target_prompt_tokens: int | None = None  # what the server should count as its prompt; None: as the prompt is
    shared_prefix_tokens: int | None = None  # tokens of a text it shares with others; None: it was not lengthened


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanLevel:
    """One level: requests that run under one condition. The fields that do not describe its kind are None.

    ``label`` is "users=8", "tokens=1024", "rate=2" or "trace"; a value that stands twice gets "users=8#2".
    """

    index: int  # from 0, in plan order
    label: str
    users: int | None = None  # closed loop; 1 for kind context
    rate_per_s: float | None = None  # open loop; None for a trace too
    target_tokens: int | None = None
    steady_s: float | None = None  # ended by time; None: by its requests


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
    levels: tuple[PlanLevel, ...] = ()  # empty for kind sequential

    @property
    def warmup(self) -> tuple[PlannedRequest, ...]:
        return tuple(request for request in self.requests if request.phase == "warmup")

    @property
    def measured(self) -> tuple[PlannedRequest, ...]:
        return tuple(request for request in self.requests if request.phase == "measured")

    @property
    def most_levels(self) -> int:
        """How many levels are run at most: all of them, or those that a bisection over them can ask for."""
        return len(self.levels).bit_length() if self.scenario.searches else len(self.levels)

    def of_level(self, label: str) -> tuple[PlannedRequest, ...]:
        """The measured requests of a level in plan order. Raises ValueError for a label the plan has not."""
        labels = [level.label for level in self.levels]
        if label not in labels:
            raise ValueError(f"level {label!r}: the plan has {', '.join(labels) or 'no levels'}; name one of these")
        return tuple(request for request in self.requests if request.level == label)


def plan_of(
    scenario: Scenario, requests: Iterable[PlannedRequest], stock: Stock, levels: tuple[PlanLevel, ...] = ()
) -> Plan:
    """A plan with its digest."""
    lines = tuple(requests)
    digest = plan_digest(line.model_dump(mode="json") for line in lines)
    return Plan(scenario=scenario, requests=lines, prompts_sha256=dict(stock.sha256), digest=digest, levels=levels)


def read_planned(line: str | bytes) -> PlannedRequest:
    """A line of ``plan.jsonl`` as what it was. Raises pydantic's ValidationError for what is none."""
    value = json.loads(line)
    load = isinstance(value, dict) and "scheduled_after_s" in value
    return (LoadRequest if load else PlannedRequest).model_validate_json(line)


def plan_digest(lines: Iterable[Mapping[str, Json]]) -> str:
    """SHA-256 over the lines as canonical JSON (keys sorted, ASCII, no spaces, a newline after each).

    Takes plan lines as dicts, so that it can be derived again from a ``plan.jsonl`` that was read back.
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update(json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n")
    return digest.hexdigest()
