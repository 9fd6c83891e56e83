"""Tables of an export: every field by name, hostile texts unchanged, unknown apart from empty, nothing unread."""

import argparse
import csv
import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path

import pytest
import run_factory as factory
import studies
from hypothesis import given
from hypothesis import strategies as st

from analysis import export_tables
from analysis.errors import AnalysisError
from analysis.export import add_arguments, command
from analysis.export_columns import TABLES, Column, columns_of, values
from analysis.export_csv import CsvTable, read_csv
from analysis.export_tables import export
from analysis.inventory import inventory
from evidence.errors import EvidenceError
from evidence.gpu_records import GpuSample
from evidence.level_records import Level
from evidence.records import ConnectionFacts, Health, Launch, Manifest, Request
from evidence.study_records import Cell
from evidence.worker_records import WorkerEvent

HOSTILE = [
    "",
    '"',
    '""',
    '"""',
    "a,b;c\td",
    "line\nbreak\r\nand\rmore\n",
    "\x00 and \x00",
    "=HYPERLINK(1)",
    "emoji 🙂 and \u0301 and \u202e and \u2028",
    "\\N",
    "NA",
    "None",
    " leading and trailing ",
    "'quoted'",
    "\ufeffbom",
    "x" * 200_000,
]


def run_command(*words: str | Path) -> tuple[int, dict, list[str]]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return command(parser.parse_args([str(word) for word in words]))


def hostile_run(runs: Path) -> Path:
    requests = [
        factory.request(
            prompt_id=f"code_{n:02d}",
            output_text=text,
            output_sha256=hashlib.sha256(text.encode()).hexdigest(),
            reasoning_text=text,
            model_served=text or None,
            server_fields={"timings": {"text": text, "n": n}},
            stream_problems=(text,),
        )
        for n, text in enumerate(HOSTILE)
    ]
    return factory.make_run(runs, requests, label="hostile, label\n", arm=None)


def table(folder: Path, name: str) -> list[dict[str, object]]:
    names = [column.name for column in TABLES[name]]
    return [dict(zip(names, line, strict=True)) for line in read_csv(folder / f"{name}.csv", TABLES[name])]


def test_hostile_texts_come_back_as_they_were(tmp_path):
    run = hostile_run(tmp_path / "runs")
    code, report, _ = run_command(run, "--to", "csv", "--out", tmp_path / "out")
    assert code == 0 and report["verified"] is True
    rows = table(tmp_path / "out", "requests")
    assert [row["output_text"] for row in rows] == HOSTILE
    assert [row["reasoning_text"] for row in rows] == HOSTILE
    assert [row["model_served"] for row in rows] == [text or None for text in HOSTILE]
    assert [json.loads(str(row["server_fields"]))["timings"]["text"] for row in rows] == HOSTILE
    assert {row["arm"] for row in rows} == {"hostile, label\n"}


def test_an_ordinary_reader_gets_the_texts_too(tmp_path):
    run_command(hostile_run(tmp_path / "runs"), "--to", "csv", "--out", tmp_path / "out")
    before = csv.field_size_limit(1 << 20)
    try:
        with (tmp_path / "out" / "requests.csv").open(newline="", encoding="utf-8") as opened:
            assert [row["output_text"] for row in csv.DictReader(opened)] == HOSTILE
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("record", "name", "elsewhere"),
    [
        (Request, "requests", {"chunks"}),
        (Manifest, "runs", set()),
        (Health, "health", set()),
        (GpuSample, "gpu", {"gpus"}),
        (Launch, "launches", set()),
        (Cell, "cells", set()),
        (Level, "levels", set()),
        (WorkerEvent, "workers", set()),
    ],
)
def test_every_field_of_a_record_is_a_column(record, name, elsewhere):
    names = [column.name for column in TABLES[name]]
    assert set(record.model_fields) - elsewhere <= set(names)
    assert len(names) == len(set(names))


def test_the_types_of_columns_follow_the_records():
    found = {column.name: (column.kind, column.nullable) for column in columns_of(Request)}
    assert found["http_status"] == ("integer", True)
    assert found["output_text"] == ("text", False)
    assert found["end_after_s"] == ("number", True)
    assert found["phase"] == ("text", False)
    assert found["connection"] == ("json", True)
    assert found["stream_problems"] == ("json", False)
    assert {column.name: column.kind for column in columns_of(ConnectionFacts)}["reused"] == "boolean"


