"""Answers received and never read: what a killed run still says of them, and what it does not."""

import dataclasses
import signal
from pathlib import Path

import pytest

from analysis.unread_answers import Unread, unread_answers
from evidence import frames
from evidence.errors import EvidenceError
from evidence.reading import Run, open_run, read_segments
from evidence.records import WireRef
from evidence.recover import recover
from evidence.unread import unread
from infra.fake_engine import running_fake_engine
from tests import evidence_samples as sample
from tests.load_runs import load_scenario, stop_load
from tests.locust_runs import analysis

N_TOKENS = 500
MANY_BYTES = 1_500_000  # of raw segments: those of a third of the answers
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = (
    b'data: {"choices":[{"index":0,"delta":{"content":"one two"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}\n\n'
    b"data: [DONE]\n\n"
)
WHOLE = [(None, 5_000, HEAD), (None, 6_000, b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))]


def test_a_kill_under_overload_leaves_answers_that_are_counted_as_what_they_are(tmp_path: Path) -> None:
    """Thirty answers end at once; the process is killed as soon as their bytes are on the disk."""
    tokens = f"max_tokens = {{ code = {N_TOKENS}, prose = {N_TOKENS}, json = {N_TOKENS} }}"
    once = {"warmup": "requests = 0", "levels": "users = [30]\nrequests = 30", "limits": "timeout_s = 90.0"}
    file = load_scenario(tmp_path, "concurrency", request=tokens, **once)

    def many_are_kept(folder: Path) -> bool:
        raw = folder / "workers" / "0" / "wire" / "segments.bin"
        return raw.exists() and raw.stat().st_size > MANY_BYTES

    with running_fake_engine(fake={"ttft_s": 0.5, "gap_s": 0.003, "sync": True}) as engine:
        stop_load("sweep", engine.url, file, many_are_kept, signal.SIGKILL)
    (folder,) = (tmp_path / "runs").glob("run-*")
    seal = recover(folder)
    _, report = analysis("check", str(folder))
    found = report["counts"]["unread"]
    assert found["n_unfinished"] == seal.unfinished == seal.started - seal.completed
    assert 0 < found["n_kept"] <= seal.unfinished
    assert found["n_read"] + found["n_unreadable"] == found["n_kept"]
    assert found["outcomes"]["completed"] >= found["n_kept"] - 1, "the last one's frames may be torn"
    assert found["n_completion_tokens"] == N_TOKENS * found["outcomes"]["completed"]
    left = f"{found['n_kept']} of {seal.unfinished} unfinished requests left raw segments"
    assert any(left in said for said in seal.noticed)
    (reason,) = (one for one in report["reasons"] if one["code"] == "unfinished")
    assert f"{found['outcomes']['completed']} whole ({found['n_completion_tokens']} tokens)" in reason["seen"]
    assert report["verdict"] == "INVALID"
    assert report["counts"]["ended"] == seal.completed, "nothing was made into a record"


def killed_before_reading(folder: Path, *answers: list[frames.SegmentTuple]) -> Path:
    """A folder whose requests have their raw segments, and no line that says how they ended."""
    run = sample.create(folder)
    writer = run.worker(0)
    sample.play(writer, 0)
    for sequence, segments in enumerate(answers, start=1):
        writer.started(sample.started(sequence))
        writer.wire(sequence, segments)
    run.close()
    return run.path


def test_each_unread_answer_is_found_with_its_own_segments(tmp_path: Path) -> None:
    run = open_run(killed_before_reading(tmp_path, WHOLE, [], WHOLE[:1]))
    found = unread(run.path, run.started[1:])
    assert sorted(found) == [(0, 1), (0, 3)]
    assert read_segments(run, found[0, 1]) == WHOLE
    assert read_segments(run, found[0, 3]) == WHOLE[:1]
    assert unread(run.path, ()) == {}


def test_whole_and_cut_answers_are_told_apart_and_a_request_that_left_nothing_is_counted(tmp_path: Path) -> None:
    run = open_run(killed_before_reading(tmp_path, WHOLE, [], WHOLE[:1]))
    said = unread_answers(run, run.started[1:], limit_bytes=None)
    outcomes = {"completed": 1, "truncated": 1}
    assert said == Unread(
        n_unfinished=3, n_kept=2, n_read=2, n_unreadable=0, outcomes=outcomes, n_tokens=2, n_uncounted=0
    )
    assert "1 whole (2 tokens), 1 truncated" in str(said)
    assert unread_answers(run, (), limit_bytes=None) is None


def test_segments_that_we_cannot_read_are_no_word_on_the_server_and_no_count_is_not_a_count_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(killed_before_reading(tmp_path, WHOLE, WHOLE[:1]))

    def lost(run: Run, ref: WireRef) -> list[frames.SegmentTuple]:
        if ref.n_segments == len(WHOLE):
            raise EvidenceError(run.path, "cannot be read", "restore it")
        return read_segments(run, ref)

    monkeypatch.setattr("analysis.unread_answers.read_segments", lost)
    said = unread_answers(run, run.started[1:], limit_bytes=None)
    assert said is not None
    assert (said.outcomes, said.n_read, said.n_unreadable) == ({"truncated": 1}, 1, 1)
    assert said.as_json()["n_completion_tokens"] is None
    assert "0 whole, 1 truncated, 1 whose segments cannot be read; when" in str(said)


@pytest.mark.parametrize("n_cut", [1, 30, 200])
def test_a_torn_last_frame_costs_no_other_answer(tmp_path: Path, n_cut: int) -> None:
    path = killed_before_reading(tmp_path, WHOLE, WHOLE)
    raw = path / "workers" / "0" / "wire" / "segments.bin"
    raw.write_bytes(raw.read_bytes()[:-n_cut])
    run = open_run(path)
    said = unread_answers(run, run.started[1:], limit_bytes=None)
    assert said is not None
    assert said.outcomes["completed"] == 1
    assert said.n_kept == 2


def test_beyond_the_limit_a_part_is_read_and_said_to_be_one(tmp_path: Path) -> None:
    run = open_run(killed_before_reading(tmp_path, WHOLE, WHOLE))
    said = unread_answers(run, run.started[1:], limit_bytes=1)
    assert said is not None
    assert (said.n_kept, said.n_read) == (2, 1)
    assert "(of 1 of these that were read)" in str(said)
    nothing = dataclasses.replace(said, n_kept=0, n_read=0, outcomes={})
    assert str(nothing) == "of none of them raw segments are on file"
