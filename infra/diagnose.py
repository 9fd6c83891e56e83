"""A bounded try after a failed launch: does the engine come to listen with other arguments?"""

import time
from pathlib import Path
from typing import Any

from infra.child import POLL_S, Child, command
from infra.prepared import Prepared
from infra.recipes import Diagnostic

WITHIN_S = 20.0


def diagnose(prepared: Prepared, diagnostic: Diagnostic, log_path: Path) -> dict[str, Any]:
    """Start the engine on a free port with the diagnostic's arguments, see what becomes of it within 20 s, stop it.

    Returns what launch.json keeps: the arguments, ``outcome`` (listens, ended, too slow), the symptom verbatim or None,
    and the name of the log, which lies in the launch folder.
    """
    argv = command(prepared.models, prepared.arguments(diagnostic), 0)
    started = time.monotonic()
    outcome = "too slow"
    with Child(argv, log_path, prepared.arm.environment) as child:
        while outcome == "too slow" and time.monotonic() < started + WITHIN_S:
            ended = child.exit_code is not None  # asked before reading: what it wrote last is read then
            if child.read_log().url is not None:
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