def test_measures_stand_beside_the_record_with_the_reason_where_there_is_none(tmp_path):
    one = factory.request(chunks=[(0.1, 0, 1, 5), (0.3, 1, 3, 5)])
    none = factory.request(chunks=[(0.1, 0, 2, 5)], prompt_id="code_02")
    run = factory.make_run(tmp_path / "runs", [one, none])
    run_command(run, "--to", "csv", "--out", tmp_path / "out")
    first, second = table(tmp_path / "out", "requests")
    assert first["tpot_s"] == pytest.approx(0.1) and first["decode_tok_per_s"] == pytest.approx(10)
    assert first["tpot_low"] == first["tpot_high"] == first["tpot_s"]
    assert second["tpot_s"] is None
    assert "tpot_s" in json.loads(str(second["why"])) and "tpot_s" not in json.loads(str(first["why"]))
    chunks = table(tmp_path / "out", "chunks")
    assert [(row["prompt_id"], row["place"], row["cumulative_tokens"]) for row in chunks] == [
        ("code_01", 0, 1),
        ("code_01", 1, 3),
        ("code_02", 0, 2),
    ]
    told = table(tmp_path / "out", "runs")[0]
    assert (told["sealed"], told["arm"]) == (True, "cpu-tiny") and told["verdict"] in ("VALID", "DEGRADED", "INVALID")


def test_a_study_brings_its_cells_and_failed_launches(tmp_path):
    path, _ = studies.small_study(tmp_path / "runs")
    _, report, lines = run_command(path, "--to", "csv", "--out", tmp_path / "out")
    launches = {row["launch_id"]: row for row in table(tmp_path / "out", "launches")}
    assert launches[studies.FAILED]["outcome"] == "failed" and launches[studies.SERVED]["outcome"] == "stopped"
    cells = table(tmp_path / "out", "cells")
    assert [(row["arm"], row["state"], row["stage"]) for row in cells] == [
        ("cpu-tiny", "done", None),
        ("cpu-bad", "failed", "draft"),
    ]
    assert cells[1]["symptom"] == "main: draft vocabulary differs\n\x00weird"
    outcomes = [row["outcome"] for row in table(tmp_path / "out", "requests")]
    assert outcomes == ["completed", "truncated"]
    assert report["left_out"] == [] and any("cells.csv: 2 lines" in line for line in lines)


def test_a_run_of_a_study_that_cannot_be_read_is_named(tmp_path):
    path, _ = studies.small_study(tmp_path / "runs", seal=False)
    (path / "runs" / "run-test" / "manifest.json").write_text("{")
    _, report, lines = run_command(path, "--to", "csv", "--out", tmp_path / "out")
    assert [Path(one["path"]).name for one in report["left_out"]] == ["run-test"]
    assert any(line.startswith("left out: ") for line in lines)
    assert table(tmp_path / "out", "requests") == []


