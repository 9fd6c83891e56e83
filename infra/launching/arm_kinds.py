"""The three kinds of arm as strict records: an embedded engine, any engine's command line, a server someone else runs.

Every key of an arm's file (``infra/arms/NAME.toml``; unknown keys and wrong types are refused by file and key):

    kind = "embedded" | "command" | "external"
    name = "sglang-ngram"            # the file's name
    engine = "sglang"                # embedded: "llama.cpp embedded"; else sglang | vllm | llama.cpp | other
    description = "..."
    baseline = "sglang-baseline"     # left out: this arm is one
    inherits = true                  # command: what this file leaves out is the baseline's; false: the file is whole
    varied = { setting = "n-gram speculation", keys = ["speculative-algorithm"], follows = ["enable_mixed_chunk"] }
                                     # keys: what differs on purpose; follows: resolved settings that change with it
    speculative = true               # command, external: whether it is to speculate; only the running engine proves it
    ready_timeout_s = 900.0
    environment = { NAME = "value" } # no secrets: set those in the environment of the launcher

    # embedded: target and draft are names of packaged models, [args] are engine settings by dotted name
    # command:
    program = ["python", "-m", "sglang.launch_server"]       # host and port are appended by the launcher
    served_name = "..."              # left out: the one model that /v1/models lists
    target = { path = "Qwen/...", revision = "...", quantisation = "awq" }     # draft likewise; {target}, {draft},
    draft = { path = "..." }         # {target_revision} and {draft_revision} stand for them within [args]
    backend = "cuda"                 # llama.cpp: cuda | vulkan | cpu | ..., beside args.n-gpu-layers
    container = "NAME@sha256:..."    # where the engine runs in one
    gpus = { count = 2, name = "...", memory_mib = 24467, link = "PCIe" }      # what the arm is planned for
    [args]                           # "tp-size" = 2 is --tp-size 2; true a bare flag; a list its values; a table JSON
    # external:
    url = "http://host:8000"
    restart = ["systemctl", "--user", "restart", "llm"]      # run when a restart is asked for
    health = "/health"

    [[diagnostics]]                  # at most three bounded tries when the arm does not start
    name = "half the context"   args = { "context-length" = 4096 }   without = ["flag to leave out"]
    stages = ["memory_pool"]         # the stages whose failure it fits; left out: any
    within_s = 300.0
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from evidence.records import LaunchStage
from infra.launching.models import ModelName

Argument = bool | int | float | str | tuple[str, ...]  # of an embedded engine
Word = bool | int | float | str
FlagValue = Word | tuple[Word, ...] | dict[str, Word]  # of a command line
EngineName = Literal["sglang", "vllm", "llama.cpp", "other"]
Seconds = Annotated[float, Field(gt=0, le=7200)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Varied(_Strict):
    """What differs from the baseline on purpose: in words, every key that it touches, and what follows by itself."""

    setting: str = Field(min_length=1)
    keys: tuple[str, ...] = Field(min_length=1)
    follows: tuple[str, ...] = ()


class Diagnostic(_Strict):
    """One bounded try when the arm does not start: the same launch with these arguments in place of its own."""

    name: str = Field(min_length=1)
    args: dict[str, FlagValue] = {}
    without: tuple[str, ...] = ()
    without_draft: bool = False
    stages: tuple[LaunchStage, ...] | None = None
    within_s: Annotated[float, Field(gt=0, le=900)] = 20.0


class Checkpoint(_Strict):
    """A model as a command line names it; what is unknown is None and stays unknown in evidence."""

    path: str = Field(min_length=1)  # a hub's name, a folder or a GGUF file
    revision: str | None = None
    quantisation: str | None = None  # as labelled; a preflight reads the checkpoint itself
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    note: str | None = None


class Gpus(_Strict):
    """The hardware an arm is planned for."""

    count: Annotated[int, Field(ge=1)]
    name: str | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    link: str | None = None


class _Arm(_Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    description: str = Field(min_length=1)
    baseline: str | None = None  # None: this arm is one
    varied: Varied | None = None
    ready_timeout_s: Seconds
    diagnostics: Annotated[tuple[Diagnostic, ...], Field(max_length=3)] = ()


class EmbeddedArm(_Arm):
    """The engine in a wheel. ``args`` are engine settings by dotted name; ``target`` and ``draft`` are model names."""

    kind: Literal["embedded"]
    engine: Literal["llama.cpp embedded"]
    target: ModelName
    draft: ModelName | None = None
    args: dict[str, Argument]
    environment: dict[str, str]

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


class CommandArm(_Arm):
    """Any engine's command line, started and stopped by us on loopback."""

    kind: Literal["command"]
    engine: EngineName
    inherits: bool = False
    program: tuple[str, ...] = Field(min_length=1)
    served_name: str | None = None
    target: Checkpoint
    draft: Checkpoint | None = None
    speculative: bool
    backend: str | None = None
    container: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")] | None = None
    gpus: Gpus | None = None
    args: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], FlagValue]
    environment: dict[str, str]

    def settings(self) -> dict[str, object]:
        """Everything that two arms are compared by; what follows from these (``speculative``) is left out."""
        found: dict[str, object] = {"engine": self.engine, "program": self.program, "backend": self.backend}
        found |= {"container": self.container, "served_name": self.served_name}
        for role, checkpoint in (("target", self.target), ("draft", self.draft)):
            if checkpoint is not None:
                found |= {f"{role}.{key}": value for key, value in checkpoint.model_dump(exclude={"note"}).items()}
        found |= {f"environment.{key}": value for key, value in self.environment.items()}
        return {**found, **self.args}

    def arguments(self, diagnostic: Diagnostic | None = None) -> dict[str, FlagValue]:
        """The flags as given, a diagnostic's in their place, checkpoints written in."""
        asked = {**self.args, **(diagnostic.args if diagnostic else {})}
        left_out = diagnostic.without if diagnostic else ()
        return {key: self._written(value) for key, value in asked.items() if key not in left_out}

    def command_line(self, host: str, port: int, diagnostic: Diagnostic | None = None) -> tuple[str, ...]:
        """The whole command line; a relative program or model path is the caller's to resolve."""
        words = [word for key, value in self.arguments(diagnostic).items() for word in flag(key, value)]
        return (*self.program, *words, "--host", host, "--port", str(port))

    def _written(self, value: FlagValue) -> FlagValue:
        if isinstance(value, str):
            for name, text in self.placeholders().items():
                value = value.replace(f"{{{name}}}", text)
            return value
        if isinstance(value, tuple):
            return tuple(self._word(word) for word in value)
        if isinstance(value, dict):
            return {key: self._word(word) for key, word in value.items()}
        return value

    def _word(self, word: Word) -> Word:
        written = self._written(word)
        assert not isinstance(written, tuple | dict)
        return written

    def placeholders(self) -> dict[str, str]:
        """What may stand in braces within an argument; a local path is made absolute: the engine runs elsewhere."""
        found: dict[str, str] = {}
        for role, checkpoint in (("target", self.target), ("draft", self.draft)):
            if checkpoint is not None:
                local = Path(checkpoint.path)
                found[role] = str(local.resolve()) if local.exists() else checkpoint.path
                if checkpoint.revision is not None:
                    found[f"{role}_revision"] = checkpoint.revision
        return found


