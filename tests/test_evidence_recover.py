"""A folder killed at any moment: everything whole is read, recovery closes it, and it says what it is."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import evidence_samples as sample
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence import frames
from evidence.contents import read_contents
from evidence.errors import EvidenceError
from evidence.inventory import find_folders
from evidence.processes import living_writer, process_lives
from evidence.reading import open_run
from evidence.recover import recover
from evidence.verify import verify

TESTS = Path(__file__).parent
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # many small folders, each brought to the "disk"
# What a hash, a count or a schema that does not fit would be called. None of it may follow from a kill and a recovery.
NEVER = {
    "hash_mismatch",
    "file_missing",
    "file_extra",
    "counts_mismatch",
    "schema_violation",
    "wrong_id",
    "seal_missing",
}


def codes(path: Path) -> set[str]:
    return {problem.code for problem in verify(path)}


@pytest.fixture(scope="module", params=[False, True], ids=["unsealed", "sealed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.small_run(tmp_path_factory.mktemp("whole"), seal=request.param)


def n_whole_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_folder_cut_anywhere_reads_every_whole_record_and_can_be_closed(whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        path = Path(shutil.copytree(whole, Path(scratch) / "run"))
        names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), label="cut files"):
            size = (path / name).stat().st_size
            os.truncate(path / name, data.draw(st.integers(0, size), label=f"bytes left of {name}"))

        contents = read_contents(path)
        workers = [path / "workers" / n for n in ("0", "1")]
        assert len(contents.started) == sum(n_whole_lines(worker / "started.jsonl") for worker in workers)
        assert len(contents.requests) == sum(n_whole_lines(worker / "requests.jsonl") for worker in workers)
        assert len(contents.plan) == n_whole_lines(path / "plan.jsonl")
        assert len(contents.scrapes) == n_whole_lines(path / "scrapes.jsonl")
        assert len(contents.notices) == n_whole_lines(path / "noticed.jsonl")
        if contents.manifest is None:
            with pytest.raises(EvidenceError, match=r"manifest cannot be read .* the folder holds \d plan lines"):
                open_run(path)
        else:
            assert len(open_run(path).requests) == len(contents.requests)

        if contents.seal is not None:  # damaged after its seal: that is found, and nothing is closed twice
            cut = codes(path) & {"hash_mismatch"}
            assert bool(cut) == any(
                (path / name).read_bytes() != (whole / name).read_bytes() for name in names if name != "seal.json"
            )
            with pytest.raises(EvidenceError, match="sealed already, its writer closed it"):
                recover(path)
            return
        seal = recover(path)
        assert seal.recovered
        assert seal.torn == contents.torn
        assert seal.started == seal.completed + sum(seal.failed.values()) + seal.cancelled + seal.unfinished
        assert seal.completed + sum(seal.failed.values()) + seal.cancelled == len(contents.requests)
        found = codes(path)
        assert "recovered" in found
        assert not found & NEVER, verify(path)
        assert ("unfinished" in found) == (seal.unfinished > 0)
        assert ("torn_tail" in found) == bool(contents.torn)


def frame_ends(before: int) -> list[int]:
    """Where whole frames of the sample's segments end in a wire file, from ``before`` on."""
    end = 0 if before else len(frames.MAGIC)
    ends = [end]
    for _, _, data in sample.SEGMENTS:
        end += 24 + len(data)
        ends.append(end)
    return ends


def kill_points(whole: Path) -> list[Path]:
    """The files in the order their bytes were appended, as one kill leaves them."""
    return [whole / "workers/0" / name for name in ("started.jsonl", "wire/segments.bin", "requests.jsonl")]


