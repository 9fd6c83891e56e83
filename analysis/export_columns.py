"""What the tables of an export hold: named columns, taken from the records themselves and from what is derived.

    runs       one line a run: its manifest, and the verdict with its reasons
    requests   one line an ended request, warm-up and failures too: its record, and every derived measure
    chunks     one line a received chunk of an answer
    health     one line an interval of the load generator's own condition
    gpu        one line a GPU of a sample
    launches   one line a launch, the failed ones too
    cells      one line a cell of a study, the failed and the dropped ones too

A field of a record is a column of the same name, so a field that is added to a record is in the next export. A number
that is not known is None, and ``why`` says why by the measure's name.
"""

import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from analysis import identity
from analysis.loading import LoadedRun
from analysis.measures import Derived, Interval, Row
from analysis.verdict import SCOPES, by_scope, overall
from evidence.gpu_records import GpuReading, GpuSample
from evidence.level_records import Level
from evidence.reading import Run
from evidence.records import Health, Launch, Manifest, Request
from evidence.study_records import Cell
from evidence.worker_records import WorkerEvent

Kind = Literal["text", "integer", "number", "boolean", "json"]
Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``nullable``: None may stand in it. ``json`` holds JSON text."""

    name: str
    kind: Kind
    nullable: bool


MEASURES = (
    *("n_first_tokens", "ttft_s", "ttfv_s", "e2e_s", "tpot_s", "decode_tok_per_s", "tpot_common_s"),
    *("study_rate_tok_per_s", "gap_median_s", "gap_max_s"),
)
_PLAIN: dict[Any, Kind] = {str: "text", int: "integer", float: "number", bool: "boolean"}
BOUNDS = {"tpot_bounds_s": "tpot", "decode_bounds_tok_per_s": "decode"}


def columns_of(record: type[BaseModel], *, without: Sequence[str] = ()) -> tuple[Column, ...]:
    """A column for each field of a record."""
    return tuple(
        Column(name, *_kind(field.annotation)) for name, field in record.model_fields.items() if name not in without
    )


def _kind(annotation: Any) -> tuple[Kind, bool]:
    """What a field's type is as a column, and whether None is among it."""
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        nullable = len(parts) < len(typing.get_args(annotation))
        kinds = {_kind(part)[0] for part in parts}
        return (kinds.pop() if len(kinds) == 1 else "json"), nullable
    if typing.get_origin(annotation) is Literal:
        kinds = {_PLAIN.get(type(value), "json") for value in typing.get_args(annotation)}
        return (kinds.pop() if len(kinds) == 1 else "json"), False
    return _PLAIN.get(annotation, "json"), annotation is Any


_RUN = (Column("run_id", "text", False), Column("arm", "text", True))
TABLES: dict[str, tuple[Column, ...]] = {
    "runs": (
        Column("path", "text", False),
        *columns_of(Manifest, without=("arm",)),
        Column("arm", "text", True),
        Column("arm_recipe", "json", True),
        Column("sealed", "boolean", False),
        Column("verdict", "text", False),
        *(Column(f"verdict_{scope}", "text", False) for scope in SCOPES),
        Column("reasons", "json", False),
    ),
    "requests": (
        *_RUN,
        *columns_of(Request, without=("run_id", "chunks")),
        *(Column(name, "number", True) for name in MEASURES),
        *(Column(f"{lead}_{end}", "number", True) for lead in BOUNDS.values() for end in ("low", "high")),
        Column("n_gaps", "integer", False),
        Column("why", "json", False),
    ),
    "chunks": (
        *_RUN,
        *(Column(name, "integer", False) for name in ("worker", "sequence")),
        *(Column(name, "text", False) for name in ("plan_id", "prompt_id")),
        Column("place", "integer", False),
        Column("after_s", "number", False),
        Column("segment", "integer", False),
        Column("cumulative_tokens", "integer", True),
        Column("characters", "integer", False),
    ),
    "levels": (*_RUN, *columns_of(Level, without=("run_id",))),
    "workers": (*_RUN, *columns_of(WorkerEvent, without=("run_id",))),
    "health": (*_RUN, Column("worker", "integer", False), *columns_of(Health)),
    "gpu": (
        *_RUN,
        *columns_of(GpuSample, without=("run_id", "gpus")),
        *(Column(f"gpu_{one.name}", one.kind, True) for one in columns_of(GpuReading)),
    ),
    "launches": (Column("path", "text", False), *columns_of(Launch)),
    "cells": (Column("study_id", "text", False), *columns_of(Cell)),
}


