"""A worker's lines that are not in the run folder: kept elsewhere by intent, or found after a worker was lost."""

import shutil
import subprocess
import sys
from pathlib import Path

import evidence_samples as sample
import pytest

from analysis.loading import load_run
from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.inventory import folder_info
from evidence.joining import join
from evidence.layout import MANIFEST, shard_folder
from evidence.lines import canonical
from evidence.outbox import Outbox
from evidence.reading import open_run, read_segments
from evidence.records import Seal
from evidence.recover import recover
from evidence.shard import Shard
from evidence.shard_store import Carrier, FolderStore, fetch, store_at
from evidence.verify import verify
from evidence.worker_records import Kept, WorkerEvent

ROOT = Path(__file__).resolve().parent.parent
N_PLANNED = 4


def codes(path: Path) -> set[str]:
    return {problem.code for problem in verify(path)}


def begun(folder: Path) -> tuple[RunWriter, Shard]:
    run = sample.create(folder / "runs", N_PLANNED, n_workers=2)
    shard = Shard(folder / "away", (run.path / MANIFEST).read_bytes(), 1)
    shard.deal(map(canonical, sample.plan(N_PLANNED)))
    return run, shard


def play(shard: Shard, sequence: int, outcome: str = "completed") -> None:
    shard.started(sample.started(sequence, worker=1))
    wire = shard.wire(sequence, sample.SEGMENTS)
    shard.ended(sample.ended(sequence, worker=1, wire=wire, outcome=outcome))


def mirrored(run: RunWriter, shard: Shard) -> Outbox:
    """The shard's lines so far, in the master's folder too."""
    outbox = Outbox(shard.folder, sample.RUN_ID, 1)
    mirror = run.mirror()
    mirror.admit(1)
    while (batch := outbox.next(0.0)) is not None:
        answer = mirror.apply(batch)
        assert answer is not None
        outbox.have(answer, 0.0)
    mirror.close()
    return outbox


def digests(shard: Shard) -> Outbox:
    outbox = Outbox(shard.folder, sample.RUN_ID, 1, window=10**6)
    while outbox.next(0.0) is not None:
        pass
    return outbox


def lost(folder: Path) -> tuple[RunWriter, Shard]:
    """Two requests reached the master; of the third the worker alone knows."""
    run, shard = begun(folder)
    play(shard, 0)
    play(shard, 1, "truncated")
    mirrored(run, shard)
    play(shard, 2)
    shard.close()
    return run, shard


def kept(folder: Path) -> tuple[RunWriter, Shard, Seal]:
    """A run whose master has digests and counts only."""
    run, shard = begun(folder)
    for sequence in range(3):
        play(shard, sequence)
    totals = shard.totals(digests(shard).files())
    shard.close()
    run.worker_event(
        WorkerEvent(
            run_id=sample.RUN_ID,
            at_unix_s=1.0,
            at_monotonic_s=1.0,
            event="dealt",
            worker=1,
            client="c",
            host="h",
            pid=1,
            plan_ids=tuple(line.plan_id for line in sample.plan(N_PLANNED)),
        )
    )
    run.kept(Kept(run_id=sample.RUN_ID, worker=1, where=str(shard.path), host="h", why="--shards keep", totals=totals))
    return run, shard, run.seal()


def test_a_shard_found_before_the_seal_completes_the_folder(tmp_path):
    run, shard = lost(tmp_path)
    run.close()
    joined = join(run.path, [shard.path])
    assert joined.path == run.path
    assert (joined.seal.started, joined.seal.completed, joined.seal.failed) == (3, 2, {"truncated": 1})
    assert joined.seal.recovered
    assert "joined with the shard of worker 1" in joined.seal.noticed[0]
    assert codes(run.path) == {"recovered", "planned_not_started"}
    reread = open_run(run.path)
    assert all(request.wire and read_segments(reread, request.wire) for request in reread.requests)


def test_a_shard_found_after_the_seal_makes_a_copy_and_leaves_the_sealed_folder_as_it_was(tmp_path):
    run, shard = lost(tmp_path)
    run.seal()
    before = codes(run.path)
    joined = join(run.path, [shard.path])
    assert joined.path != run.path
    assert (joined.seal.completed, joined.seal.id) == (2, sample.RUN_ID)
    assert joined.seal.noticed[0].startswith(f"a copy of {run.path.name}")
    assert codes(joined.path) == {"recovered", "planned_not_started"}
    assert codes(run.path) == before == {"planned_not_started"}
    assert open_run(run.path).seal.completed == 1


