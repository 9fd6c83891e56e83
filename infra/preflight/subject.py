"""What a preflight looks at: model files, engine and the few settings that decide fit, from an arm or from options."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.launching.arm_checks import mode
from infra.launching.arm_kinds import Arm, CommandArm, EmbeddedArm, ExternalArm
from infra.launching.arm_kinds import Checkpoint as Named
from infra.launching.models import model_file
from infra.launching.prepared import memory
from infra.preflight.memory_estimate import GIB, OVERHEAD_GIB, Devices
from infra.provenance.gpu_inventory import inventory

# An engine's own word for its kind of speculation -> ours.
ALGORITHMS = {
    **dict.fromkeys(("standalone", "draft_model", "draft-simple"), "draft"),
    **dict.fromkeys(("eagle3", "draft-eagle3"), "eagle3"),
    **dict.fromkeys(("nextn", "mtp", "draft-mtp"), "mtp"),
}
KINDS = ("draft", "eagle3", "eagle", "mtp", "none")
_HOST_OVERHEAD_GIB = 0.25


class SubjectError(Exception):
    """Model files that are not to be found here; the message ends with what to do."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """``engine`` is sglang, vllm, llama.cpp or None; ``algorithm`` one of KINDS (n-gram speculation needs no check)."""

    arm: str | None
    engine: str | None
    algorithm: str
    target: Path
    draft: Path | None
    devices: Devices
    label: str | None = None
    draft_label: str | None = None
    kv_dtype: str | None = None
    context_tokens: int | None = None
    n_draft: int | None = None
    heterogeneous: bool = False  # vLLM told to map between different vocabularies
    metadata_only: bool = False  # the weights need not be here yet


def of_arm(arm: Arm, *, target: Path | None, draft: Path | None, models: Path | None) -> Subject:
    """An arm's files and settings; ``target`` and ``draft`` stand in for files that are not where the arm says.

    Errors: SubjectError; for the embedded engine's models ModelError.
    """
    if isinstance(arm, EmbeddedArm):
        return _embedded(arm, target, draft)
    found = target or (find_model(arm.target, models) if arm.target is not None else None)
    if found is None:
        raise SubjectError(f"{arm.name} names no target; give --target DIR")
    drafting = draft or (find_model(arm.draft, models) if arm.draft is not None else None)
    planned = _planned(arm)
    if isinstance(arm, ExternalArm):
        algorithm = "none" if drafting is None else "draft"
        return Subject(
            arm=arm.name, engine=_engine(arm.engine), algorithm=algorithm, target=found, draft=drafting, devices=planned
        )
    return _command(arm, found, drafting, planned)


def engine_name(word: str) -> str:
    """An engine's name as it is typed: SGLang, vLLM, llama.cpp, "llama.cpp embedded". Errors: SubjectError."""
    plain = re.sub(r"[^a-z]", "", word.lower().removesuffix("embedded"))
    for name in ("sglang", "vllm", "llama.cpp"):
        if plain == name.replace(".", ""):
            return name
    raise SubjectError(f"no rules for an engine {word!r}; give sglang, vllm or llama.cpp")


def find_model(named: Named, models: Path | None) -> Path:
    """A path as it is, or a hub's name below ``models`` or in the hub's cache. Errors: SubjectError."""
    tried = [Path(named.path)]
    if models is not None:
        tried += [models / named.path, models / named.path.rpartition("/")[2]]
    tried += _snapshots(named)
    for path in tried:
        if path.exists():
            return path
    raise SubjectError(
        f"the files of {named.path} are not here; fetch them, or give --target/--draft DIR or --models DIR "
        "(config.json, the tokenizer's files and the weights' index or headers suffice)"
    )


def host_devices() -> Devices:
    """This host's memory, for an engine that computes on its processor."""
    total = memory().get("total_bytes")
    why = "this system does not say its memory; give --device-memory-gib"
    found = None if total is None else round(total / GIB, 2)
    return Devices(memory_gib=found, why_no_memory=why, overhead_gib=_HOST_OVERHEAD_GIB)


def with_memory_here(devices: Devices) -> Devices:
    """Devices whose memory nobody gave, with that of this host's smallest GPU where there is one."""
    if devices.memory_gib is not None:
        return devices
    here = inventory()
    sizes = [gpu["memory_bytes"] for gpu in here["gpus"] if gpu["memory_bytes"]]
    if not sizes:
        why = f"the devices' memory is not known ({here['missing']}); give --device-memory-gib"
        return replace(devices, why_no_memory=why)
    return replace(devices, memory_gib=round(min(sizes) / GIB, 2))


