"""Each kind of damage to a folder is found, and named by file and line."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence_samples as sample
import pytest

from evidence import frames
from evidence.errors import EvidenceError, Problem
from evidence.reading import open_run, read_segments
from evidence.records import WireRef
from evidence.verify import verify

STARTED, REQUESTS = "workers/0/started.jsonl", "workers/0/requests.jsonl"
WIRE = "workers/0/wire/segments.bin"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.small_run(tmp_path_factory.mktemp("sealed"), seal=True)


def edit(path: Path, name: str, line: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change one line (from 1) of a file of JSON lines."""
    lines = (path / name).read_bytes().splitlines(keepends=True)
    fields = json.loads(lines[line - 1])
    change(fields)
    lines[line - 1] = json.dumps(fields).encode() + b"\n"
    (path / name).write_bytes(b"".join(lines))


def sealed_again(path: Path) -> None:
    """Give a changed folder hashes that fit, so that only the change itself is left to be found."""
    seal = json.loads((path / "seal.json").read_bytes())
    there = [file for file in path.rglob("*") if file.is_file() and file.name != "seal.json"]
    seal["files"] = {f.relative_to(path).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in there}
    (path / "seal.json").write_text(json.dumps(seal))


def repeat_line(path: Path, name: str, line: int) -> None:
    lines = (path / name).read_bytes().splitlines(keepends=True)
    (path / name).write_bytes(b"".join([*lines, lines[line - 1]]))


def drop_line(path: Path, name: str, line: int) -> None:
    lines = (path / name).read_bytes().splitlines(keepends=True)
    (path / name).write_bytes(b"".join(lines[: line - 1] + lines[line:]))


def change_output(fields: dict[str, Any]) -> None:
    fields["output_text"] += "!"


