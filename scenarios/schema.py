"""What a scenario file may say: the TOML of one measured replay, strict in names, types and ranges.

Kinds: ``sequential`` (the plan is replayed one request at a time), ``concurrency`` (closed loop, levels of users),
``context`` (levels of prompt length) and ``arrivals`` (open loop). Each of the last three has a section of its own
(``scenarios/load_sections.py``); a section without its kind, or the reverse, is refused, so that a file is never half
obeyed.

Defaults stand only where leaving a key out cannot change what is claimed; ``name``, ``kind``, ``mix.domains`` and
``request.max_tokens`` must be written. The resolved scenario, defaults included, is what a manifest records.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from prompts.load import DOMAINS, WARMUP
from scenarios.load_sections import Arrivals, Context, Levels, Profile
from scenarios.section import Endpoint, Order, Seconds, Section, Tokens
from scenarios.strict_toml import Problem, ScenarioError, check_tree, nearest, read_toml, refusal

Kind = Literal["sequential", "concurrency", "context", "arrivals"]
SECTION_OF = {"concurrency": "levels", "context": "context", "arrivals": "arrivals"}  # kind -> its own section

EXAMPLES = {
    "name": 'name = "my-run" at the top of the file',
    "kind": 'kind = "sequential" at the top of the file',
    "mix": "a section [mix] with domains = { code = 30, prose = 30, json = 30 }",
    "mix.domains": "domains = { code = 30, prose = 30, json = 30 } under [mix]",
    "request": "a section [request] with max_tokens = { code = 512, prose = 512, json = 384 }",
    "request.max_tokens": "max_tokens = { code = 512, prose = 512, json = 384 } under [request]",
    "levels": "a section [levels] with users = [1, 2, 4, 8] and requests = 90",
    "levels.users": "users = [1, 2, 4, 8] under [levels]",
    "context": "a section [context] with target_tokens = [1024, 4096] and requests = 30",
    "context.target_tokens": "target_tokens = [1024, 4096] under [context]",
    "context.requests": "requests = 30 under [context]",
    "arrivals": 'a section [arrivals] with process = "poisson", rate_per_s = [1.0, 2.0] and requests = 90',
    "arrivals.process": 'process = "poisson" under [arrivals]',
    "arrivals.rate_per_s": "rate_per_s = [1.0, 2.0] under [arrivals]",
    "telemetry.profile.steps": "profile = { steps = 5, after_requests = 10 } under [telemetry]",
    "telemetry.profile.after_requests": "profile = { steps = 5, after_requests = 10 } under [telemetry]",
}


def _how_many(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise refusal("", value, 'must be a whole number above 0, or "all"; leave the domain out to measure none of it')
    return value


def _plain_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        message = "may hold letters, digits, dots, - and _, 64 at most, a letter or digit first; correct the text"
        raise refusal("", value, message)
    return value


HowMany = Annotated[int | Literal["all"], PlainValidator(_how_many)]


class Mix(Section):
    """Which prompts, and in which order.

    A number below the stock takes the first so many as listed in the prompt file, whatever the seed, so that runs of
    two seeds measure the same prompts. ``files`` are own prompt files, relative to the scenario file; prompts of a
    domain that also has prompts of ours join them, prompts of a new domain stand alone.
    """

    domains: Annotated[dict[str, HowMany], Field(min_length=1)]
    order: Order = "shuffled"  # "blocked": the domains one after the other as written, shuffled inside
    files: tuple[str, ...] = ()
    endpoint: Endpoint = "chat"
    system: Annotated[str, Field(min_length=1)] | None = None  # sent as a system message; None: no such message


class RequestOptions(Section):
    """What every request asks of the server."""

    max_tokens: dict[str, Tokens]  # by domain
    temperature: Annotated[float, Field(ge=0)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32 - 1)] = 0  # 2**32 - 1 means "draw one" to llama.cpp
    ignore_eos: bool = False


class Warmup(Section):
    """Requests sent before the measured ones, from ``prompts/warmup.jsonl``, never measured."""

    requests: Annotated[int, Field(ge=0)] = 0


class Cache(Section):
    """The state of the server's prompt cache: ``cold`` is reset and verified, for each cell or each request."""

    policy: Literal["cold", "warm", "as-is"] = "as-is"
    per: Literal["cell", "request"] = "cell"


class Limits(Section):
    """Time limits and service-level objectives.

    ``timeout_s`` bounds a whole request, from its first byte sent to the end of its stream. ``stall_s`` bounds the time
    without a single byte received, within that; None: only ``timeout_s`` stands. The objectives judge, they never cut a
    request short; None: no such objective.
    """

    timeout_s: Seconds = 600.0
    stall_s: Seconds | None = None
    ttft_slo_s: Seconds | None = None
    tpot_slo_s: Seconds | None = None


