"""What a launch puts on record as its symptom: what was seen, verbatim where text was sent, and no cause beyond it."""

from collections.abc import Mapping
from typing import Any

from infra.launching.confounders import synthetic_switches
from infra.launching.engine_log import EngineLog
from infra.launching.ports import HOST, port_in_use
from infra.launching.recipes import CommandArm, EmbeddedArm
from infra.launching.reported import Reported, resolve


def refusal_to_start(arm: EmbeddedArm | CommandArm, port: int, environment: Mapping[str, str]) -> str | None:
    """What speaks against starting at all: an environment that makes numbers up, a port that somebody has."""
    inherited = {name: value for name, value in environment.items() if name not in arm.environment}
    if switches := synthetic_switches({}, inherited):
        named = ", ".join(switches)
        return f"{named} is set in this environment, not by the arm: acceptance would be made up. Unset it"
    if isinstance(arm, CommandArm) and port_in_use(port):
        return f"port {port} of {HOST} is in use: what answers there would not be this engine. Give another"
    return None


def with_device(memory: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What the message says, and beside it what the device said before the start.

    A message's own numbers stand. Its device's total, where the message leaves it open, is the one its driver gave;
    what was in use when it failed is then not known, and what was in use before the start is not put in its place.
    """
    found = {**memory, "before_the_start": before or None}
    if found["total_bytes"] is not None:
        return found
    devices = before.get("devices") or []
    named = str(found.get("device") or "").removeprefix("CUDA")
    same = [device for device in devices if device["device"] == named] or (devices if len(devices) == 1 else [])
    total = same[0]["total_bytes"] if same else before.get("total_bytes")
    return found if total is None else {**found, "total_bytes": total, "source_of_total": "the device before the start"}


def symptom_of_the_end(log: EngineLog, exit_code: int | None) -> str:
    """What the log says went wrong; where nothing says it, its end and how the process ended, and no more."""
    if log.errors or exit_code in (0, 1, 2):
        return log.symptom()
    return f"{log.symptom()}\nthe process ended with exit code {exit_code}"


def settings_of_a_failure(arm: EmbeddedArm | CommandArm, log: EngineLog) -> dict[str, Any] | None:
    """What the log of a start that failed says of the resolved settings; None where it says nothing of them."""
    if isinstance(arm, EmbeddedArm):
        return log.resolved
    found = resolve(Reported(engine=arm.engine, bodies={}, metrics=None), log, arm.arguments())
    return found.record() if "log" in found.sources else None