@settings(max_examples=40, deadline=None)
@given(n_ended=st.integers(0, 3), at=st.integers(0, 2), part=st.floats(0, 1, exclude_max=True))
def test_a_kill_between_two_writes_or_within_one_leaves_a_folder_that_can_be_closed(
    n_ended: int, at: int, part: float
) -> None:
    """Request ``n_ended`` gets as far as its start, its segments or its end, and a part of the next write."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        run = sample.create(Path(scratch), 4)
        for sequence in range(n_ended):
            sample.play(run.worker(0), sequence)
        worker = run.worker(0)
        sizes = {}
        steps: tuple[Callable[[], object], ...] = (
            lambda: worker.started(sample.started(n_ended)),
            lambda: sizes.update(ref=worker.wire(n_ended, sample.SEGMENTS)),
            lambda: worker.ended(sample.ended(n_ended, wire=sizes["ref"])),
        )
        for number, step in enumerate(steps[: at + 1]):
            file = kill_points(run.path)[number]
            before = file.stat().st_size if file.exists() else 0
            step()
        run.close()
        n_torn = int((file.stat().st_size - before) * part)
        os.truncate(file, before + n_torn)
        if at == 1:  # the head of the wire file, and the first of its frames, may be whole
            n_torn -= max((end for end in (0, *frame_ends(before)) if end <= n_torn), default=0)

        read = open_run(run.path)
        assert len(read.requests) == n_ended
        assert len(read.started) == n_ended + (at > 0)
        assert sum(read.torn.values()) == n_torn
        seal = recover(run.path)
        assert (seal.started, seal.completed, seal.unfinished) == (n_ended + (at > 0), n_ended, int(at > 0))
        assert not codes(run.path) & NEVER


def test_a_writer_killed_at_random_moments_leaves_a_folder_that_can_be_closed(tmp_path: Path) -> None:
    """A real process, a real SIGKILL; the moment is drawn by the size the folder has reached."""
    draw = random.Random(20261129)
    for number in range(5):
        runs_dir = tmp_path / str(number)
        environment = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
        command = [sys.executable, str(TESTS / "evidence_samples.py"), str(runs_dir), "4000"]
        writer = subprocess.Popen(command, env=environment)
        try:
            file = runs_dir / sample.RUN_ID / "workers/0/requests.jsonl"
            enough = draw.randrange(1, 120_000)
            give_up_s = time.monotonic() + 60
            while not (file.exists() and file.stat().st_size >= enough):
                assert writer.poll() is None, "the writer ended before it was killed"
                assert time.monotonic() < give_up_s
                time.sleep(0.001)
            path = file.parents[2]
            with pytest.raises(EvidenceError, match=f"still being written by process {writer.pid}"):
                recover(path)
            assert open_run(path).seal is None  # readable while it is being written
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        run = open_run(path)
        assert run.problems == ()
        assert 0 <= len(run.started) - len(run.requests) <= 1
        seal = recover(path)
        assert (seal.recovered, seal.completed) == (True, len(run.requests))
        assert not codes(path) & NEVER


def test_recovery_refuses_a_folder_whose_writer_lives(tmp_path: Path) -> None:
    run = sample.create(tmp_path)
    sample.play(run.worker(0), 0)
    with pytest.raises(EvidenceError, match=f"still being written by process {os.getpid()}") as caught:
        recover(run.path)
    assert caught.value.exit_code == 2
    run.close()
    assert living_writer(run.path) is None
    assert recover(run.path).completed == 1


def test_without_locks_the_recorded_process_decides(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path)
    facts = json.loads((path / "writer.json").read_bytes()) | {"locked": False, "lock_missing": "no locks"}
    (path / "writer.json").write_text(json.dumps(facts))
    assert living_writer(path) == f"process {os.getpid()}"
    (path / "writer.json").write_text(json.dumps(facts | {"host": "elsewhere"}))
    assert living_writer(path) is None
    ended = subprocess.Popen(["true"])
    ended.wait()
    (path / "writer.json").write_text(json.dumps(facts | {"pid": ended.pid}))
    assert living_writer(path) is None
    zombie = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    assert zombie.stdout is not None
    zombie.stdout.read()  # it has ended, or is about to, and no one has asked how
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert not process_lives(zombie.pid)
    zombie.wait()
    (path / "writer.json").write_text(json.dumps(facts | {"started_at_unix_s": 1.0}))  # the number was given anew
    assert living_writer(path) is None


def test_recovery_refuses_a_sealed_folder(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path, seal=True)
    before = (path / "seal.json").read_bytes()
    with pytest.raises(EvidenceError, match="sealed already, its writer closed it"):
        recover(path)
    assert (path / "seal.json").read_bytes() == before
    other = sample.small_run(tmp_path / "other")
    recover(other)
    with pytest.raises(EvidenceError, match="sealed already, it was recovered before"):
        recover(other)


def test_a_folder_without_a_manifest_is_closed_as_what_it_is(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path)
    (path / "manifest.json").unlink()
    with pytest.raises(EvidenceError, match=r"it is not there\); the folder holds 5 plan lines, 5 started and 5 ended"):
        open_run(path)
    seal = recover(path)
    assert (seal.id, seal.planned, seal.started) == (sample.RUN_ID, 5, 5)
    assert any("manifest_missing" in text for text in seal.noticed)
    assert codes(path) == {"manifest_missing", "recovered"}


def test_a_folder_with_nothing_of_ours_is_not_closed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(EvidenceError, match=r"neither manifest.json, launch.json nor study.json, but notes.txt"):
        recover(tmp_path)
    with pytest.raises(EvidenceError, match="but no folder"):
        recover(tmp_path / "absent")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_seal_that_cannot_be_read_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path, seal=True)
    os.truncate(path / "seal.json", 100)
    assert codes(path) == {"seal_unreadable"}
    seal = recover(path)
    assert seal.recovered
    assert (path / "seal.json.damaged").stat().st_size == 100
    assert "seal.json.damaged" in seal.files
    assert codes(path) == {"recovered"}


def test_a_seal_of_a_later_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    path = sample.small_run(tmp_path, seal=True)
    seal = json.loads((path / "seal.json").read_bytes()) | {"schema_version": 7}
    (path / "seal.json").write_text(json.dumps(seal))
    assert codes(path) == {"unknown_schema_version"}
    with pytest.raises(EvidenceError, match="schema version 7"):
        recover(path)
    assert not (path / "seal.json.damaged").exists()


def test_what_lies_in_a_folder_is_listed_with_its_state(tmp_path: Path) -> None:
    sample.small_run(tmp_path, seal=True).rename(tmp_path / "a")
    recover(sample.small_run(tmp_path).rename(tmp_path / "b"))
    sample.small_run(tmp_path).rename(tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "study.json").write_text('{"study_id": "study-1"}')
    (tmp_path / "f.txt").write_text("")
    running = sample.create(tmp_path)
    infos = find_folders(tmp_path)
    assert [(i.kind, i.path.name, i.id, i.sealed, i.recovered, i.being_written) for i in infos] == [
        ("run", "a", sample.RUN_ID, True, False, False),
        ("run", "b", sample.RUN_ID, True, True, False),
        ("run", "c", sample.RUN_ID, False, None, False),
        ("unknown", "d", "d", False, None, False),
        ("study", "e", "study-1", False, None, False),
        ("run", sample.RUN_ID, sample.RUN_ID, False, None, True),
    ]
    running.close()
    with pytest.raises(EvidenceError, match="cannot be listed"):
        find_folders(tmp_path / "absent")


@given(
    requests=st.lists(
        st.lists(
            st.tuples(
                st.none() | st.integers(-(2**63) + 1, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=9)
            ),
            max_size=4,
        ),
        max_size=4,
    ),
    cut=st.integers(0, 400),
)
def test_frames_cut_anywhere_give_back_every_whole_segment(requests: list[list[frames.SegmentTuple]], cut: int) -> None:
    data = b"".join(frames.encode(sequence, segments) for sequence, segments in enumerate(requests))
    every = [(sequence, segment) for sequence, segments in enumerate(requests) for segment in segments]
    assert [(frame.sequence, frame.segment) for frame in frames.decode(data)] == every
    kept = list(frames.decode(data[:cut]))
    assert [(frame.sequence, frame.segment) for frame in kept] == every[: len(kept)]
    end = sum(frame.n_bytes for frame in kept)
    assert end <= cut or not kept
    assert len(kept) == len(every) or min(cut, len(data)) - end < 24 + 9
