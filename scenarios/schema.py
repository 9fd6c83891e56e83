"""What a scenario file may say: the TOML of one measured replay, strict in names, types and ranges.

Kinds that run in this version: ``sequential`` (the plan is replayed one request at a time). Other kinds, their sections
and profiled launches are refused in a sentence, so that a file is never half obeyed.

Defaults stand only where leaving a key out cannot change what is claimed; ``name``, ``kind``, ``mix.domains`` and
``request.max_tokens`` must be written. The resolved scenario, defaults included, is what a manifest records.
"""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator

from prompts.load import DOMAINS, WARMUP
from scenarios.strict_toml import Problem, ScenarioError, Tree, check_tree, nearest, read_toml, refusal

KINDS_THAT_RUN = ("sequential",)
KINDS_TO_COME = {"concurrency": "levels", "context": "context", "arrivals": "arrivals"}  # kind -> its own section

EXAMPLES = {
    "name": 'name = "my-run" at the top of the file',
    "kind": 'kind = "sequential" at the top of the file',
    "mix": "a section [mix] with domains = { code = 30, prose = 30, json = 30 }",
    "mix.domains": "domains = { code = 30, prose = 30, json = 30 } under [mix]",
    "request": "a section [request] with max_tokens = { code = 512, prose = 512, json = 384 }",
    "request.max_tokens": "max_tokens = { code = 512, prose = 512, json = 384 } under [request]",
}

Order = Literal["shuffled", "blocked", "listed"]
Endpoint = Literal["chat", "completions"]


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
Tokens = Annotated[int, Field(gt=0, le=10_000_000)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000)]


class Section(BaseModel):
    """A frozen table of a scenario: unknown keys, wrong types, inf and nan are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


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
    """How often the server's ``/metrics`` is read while the measured requests run."""

    scrape_interval_s: Annotated[float, Field(ge=0.05, le=3600)] = 1.0


class Scenario(Section):
    """One scenario as resolved: what was written, and the defaults for the rest."""

    name: Annotated[str, AfterValidator(_plain_name)]
    kind: Literal["sequential"]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    mix: Mix
    request: RequestOptions
    warmup: Warmup = Warmup()
    cache: Cache = Cache()
    limits: Limits = Limits()
    telemetry: Telemetry = Telemetry()

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
    if refused := _not_in_this_version(tree):
        raise ScenarioError(path, *refused)
    return check_tree(path, tree, Scenario, EXAMPLES)


def _not_in_this_version(tree: Tree) -> list[Problem]:
    runs = "kinds that run in this version: " + ", ".join(KINDS_THAT_RUN)
    kind = tree.get("kind")
    if isinstance(kind, str) and kind in KINDS_TO_COME:
        message = f'does not run in this version ({runs}); set kind = "{KINDS_THAT_RUN[0]}" or use another file'
        return [Problem(key="kind", value=kind, message=message)]
    if kind is None and ("arms" in tree or "scenario" in tree):
        key = "scenario" if "scenario" in tree else "arms"
        message = f"this is a study file, and studies do not run in this version; name a scenario file instead ({runs})"
        return [Problem(key=key, value=tree[key], message=message)]
    refused = []
    for other, section in KINDS_TO_COME.items():
        if section in tree:
            message = (
                f'the section belongs to kind = "{other}", which does not run in this version ({runs}); take it out'
            )
            refused.append(Problem(key=section, value=tree[section], message=message))
    telemetry = tree.get("telemetry")
    if isinstance(telemetry, dict) and "profile" in telemetry:
        message = "profiled launches do not run in this version; take profile out of [telemetry]"
        refused.append(Problem(key="telemetry.profile", value=telemetry["profile"], message=message))
    return refused