def test_a_run_of_digests_is_sealed_with_the_workers_counts(tmp_path):
    run, _, seal = kept(tmp_path)
    assert (seal.planned, seal.started, seal.completed) == (N_PLANNED, 3, 3)
    assert codes(run.path) == {"planned_not_started"}
    assert "1 requests dealt to workers whose lines are elsewhere" in " ".join(map(str, verify(run.path)))
    assert open_run(run.path).requests == ()


def test_lines_kept_elsewhere_are_the_sealed_ones_when_they_come(tmp_path):
    run, shard, seal = kept(tmp_path)
    joined = join(run.path, [shard.path])
    assert joined.seal == seal
    assert len(open_run(run.path).requests) == 3
    assert codes(run.path) == {"planned_not_started"}


def test_lines_kept_elsewhere_and_changed_there_are_refused(tmp_path):
    run, shard, _ = kept(tmp_path)
    file = shard.folder / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b"completed", b"cancelled", 1))
    with pytest.raises(EvidenceError, match="is not what worker 1 said it wrote"):
        join(run.path, [shard.path])
    assert not (run.path / "workers" / "1" / "requests.jsonl").exists()


def test_sealed_lines_changed_after_they_came_are_found(tmp_path):
    run, shard, _ = kept(tmp_path)
    join(run.path, [shard.path])
    file = run.path / "workers" / "1" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"completed"', b'"cancelled"', 1))
    assert {"hash_mismatch", "counts_mismatch"} <= codes(run.path)


def test_a_shard_of_another_run_or_with_other_bytes_is_refused(tmp_path):
    run, shard = lost(tmp_path)
    run.close()
    stranger = tmp_path / "stranger"
    shutil.copytree(shard.path, stranger)
    manifest = stranger / MANIFEST
    facts = (stranger / "shard.json").read_bytes()
    (stranger / "shard.json").write_bytes(facts.replace(facts[-80:-60], b"0" * 20))
    with pytest.raises(EvidenceError):
        join(run.path, [stranger])
    (stranger / "shard.json").write_bytes(facts)
    file = stranger / "workers" / "1" / "started.jsonl"
    file.write_bytes(file.read_bytes().replace(b"m0000", b"m0003", 1))
    with pytest.raises(EvidenceError, match="is not a longer form"):
        join(run.path, [stranger])
    assert manifest.exists()
    assert not (run.path / "seal.json").exists()


def test_a_shard_whose_worker_lives_is_not_joined(tmp_path):
    run, shard = begun(tmp_path)
    play(shard, 0)
    run.close()
    with pytest.raises(EvidenceError, match="still being written"):
        join(run.path, [shard.path])
    shard.close()
    assert join(run.path, [shard.path]).seal.completed == 1


def test_a_shard_is_no_run_and_names_itself(tmp_path):
    _, shard = lost(tmp_path)
    assert folder_info(shard.path).kind == "shard"
    with pytest.raises(EvidenceError):
        recover(shard.path)


def test_a_shard_goes_to_a_shared_folder_in_parts_and_comes_back_the_same(tmp_path):
    _, shard = begun(tmp_path)
    store = FolderStore(tmp_path / "shared")
    carrier = Carrier(shard.path, store)
    play(shard, 0)
    assert carrier.copy_new() > 0
    assert carrier.copy_new() == 0
    play(shard, 1)
    carrier.copy_new()
    shard.close()
    back = fetch(str(tmp_path / "shared"), shard.path.name, tmp_path / "back")
    for file in ("requests.jsonl", "started.jsonl", "wire/segments.bin"):
        assert (back / "workers" / "1" / file).read_bytes() == (shard.folder / file).read_bytes()
    parts = sorted((tmp_path / "shared").rglob("requests.jsonl@*"))
    assert len(parts) == 2
    parts[0].unlink()
    with pytest.raises(EvidenceError, match="a part is missing"):
        fetch(str(tmp_path / "shared"), shard.path.name, tmp_path / "again")


