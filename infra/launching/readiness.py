"""What follows a first answer: the engine's own word on speculation, its settings, and what speaks against it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.launching.arm_checks import mode
from infra.launching.confounders import asked_not_kept, draft_without_speculation, synthetic_switches
from infra.launching.engine_log import EngineLog
from infra.launching.proof import prove
from infra.launching.ready import slots, speculates
from infra.launching.recipes import CommandArm, EmbeddedArm, ExternalArm, covers
from infra.launching.reported import fetch_reported, resolve
from infra.launching.resolved_readers import Resolved
from infra.wire.stream import StreamFacts

KEY = "OPENAI_API_KEY"
ASK_WITHIN_S = 30.0  # for each thing asked of a server that has answered already
# How the log names the buffers of a backend's devices; the CPU's stand beside every other's.
_BUFFERS = {"cuda": "CUDA", "vulkan": "Vulkan", "rocm": "ROCm", "metal": "Metal", "sycl": "SYCL"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """``refusal`` is the symptom of an engine that is not what its arm says; None for a ready one."""

    proof: Mapping[str, Any]
    refusal: str | None
    resolved: Resolved | None = None
    version: str | None = None  # of the engine, as it says


def with_version(versions: Mapping[str, str], engine: str, said: str | None) -> dict[str, str]:
    """Versions found before the start, and beside the package's own what the running engine says."""
    if said is None:
        return dict(versions)
    return {**versions, (f"{engine} (as it says)" if engine in versions else engine): said}


def secret_headers() -> list[tuple[str, str]]:
    """The key of this process's environment, for a server that wants one; never recorded."""
    key = os.environ.get(KEY)
    return [("Authorization", f"Bearer {key}")] if key else []


def prove_embedded(arm: EmbeddedArm, url: str, log: EngineLog, facts: StreamFacts, timeout_s: float) -> Readiness:
    """``/slots`` has to say of every slot what the arm asks for. Errors: NotReady, DialError."""
    found = slots(url, timeout_s)
    proof = {"slots": found, "log": log.implementations, "first_answer_tokens": facts.n_completion_tokens}
    refusal = None
    if speculates(found) is not arm.speculative:
        said = [{key: slot.get(key) for key in ("id", "speculative")} for slot in found]
        refusal = "\n".join([*log.errors, f"/slots: {json.dumps(said)}"])
    return Readiness(proof=proof, refusal=refusal)


def prove_command(
    arm: CommandArm | ExternalArm, url: str, log: EngineLog | None, facts: StreamFacts, timeout_s: float
) -> Readiness:
    """What the server says of itself against what its arm asks for."""
    headers = dict(secret_headers())
    asked = arm.arguments() if isinstance(arm, CommandArm) else {}
    within_s = min(timeout_s, ASK_WITHIN_S)
    reported = fetch_reported(arm.engine, url, within_s, headers)
    resolved = resolve(reported, log, asked)
    proof = prove(reported, url, within_s, headers, method=_method(arm, resolved))
    environment = {**os.environ, **arm.environment} if isinstance(arm, CommandArm) else {}
    seen = {
        "says": proof.says,
        "why": proof.why,
        **proof.seen,
        "first_answer_tokens": facts.n_completion_tokens,
        "model_served": facts.model_served,
        "synthetic": list(synthetic_switches(resolved.settings, environment)),
        "not_kept": [list(one) for one in asked_not_kept(asked, resolved.settings)],
        "lacks": dict(reported.lacks),
    }
    refusals = list(_refusals(arm, proof.says, proof.why, resolved, seen["not_kept"], log))
    return Readiness(
        proof=seen,
        refusal="\n".join(refusals) or None,
        resolved=resolved,
        version=resolved.version,
    )


def _refusals(
    arm: CommandArm | ExternalArm,
    says: bool | None,
    why: str,
    resolved: Resolved,
    not_kept: list[list[Any]],
    log: EngineLog | None,
) -> list[str]:
    found = []
    if says is not arm.speculative and (arm.speculative or says is True):
        asked = "speculation is asked for and not proven" if arm.speculative else "speculation is not asked for"
        found += [*(log.errors if log else ()), f"{asked}: {why}"]
    if draft := draft_without_speculation(resolved.settings):
        found.append(f"a draft is loaded and never used: {draft}")
    for flag, wanted, reported in not_kept:
        if arm.varied is not None and any(covers(key, flag) for key in arm.varied.keys):
            found.append(f"{flag} = {wanted!r} is what this arm varies, and the server reports {reported!r}")
    if isinstance(arm, CommandArm) and (misplaced := _misplaced(arm, resolved.settings)):
        found.append(misplaced)
    return found


def _method(arm: CommandArm | ExternalArm, resolved: Resolved) -> str | None:
    """vLLM's method of speculation: as resolved, else as asked."""
    for key in ("speculative_config.method", "asked.speculative_config.method"):
        if isinstance(method := resolved.settings.get(key), str):
            return method
    return mode(arm) if isinstance(arm, CommandArm) else None


def _misplaced(arm: CommandArm, settings: Mapping[str, Any]) -> str | None:
    """Why llama.cpp's weights do not lie where the arm says; None where they do, or the log does not tell."""
    held = settings.get("log.weight_backends")
    if arm.engine != "llama.cpp" or not isinstance(held, list) or arm.backend is None:
        return None
    wanted = _BUFFERS.get(arm.backend)
    others = sorted({name for name in held for prefix in _BUFFERS.values() if name.startswith(prefix)})
    if wanted is None and arm.backend == "cpu" and others:
        return f"the arm runs on the CPU, and the log has weights in {', '.join(others)}"
    offloads = arm.args.get("n-gpu-layers") not in (0, "0")
    if wanted is not None and offloads and not any(name.startswith(wanted) for name in held):
        return f"the arm offloads to {arm.backend}, and the log has weights in {', '.join(held)} only"
    return None
