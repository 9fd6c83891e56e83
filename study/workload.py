"""What one cell of a study is asked to do, and how long that takes by a stated assumption, for every kind of scenario.

Known before any server is there: a plan that needs the server's tokenizer is made by the run itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scenarios.plan import scenario_sha256
from scenarios.schema import Scenario, load_scenario
from scenarios.stock import load_stock_for, plan_from_file

ASSUMED_TOK_PER_S = 20.0  # about what the embedded engine's F32 baseline decodes on one core of a small machine
ASSUMED_CELL_S = 10.0  # a cell beside its engine's start and its requests: Locust's start, idle checks, the verdict
LOCUSTFILES = {
    "sequential": "locustfiles/sequential.py",
    "concurrency": "locustfiles/sweep.py",
    "context": "locustfiles/sweep.py",
    "arrivals": "locustfiles/arrivals.py",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One scenario as a cell runs it. ``n_requests`` is what is planned; a level ended by time may send fewer."""

    scenario: Scenario
    sha256: str
    prompts_sha256: Mapping[str, str]
    n_requests: int
    assumed_s: float  # for all requests of a cell
    assumption: str
    plan_sha256: str | None  # None: the plan is made by the run

    @property
    def locustfile(self) -> str:
        return LOCUSTFILES[self.scenario.kind]


def workload_of(path: Path, *, passes: int, tok_per_s: float = ASSUMED_TOK_PER_S) -> Workload:
    """The workload of a scenario file; ``tok_per_s`` is what the estimate assumes. Raises ScenarioError."""
    scenario = load_scenario(path)
    if scenario.kind == "sequential":
        plan = plan_from_file(path, passes=passes)
        n_requests, tokens = len(plan.requests), sum(request.max_tokens for request in plan.requests)
        assumed_s = tokens / tok_per_s
        assumption = f"each answer runs to its max_tokens at {tok_per_s:g} tok/s"
        prompts, digest = plan.prompts_sha256, plan.digest
    else:
        prompts, digest = load_stock_for(scenario, path).sha256, None
        n_requests, assumed_s, assumption = _load(scenario, passes, tok_per_s)
    return Workload(
        scenario=scenario,
        sha256=scenario_sha256(scenario),
        prompts_sha256=dict(prompts),
        n_requests=n_requests,
        assumed_s=assumed_s,
        assumption=assumption,
        plan_sha256=digest,
    )


def _load(scenario: Scenario, passes: int, tok_per_s: float) -> tuple[int, float, str]:
    """Requests, seconds and the assumption of a kind that loads the server; from the scenario's own numbers alone."""
    limits = [scenario.request.max_tokens[domain] for domain in scenario.mix.domains]
    answer_s = sum(limits) / len(limits) / tok_per_s  # domains alike
    warmup = scenario.warmup.requests
    warmup_s = warmup * min(limits) / tok_per_s
    each = f"each stream decodes {tok_per_s:g} tok/s to its max_tokens, whatever runs beside it"
    if scenario.levels is not None:
        levels = scenario.levels
        n = [levels.cap_of(users) * (passes if levels.steady_s is None else 1) for users in levels.users]
        took = [
            answer_s * n_level / users if levels.steady_s is None else levels.steady_s + answer_s
            for n_level, users in zip(n, levels.users, strict=True)
        ]
        return sum(n) + warmup, sum(took) + warmup_s, each
    if scenario.context is not None:
        n_all = scenario.context.requests * len(scenario.context.target_tokens) * passes
        return n_all + warmup, answer_s * n_all + warmup_s, f"{each}; reading the prompts is not counted"
    arrivals = scenario.arrivals
    assert arrivals is not None  # the scenario's own validator saw to it
    n_each = (arrivals.requests or 0) * passes
    took_s = sum(n_each / rate + answer_s for rate in arrivals.rate_per_s)
    if arrivals.process == "trace":
        return n_each + warmup, warmup_s, "a trace's own length is not counted"
    return n_each * len(arrivals.rate_per_s) + warmup, took_s + warmup_s, f"arrivals as planned; {each}"
