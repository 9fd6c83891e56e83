"""The record of a calibration: how far this client is from the truth at so many streams of so many chunks a second.

A file of its own beside the runs, ``calibrations/<calibration_id>.json``, written once by ``study calibrate`` after an
ordinary run against the fake engine, which stamps each chunk as it writes it. Runs cite it in their manifest.

Schema history
    1  first version.
"""

import hashlib
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from evidence.errors import EvidenceError
from evidence.layout import SEAL
from evidence.lines import first_fault
from evidence.named_file import read_named
from evidence.records import SCHEMA_VERSION, Count, Json, Record, Seconds, Sha256, Version

MAX_BYTES = 1 << 20
SHOWN = 120  # characters of a path
CLOCKS_APART_S = 60.0  # of two machines that share their runs


class Error(Record):
    """The size of the error of one metric, over all its values; quantiles are nearest rank."""

    n: Count
    p50: Annotated[float, Field(ge=0)]
    p99: Annotated[float, Field(ge=0)] | None  # None: fewer than 662 values
    largest: Annotated[float, Field(ge=0)]
    bias: float  # the median of the error with its sign: what a median is off by


class Calibration(Record):
    """One calibration. Errors are in seconds, of ``decode_tok_per_s`` in tokens a second."""

    schema_version: Version = SCHEMA_VERSION
    calibration_id: str
    made_at_unix_s: float
    run_id: str
    run_dir: str  # the run's folder, relative to this file's
    run_seal_sha256: Sha256
    transport: Literal["wire", "openai"]
    n_streams: Count  # at once, in one process
    chunks_per_s: Annotated[float, Field(gt=0)]  # of each stream, as asked
    total_chunks_per_s: Annotated[float, Field(ge=0)] | None  # of all, as received while all were up; None: never
    truth: dict[str, float]  # what the fake engine was asked for: ttft_s, gap_s, n_tokens
    n_requests: Count  # whose raw segments could be compared
    n_left_out: Count  # completed, but not comparable
    errors: dict[str, Error]  # ttft_s, chunk_gap_s, tpot_s, e2e_s, decode_tok_per_s
    client_floor_s: dict[str, Seconds]  # by metric: the quantile ``floor_quantile`` names, of the size of its error
    floor_quantile: dict[str, str]  # by metric: "p99", or what fewer values bear: "p95", "p90", "largest"
    client: dict[str, Json]  # what the run's health lines say: lag, kernel to user, coalesced share, CPU, collections
    hardware: dict[str, Json]  # of this client, as in the run's manifest
    versions: dict[str, str]
    git_commit: str | None


def read_calibration(path: Path) -> tuple[Calibration, str]:
    """A calibration and the SHA-256 of its file. Raises EvidenceError for a file that cannot be read or is none."""
    remedy = "name a file that `python -m study calibrate` wrote"
    data = read_named(path, MAX_BYTES, remedy)
    try:
        found = Calibration.model_validate_json(data)
    except ValidationError as error:
        raise EvidenceError(path, f"is no calibration: {first_fault(error)}", remedy) from error
    return found, hashlib.sha256(data).hexdigest()


def doubts(path: Path, made: Calibration) -> list[str]:
    """In words, why the calibration of this file cannot be traced to the run it was made by; [] where it can.

    The run lies beside it with the seal that the calibration names, and it was not made in the future.
    """
    said = []
    try:
        digest = hashlib.sha256((path.parent / made.run_dir / SEAL).read_bytes()).hexdigest()
    except (OSError, ValueError):  # a null byte in the path is the latter
        said.append(f"its run {made.run_dir[:SHOWN]!r} is not there: not verified")
    else:
        if digest != made.run_seal_sha256:
            said.append(f"the seal of its run {made.run_dir[:SHOWN]!r} differs: not verified")
    ahead_s = made.made_at_unix_s - time.time()
    if ahead_s > CLOCKS_APART_S:
        said.append(f"it says that it was made {ahead_s:.0f} s in the future: not verified")
    return said
