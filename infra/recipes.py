"""Arms: the recipes in ``infra/arms/NAME.toml`` that say how an engine is started, one setting varied on purpose.

A recipe is whole: it writes out every engine argument, and loading it compares it with its baseline's. A difference
that the recipe does not name under ``varied`` is refused, so that two arms never differ by accident.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.models import ModelName

ARMS = Path(__file__).parent / "arms"
Argument = bool | int | float | str | tuple[str, ...]
# Never in a recipe: where the engine listens, which files its models are (the launcher sets them), and secrets.
RESERVED = ("port", "hostnames", "reuse_port", "api_keys", "hf_token", "model.path", "speculative.draft.mparams.path")


class ArmError(Exception):
    """A recipe that is not there or cannot be read: ``path``, ``key``, ``value`` say where."""

    def __init__(self, path: Path | None, key: str | None, value: object, message: str) -> None:
        where = f"{path}: " if path else ""
        super().__init__(where + (f"{key} = {value!r}: " if key else "") + message)
        self.path, self.key, self.value = path, key, value


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Varied(_Strict):
    """What differs from the baseline on purpose: in words, and every key that it touches."""

    setting: str = Field(min_length=1)
    keys: tuple[str, ...] = Field(min_length=1)


class Diagnostic(_Strict):
    """One bounded try when the arm does not start: the same launch with these arguments in place of its own."""

    name: str = Field(min_length=1)
    args: dict[str, Argument]
    without_draft: bool = False


class Arm(_Strict):
    """One recipe. ``args`` are engine settings by their dotted name; ``target`` and ``draft`` are model names."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    engine: Literal["llama.cpp embedded"]
    description: str = Field(min_length=1)
    baseline: str | None = None  # None: this arm is one
    varied: Varied | None = None
    target: ModelName
    draft: ModelName | None = None
    args: dict[str, Argument]
    environment: dict[str, str]
    ready_timeout_s: Annotated[float, Field(gt=0, le=3600)]
    diagnostics: Annotated[tuple[Diagnostic, ...], Field(max_length=3)] = ()

    @property
    def speculative(self) -> bool:
        """Whether the engine is asked to speculate; only the running engine can prove that it does."""
        return any(kind != "none" for kind in self.speculative_types)

    @property
    def speculative_types(self) -> tuple[str, ...]:
        types = self.args.get("speculative.types", ())
        return types if isinstance(types, tuple) else ()

    def settings(self) -> dict[str, object]:
        """Everything that two arms are compared by."""
        return {
            "engine": self.engine,
            "target": self.target,
            "draft": self.draft,
            **self.args,
            **{f"environment.{key}": value for key, value in self.environment.items()},
        }


def arm_names(folder: Path = ARMS) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def load_arm(name: str, folder: Path = ARMS) -> Arm:
    """The recipe of that name, compared with its baseline. Errors: ArmError."""
    arm = _read(name, folder)
    if arm.baseline is None:
        return arm
    path = folder / f"{name}.toml"
    if arm.baseline == arm.name:
        raise ArmError(path, "baseline", arm.baseline, "an arm is not its own baseline; leave the key out")
    assert arm.varied is not None
    difference = differences(arm.settings(), _read(arm.baseline, folder).settings())
    for key, (ours, theirs) in difference.items():
        if key not in arm.varied.keys:
            raise ArmError(
                path,
                key,
                ours,
                f"differs from {arm.baseline} ({theirs!r}) and is not varied on purpose. "
                "Use the baseline's value, or name the key in varied.keys",
            )
    for key in arm.varied.keys:
        if key not in difference:
            raise ArmError(path, "varied.keys", key, f"equals the value of {arm.baseline}; take the key out or vary it")
    return arm


def differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Every key whose values differ, a missing key read as None."""
    keys = sorted(ours.keys() | theirs.keys())
    return {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}


def _read(name: str, folder: Path) -> Arm:
    names = arm_names(folder)
    if name not in names:
        raise ArmError(None, "arm", name, f"there is no such arm. Choose one of: {', '.join(names)}")
    path = folder / f"{name}.toml"
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        arm = Arm.model_validate_json(json.dumps(raw))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ArmError(path, None, None, f"{error}. Mend the TOML") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ArmError(path, key, first.get("input"), f"{first['msg']}. Correct or remove this key") from error
    _check_whole(arm, path)
    return arm


def _check_whole(arm: Arm, path: Path) -> None:
    if arm.name != path.stem:
        raise ArmError(path, "name", arm.name, f"the file's name says {path.stem!r}; make them equal")
    if (arm.baseline is None) != (arm.varied is None):
        raise ArmError(path, "varied", arm.varied, "an arm with a baseline says what it varies, one without does not")
    for key in (*arm.args, *(key for diagnostic in arm.diagnostics for key in diagnostic.args)):
        if key in RESERVED:
            raise ArmError(path, f"args.{key}", arm.args.get(key), "is not a recipe's to set; take it out")
    needs_draft = any(kind.startswith("draft") for kind in arm.speculative_types)
    if needs_draft != (arm.draft is not None):
        raise ArmError(
            path,
            "draft",
            arm.draft,
            f"speculative.types = {list(arm.speculative_types)} and draft do not fit: "
            "the draft types need a draft model, the others take none",
        )
