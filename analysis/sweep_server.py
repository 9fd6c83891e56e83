"""What a level's server side says in single numbers, each with the reason where there is none.

Reads the ``server`` object of a level of ``summary --json``. Queue time is the mean of the engine's own histogram;
waiting requests and cache in use are the most that any scrape of the level showed, and may have been more between two.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Fields = Mapping[str, Any]
NOT_ASKED = "not observable: the run's summary says nothing of it at this level"


class Reading(NamedTuple):
    """A number, or None and why; ``path`` is its place within ``server``."""

    value: float | None
    why: str | None
    path: str = ""


def server_readings(server: Fields) -> dict[str, Reading]:
    """Queue, requests waiting, preemptions (or retractions), cache in use in tokens and as a share of the capacity."""
    preempted, retracted = _read(server, "preemptions", "value"), _read(server, "retractions", "value")
    return {
        "queue_s": _read(server, "queue_s", "mean"),
        "waiting_max": _read(server, "waiting", "max"),
        "preemptions": preempted if preempted.value is not None or retracted.value is None else retracted,
        "kv_used": _read(server, "kv_tokens_used", "max"),
        "kv_share": _read(server, "kv_tokens_used", "ratio_max"),
    }


def _read(server: Fields, part: str, name: str) -> Reading:
    found = server.get(part)
    if not isinstance(found, Mapping):
        return Reading(None, NOT_ASKED)
    value = found.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Reading(float(value), None, f"{part}.{name}")
    return Reading(None, str(found.get("why") or found.get("why_no_capacity") or NOT_ASKED))
