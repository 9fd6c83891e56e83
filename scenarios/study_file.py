"""What a study file may say: arms, paired launches and their order over one scenario. Strict like scenarios.

``order``: "abba" takes the arms of a pair in a seeded order and mirrors it in the next pair, so that a linear drift
cancels over two pairs (it wants an even number of launches); "randomised" draws an order for each pair.

``profile_launches``: after everything timed, each arm is launched so many times more with the scenario's profiler
window; such a launch is never timed. ``preflight``: under "enforce" an arm that the preflight refuses is not started
and stands as not measured; under "note" it is started all the same, to see what the engine does.
``smoke_starts``: true starts every arm once for a moment before the first cell; false takes an arm's first cell for
that, where starts are dear: what does not match is then seen after that cell, and stops the study as well.
An arm is a recipe's name, or a recipe's file (``mine.toml``) beside the study file.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from scenarios.section import Section
from scenarios.strict_toml import Problem, ScenarioError, Tree, check_tree, read_toml, refusal

EXAMPLES = {
    "name": 'name = "demo" at the top of the file',
    "scenario": 'scenario = "sequential.toml", relative to the study file',
    "baseline": 'baseline = "cpu-f32"',
    "arms": 'arms = ["cpu-f32", "cpu-f32-draft"], the baseline among them',
    "launches": "launches = 4",
}
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class StudyFile(Section):
    """One study as written, defaults included."""

    name: Name
    scenario: Annotated[str, Field(min_length=1)]  # relative to the study file
    baseline: Name
    arms: Annotated[tuple[Name, ...], Field(min_length=2)]
    launches: Annotated[int, Field(ge=1, le=1000)]  # paired launches of each arm
    passes: Annotated[int, Field(ge=1, le=1000)] = 1  # over the plan, within a launch
    order: Literal["abba", "randomised"] = "randomised"
    control_launches: Annotated[int, Field(ge=0, le=1000)] = 0  # extra launches of the baseline, paired with its own
    status: Literal["to-run", "planned"] = "to-run"  # "planned": its estimates never stand among measurements
    profile_launches: Annotated[int, Field(ge=0, le=10)] = 0  # of each arm, profiled and never timed
    preflight: Literal["enforce", "note"] = "enforce"
    smoke_starts: bool = True
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None  # of launch and prompt orders; None: the scenario's
    drop_order: tuple[Literal["launches", "control", "profile"], ...] = ("profile", "launches", "control")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.baseline not in self.arms:
            raise refusal("baseline", self.baseline, f"is not one of arms {list(self.arms)}; add it there")
        twice = sorted({arm for arm in self.arms if self.arms.count(arm) > 1})
        if twice:
            raise refusal("arms", list(self.arms), f"names {', '.join(twice)} twice; name each arm once")
        if self.order == "abba" and self.launches % 2:
            message = 'is odd, and "abba" mirrors launches in twos; write an even number or order = "randomised"'
            raise refusal("launches", self.launches, message)
        if self.control_launches > self.launches:
            message = f"is more than launches = {self.launches}, and each is paired with one; write that or less"
            raise refusal("control_launches", self.control_launches, message)
        stems = [arm_name(arm) for arm in self.arms]
        if len(set(stems)) != len(stems):
            raise refusal("arms", list(self.arms), "names two recipes of one name; give each a name of its own")
        if len(set(self.drop_order)) != len(self.drop_order):
            raise refusal("drop_order", list(self.drop_order), "names a thing twice; name each once")
        return self


def arm_name(word: str) -> str:
    """The name of an arm that a study file names by its recipe's name or by its recipe's file."""
    return word.removesuffix(".toml")


def is_study(tree: Tree) -> bool:
    """A file with arms is a study; a scenario has none."""
    return "arms" in tree or "baseline" in tree


def load_study(path: Path) -> StudyFile:
    """The study of a file. Raises ScenarioError naming the file, the key, the value and what to do."""
    study = check_tree(path, read_toml(path), StudyFile, EXAMPLES)
    if not (path.parent / study.scenario).is_file():
        message = f"there is no such file beside {path}; name a scenario relative to the study file"
        raise ScenarioError(path, Problem(key="scenario", value=study.scenario, message=message))
    return study
