"""Was a run profiled, and what came of its window: by its scenario and by ``profile.json``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.errors import Problem
from evidence.layout import TRACES
from evidence.profile_records import read_profile
from evidence.records import Json


def asked_profile(scenario: Json) -> Mapping[str, Any] | None:
    """The window that a resolved scenario asks for; None: it asks for none, and the run is timed."""
    telemetry = scenario.get("telemetry") if isinstance(scenario, Mapping) else None
    profile = telemetry.get("profile") if isinstance(telemetry, Mapping) else None
    return profile if isinstance(profile, Mapping) else None


def profiled(scenario: Json) -> str | None:
    """What to say of a profiled run; None for a timed one."""
    profile = asked_profile(scenario)
    if profile is None:
        return None
    return (
        f"the run was profiled ({profile.get('steps')} steps after {profile.get('after_requests')} requests): a "
        "profiler stalls the stream and slows what follows"
    )


def profiler_fault(run: Path, scenario: Json) -> tuple[str, str] | None:
    """The name of what went wrong with a profiler window, and what was seen; None where nothing did."""
    if asked_profile(scenario) is None:
        return None
    window = read_profile(run)
    if window is None:
        return "profiler_never_opened", "the run has no profile.json: it ended before its window was over"
    if isinstance(window, Problem):
        return "trace_incomplete", f"profile.json cannot be read: {window.detail}"
    return None if window.fault is None else (window.fault, window.why or "no reason on record")


def traces_of(run: Path) -> tuple[Path, ...]:
    """The traces a run holds."""
    return tuple(sorted(path for path in (run / TRACES).glob("*") if path.is_file()))