def test_a_killed_workers_shard_still_reaches_the_store(tmp_path):
    """The process that copies ends with its standard input, after one more look; the store is one of fsspec's."""
    pytest.importorskip("fsspec", reason="fsspec is not installed (requirements-shards.txt)")
    run, shard = begun(tmp_path)
    command = [sys.executable, "-m", "evidence.shard_store", str(shard.path), f"file://{tmp_path}/bucket"]
    copying = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    play(shard, 0)
    shard.close()
    said, problems = copying.communicate(timeout=30)
    assert copying.returncode == 0, problems
    assert said.strip().endswith(shard.path.name)
    back = fetch(f"file://{tmp_path}/bucket", shard.path.name, tmp_path / "back")
    run.close()
    assert join(run.path, [back]).seal.completed == 1


def test_only_files_of_a_shard_are_fetched_and_only_by_a_shards_name(tmp_path):
    _, shard = begun(tmp_path)
    play(shard, 0)
    Carrier(shard.path, FolderStore(tmp_path / "shared")).copy_new()
    shard.close()
    there = tmp_path / "shared" / shard.path.name
    (there / "notes.txt").write_text("not a shard's")
    (there / "workers" / "1" / "authorized_keys").write_text("not a shard's")
    back = fetch(str(tmp_path / "shared"), shard.path.name, tmp_path / "back")
    assert not [path for path in back.rglob("*") if path.is_file() and "not a shard's" in path.read_text("latin-1")]
    with pytest.raises(EvidenceError, match="is the name of no shard"):
        fetch(str(tmp_path / "shared"), "..", tmp_path / "back")


def test_a_store_that_is_not_reached_is_an_error_with_its_whole_url_and_without_its_keys():
    pytest.importorskip("fsspec", reason="fsspec is not installed (requirements-shards.txt)")
    with pytest.raises(EvidenceError, match=r"^memory://nowhere/one: cannot be reached") as raised:
        store_at("memory://nowhere").get("one")
    assert raised.value.exit_code == 2
    with pytest.raises(EvidenceError) as raised:
        store_at("nonesuch://anna:opensesame@h/x")
    assert "opensesame" not in str(raised.value)
    assert str(raised.value).startswith("nonesuch://[redacted]@h/x: ")


def test_a_url_with_credentials_stands_nowhere_in_a_run_folder(tmp_path):
    run, shard = begun(tmp_path)
    totals = shard.totals(digests(shard).files())
    shard.close()
    where = "sftp://anna:opensesame@h/x"
    run.kept(Kept(run_id=sample.RUN_ID, worker=1, where=where, host=None, why=f"--shards {where}", totals=totals))
    event = {"event": "kept", "worker": 1, "client": None, "host": None, "pid": None, "detail": where}
    run.worker_event(WorkerEvent(run_id=sample.RUN_ID, at_unix_s=1.0, at_monotonic_s=1.0, **event))
    run.close()
    written = b"".join(path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    assert b"opensesame" not in written
    assert written.count(b"sftp://[redacted]@h/x") == 3


@pytest.mark.parametrize("run_id", ["../../etc/x", "", ".hidden", "a/b"])
def test_a_shard_of_a_run_id_that_is_none_is_made_nowhere(run_id, tmp_path):
    with pytest.raises(EvidenceError, match="no run id"):
        shard_folder(tmp_path, run_id, 0)


def test_checks_of_lines_that_lie_elsewhere_neither_pass_nor_fail(tmp_path):
    run, _, _ = kept(tmp_path)
    checks = load_run(run.path).server.checks
    assert {one.name for one in checks} >= {"generated tokens", "one row for each planned request"}
    assert {(one.state, (one.why or "").split(":")[0]) for one in checks} == {("not observable", "lines elsewhere")}


def test_a_fault_of_the_program_is_no_word_of_a_store():
    """A store's own errors and the system's are said with its URL; a TypeError comes out as what it is."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (requirements-shards.txt)")

    class Refusal(Exception):
        """As a store's library has them."""

    raised: list[Exception] = []

    class Refusing(fsspec.AbstractFileSystem):
        def cat_file(self, path, **_):
            raise raised[-1]

    fsspec.register_implementation("refusing", Refusing, clobber=True)
    store = store_at("refusing://there")
    for error in (Refusal("no credentials"), PermissionError(13, "denied"), TimeoutError(), NotImplementedError()):
        raised.append(error)
        with pytest.raises(EvidenceError, match=rf"^refusing://there/one: cannot be reached: {type(error).__name__}"):
            store.get("one")
    for fault in (TypeError("two arguments"), AttributeError("no such name"), KeyError("x"), AssertionError()):
        raised.append(fault)
        with pytest.raises(type(fault)):
            store.get("one")
