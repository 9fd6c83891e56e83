"""The arms of a study: recipes by name or beside the study file, their models looked up, their digests."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from infra.launching.arm_kinds import Checkpoint
from infra.launching.recipes import Arm, CommandArm, ExternalArm, load_arm
from infra.preflight.subject import SubjectError, find_model
from scenarios.study_file import StudyFile, arm_name

PROFILER_FLAG = "profiler-config"  # vLLM's routes are there only where it was started with it


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyArm:
    """``named`` is what Locust is given as ``--arm``; ``sha256`` is that of the recipe before models were looked up."""

    arm: Arm
    named: str
    sha256: str

    @property
    def restarts(self) -> bool:
        """A server that someone else runs and that may be restarted: it is, for every cell."""
        return isinstance(self.arm, ExternalArm) and self.arm.restart is not None


def load_arms(file: Path, asked: StudyFile, models: Path | None) -> dict[str, StudyArm]:
    """Every arm by its name. ``models``: a folder in which models lie by the names arms use. Raises ArmError."""
    found = {}
    for word in asked.arms:
        named = str((file.parent / word).resolve()) if word.endswith(".toml") else word
        arm = load_arm(named)
        text = json.dumps(arm.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        found[arm_name(word)] = StudyArm(arm=_with_models(arm, models), named=named, sha256=digest)
    return found


def profiled(arm: Arm, folder: Path) -> Arm:
    """The same arm with what its engine must be started with to be profiled; ``folder`` is where vLLM then writes."""
    if not isinstance(arm, CommandArm) or arm.engine != "vllm" or PROFILER_FLAG in arm.args:
        return arm
    config = {"profiler": "torch", "torch_profiler_dir": str(folder.resolve())}
    return arm.model_copy(update={"args": {**arm.args, PROFILER_FLAG: config}})


def _with_models(arm: Arm, models: Path | None) -> Arm:
    """The arm with local folders in place of a hub's names, where ``models`` holds them."""
    if models is None or not isinstance(arm, CommandArm):
        return arm
    changed: dict[str, Checkpoint] = {}
    for role, checkpoint in (("target", arm.target), ("draft", arm.draft)):
        if checkpoint is None or Path(checkpoint.path).exists():
            continue
        try:
            local = find_model(checkpoint, models)
        except SubjectError:
            continue  # the preflight says so, and the engine may fetch it
        if local.resolve().is_relative_to(models.resolve()):
            changed[role] = checkpoint.model_copy(update={"path": str(local.resolve())})
    return arm.model_copy(update=changed)
