"""What the web UI offers to choose from; the command line takes anything, and is checked where it is read."""

import re
from pathlib import Path

from infra.launching.recipes import arm_names

SCENARIOS = Path(__file__).parents[1] / "scenarios"
_LOAD_KIND = re.compile(r"""^\s*kind\s*=\s*["'](concurrency|context|arrivals)["']""", re.MULTILINE)


_typed: list[str] = []  # scenarios named on the command line, wherever they lie


class Offered(list[str]):
    """Choices of a field that are no restriction: every value counts as one of them."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str)


def offered_arms() -> Offered:
    """The recipes; "" for a server without one."""
    return Offered(["", *sorted(arm_names())])


def offered_scenarios() -> Offered:
    """The scenario files of the project whose kind the web UI runs."""
    files = [file for file in sorted(SCENARIOS.glob("*.toml")) if _LOAD_KIND.search(file.read_text("utf-8"))]
    ours = [f"{SCENARIOS.name}/{file.name}" for file in files]
    return Offered(["", *ours, *(name for name in _typed if name not in ours)])


def offer_also(scenario: str) -> None:
    """A scenario that was named when Locust was started is one of the choices from now on."""
    if scenario and scenario not in _typed:
        _typed.append(scenario)