def set_wire(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["wire"].update(changes)


CASES: list[tuple[str, Callable[[Path], object], set[tuple[str, str, int | None]]]] = [
    (
        "an unknown field",
        lambda p: edit(p, REQUESTS, 2, lambda f: f.update(bogus=1)),
        {("schema_violation", REQUESTS, 2)},
    ),
    ("a field gone", lambda p: edit(p, STARTED, 1, lambda f: f.pop("plan_id")), {("schema_violation", STARTED, 1)}),
    (
        "no version",
        lambda p: edit(p, STARTED, 1, lambda f: f.pop("schema_version")),
        {("schema_violation", STARTED, 1)},
    ),
    (
        "another version",
        lambda p: edit(p, REQUESTS, 3, lambda f: f.update(schema_version=2)),
        {("unknown_schema_version", REQUESTS, 3)},
    ),
    ("no JSON", lambda p: (p / "scrapes.jsonl").write_bytes(b"x\n"), {("schema_violation", "scrapes.jsonl", 1)}),
    (
        "a plan line of no use",
        lambda p: (p / "plan.jsonl").write_bytes(b"[]\n"),
        {("schema_violation", "plan.jsonl", 1)},
    ),
    ("an end twice", lambda p: repeat_line(p, REQUESTS, 2), {("sequence_duplicate", REQUESTS, 5)}),
    (
        "a start twice",
        lambda p: repeat_line(p, STARTED, 2),
        {("sequence_duplicate", STARTED, 5), ("started_twice", STARTED, 5)},
    ),
    (
        "an end lost",
        lambda p: drop_line(p, REQUESTS, 2),
        {("unfinished", STARTED, 2), ("counts_mismatch", "seal.json", None)},
    ),
    ("a start lost", lambda p: drop_line(p, STARTED, 2), {("ended_without_started", REQUESTS, 2)}),
    (
        "another request's start",
        lambda p: edit(p, STARTED, 2, lambda f: f.update(plan_id="m0002")),
        {("ended_without_started", REQUESTS, 2), ("started_twice", STARTED, 3)},
    ),
    (
        "a request of no plan",
        lambda p: [edit(p, name, 2, lambda f: f.update(plan_id="m0999")) for name in (STARTED, REQUESTS)],
        {
            ("plan_id_unknown", STARTED, 2),
            ("plan_id_unknown", REQUESTS, 2),
            ("planned_not_started", "plan.jsonl", None),
        },
    ),
    (
        "another prompt",
        lambda p: edit(p, REQUESTS, 2, lambda f: f.update(prompt_id="x")),
        {("differs_from_plan", REQUESTS, 2)},
    ),
    ("another run's line", lambda p: edit(p, REQUESTS, 2, lambda f: f.update(run_id="x")), {("wrong_id", REQUESTS, 2)}),
    (
        "another run's scrape",
        lambda p: edit(p, "scrapes.jsonl", 2, lambda f: f.update(run_id="x")),
        {("wrong_id", "scrapes.jsonl", 2)},
    ),
    (
        "another worker's line",
        lambda p: edit(p, REQUESTS, 2, lambda f: f.update(worker=7)),
        {("wrong_worker", REQUESTS, 2)},
    ),
    ("an output changed", lambda p: edit(p, REQUESTS, 4, change_output), {("output_sha256_mismatch", REQUESTS, 4)}),
    (
        "an outcome changed",
        lambda p: edit(p, REQUESTS, 4, lambda f: f.update(outcome="no_usage")),
        {("counts_mismatch", "seal.json", None)},
    ),
    (
        "no reason for no wire",
        lambda p: edit(p, REQUESTS, 2, lambda f: f.update(wire=None)),
        {("wire_without_reason", REQUESTS, 2)},
    ),
    (
        "wire beyond the end",
        lambda p: edit(p, REQUESTS, 4, set_wire(n_bytes=9999)),
        {("wire_out_of_range", REQUESTS, 4)},
    ),
    ("wire in the head", lambda p: edit(p, REQUESTS, 1, set_wire(offset=0)), {("wire_out_of_range", REQUESTS, 1)}),
    ("wire elsewhere", lambda p: edit(p, REQUESTS, 1, set_wire(file="../x")), {("wire_out_of_range", REQUESTS, 1)}),
    (
        "wrong frame count",
        lambda p: edit(p, REQUESTS, 2, set_wire(n_segments=3)),
        {("wire_frames_mismatch", REQUESTS, 2)},
    ),
    ("half a frame", lambda p: edit(p, REQUESTS, 2, set_wire(n_bytes=30)), {("wire_frames_mismatch", REQUESTS, 2)}),
    ("another's frames", lambda p: edit(p, REQUESTS, 2, set_wire(offset=16)), {("wire_frames_mismatch", REQUESTS, 2)}),
    ("no wire file", lambda p: (p / WIRE).write_bytes(b"GIF89a" * 9), {("schema_violation", WIRE, None)}),
    (
        "a plan changed",
        lambda p: edit(p, "plan.jsonl", 2, lambda f: f.update(x=1)),
        {("plan_digest_mismatch", "plan.jsonl", None)},
    ),
    (
        "a plan line twice",
        lambda p: repeat_line(p, "plan.jsonl", 1),
        {("plan_id_duplicate", "plan.jsonl", 6), ("plan_count_mismatch", "plan.jsonl", None)},
    ),
    ("no plan", lambda p: (p / "plan.jsonl").unlink(), {("plan_missing", "plan.jsonl", None)}),
    ("no manifest", lambda p: (p / "manifest.json").unlink(), {("manifest_missing", "manifest.json", None)}),
    (
        "a manifest cut",
        lambda p: (p / "manifest.json").write_bytes(b"{"),
        {("manifest_unreadable", "manifest.json", None)},
    ),
    (
        "torn after the seal",
        lambda p: (p / STARTED).open("ab").write(b'{"x"'),
        {("torn_tail", STARTED, None), ("counts_mismatch", "seal.json", None)},
    ),
]


@pytest.mark.parametrize(("change", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_damage_is_named_by_file_and_line_even_where_the_hashes_fit(
    sealed: Path, tmp_path: Path, change: Callable[[Path], object], expected: set[tuple[str, str, int | None]]
) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    change(path)
    assert "hash_mismatch" in {p.code for p in verify(path)} or "file_missing" in {p.code for p in verify(path)}
    sealed_again(path)
    found = {(problem.code, problem.file, problem.line) for problem in verify(path)}
    assert expected <= found, found


def test_a_changed_a_missing_and_an_extra_file_are_told_apart(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    (path / "server/models.json").write_bytes(b"{}")
    (path / "noticed.jsonl").unlink()
    (path / "workers/0/late.txt").write_text("")
    assert set(verify(path)) == {
        Problem("hash_mismatch", "its SHA-256 is not the one in the seal", "server/models.json"),
        Problem("file_extra", "the seal does not name it", "workers/0/late.txt"),
        Problem("file_missing", "the seal names it and it is not there", "noticed.jsonl"),
    }


def test_a_folder_without_its_seal_says_so(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    (path / "seal.json").unlink()
    assert [problem.code for problem in verify(path)] == ["seal_missing"]


def test_counts_in_the_seal_that_do_not_sum_are_found(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    seal = json.loads((path / "seal.json").read_bytes())
    (path / "seal.json").write_text(json.dumps(seal | {"completed": 4, "id": "run-other"}))
    details = [problem.detail for problem in verify(path)]
    assert "started is 5, the ways of ending sum to 6" in details
    assert "completed is 4, the folder's lines give 3" in details
    assert f"id 'run-other', but the manifest has '{sample.RUN_ID}'" in details


def test_a_missing_number_in_the_sequences_is_found(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    for name in (STARTED, REQUESTS):
        drop_line(path, name, 2)
    problems = [problem for problem in verify(path) if problem.code == "sequence_gap"]
    assert problems == [Problem("sequence_gap", "no line has sequence 1", STARTED)]


def test_a_manifest_of_a_later_version_is_refused_by_its_number(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    manifest = json.loads((path / "manifest.json").read_bytes()) | {"schema_version": 2}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        EvidenceError, match=r"schema version 2 of Manifest.*with the version of this program that wrote"
    ):
        open_run(path)


def test_a_line_that_meets_no_schema_is_left_out_and_told(sealed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    edit(path, REQUESTS, 2, lambda fields: fields.update(bogus=1))
    run = open_run(path)
    assert [one.plan_id for one in run.requests] == ["m0000", "m0002", "m0003", "m0004"]
    assert str(run.problems[0]) == (
        f"{REQUESTS}:2: schema_violation: Request: bogus: Extra inputs are not permitted, not 1"
    )


def test_segments_are_refused_where_the_reference_is_wrong(sealed: Path) -> None:
    run = open_run(sealed)
    for ref, said in (
        (WireRef(file=WIRE, offset=16, n_bytes=10_000, n_segments=2), "are not all there"),
        (WireRef(file=WIRE, offset=17, n_bytes=50, n_segments=1), "hold 0 whole frames, not 1"),
        (WireRef(file="../../etc/passwd", offset=16, n_bytes=1, n_segments=1), "is no wire file"),
        (WireRef(file="workers/9/wire/segments.bin", offset=16, n_bytes=1, n_segments=1), "No such file"),
    ):
        with pytest.raises(EvidenceError, match=said):
            read_segments(run, ref)


def test_paths_that_are_no_run_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"is no folder; give the path of a run folder"):
        verify(tmp_path / "absent")
    with pytest.raises(EvidenceError, match=r"is no run folder: it has no manifest.json"):
        open_run(tmp_path)


def test_the_wire_format_is_the_documented_one() -> None:
    assert frames.MAGIC == b"wire-segments 1\n"
    assert frames.encode(3, [(7, 9, b"ab"), (None, 1, b"")]) == (
        b"\3\0\0\0" + b"\7" + bytes(7) + b"\11" + bytes(7) + b"\2\0\0\0ab"
        b"\3\0\0\0" + bytes(7) + b"\x80" + b"\1" + bytes(7) + b"\0\0\0\0"
    )


@pytest.mark.parametrize("name", ["manifest.json", "plan.jsonl", STARTED, REQUESTS, WIRE, "scrapes.jsonl"])
def test_a_pipe_in_the_place_of_a_sealed_file_is_found_and_never_waited_for(
    sealed: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(sealed, path)
    (path / name).unlink()
    os.mkfifo(path / name)
    assert Problem("hash_mismatch", "it is no regular file any more", name) in verify(path)