def _embedded(arm: EmbeddedArm, target: Path | None, draft: Path | None) -> Subject:
    keys, values = arm.args.get("cache_type_k", "f16"), arm.args.get("cache_type_v", "f16")
    kinds = [ALGORITHMS.get(kind, "none") for kind in arm.speculative_types]
    drafting = draft or (model_file(arm.draft)[0] if arm.draft is not None else None)
    return Subject(
        arm=arm.name,
        engine="llama.cpp",
        algorithm=kinds[0] if kinds else "none",
        target=target or model_file(arm.target)[0],
        draft=drafting,
        devices=host_devices(),
        label=_label(arm.target) if target is None else None,
        draft_label=_label(arm.draft) if draft is None and arm.draft is not None else None,
        kv_dtype=f"{keys}/{values}",
        context_tokens=_whole(arm.args.get("n_ctx")),
        n_draft=_whole(arm.args.get("speculative.draft.n_max")),
    )


def _label(name: str) -> str:
    """The type in a packaged model's name: ``smollm2-135m-q4_1-other-vocab`` is labelled q4_1."""
    found = re.search(r"-(f32|f16|bf16|i?q\d[a-z0-9_]*)", name)
    return found[1] if found else name


def _command(arm: CommandArm, target: Path, draft: Path | None, planned: Devices) -> Subject:
    args: Mapping[str, Any] = arm.args
    asked = (mode(arm) or "none").lower().split(",")[0]
    config = args.get("speculative-config")
    inner: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    kv = args.get("kv-cache-dtype")
    if arm.engine == "llama.cpp":
        kv = f"{args.get('cache-type-k', 'f16')}/{args.get('cache-type-v', 'f16')}"
    algorithm = ALGORITHMS.get(asked, "none")
    if asked == "eagle":  # a head of its own where one is given, else the target's own layers
        algorithm = "mtp" if draft is None else "eagle"
    return Subject(
        arm=arm.name,
        engine=_engine(arm.engine),
        algorithm=algorithm,
        target=target,
        draft=draft,
        devices=planned,
        label=arm.target.quantisation,
        draft_label=arm.draft.quantisation if arm.draft is not None else None,
        kv_dtype=kv if isinstance(kv, str) else None,
        context_tokens=next((n for name in _CONTEXT if (n := _whole(args.get(name))) is not None and n > 0), None),
        n_draft=_whole(inner.get("num_speculative_tokens", args.get("speculative-num-steps"))),
        heterogeneous=inner.get("use_heterogeneous_vocab") is True,
    )


_CONTEXT = ("context-length", "max-model-len", "ctx-size")


def _planned(arm: CommandArm | ExternalArm) -> Devices:
    args: Mapping[str, Any] = arm.args if isinstance(arm, CommandArm) else {}
    if isinstance(arm, CommandArm) and arm.backend == "cpu":
        return host_devices()
    split = 1
    for name in ("tp-size", "tensor-parallel-size", "pp-size", "pipeline-parallel-size"):
        split *= _whole(args.get(name)) or 1
    gpus = arm.gpus
    n_devices = split if split > 1 or arm.engine in ("sglang", "vllm") else (gpus.count if gpus else 1)
    fraction = args.get("mem-fraction-static", args.get("gpu-memory-utilization"))
    offload = args.get("cpu-offload-gb", 0)
    return Devices(
        memory_gib=None if gpus is None or gpus.memory_mib is None else round(gpus.memory_mib / 1024, 2),
        n=n_devices,
        fraction=float(fraction) if isinstance(fraction, int | float) else None,
        overhead_gib=OVERHEAD_GIB,
        n_gpu_layers=_whole(args.get("n-gpu-layers")),
        cpu_offload_gib=float(offload) if isinstance(offload, int | float) else 0.0,
    )


def _engine(name: str) -> str | None:
    return None if name == "other" else name


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    return value if type(value) is int else None


def _snapshots(named: Named) -> list[Path]:
    """Snapshots of a hub's cache on this machine, the arm's revision or what its ``main`` names, newest otherwise."""
    home = os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub")
    folder = Path(home).expanduser() / f"models--{named.path.replace('/', '--')}"
    if named.revision is not None:
        return [folder / "snapshots" / named.revision]
    try:
        main = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    found = sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [folder / "snapshots" / main, *found] if main else found
