"""A measured request before it has its place in the plan, and what the kinds of load share in making them."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prompts.load import Prompt
from scenarios.lengths import Counter
from scenarios.planned import PlanLevel
from scenarios.schema import Scenario
from scenarios.strict_toml import Problem, ScenarioError


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A prompt, its level and what of the line is not the prompt's own (overrides of ``scenarios.planning.line``)."""

    prompt: Prompt
    level: str
    pass_index: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a kind's levels are made from. ``count`` and ``limit_tokens`` are the server's, None where not known.

    ``outline``: prompts keep their own text and only their length is noted, so that no tokenizer is needed.
    """

    scenario: Scenario
    taken: Mapping[str, tuple[Prompt, ...]]  # the mix by domain
    passes: int
    source: Path | None
    count: Counter | None
    limit_tokens: int | None
    outline: bool = False

    @property
    def cold(self) -> bool:
        return self.scenario.cache.policy == "cold"

    def counter(self, key: str, value: object) -> Counter:
        """The server's tokenizer. Raises ScenarioError where there is none."""
        if self.count is None:
            message = "is counted by the server's own tokenizer, and none was given; run it against a server"
            raise ScenarioError(self.source, Problem(key=key, value=value, message=message))
        return self.count


Levels = tuple[list[PlanLevel], list[Drawn]]


def labelled(values: Iterable[str]) -> Iterator[str]:
    """The labels, with "#2" behind one that stands a second time, so that each names one level."""
    seen: Tally[str] = Tally()
    for value in values:
        seen[value] += 1
        yield value if seen[value] == 1 else f"{value}#{seen[value]}"


def passed(prompts: list[Prompt], label: str, passes: int) -> list[Drawn]:
    """The level's prompts, once for each pass."""
    return [Drawn(prompt=prompt, level=label, pass_index=at) for at in range(passes) for prompt in prompts]


def with_repeats(drawn: Iterable[Drawn]) -> list[tuple[Drawn, int]]:
    """Each with how often its prompt stands earlier in the plan."""
    seen: Tally[str] = Tally()
    counted = []
    for one in drawn:
        counted.append((one, seen[one.prompt.id]))
        seen[one.prompt.id] += 1
    return counted
