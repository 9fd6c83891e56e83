"""Plans of the kinds that load a server: levels of users, of prompt length and of arrival rate.

Under ``cache.policy = "cold"`` the levels draw different prompts for as long as there are any, and every repeat is
salted; otherwise every level has the same prompts, unsalted. Either way each level has the mix's share of every domain
(``scenarios/mixing.py``), so that levels differ in their condition and not in what they are asked.

``passes`` repeat a level's own requests within the level. A level ended by time, and a trace, have no passes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from scenarios.arrival_times import constant, poisson
from scenarios.context_plan import context_levels
from scenarios.drawn import Drawn, Levels, Wanted, labelled, passed, with_repeats
from scenarios.lengths import Counter
from scenarios.mixing import Dealer, chosen, warmup_prompts
from scenarios.planned import LoadRequest, Plan, PlanLevel, Stock, plan_of
from scenarios.planning import line
from scenarios.schema import Scenario
from scenarios.strict_toml import Problem, ScenarioError
from scenarios.trace_plan import trace_level


def load_plan(
    scenario: Scenario,
    stock: Stock,
    *,
    passes: int,
    source: Path | None,
    count: Counter | None,
    limit_tokens: int | None,
    outline: bool,
) -> Plan:
    """The plan of a scenario of kind concurrency, context or arrivals. Raises ScenarioError."""
    taken = chosen(scenario, stock, source)
    wanted = Wanted(
        scenario=scenario,
        taken=taken,
        passes=passes,
        source=source,
        count=count,
        limit_tokens=limit_tokens,
        outline=outline,
    )
    warmup = warmup_prompts(scenario, stock, source)
    levels, drawn = _levels(wanted)
    measured = with_repeats(drawn)
    lines = _Lines(scenario)
    for prompt in warmup:
        lines.add("warmup", Drawn(prompt=prompt, level="", pass_index=0), 0)
    if scenario.cache.policy == "warm":
        lines.prime([one for one, _ in measured])
    for one, repeat in measured:
        lines.add("measured", one, repeat)
    return plan_of(scenario, lines.made, stock, tuple(levels))


def _levels(wanted: Wanted) -> Levels:
    scenario = wanted.scenario
    if scenario.context is not None:
        return context_levels(wanted)
    if scenario.levels is not None:
        return _concurrency(wanted)
    assert scenario.arrivals is not None  # the schema saw to it that a kind has its section
    return trace_level(wanted) if scenario.arrivals.process == "trace" else _rates(wanted)


class _Lines:
    """Gives each request its place: numbered through the plan, and again within warm-up and measured."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._n_of = {"warmup": 0, "measured": 0}
        self.made: list[LoadRequest] = []

    def add(self, phase: Literal["warmup", "measured"], one: Drawn, repeat: int, **more: Any) -> None:
        fields = {"level": one.level or None, **one.fields, **more}
        made = line(
            self._scenario,
            one.prompt,
            LoadRequest,
            phase=phase,
            place=self._n_of[phase],
            sequence=len(self.made),
            repeat=repeat,
            pass_index=one.pass_index,
            **fields,
        )
        self._n_of[phase] += 1
        self.made.append(made)

    def prime(self, measured: Sequence[Drawn]) -> None:
        """Every text that will be measured once, to the same length, as warm-up: a warm cache has seen it."""
        seen = set()
        for one in measured:
            text = one.fields.get("text", one.prompt.text)
            if text not in seen:
                seen.add(text)
                limit = one.fields.get("max_tokens", self._scenario.request.max_tokens[one.prompt.domain])
                same = Drawn(prompt=one.prompt, level="", pass_index=0, fields={"text": text})
                self.add("warmup", same, 0, max_tokens=limit)


def _concurrency(wanted: Wanted) -> Levels:
    asked = wanted.scenario.levels
    assert asked is not None
    if asked.steady_s is not None and wanted.passes > 1:
        message = f"ends levels by time, and {wanted.passes} passes were asked; ask one pass, or write levels.requests"
        raise ScenarioError(wanted.source, Problem(key="levels.steady_s", value=asked.steady_s, message=message))
    dealer, drawn = Dealer(wanted.scenario, wanted.taken, apart=wanted.cold), []
    labels = labelled(f"users={users}" for users in asked.users)
    levels = [
        PlanLevel(index=index, label=label, users=users, steady_s=asked.steady_s)
        for index, (label, users) in enumerate(zip(labels, asked.users, strict=True))
    ]
    for level, users in zip(levels, asked.users, strict=True):
        drawn += passed(list(dealer.level(asked.cap_of(users))), level.label, wanted.passes)
    return levels, drawn


def _rates(wanted: Wanted) -> Levels:
    asked = wanted.scenario.arrivals
    assert asked is not None
    assert asked.requests is not None
    dealer, drawn = Dealer(wanted.scenario, wanted.taken, apart=wanted.cold), []
    labels = labelled(f"rate={rate:g}" for rate in asked.rate_per_s)
    levels = [
        PlanLevel(index=index, label=label, rate_per_s=rate)
        for index, (label, rate) in enumerate(zip(labels, asked.rate_per_s, strict=True))
    ]
    for level, rate in zip(levels, asked.rate_per_s, strict=True):
        n, seed = asked.requests * wanted.passes, wanted.scenario.seed
        due = constant(n, rate) if asked.process == "constant" else poisson(n, rate, seed, level.label)
        prompts = passed(list(dealer.level(asked.requests)), level.label, wanted.passes)
        drawn += [
            Drawn(prompt=one.prompt, level=one.level, pass_index=one.pass_index, fields={"scheduled_after_s": at})
            for one, at in zip(prompts, due, strict=True)
        ]
    return levels, drawn
