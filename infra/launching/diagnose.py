"""A bounded try after a failed launch: does the engine come to listen with other arguments? Only if it fits the stage.

Less context, fewer sequences or another KV type make a smaller pool, and no pool has been asked for while weights load:
such a try would say nothing of that failure and is not made.
"""

import time
from pathlib import Path
from typing import Any

from evidence.records import LaunchStage
from infra.launching.child import POLL_S, Child
from infra.launching.ports import accepts
from infra.launching.prepared import Start
from infra.launching.recipes import Diagnostic

# Arguments that size the memory pool or what comes after it.
_OF_THE_POOL = frozenset(
    {
        *("context-length", "max-model-len", "ctx-size", "n_ctx", "max-running-requests", "max-num-seqs", "parallel"),
        *(
            "n_parallel",
            "max-total-tokens",
            "kv-cache-dtype",
            "cache-type-k",
            "cache-type-v",
            "cache_type_k",
            "cache_type_v",
        ),
        *("disable-cuda-graph", "cuda-graph-max-bs", "enforce-eager", "chunked-prefill-size", "max-num-batched-tokens"),
        *("page-size", "batch-size", "ubatch-size", "n_batch", "n_ubatch"),
    }
)
_BEFORE_THE_POOL = ("command", "process", "weights", "draft")


def misfit(diagnostic: Diagnostic, stage: LaunchStage, *, loading_weights: bool) -> str | None:
    """Why this try would say nothing of a failure at that stage; None where it fits."""
    of_the_pool = bool(diagnostic.args) and diagnostic.args.keys() <= _OF_THE_POOL
    if of_the_pool and (loading_weights or stage in _BEFORE_THE_POOL):
        named = ", ".join(sorted(diagnostic.args))
        return f"{named} sizes the memory pool, and the failure came at stage {stage}, before there was one"
    if diagnostic.stages is not None and stage not in diagnostic.stages:
        return f"it is for failures at {', '.join(diagnostic.stages)}, and this one came at {stage}"
    return None


def diagnose(start: Start, diagnostic: Diagnostic, log_path: Path) -> dict[str, Any]:
    """Start the engine on a free port with the diagnostic's arguments, see what becomes of it in time, stop it.

    Returns what launch.json keeps: the arguments, ``outcome`` (listens, ended, too slow), the symptom verbatim or None,
    and the name of the log, which lies in the launch folder.
    """
    port = start.port(None)
    argv = start.process(port, diagnostic)
    started = time.monotonic()
    outcome = "too slow"
    with Child(
        argv, log_path, start.arm.environment, dialect=start.dialect, stop_within_s=start.stop_within_s
    ) as child:
        while outcome == "too slow" and time.monotonic() < started + diagnostic.within_s:
            ended = child.exit_code is not None  # asked before reading: what it wrote last is read then
            if child.read_log().url is not None or (port and not ended and accepts(port)):
                outcome = "listens"
            elif ended:
                outcome = "ended"
            else:
                time.sleep(POLL_S)
        after_s = time.monotonic() - started
    return {
        **diagnostic.model_dump(mode="json"),
        "outcome": outcome,
        "after_s": round(after_s, 3),
        "symptom": None if outcome == "listens" else child.log.symptom(),
        "log": log_path.name,
    }


def not_tried(diagnostic: Diagnostic, why: str) -> dict[str, Any]:
    """The same record for a try that was not made."""
    return {**diagnostic.model_dump(mode="json"), "outcome": "not tried", "after_s": 0.0, "symptom": why, "log": None}