def test_the_description_names_every_column_and_hashes_every_file(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    run_command(run, "--to", "csv", "--out", tmp_path / "out")
    told = json.loads((tmp_path / "out" / "tables.json").read_text())
    assert set(told["tables"]) == set(TABLES) - {"cells"}
    for one in told["tables"].values():
        data = (tmp_path / "out" / one["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        header = next(csv.reader([data.decode().split("\r\n")[0]]))
        assert header == [column["name"] for column in one["columns"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"]


def test_columns_are_found_by_name_wherever_they_stand(tmp_path):
    columns = [Column("a", "integer", False), Column("b", "text", True)]
    path = tmp_path / "t.csv"
    path.write_text("b,a\r\nx,1\r\n")
    assert list(read_csv(path, columns)) == [(1, "x")]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a,c\r\n1,x\r\n", "columns differ"),
        ("a\r\n1\r\n", "columns differ"),
        ("a,b\r\n1\r\n", "another number of cells"),
        ("a,b\r\n1,x,y\r\n", "another number of cells"),
        ("a,b\r\n1.5,x\r\n", "cannot be read"),
        ('a,b\r\n1,""""\r\n', "cannot be read"),
    ],
)
def test_a_table_shifted_or_short_is_refused_by_line_and_column(tmp_path, text, seen):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(AnalysisError, match=seen):
        list(read_csv(path, [Column("a", "integer", False), Column("b", "text", True)]))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text('"\r\n,\x00 a', max_size=8)
LINES = st.lists(
    st.tuples(
        TEXTS,
        st.none() | TEXTS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.booleans(),
    )
)
COLUMNS = [
    Column("text", "text", False),
    Column("text_or_none", "text", True),
    Column("integer", "integer", True),
    Column("number", "number", True),
    Column("boolean", "boolean", True),
]


@given(LINES)
def test_any_line_reads_back_to_the_last_bit(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        written = CsvTable(path, COLUMNS)
        for line in lines:
            written.write(line)
        written.close()
        found = list(read_csv(path, COLUMNS))
    assert found == lines
    for one, other in zip(found, lines, strict=True):
        if other[3] is not None:
            assert math.copysign(1, one[3]) == math.copysign(1, other[3])


def test_a_line_that_does_not_read_back_stops_the_export(tmp_path, monkeypatch):
    run = factory.make_run(tmp_path / "runs", [factory.request()])

    def altered(path, columns):
        for line in read_csv(path, columns):
            yield tuple("changed" if value == factory.TEXT else value for value in line)

    monkeypatch.setattr(export_tables, "read_csv", altered)
    with pytest.raises(AnalysisError, match="line 1 of the table requests") as caught:
        export(run, "csv", tmp_path / "out")
    assert caught.value.exit_code == 3 and not (tmp_path / "out").exists()


def test_a_lost_line_stops_the_export(tmp_path, monkeypatch):
    run = factory.make_run(tmp_path / "runs", [factory.request(), factory.request()])
    monkeypatch.setattr(export_tables, "read_csv", lambda path, columns: list(read_csv(path, columns))[:-1])
    with pytest.raises(AnalysisError, match=r"lines of"):
        export(run, "csv", tmp_path / "out")


def test_an_unknown_value_in_a_column_that_needs_one_is_refused():
    with pytest.raises(ValueError, match="a is None"):
        values([Column("a", "text", False)], {"a": None})


def test_exports_never_land_in_evidence_or_over_what_is_there(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    with pytest.raises(EvidenceError, match="folder of evidence"):
        export(run, "csv", run / "tables")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(EvidenceError, match="there already") as caught:
        export(run, "csv", tmp_path / "full")
    assert caught.value.exit_code == 3
    with pytest.raises(EvidenceError, match="no run and no study"):
        export(tmp_path, "csv", tmp_path / "out")


def test_parquet_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AnalysisError, match=r"requirements-export\.txt") as caught:
        run_command(run, "--to", "parquet", "--out", tmp_path / "out")
    assert caught.value.exit_code == 2 and not (tmp_path / "out").exists()


def test_parquet_holds_the_same_lines(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="install requirements-export.txt to test Parquet")
    run = hostile_run(tmp_path / "runs")
    run_command(run, "--to", "parquet", "--out", tmp_path / "pq")
    run_command(run, "--to", "csv", "--out", tmp_path / "csv")
    for name in ("runs", "requests", "chunks"):
        assert parquet.read_table(tmp_path / "pq" / f"{name}.parquet").to_pylist() == table(tmp_path / "csv", name)


def test_the_other_forms_are_dispatched_to(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    code, report, _ = run_command(run, "--to", "openmetrics", "--out", tmp_path / "x.om")
    assert code == 0 and report["run_ids"] == ["run-test"] and (tmp_path / "x.om").is_file()
    code, report, _ = run_command(run, "--to", "bundle", "--out", tmp_path / "x.tar.gz")
    assert code == 0 and report["verified"] is True


def test_the_tables_of_a_run_are_named_after_it(tmp_path, monkeypatch):
    run = factory.make_run(tmp_path / "runs", [factory.request()])
    monkeypatch.chdir(tmp_path)
    assert run_command(run, "--to", "csv")[1]["out"] == "run-test-csv"


def test_a_study_that_is_being_written_is_listed_without_a_verdict(tmp_path):
    _, writer = studies.small_study(tmp_path / "runs", seal=False, writing=True)
    try:
        (entry,) = inventory(tmp_path / "runs")
    finally:
        writer.close()
    assert (entry.state, entry.verdict, entry.codes) == ("being written", None, ())
    assert entry.why is not None and "has no verdict yet" in entry.why
