"""The record of a study: ``study.json``, rewritten whole whenever the state of a cell changes.

Schema history
    1  first version.

Same rules as ``evidence.records``: frozen, strict, unknown fields refused; None where a thing is not known.
"""

from typing import Annotated, Literal

from pydantic import Field

from evidence.records import SCHEMA_VERSION, Count, Json, Record, Sha256, Version

CellRole = Literal["baseline", "arm", "control", "profile"]  # "profile": profiled, never timed
CellState = Literal["planned", "running", "done", "failed", "dropped"]
StudyOrder = Literal["abba", "randomised"]
Droppable = Literal["launches", "control", "profile"]


class Preflight(Record):
    """What was found of one arm's files before anything was started."""

    arm: str
    verdict: Literal["good", "refuse", "not looked at"]
    refused: tuple[str, ...]  # each check that refuses, with what was seen
    why: str | None  # why nothing was looked at


class Smoke(Record):
    """The short start of one arm before the first cell: proven ready, then stopped."""

    arm: str
    launch_dir: str | None  # relative to the study's folder; None where nothing could be launched
    ok: bool
    took_s: Annotated[float, Field(ge=0)]  # from the command to the proof, or to the failure
    stage: str | None  # last stage reached, of a failed start
    symptom: str | None  # verbatim, of a failed start


class Cell(Record):
    """One launch of one arm with all passes over the plan: the unit of a study."""

    index: Count  # place in the order of the study, from 0
    pair: Count  # paired launch, from 0
    arm: str
    role: CellRole
    order_seed: Count  # seed of the prompts' order; the same in every cell of a pair
    state: CellState
    attempt: Count  # how often it was started
    launch_dir: str | None  # relative to the study's folder
    run_dir: str | None  # relative to the study's folder
    stage: str | None  # of a failed cell
    symptom: str | None  # of a failed or dropped cell
    started_at_unix_s: float | None
    ended_at_unix_s: float | None
    took_s: float | None  # monotonic


class Study(Record):
    """What is to be run, in which order, and how far it has come."""

    schema_version: Version = SCHEMA_VERSION
    study_id: str
    name: str
    created_at_unix_s: float
    file: str  # the study file as named
    file_sha256: Sha256
    scenario: Json  # as resolved
    scenario_file: str
    scenario_sha256: Sha256
    prompts_sha256: dict[str, Sha256]
    baseline: str
    arms: tuple[str, ...]  # the baseline among them
    launches: Count
    passes: Count
    control_launches: Count
    order: StudyOrder
    seed: Count
    status: Literal["to-run", "planned"]
    budget_minutes: float | None
    drop_order: tuple[Droppable, ...]
    smokes: tuple[Smoke, ...]
    cells: tuple[Cell, ...]
    noticed: tuple[str, ...]
    preflights: tuple[Preflight, ...] = ()
    profile_launches: Count = 0  # of each arm, after the timed ones
    arms_sha256: dict[str, Sha256] = Field(default_factory=dict)  # of each arm's recipe as resolved
    environment: dict[str, str] = Field(default_factory=dict)  # what chooses devices and files, or was set