class Telemetry(Section):
    """How often the server's ``/metrics`` is read while the measured requests run, and whether it is profiled.

    A profiled launch is never timed. None: no profiler is started.
    """

    scrape_interval_s: Annotated[float, Field(ge=0.05, le=3600)] = 1.0
    profile: Profile | None = None

    @model_serializer(mode="wrap")
    def _dumped(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_none(handler(self), ("profile",))


class Scenario(Section):
    """One scenario as resolved: what was written, and the defaults for the rest.

    Dumped without the sections its kind does not have, so that a scenario keeps its digest when kinds are added.
    """

    name: Annotated[str, AfterValidator(_plain_name)]
    kind: Kind
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    mix: Mix
    request: RequestOptions
    warmup: Warmup = Warmup()
    cache: Cache = Cache()
    limits: Limits = Limits()
    telemetry: Telemetry = Telemetry()
    levels: Levels | None = None
    context: Context | None = None
    arrivals: Arrivals | None = None

    @property
    def searches(self) -> bool:
        """Whether its levels are candidates of a search: of these it visits a few."""
        return (self.levels is not None and self.levels.search) or (self.arrivals is not None and self.arrivals.search)

    @model_serializer(mode="wrap")
    def _dumped(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_none(handler(self), tuple(SECTION_OF.values()))

    @model_validator(mode="after")
    def _kind_has_its_section(self) -> Self:
        for kind, section in SECTION_OF.items():
            there = getattr(self, section)
            if there is not None and kind != self.kind:
                message = f'belongs to kind = "{kind}", and this file says kind = "{self.kind}"; change kind or take'
                raise refusal(section, there.model_dump(mode="json"), f"{message} the section out")
            if there is None and kind == self.kind:
                message = f'is missing, and kind = "{kind}" needs it; write {EXAMPLES[section]}'
                raise refusal(section, None, message)
        if self.searches and self.limits.ttft_slo_s is None and self.limits.tpot_slo_s is None:
            message = "has no objective to hold; write ttft_slo_s = 0.5 or tpot_slo_s = 0.05 into [limits]"
            raise refusal("arrivals.search" if self.levels is None else "levels.search", True, message)
        return self

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        mix, request = self.mix, self.request
        if WARMUP in mix.domains:
            message = "warm-up prompts are never measured; take it out and set warmup.requests"
            raise refusal(f"mix.domains.{WARMUP}", mix.domains[WARMUP], message)
        for domain in mix.domains:
            if domain not in request.max_tokens:
                message = f"is missing, and mix.domains asks for {domain}; write {domain} = 512 into max_tokens"
                meant = None if domain in DOMAINS else nearest(domain, (*request.max_tokens, *DOMAINS))
                message += f', or correct mix.domains.{domain} if you meant "{meant}"' if meant else ""
                raise refusal(f"request.max_tokens.{domain}", None, message)
        known = tuple(dict.fromkeys((*mix.domains, *DOMAINS)))
        for domain, tokens in request.max_tokens.items():
            if domain not in known:
                meant = nearest(domain, known)
                hint = f'did you mean "{meant}"?' if meant else "take it out or add the domain to mix.domains"
                raise refusal(
                    f"request.max_tokens.{domain}", tokens, f"limits a domain mix.domains does not name; {hint}"
                )
        if mix.endpoint == "completions" and mix.system is not None:
            message = 'a completion has no system message; take it out or set endpoint = "chat"'
            raise refusal("mix.system", mix.system, message)
        if self.limits.stall_s is not None and self.limits.stall_s > self.limits.timeout_s:
            message = (
                f"is longer than limits.timeout_s = {self.limits.timeout_s} and could never act; write a smaller one"
            )
            raise refusal("limits.stall_s", self.limits.stall_s, message)
        return self


def load_scenario(path: Path) -> Scenario:
    """The scenario of a file. Raises ScenarioError naming the file, the dotted key, the value and what to do.

    Prompt files are not opened here: see ``scenarios.stock.load_stock_for``.
    """
    tree = read_toml(path)
    if tree.get("kind") is None and ("arms" in tree or "scenario" in tree):
        key = "scenario" if "scenario" in tree else "arms"
        message = "this is a study file, and a scenario is wanted here; name the scenario file it names"
        raise ScenarioError(path, Problem(key=key, value=tree[key], message=message))
    return check_tree(path, tree, Scenario, EXAMPLES)


def _without_none(dumped: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in dumped.items() if value is not None or key not in keys}
