"""Arms: the recipes in ``infra/arms/NAME.toml`` that say how an engine is started, one setting varied on purpose.

Loading a recipe compares it with its baseline's. A difference that the recipe does not name under ``varied`` is
refused, so that two arms never differ by accident. An embedded recipe is whole: it writes out every engine argument;
a command recipe is whole or says ``inherits = true``. ``infra/launching/arm_kinds.py`` lists every key.
"""

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from evidence.errors import EvidenceError
from evidence.named_file import read_named
from infra.launching.arm_checks import faults
from infra.launching.arm_kinds import Argument as Argument
from infra.launching.arm_kinds import Arm, CommandArm, Diagnostic, EmbeddedArm, ExternalArm, Varied
from infra.target import Target, TargetError

__all__ = ["ARMS", "Arm", "ArmError", "CommandArm", "Diagnostic", "EmbeddedArm", "ExternalArm", "Varied"]

ARMS = Path(__file__).parents[1] / "arms"
# Never in an embedded recipe: where the engine listens, which files its models are (the launcher sets them), secrets.
RESERVED = ("port", "hostnames", "reuse_port", "api_keys", "hf_token", "model.path", "speculative.draft.mparams.path")
# Resolved settings that an engine changes silently; no recipe may call them a consequence of what it varies.
NEVER_FOLLOWS = ("max_running_requests", "mem_fraction_static", "gpu_memory_utilization", "max_num_seqs")
_MOST_BYTES = 1 << 20  # of a recipe's file
_OWN = ("name", "description", "baseline", "varied", "inherits", "diagnostics")  # never inherited

_ARM: TypeAdapter[Arm] = TypeAdapter(Annotated[Arm, Field(discriminator="kind")])


class ArmError(Exception):
    """A recipe that is not there or cannot be read: ``path``, ``key``, ``value`` say where."""

    def __init__(self, path: Path | None, key: str | None, value: object, message: str) -> None:
        where = f"{path}: " if path else ""
        super().__init__(where + (f"{key} = {value!r}: " if key else "") + message)
        self.path, self.key, self.value = path, key, value


def arm_names(folder: Path = ARMS) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def load_arm(name: str, folder: Path = ARMS) -> Arm:
    """The recipe of that name, or of that file where the name ends in ``.toml``, compared with its baseline.

    A file's baseline is looked for beside it, then among the stock recipes. Errors: ArmError.
    """
    folders: tuple[Path, ...] = (folder,)
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise ArmError(Path(name), None, None, "there is no such file. Name a recipe's file, or an arm by its name")
        folders, name = (Path(name).parent, ARMS), Path(name).stem
    arm, folder = _read(name, folders), folders[0]
    path = folder / f"{name}.toml"
    if arm.baseline is None:
        return arm
    if arm.baseline == arm.name:
        raise ArmError(path, "baseline", arm.baseline, "an arm is not its own baseline; leave the key out")
    baseline = _read(arm.baseline, folders)
    if not isinstance(arm, ExternalArm) and not isinstance(baseline, ExternalArm):
        _compare(arm, baseline, path)
    return arm


def differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Every key whose values differ, a missing key read as None."""
    keys = sorted(ours.keys() | theirs.keys())
    return {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}


def covers(varied: str, key: str) -> bool:
    """Whether a key named under ``varied`` means this setting: itself, or a part of it (``draft``: ``draft.path``)."""
    return key == varied or key.startswith(f"{varied}.")


def _compare(arm: Arm, baseline: Arm, path: Path) -> None:
    assert arm.varied is not None
    difference = differences(arm.settings(), baseline.settings())
    for key, (ours, theirs) in difference.items():
        if not any(covers(varied, key) for varied in arm.varied.keys):
            raise ArmError(
                path,
                key,
                ours,
                f"differs from {arm.baseline} ({theirs!r}) and is not varied on purpose. "
                "Use the baseline's value, or name the key in varied.keys",
            )
    for varied in arm.varied.keys:
        if not any(covers(varied, key) for key in difference):
            raise ArmError(
                path, "varied.keys", varied, f"equals the value of {arm.baseline}; take the key out or vary it"
            )


def _path(name: str, folders: tuple[Path, ...]) -> Path:
    """Where the recipe of that name lies. Errors: ArmError, with the names there are, those most like it first."""
    names = sorted({known for folder in folders for known in arm_names(folder)})
    if name not in names:
        if "/" in name or Path(name).exists():
            raise ArmError(None, "arm", name, "is no recipe. Name an arm, or a recipe's file: its name ends in .toml")
        close = difflib.get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
        listed = ", ".join([*close, *(one for one in names if one not in close)]) or "(none here)"
        raise ArmError(None, "arm", name, f"there is no such arm. Choose one of: {listed}")
    return next(path for folder in folders if (path := folder / f"{name}.toml").is_file())


def _read(name: str, folders: tuple[Path, ...]) -> Arm:
    path = _path(name, folders)
    raw = _whole(_toml(path), path, folders)
    try:
        arm = _ARM.validate_json(json.dumps(raw))
    except TypeError as error:
        raise ArmError(path, None, None, f"{error}. Mend the TOML") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"][1:]) or "kind"
        shown = None if first["type"] == "missing" or key == "kind" else first.get("input")
        raise ArmError(path, key, shown, f"{first['msg']}. Correct or remove this key") from error
    for fault_key, value, message in _faults(arm, path):
        raise ArmError(path, fault_key, value, message)
    return arm


def _toml(path: Path) -> dict[str, Any]:
    try:
        raw = read_named(path, _MOST_BYTES, "name a recipe's file")
    except EvidenceError as error:
        raise ArmError(path, None, None, f"{error.what}. Name a recipe's file") from error
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise ArmError(path, None, None, f"line {line}: byte 0x{byte:02x} is not UTF-8. Save it as UTF-8") from error
    except (ValueError, RecursionError) as error:  # no TOML, an integer too long for Python, or tables without end
        raise ArmError(path, None, None, f"{error}. Mend the TOML") from error


def _whole(raw: dict[str, Any], path: Path, folders: tuple[Path, ...]) -> dict[str, Any]:
    """What the file says, over what it inherits; a baseline that inherits in turn is refused."""
    if not isinstance(raw.get("inherits", False), bool):
        raise ArmError(path, "inherits", raw["inherits"], "is true or false")
    if not raw.get("inherits"):
        return raw
    name = raw.get("baseline")
    if not isinstance(name, str) or name == raw.get("name"):
        raise ArmError(path, "baseline", name, "an arm that inherits names the arm it inherits from")
    theirs = _toml(_path(name, folders))
    if theirs.get("inherits") is True:
        raise ArmError(path, "baseline", name, "inherits itself: name the whole recipe it comes from")
    merged = {**{key: value for key, value in theirs.items() if key not in _OWN}, **raw}
    for table in ("args", "environment"):
        ours, base = raw.get(table, {}), theirs.get(table, {})
        if isinstance(ours, dict) and isinstance(base, dict):
            merged[table] = {**base, **ours}
    return merged


def _faults(arm: Arm, path: Path) -> Iterator[tuple[str, object, str]]:
    if arm.name != path.stem:
        yield "name", arm.name, f"the file's name says {path.stem!r}; make them equal"
    if (arm.baseline is None) != (arm.varied is None):
        yield "varied", arm.varied, "an arm with a baseline says what it varies, one without does not"
    for key in arm.varied.follows if arm.varied else ():
        if key.rpartition(".")[2] in NEVER_FOLLOWS:
            yield "varied.follows", key, "is a silent confounder, not a consequence: give it the baseline's value"
    if isinstance(arm, EmbeddedArm):
        yield from _embedded_faults(arm)
    elif isinstance(arm, CommandArm):
        yield from faults(arm)
    else:
        try:
            Target.parse(arm.url)
        except TargetError as error:
            yield "url", error.url, str(error)


def _embedded_faults(arm: EmbeddedArm) -> Iterator[tuple[str, object, str]]:
    for key in (*arm.args, *(key for diagnostic in arm.diagnostics for key in diagnostic.args)):
        if key in RESERVED:
            yield f"args.{key}", arm.args.get(key), "is not a recipe's to set; take it out"
    needs_draft = any(kind.startswith("draft") for kind in arm.speculative_types)
    if needs_draft != (arm.draft is not None):
        yield (
            "draft",
            arm.draft,
            f"speculative.types = {list(arm.speculative_types)} and draft do not fit: "
            "the draft types need a draft model, the others take none",
        )