class ExternalArm(_Arm):
    """A server that someone else runs: its settings are what it reports, so that nothing can be compared beforehand."""

    kind: Literal["external"]
    engine: EngineName
    url: str
    served_name: str | None = None
    target: Checkpoint | None = None
    draft: Checkpoint | None = None
    speculative: bool
    container: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")] | None = None
    gpus: Gpus | None = None
    restart: tuple[str, ...] | None = Field(default=None, min_length=1)
    health: Annotated[str, Field(pattern=r"^/\S*$")] | None = None

    def settings(self) -> dict[str, object]:
        return {}


Arm = EmbeddedArm | CommandArm | ExternalArm


def flag(key: str, value: Any) -> tuple[str, ...]:
    """One argument as words of a command line: true is a bare flag, false none, a table compact JSON."""
    name = f"--{key}"
    if isinstance(value, bool):
        return (name,) if value else ()
    if isinstance(value, Mapping):
        return (name, json.dumps(dict(value), sort_keys=True))
    if isinstance(value, tuple | list):
        return (name, *(str(word) for word in value))
    return (name, str(value))


def shell(environment: Mapping[str, str], argv: tuple[str, ...]) -> str:
    """One shell command that sets the environment and runs the command line."""
    return shlex.join([*(["env"] if environment else []), *(f"{k}={v}" for k, v in environment.items()), *argv])
