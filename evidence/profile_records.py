"""``profile.json`` of a run: the profiler window of a profiled run, whatever came of it. Its files are in ``traces/``.

Schema history
    1  first version.

Same rules as ``evidence.records``: frozen, strict, unknown fields refused; None where a thing is not known.
"""

from pathlib import Path
from typing import Literal

from evidence.durable import is_special
from evidence.errors import Problem
from evidence.layout import PROFILE
from evidence.lines import decode_one
from evidence.records import SCHEMA_VERSION, Count, Json, Record, Sha256, Version

# Why a profiled run holds no trace that can be read.
ProfileFault = Literal[
    "profiler_never_opened",  # no request lasted until the window could be opened
    "profiler_refused",  # the server did not start its profiler
    "profiler_window_empty",  # the profiler was started, and no trace was ever written
    "trace_elsewhere",  # the server runs on another host, and what it wrote lies there
    "trace_incomplete",  # a trace, or that of another rank, was still to be written when the run ended
]


class Trace(Record):
    """One file of ``traces/``, as the engine wrote it; usually one a rank."""

    name: str  # relative to the run's folder
    sha256: Sha256
    n_bytes: Count
    whole: bool | None  # its compression ends as it should; None: not looked at


class ProfileWindow(Record):
    """What was asked of the server's profiler, when, what it answered, and which traces it wrote."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    engine: str
    steps: Count  # as asked
    after_requests: Count  # measured requests that were to end before
    n_ended_before: Count | None  # that had ended when it was asked; None: it never was
    asked: str | None  # method and path; None: the window was never opened
    body: Json | None  # as sent
    http_status: int | None
    reply: str | None  # verbatim, up to 2,000 characters
    asked_at_unix_s: float | None
    answered_at_unix_s: float | None
    n_under_way: Count | None  # requests under way when it was asked
    n_under_way_at_reply: Count | None
    stopped: Json | None  # what was asked to end the window, and the reply; None: it ends by itself
    output_dir: str | None  # where the server was told to write, or says that it does
    traces: tuple[Trace, ...]
    fault: ProfileFault | None
    why: str | None  # of the fault, ends with what to do


def read_profile(run: Path) -> ProfileWindow | Problem | None:
    """The window of a run's folder; None where the run was not profiled, a Problem where the record cannot be read."""
    file = run / PROFILE
    if is_special(file):
        return Problem("schema_violation", "it is no plain file", PROFILE)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem("schema_violation", f"it cannot be read ({error.strerror})", PROFILE)
    return decode_one(data, ProfileWindow, PROFILE)
