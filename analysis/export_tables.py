"""``export RUN|STUDY --to csv|parquet``: the tables of ``export_columns`` in a folder, each read back and compared.

``tables.json`` beside them names every column with its type, counts the lines and gives each file's SHA-256. The folder
appears under its name once every table has been read again and every line was the same.
"""

import argparse
import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from analysis.errors import AnalysisError
from analysis.export_columns import TABLES, Value, cell_row, launch_row, run_rows, values
from analysis.export_csv import CsvTable, read_csv
from analysis.export_parquet import ParquetTable, pyarrow, read_parquet
from analysis.loading import load_run
from analysis.openmetrics import runs_of
from evidence.durable import sha256_file
from evidence.errors import EvidenceError
from evidence.inventory import find_folders
from evidence.launch_folder import open_launch
from evidence.layout import folder_kind
from evidence.reading import open_run
from evidence.study_folder import LAUNCHES, open_study

Form = Literal["csv", "parquet"]
DESCRIPTION = "tables.json"
_NOT_KNOWN = {
    "csv": 'an empty cell; in a nullable text column a text of quotation marks alone has two more, so "" is empty text',
    "parquet": "null",
}


@dataclass(slots=True)
class Exported:
    """What was exported: lines and hash of each table, and what could not be read."""

    out: Path
    form: Form
    n_lines: dict[str, int] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)


def export(path: Path, form: Form, out: Path) -> Exported:
    """Write the tables of a run or study into the new folder ``out`` and compare them with what was to be written.

    Raises EvidenceError where the evidence cannot be read or the folder cannot be written, AnalysisError where pyarrow
    is wanted and absent, or a table does not read back as it was.
    """
    if folder_kind(path) not in ("run", "study"):
        raise EvidenceError(path, "is no run and no study", "give the path of such a folder, runs/run-... say")
    if any(folder_kind(parent) != "unknown" for parent in out.absolute().parents):
        raise EvidenceError(out, "lies in a folder of evidence", "write it anywhere else with --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EvidenceError(out, "is there already", "give another folder with --out", writing=True)
    if form == "parquet":
        pyarrow()
    found = Exported(out, form)
    staging = out.absolute().with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        staging.mkdir(parents=True)
        digests = _write(path, staging, found)
        for name, expected in digests.items():
            _compare(staging, name, form, expected)
            found.n_lines[name] = len(expected)
            found.sha256[name] = sha256_file(staging / _file(name, form))
        (staging / DESCRIPTION).write_text(json.dumps(_description(found), indent=1) + "\n", encoding="utf-8")
        staging.replace(out)
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise EvidenceError(out, what, "give another folder with --out", writing=True) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return found


def lines_of(path: Path, left_out: list[dict[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every line of every table. A part of a study that cannot be read is named in ``left_out``."""
    study = open_study(path).study if folder_kind(path) == "study" else None
    for folder in runs_of(path):
        try:
            loaded, run = load_run(folder), open_run(folder)
        except EvidenceError as error:
            if study is None:
                raise
            left_out.append({"path": str(folder), "why": str(error)})
            continue
        yield from run_rows(run, loaded, _shown(folder))
        if study is None and loaded.launch is not None:
            yield "launches", launch_row(loaded.launch, loaded.manifest.launch_dir or "")
    if study is None:
        return
    for cell in study.cells:
        yield "cells", cell_row(cell, study.study_id)
    for info in find_folders(path / LAUNCHES) if (path / LAUNCHES).is_dir() else ():
        try:
            yield "launches", launch_row(open_launch(info.path).launch, _shown(info.path))
        except EvidenceError as error:
            left_out.append({"path": str(info.path), "why": str(error)})


def _write(path: Path, folder: Path, found: Exported) -> dict[str, "array[int]"]:
    """Write every table; the digest of each line by table. A run has no cells."""
    kind = CsvTable if found.form == "csv" else ParquetTable
    names = [name for name in TABLES if name != "cells" or folder_kind(path) == "study"]
    digests = {name: array("Q") for name in names}
    with ExitStack() as opened:
        tables = {
            name: opened.enter_context(closing(kind(folder / _file(name, found.form), TABLES[name]))) for name in names
        }
        for name, row in lines_of(path, found.left_out):
            line = values(TABLES[name], row)
            tables[name].write(line)
            digests[name].append(_digest(line))
        for table in tables.values():
            table.finish()
    return digests


def _compare(folder: Path, name: str, form: Form, expected: "array[int]") -> None:
    """Read a table again and compare it line by line with what was to be written."""
    read = read_csv if form == "csv" else read_parquet
    place = 0
    for place, line in enumerate(read(folder / _file(name, form), TABLES[name]), start=1):
        if place > len(expected) or _digest(line) != expected[place - 1]:
            what = f"line {place} of the table {name} does not read back as it was written"
            raise AnalysisError(what, "report it, and export to another form", path=folder, exit_code=3)
    if place != len(expected):
        what = f"the table {name} reads back with {place} lines of {len(expected)}"
        raise AnalysisError(what, "export again", path=folder, exit_code=3)


def _digest(line: tuple[Value, ...]) -> int:
    """64 bits of a line's SHA-256; a value and its type count."""
    return int.from_bytes(hashlib.sha256(repr(line).encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _shown(path: Path) -> str:
    """A path as text that a file can hold."""
    return str(path).encode("utf-8", "replace").decode()


def _file(name: str, form: Form) -> str:
    return name + (CsvTable.suffix if form == "csv" else ParquetTable.suffix)


def _description(found: Exported) -> dict[str, Any]:
    return {
        "form": found.form,
        "not_known": _NOT_KNOWN[found.form],
        "tables": {
            name: {
                "file": _file(name, found.form),
                "n_lines": found.n_lines[name],
                "sha256": found.sha256[name],
                "columns": [asdict(column) for column in TABLES[name]],
            }
            for name in found.n_lines
        },
        "left_out": found.left_out,
    }


def command(options: argparse.Namespace, form: Form) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, the JSON object and the lines. ``options`` has ``run`` (of a run or a study) and ``out``."""
    out = options.out or Path(f"{options.run.resolve().name}-{form}")
    found = export(options.run, form, out)
    report = {"out": str(out), **_description(found), "verified": True}
    told = [f"{out}: every table read again and compared, line by line"]
    told += [f"  {_file(name, form)}: {n} lines" for name, n in found.n_lines.items()]
    told += [f"left out: {one['path']}: {one['why']}" for one in found.left_out]
    return 0, report, told
