"""Writing a run folder: the order of files, what is refused, full disks, the seal."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import evidence_samples as sample
import pytest

from evidence.durable import AppendFile
from evidence.errors import EvidenceError
from evidence.layout import new_id
from evidence.reading import open_run, read_segments
from evidence.records import Request
from evidence.recover import recover
from evidence.verify import verify
from evidence.worker import ForeignWorker

TESTS = Path(__file__).parent


def codes(path: Path) -> list[str]:
    return sorted({problem.code for problem in verify(path)})


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere; become nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_whole_run_reads_back_as_it_was_written_and_verifies(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path, seal=True)
    assert verify(path) == ()
    run = open_run(path)
    assert run.seal is not None
    assert run.seal.recovered is False
    assert (run.seal.planned, run.seal.started, run.seal.completed, run.seal.cancelled) == (5, 5, 3, 1)
    assert run.seal.failed == {"truncated": 1}
    assert run.seal.unfinished == 0
    assert run.seal.noticed == ("the sample was made",)
    assert [one.plan_id for one in run.requests] == ["m0000", "m0001", "m0002", "m0003", "m0004"]
    assert run.requests[0].output_text == "def f():\n    return 'é'\n"
    assert [line["plan_id"] for line in run.plan] == [f"m{n:04d}" for n in range(5)]
    assert [one.role for one in run.scrapes] == ["before", "after"]
    assert set(run.health) == {0, 1}
    assert run.server["models.json"].read_bytes() == b'{"data": [{"id": "m"}]}'
    for request in run.requests:
        assert request.wire is not None
        assert read_segments(run, request.wire) == sample.SEGMENTS


def test_the_seal_names_every_file_but_itself(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path, seal=True)
    there = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert set(json.loads((path / "seal.json").read_bytes())["files"]) == there - {"seal.json"}


def test_manifest_and_plan_are_on_file_before_any_request(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    run.worker(0).started(sample.started(0))
    assert json.loads((run.path / "manifest.json").read_bytes())["run_id"] == sample.RUN_ID
    assert len((run.path / "plan.jsonl").read_bytes().splitlines()) == 5
    assert (run.path / "workers/0/started.jsonl").read_bytes().endswith(b"\n")  # flushed before anything is sent
    run.close()


def test_a_run_folder_that_exists_is_never_written_over(tmp_path: Path) -> None:
    sample.create(tmp_path).close()
    before = (tmp_path / sample.RUN_ID / "manifest.json").read_bytes()
    with pytest.raises(EvidenceError, match=r"cannot be written \(File exists\); choose another") as caught:
        sample.create(tmp_path)
    assert caught.value.exit_code == 3
    assert (tmp_path / sample.RUN_ID / "manifest.json").read_bytes() == before


def test_no_write_permission_is_told_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with unprivileged(), pytest.raises(EvidenceError, match=r"Permission denied.*--run-dir") as caught:
        sample.create(tmp_path)
    assert caught.value.exit_code == 3


def test_a_runs_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(EvidenceError, match="cannot be written"):
        sample.create(tmp_path / "runs")


def test_a_manifest_of_another_plan_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    lines = sample.plan(5)
    for changes, said in (({"plan_sha256": "f" * 64}, "digest"), ({"n_planned": 4}, "the manifest says 4")):
        with pytest.raises(EvidenceError, match=said):
            sample.RunWriter.create(tmp_path, sample.RUN_ID, sample.manifest(lines, **changes), lines)
    assert list(tmp_path.iterdir()) == []


def test_a_write_after_the_seal_is_refused(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    worker = run.worker(0)
    sample.play(worker, 0)
    run.seal()
    for write in (
        lambda: worker.started(sample.started(1)),
        lambda: worker.ended(sample.ended(0)),
        lambda: worker.health(sample.health()),
        lambda: worker.wire(0, sample.SEGMENTS),
        lambda: run.scrape(sample.scrape()),
        lambda: run.server_body("late.json", b"{}"),
        lambda: run.worker(1),
        lambda: run.seal(),
        lambda: ForeignWorker(run.path, 1),
    ):
        with pytest.raises(EvidenceError, match=r"nothing may be added|is closed"):
            write()
    assert "hash_mismatch" not in codes(run.path)


@pytest.mark.parametrize(
    "broken",
    [
        sample.ended(0).model_copy(update={"sequence": "0"}),
        sample.ended(0).model_copy(update={"end_after_s": float("nan")}),
        sample.ended(0).model_copy(update={"usage": {"completion_tokens": float("nan")}}),
        sample.ended(0).model_copy(update={"outcome": "fine"}),
        sample.ended(0).model_copy(update={"bogus": 1}),
        sample.ended(0).model_copy(update={"schema_version": 2}),
        sample.ended(0).model_copy(update={"server_fields": {"x": object()}}),
        Request.model_construct(**{k: v for k, v in dict(sample.ended(0)).items() if k != "domain"}, domain=None),
    ],
)
def test_a_record_changed_behind_its_schema_is_refused_when_appended(tmp_path: Path, broken: Request) -> None:
    run = sample.create(tmp_path)
    run.worker(0).started(sample.started(0))
    with pytest.raises(EvidenceError) as caught:
        run.worker(0).ended(broken)
    assert caught.value.exit_code == 3
    assert (run.path / "workers/0/requests.jsonl").read_bytes() == b""
    run.close()


def test_starts_and_ends_that_do_not_fit_are_refused_when_appended(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    worker = run.worker(0)
    worker.started(sample.started(0))
    kept = worker.wire(0, sample.SEGMENTS)
    for wrong, said in (
        (lambda: worker.started(sample.started(2)), "sequence 2, where 1 comes next"),
        (lambda: worker.started(sample.started(1, plan_id="m0000")), "started before"),
        (lambda: worker.started(sample.started(1, plan_id="m9999")), "not in the plan"),
        (lambda: worker.started(sample.started(1, worker=1)), "worker 1, in run"),
        (lambda: worker.ended(sample.ended(1)), "not under way"),
        (lambda: worker.ended(sample.ended(0, plan_id="m0001")), "not under way"),
        (lambda: worker.ended(sample.ended(0)), "wire is not what was kept"),
        (lambda: worker.ended(sample.ended(0, wire=kept, output_sha256="0" * 64)), "output_sha256"),
        (lambda: worker.ended(sample.ended(0, wire=kept, domain="prose")), "domain is 'prose', in the plan 'code'"),
        (lambda: worker.wire(0, sample.SEGMENTS), "kept already"),
        (lambda: worker.wire(1, sample.SEGMENTS), "not under way"),
    ):
        with pytest.raises(EvidenceError, match=said):
            wrong()
    worker.ended(sample.ended(0, wire=kept))
    with pytest.raises(EvidenceError, match="not under way"):
        worker.ended(sample.ended(0, wire=kept))
    run.seal()
    assert codes(run.path) == ["planned_not_started"]


def test_raw_segments_stop_at_the_manifests_limit_and_the_next_small_one_still_fits(tmp_path: Path) -> None:
    run = sample.create(tmp_path, wire_limit_bytes=400, n_workers=1)
    worker = run.worker(0)
    refs = []
    for sequence, n_bytes in enumerate((200, 200, 50)):
        worker.started(sample.started(sequence))
        refs.append(worker.wire(sequence, [(None, 1, b"x" * n_bytes)]))
        missing = None if refs[-1] else "beyond the limit"
        worker.ended(sample.ended(sequence, wire=refs[-1], wire_missing=missing))
    run.seal()
    assert [ref is None for ref in refs] == [False, True, False]
    assert (run.path / "workers/0/wire/segments.bin").stat().st_size <= 400
    assert codes(run.path) == ["planned_not_started"]


def test_unfinished_requests_are_sealed_counted_and_noticed(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    sample.play(run.worker(0), 0)
    run.worker(0).started(sample.started(1))
    run.worker(0).wire(1, sample.SEGMENTS)
    seal = run.seal()
    assert (seal.started, seal.completed, seal.unfinished) == (2, 1, 1)
    assert any("unfinished" in text for text in seal.noticed)
    assert any("3 planned requests were never started" in text for text in seal.noticed)
    assert codes(run.path) == ["planned_not_started", "unfinished", "wire_unreferenced"]


def test_sealing_refuses_counts_that_do_not_balance_and_recovery_keeps_the_notice(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    sample.play(run.worker(0), 0)
    sample.play(run.worker(0), 1)
    file = run.path / "workers/0/started.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(EvidenceError, match=r"the seal is refused.*recover") as caught:
        run.seal()
    assert caught.value.exit_code == 3
    assert not (run.path / "seal.json").exists()
    seal = recover(run.path)
    assert any("ended_without_started" in text for text in seal.noticed)
    assert any("2 starts and 2 ends were written, 1 and 2 are in the files" in text for text in seal.noticed)


def test_a_worker_process_holds_the_run_open_until_it_closes(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    with ForeignWorker(run.path, 1) as worker:
        sample.play(worker, 0)
        with pytest.raises(EvidenceError, match="another worker process still writes this run"):
            run.seal()
    sample.play(run.worker(0), 0, plan_id="m0001")
    assert run.seal().completed == 2
    assert codes(run.path) == ["planned_not_started"]


def test_a_worker_beyond_the_manifests_number_is_refused(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    with pytest.raises(EvidenceError, match="worker 2 of a run of 2"):
        run.worker(2)
    with pytest.raises(EvidenceError, match="worker 2 of a run of 2"):
        ForeignWorker(run.path, 2)
    run.seal()  # the worker that was refused does not hold the folder


FULL = """
import resource, sys
from pathlib import Path
import evidence_samples as sample
from evidence.errors import EvidenceError
run = sample.create(Path(sys.argv[1]), 50)
sample.play(run.worker(0), 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    for sequence in range(1, 50):
        sample.play(run.worker(0), sequence)
except EvidenceError as error:
    assert error.writing
    try:
        run.worker(0).ended(sample.ended(sequence, wire=None))
    except EvidenceError:
        pass
    print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if len(sys.argv) > 3:
        run.seal()
    raise SystemExit(error.exit_code)
"""


def fill(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    return subprocess.run(
        [sys.executable, "-c", FULL, *argv], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("limit_bytes", [2000, 5001, 7777])
def test_a_line_cut_short_by_a_size_limit_ends_the_run_and_is_torn(tmp_path: Path, limit_bytes: int) -> None:
    done = fill(str(tmp_path), str(limit_bytes))
    assert done.returncode == 3, done.stderr
    assert "bytes could be written: the disk is full or a size limit is reached" in done.stdout
    path = tmp_path / sample.RUN_ID
    run = open_run(path)
    assert run.torn == {"workers/0/requests.jsonl": limit_bytes - sum(line_sizes(path))}
    assert len(run.requests) == len(line_sizes(path)) >= 1
    recover(path)
    assert {"torn_tail", "recovered", "unfinished"} <= set(codes(path))


def test_a_run_stopped_by_a_full_disk_can_be_sealed_once_there_is_room(tmp_path: Path) -> None:
    assert fill(str(tmp_path), "5001", "seal").returncode == 3
    run = open_run(tmp_path / sample.RUN_ID)
    assert run.seal is not None
    assert run.seal.torn == run.torn != {}
    assert run.seal.unfinished == 1
    assert any("torn_tail" in text for text in run.seal.noticed)
    assert {"torn_tail", "unfinished"} <= set(codes(run.path))
    assert "hash_mismatch" not in codes(run.path)


def line_sizes(path: Path) -> list[int]:
    data = (path / "workers/0/requests.jsonl").read_bytes()
    return [len(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def test_a_full_file_system_ends_the_run_and_what_was_written_reads(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        run = sample.create(disk, 500)
        with pytest.raises(EvidenceError, match=r"disk is full|No space left") as caught:
            for sequence in range(500):
                sample.play(run.worker(0), sequence)
        assert caught.value.exit_code == 3
        run.close()
        n_started = len((run.path / "workers/0/started.jsonl").read_bytes().split(b"\n")) - 1
        read = open_run(run.path)
        assert len(read.started) == n_started >= 10
        assert len(read.started) - len(read.requests) in (0, 1)
        with pytest.raises(EvidenceError, match="No space left"):  # the disk is still full
            recover(run.path)
        assert open_run(run.path).seal is None
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        assert recover(run.path).completed == len(read.requests)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_after_a_line_cut_short_nothing_more_goes_into_its_file(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "lines.jsonl")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, before[1]))
    try:
        with pytest.raises(EvidenceError, match="only 5 of 8 bytes"):
            file.append(b"1234567\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(EvidenceError, match="only 5 of 8 bytes"):
        file.append(b"a\n")  # would make the torn line a whole one of nonsense
    file.close()
    assert file.path.read_bytes() == b"12345"
    with pytest.raises(EvidenceError, match="File exists"):
        AppendFile(file.path)


def test_ids_sort_by_the_second_they_were_made_in() -> None:
    ids = [new_id("run", now, entropy) for now, entropy in ((1796055119.9, b"\xff\xff\xff"), (1796055120.0, b"abc"))]
    assert ids == sorted(ids)
    assert ids[1] == "run-20261130T161200Z-616263"
    assert new_id("run") != new_id("run")
    for prefix in ("", "Run", "a/b", "../x"):
        with pytest.raises(ValueError, match="prefix"):
            new_id(prefix)


def test_a_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    for name in ("../x", "a/b", "", ".hidden", "x\n"):
        with pytest.raises(EvidenceError, match="no plain file name"):
            run.server_body(name, b"")
    run.close()
    lines = sample.plan(1)
    with pytest.raises(EvidenceError):
        sample.RunWriter.create(tmp_path, "../escaped", sample.manifest(lines, run_id="../escaped"), lines)


def test_half_a_character_from_a_server_does_not_end_the_run(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    run.worker(0).started(sample.started(0))
    run.worker(0).ended(sample.ended(0, usage={"note": "\ud83d"}))
    seal = run.seal()
    assert any("U+FFFD" in text for text in seal.noticed)
    assert "�" in open_run(run.path).requests[0].usage["note"]
