"""Which prompts a scenario takes from its stock, and in which order.

The order is no random generator's: prompts are sorted by ``sha256("{seed}:{stream}:{prompt_id}")``, with the stream
"measured" or "warmup", so that it is the same on any machine, and adding a prompt does not move the others against each
other.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from prompts.load import Prompt
from scenarios.planned import Stock
from scenarios.schema import Scenario
from scenarios.strict_toml import Problem, ScenarioError, nearest


def shuffled(prompts: Iterable[Prompt], seed: int, stream: str) -> tuple[Prompt, ...]:
    """The prompts in the seeded order of a stream; where they stood before does not matter."""

    def key(prompt: Prompt) -> tuple[str, str]:
        return hashlib.sha256(f"{seed}:{stream}:{prompt.id}".encode()).hexdigest(), prompt.id

    return tuple(sorted(prompts, key=key))


def chosen(scenario: Scenario, stock: Stock, source: Path | None) -> dict[str, tuple[Prompt, ...]]:
    """The prompts of the mix by domain, as listed. Raises ScenarioError where the stock does not have them."""
    problems, taken = [], {}
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
            taken[domain] = have if asked == "all" else have[:asked]
    if problems:
        raise ScenarioError(source, *problems)
    return taken


def warmup_prompts(scenario: Scenario, stock: Stock, source: Path | None) -> tuple[Prompt, ...]:
    """The first prompts of the warm-up file, in seeded order. Raises ScenarioError where there are too few."""
    asked, have = scenario.warmup.requests, stock.warmup
    if asked > len(have):
        message = f"there are only {len(have)} warm-up prompts and none is sent twice; write {len(have)} or less"
        raise ScenarioError(source, Problem(key="warmup.requests", value=asked, message=message))
    first = have[:asked]
    return first if scenario.mix.order == "listed" else shuffled(first, scenario.seed, "warmup")


def ordered(scenario: Scenario, taken: Mapping[str, tuple[Prompt, ...]]) -> tuple[Prompt, ...]:
    """The whole mix in the order the scenario asks for."""
    listed = tuple(prompt for prompts in taken.values() for prompt in prompts)
    if scenario.mix.order == "listed":
        return listed
    if scenario.mix.order == "shuffled":
        return shuffled(listed, scenario.seed, "measured")
    return tuple(p for prompts in taken.values() for p in shuffled(prompts, scenario.seed, "measured"))


class Dealer:
    """Hands out prompts level by level, each domain with the mix's share of every level, whatever the level's size.

    A level is made of rounds of the whole mix, in the mix's order; its last round may be a part, with so many of each
    domain as the largest remainders give. Each domain's seeded order is cycled on its own. ``apart`` keeps the place in
    it from one level to the next, so that levels share prompts only once all have been used; without it every level
    begins at the start, so that all levels have the same prompts.
    """

    def __init__(self, scenario: Scenario, taken: Mapping[str, tuple[Prompt, ...]], *, apart: bool) -> None:
        self._apart = apart
        self._sizes = {domain: len(prompts) for domain, prompts in taken.items()}
        self._cycles = {domain: ordered(scenario, {domain: prompts}) for domain, prompts in taken.items()}
        self._place = {prompt.id: place for place, prompt in enumerate(ordered(scenario, taken))}
        self._next = dict.fromkeys(taken, 0)

    def level(self, n_requests: int) -> Iterator[Prompt]:
        """The prompts of the next level, in the order they are to be sent."""
        if not self._apart:
            self._next = dict.fromkeys(self._next, 0)
        whole = sum(self._sizes.values())
        while n_requests > 0:
            yield from self._round(min(n_requests, whole))
            n_requests -= whole

    def _round(self, n_requests: int) -> list[Prompt]:
        drawn: list[Prompt] = []
        for domain, n in shares(n_requests, self._sizes).items():
            cycle, at = self._cycles[domain], self._next[domain]
            drawn += [cycle[(at + step) % len(cycle)] for step in range(n)]
            self._next[domain] = at + n
        return sorted(drawn, key=lambda prompt: self._place[prompt.id])


def shares(n: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """``n`` dealt out in proportion to ``sizes`` by largest remainder, the earlier name first where two are equal."""
    whole = sum(sizes.values())
    parts = {name: n * size // whole for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: -(n * sizes[name] % whole))
    for name in islice(by_remainder, n - sum(parts.values())):
        parts[name] += 1
    return parts
