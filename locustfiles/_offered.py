"""What the web UI offers to choose from; the command line takes anything, and is checked where it is read."""

import re
from collections.abc import Iterable
from pathlib import Path

from infra.launching.recipes import arm_names

SCENARIOS = Path(__file__).parents[1] / "scenarios"
LOAD_KINDS = frozenset({"concurrency", "context", "arrivals"})
_KIND = re.compile(r"""^\s*kind\s*=\s*["']([a-z]+)["']""", re.MULTILINE)


_kinds = LOAD_KINDS  # those of the locustfile, once it is known
_typed: list[str] = []  # scenarios named on the command line, wherever they lie


class Offered(list[str]):
    """Choices of a field that are no restriction: every value counts as one of them."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str)


def offered_arms() -> Offered:
    """The recipes; "" for a server without one."""
    return Offered(["", *sorted(arm_names())])


def offered_scenarios() -> Offered:
    """The scenario files of the project that the locustfile can run."""
    kinds = {file: _KIND.search(file.read_text("utf-8")) for file in sorted(SCENARIOS.glob("*.toml"))}
    files = [file for file, kind in kinds.items() if kind is not None and kind[1] in _kinds]
    ours = [f"{SCENARIOS.name}/{file.name}" for file in files]
    return Offered(["", *ours, *(name for name in _typed if name not in ours)])


def offer_only(kinds: Iterable[str]) -> None:
    """The locustfile runs these kinds of scenarios: no other is one of the choices from now on."""
    global _kinds
    _kinds = frozenset(kinds)


def offer_also(scenario: str) -> None:
    """A scenario that was named when Locust was started is one of the choices from now on."""
    if scenario and scenario not in _typed:
        _typed.append(scenario)
