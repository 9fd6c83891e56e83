"""What stands before a launch of a command arm: the program found, a port free, versions and checkpoints looked up."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.launching.arm_kinds import Checkpoint, shell
from infra.launching.child import guarded
from infra.launching.floor import require_program
from infra.launching.log_dialects import BY_ENGINE, Dialect
from infra.launching.model_config import hub_config, kv_config
from infra.launching.models import file_sha256
from infra.launching.ports import HOST, free_port
from infra.launching.prepared import memory
from infra.launching.recipes import CommandArm, Diagnostic
from infra.provenance.model_hashes import model_hashes
from infra.provenance.versions import gpu_memory, versions_of

STOP_WITHIN_S = 20.0
HASH_UP_TO_BYTES = 2 << 30  # a larger file is not read for its hash before every launch
_WARDEN_MARGIN_S = 5.0


@dataclass(kw_only=True, slots=True)
class CommandStart:
    """A command arm whose program is there. It runs in a scratch folder of its own, which goes with it."""

    arm: CommandArm
    program: str  # the full path of the arm's first word
    scratch: Path
    dialect: Dialect
    found_versions: dict[str, str]
    notes: tuple[str, ...]
    stop_within_s: float = STOP_WITHIN_S + _WARDEN_MARGIN_S

    def port(self, given: int | None) -> int:
        return given or free_port()

    def process(self, port: int, diagnostic: Diagnostic | None = None) -> tuple[str, ...]:
        line = self.arm.command_line(HOST, port, diagnostic)
        return guarded((self.program, *line[1:]), self.scratch, STOP_WITHIN_S)

    def shown(self, port: int) -> tuple[str, ...]:
        return self.arm.command_line(HOST, port)

    def reproduce(self, port: int) -> str:
        return shell(self.arm.environment, self.shown(port))

    def asked(self) -> dict[str, Any]:
        return {f"asked.{key}": value for key, value in self.arm.arguments().items()}

    def versions(self) -> dict[str, str]:
        return self.found_versions

    def model_facts(self) -> dict[str, Any]:
        return checkpoint_facts(self.arm.target)

    def draft_facts(self) -> dict[str, Any] | None:
        return None if self.arm.draft is None else checkpoint_facts(self.arm.draft)

    def memory(self) -> dict[str, Any]:
        """Of the host where the arm runs on the CPU, else of each GPU as its driver says; empty where it does not."""
        if self.arm.backend == "cpu":
            return dict(memory())
        devices = gpu_memory()
        return {"devices": devices} if devices else {}

    def notices(self) -> tuple[str, ...]:
        return self.notes

    def close(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


def prepare_command(arm: CommandArm) -> CommandStart:
    """Find the program and ask it for its versions. Errors: FloorError; nothing has been started."""
    program = require_program(arm.program[0], f"arm {arm.name}")
    found, why = versions_of((program, *arm.program[1:]), arm.environment)
    notes = [f"versions of the engine's packages are not known: {why}"] if why else []
    if arm.container is None:
        notes.append("no container is named: the packages found are those of this host")
    return CommandStart(
        arm=arm,
        program=program,
        scratch=Path(tempfile.mkdtemp(prefix="engine-")),
        dialect=BY_ENGINE[arm.engine],
        found_versions=found,
        notes=tuple(notes),
    )


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the arm says of a checkpoint and what lies on this host of it: revision, size, a small file's hash.

    ``quantisation`` is the arm's label here; a label is no evidence of what the file holds.
    """
    facts: dict[str, Any] = {**checkpoint.model_dump(), "name": checkpoint.path.rstrip("/").rpartition("/")[2]}
    local = Path(checkpoint.path)
    if local.is_file():
        facts["size_bytes"] = local.stat().st_size
        if facts["size_bytes"] <= HASH_UP_TO_BYTES:
            facts["sha256"] = file_sha256(local)
            if checkpoint.sha256 not in (None, facts["sha256"]):
                facts["sha256_contradicts"] = checkpoint.sha256
        else:
            facts["why_sha256"] = f"not read: the file is larger than {HASH_UP_TO_BYTES} bytes"
    elif local.is_dir():
        files = sorted(path for path in local.iterdir() if path.suffix in (".json", ".safetensors", ".gguf", ".bin"))
        facts["files_bytes"] = {path.name: path.stat().st_size for path in files}
        config = local / "config.json"
        facts["config_sha256"] = file_sha256(config) if config.is_file() else None
        facts["config"] = kv_config(config)
        facts |= _folder_hashes(local, sum(facts["files_bytes"].values()))
    elif checkpoint.revision is None:
        facts["revision"], facts["why_revision"] = hub_revision(checkpoint.path, os.environ)
        if facts["revision"] is not None:
            facts["config"] = hub_config(hub_folder(checkpoint.path, os.environ), facts["revision"])
    return facts


def _folder_hashes(folder: Path, n_bytes: int) -> dict[str, Any]:
    """``sha256`` over the names and digests of the folder's files, each in ``files_sha256``; else why it has none."""
    if n_bytes > HASH_UP_TO_BYTES:
        return {"why_sha256": f"not read: the folder holds more than {HASH_UP_TO_BYTES} bytes"}
    try:
        found = model_hashes(folder)
    except OSError as error:
        return {"why_sha256": f"cannot be read ({error.strerror})"}
    return {"sha256": found["sha256"], "files_sha256": found["files"]}


def hub_folder(name: str, environment: Mapping[str, str]) -> Path:
    """Where the hub's cache on this host keeps a model, whether it is there or not."""
    home = environment.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home) / "hub")
    return cache / f"models--{name.replace('/', '--')}"


def hub_revision(name: str, environment: Mapping[str, str]) -> tuple[str | None, str]:
    """The revision that the hub's cache on this host calls ``main``, and where it was read or why it was not."""
    ref = hub_folder(name, environment) / "refs" / "main"
    try:
        revision = ref.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None, "the arm names none, and the hub's cache on this host has no refs/main of it"
    return (revision, "refs/main of the hub's cache on this host") if revision else (None, "refs/main is empty")