def run_rows(run: Run, loaded: LoadedRun, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every line of one run, with the table it belongs to."""
    who = {"run_id": loaded.manifest.run_id, "arm": identity.arm_name(loaded.manifest)}
    yield "runs", _run(loaded, path)
    for row in loaded.rows:
        yield "requests", {**dict(row.request), **who, **_measures(row)}
        one = row.request
        known = {name: getattr(one, name) for name in ("worker", "sequence", "plan_id", "prompt_id")}
        for place, mark in enumerate(one.chunks):
            chunk = zip(("after_s", "segment", "cumulative_tokens", "characters"), mark, strict=True)
            yield "chunks", {**who, **known, "place": place, **dict(chunk)}
    for level in run.levels:
        yield "levels", {**dict(level), **who}
    for event in run.workers:
        yield "workers", {**dict(event), **who}
    for worker, lines in run.health.items():
        for line in lines:
            yield "health", {**dict(line), **who, "worker": worker}
    for sample in run.gpu:
        for reading in sample.gpus or (None,):
            fields = {f"gpu_{name}": getattr(reading, name, None) for name in GpuReading.model_fields}
            yield "gpu", {**dict(sample), **who, **fields}


def launch_row(launch: Launch, path: str) -> dict[str, Any]:
    """A line of ``launches``."""
    return {"path": path, **dict(launch)}


def cell_row(cell: Cell, study_id: str) -> dict[str, Any]:
    """A line of ``cells``."""
    return {"study_id": study_id, **dict(cell)}


def values(columns: Sequence[Column], row: Mapping[str, Any]) -> tuple[Value, ...]:
    """A line in its columns' order and types; JSON as text. Fields that are no column are left out."""
    return tuple(_value(column, row[column.name]) for column in columns)


def _value(column: Column, value: Any) -> Value:
    if value is None:
        if not column.nullable:
            raise ValueError(f"{column.name} is None")
        return None
    if column.kind == "json":
        return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)
    if column.kind == "number":
        return float(value)
    if column.kind == "integer":
        return int(value)
    return bool(value) if column.kind == "boolean" else str(value)


def _plain(value: Any) -> Any:
    """Records inside a field as plain JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _run(loaded: LoadedRun, path: str) -> dict[str, Any]:
    scopes = by_scope(loaded.reasons)
    return {
        **dict(loaded.manifest),
        "path": path,
        "arm": identity.arm_name(loaded.manifest),
        "arm_recipe": loaded.manifest.arm,
        "sealed": loaded.seal is not None,
        "verdict": overall(loaded.reasons),
        **{f"verdict_{scope}": scopes[scope] for scope in SCOPES},
        "reasons": [asdict(reason) for reason in loaded.reasons],
    }


def _measures(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"n_gaps": row.measures.n_gaps}
    why: dict[str, str | None] = {}
    for name in MEASURES:
        one: Derived = getattr(row.measures, name)
        found[name] = one.value
        if one.value is None:
            why[name] = one.why
    for name, lead in BOUNDS.items():
        both: Interval = getattr(row.measures, name)
        found[f"{lead}_low"], found[f"{lead}_high"] = both.bounds or (None, None)
        if both.bounds is None:
            why[name] = both.why
    return {**found, "why": why}
