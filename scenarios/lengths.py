"""Prompts of a scenario made to a length, as the server that will read them counts it.

The counter gets what will be sent, system message and salt included, so what it says is what the answer's usage should
say. Text of our own (``prompts/filler.py``) stands before the prompt, whose question stays at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prompts.lengthen import Lengthener, LengthError
from prompts.load import Prompt
from scenarios.planning import asked
from scenarios.schema import Scenario
from scenarios.strict_toml import Problem, ScenarioError

# Prompt tokens as the server counts them: of chat messages ({"role", "content"} each) or of a completion's text.
Counter = Callable[[Sequence[Mapping[str, str]] | str], int]

_AFTER_SHARED = "[0] Now to the question."  # what stands behind a shared text while that is counted by itself


class Lengths:
    """Makes texts to measure for one scenario and one counter. Raises ScenarioError with the key and value given."""

    def __init__(self, scenario: Scenario, count: Counter, source: Path | None) -> None:
        self._scenario, self._count, self._source = scenario, count, source
        self._lengthener = Lengthener()
        self._shared: dict[tuple[str, int], str] = {}

    def prompt(self, prompt: Prompt, target: int, *, seed: str, salt: str | None, head: str, at: Problem) -> str:
        """The prompt's text behind ``head`` and filler, so that the request has exactly ``target`` prompt tokens.

        ``salt`` is the one that will stand before everything; None: there is none, or ``head`` holds it.
        """

        def measure(text: str) -> int:
            return self._counted(text, salt)

        return self._made(prompt.text, prompt.domain, target, measure, seed=seed, head=head, at=at)

    def shared(self, n_tokens: int, *, seed: str, at: Problem) -> str:
        """A text that adds exactly ``n_tokens`` to a prompt it stands in front of: the same for the same seed."""
        if n_tokens == 0:
            return ""
        domains = list(self._scenario.mix.domains)
        if (seed, n_tokens) not in self._shared:
            without = self._counted(_AFTER_SHARED, None)

            def measure(text: str) -> int:
                return self._counted(text + _AFTER_SHARED, None) - without

            domain = domains[0] if len(domains) == 1 else "prose"
            self._shared[seed, n_tokens] = self._made("", domain, n_tokens, measure, seed=seed, head="", at=at)
        return self._shared[seed, n_tokens]

    def bare(self, text: str, salt: str | None) -> int:
        """Prompt tokens of a request with this text as it is."""
        return self._counted(text, salt)

    def _counted(self, text: str, salt: str | None) -> int:
        sent: dict[str, Any] = asked(self._scenario, text, salt)
        if sent["messages"] is None:
            return self._count(sent["prompt"])
        return self._count([{"role": message.role, "content": message.content} for message in sent["messages"]])

    def _made(
        self, task: str, domain: str, target: int, measure: Callable[[str], int], *, seed: str, head: str, at: Problem
    ) -> str:
        try:
            return self._lengthener.lengthened(task, domain, target, measure, seed=seed, head=head)
        except LengthError as error:
            problem = Problem(key=at.key, value=at.value, message=f"{at.message}{error}")
            raise ScenarioError(self._source, problem) from error


def refuse_beyond(
    limit_tokens: int | None, prompt_tokens: int, max_tokens: int, *, source: Path | None, at: Problem
) -> None:
    """Raises ScenarioError where prompt and answer together do not fit into the server's context. None: unknown."""
    if limit_tokens is None or prompt_tokens + max_tokens <= limit_tokens:
        return
    message = (
        f"{at.message}with max_tokens = {max_tokens} takes {prompt_tokens + max_tokens} tokens, and the server's "
        f"context is {limit_tokens}; write {max(limit_tokens - max_tokens, 0)} or less, or start it with a longer one"
    )
    raise ScenarioError(source, Problem(key=at.key, value=at.value, message=message))
