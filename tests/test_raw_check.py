"""Records against their raw segments: a rewritten record is found although its seal was rewritten with it."""

import hashlib
import json
import random
from dataclasses import replace

import pytest

from analysis.loading import load_run
from analysis.raw_check import raw_check
from analysis.sent_check import SentCheck
from analysis.verdict import overall
from benchmarks.summary_scale import write_run
from evidence.durable import sha256_file
from evidence.layout import SEAL
from evidence.reading import open_run

REQUESTS = "workers/0/requests.jsonl"
N_CHUNKS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("scale"), 8, N_CHUNKS, [1, 2], 10_000_000)


def copied(folder, tmp_path):
    there = tmp_path / folder.name
    for file in folder.rglob("*"):
        if file.is_file():
            place = there / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return there


def forged(folder, tmp_path, change):
    """A copy in which one record is changed and the seal made to fit, by someone who knows the format."""
    there = copied(folder, tmp_path)
    lines = [json.loads(line) for line in (there / REQUESTS).read_text().splitlines()]
    change(lines[5])
    (there / REQUESTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal = json.loads((there / SEAL).read_text())
    seal["files"][REQUESTS] = sha256_file(there / REQUESTS)
    (there / SEAL).write_text(json.dumps(seal) + "\n")
    return load_run(there), lines[5]["plan_id"]


def shifted(line):
    """Every instant of the answer halved: a server twice as fast."""
    for name in list(line):
        if name.endswith("_after_s") and line[name] is not None:
            line[name] /= 2
    line["chunks"] = [[mark[0] / 2, *mark[1:]] for mark in line["chunks"]]


def said(text):
    return {"output_text": text, "output_sha256": hashlib.sha256(text.encode()).hexdigest()}


CHANGES = {
    "all instants": shifted,
    "first token": lambda line: line.update(first_token_after_s=line["first_token_after_s"] - 0.002),
    "end": lambda line: line.update(end_after_s=line["end_after_s"] + 0.01),
    "tokens": lambda line: line.update(n_completion_tokens=N_CHUNKS + 1),
    "usage": lambda line: line["usage"].update(prompt_tokens=3),
    "text": lambda line: line.update(said(line["output_text"] + "and more")),
    "text with a word for a secret": lambda line: line.update(said("[redacted] and more")),
    "a chunk less": lambda line: line.update(chunks=line["chunks"][:-1]),
    "a chunk's count": lambda line: line["chunks"][3].__setitem__(2, 9),
    "timings": lambda line: line["server_fields"]["timings"].update(predicted_ms=1.0),
    "reason": lambda line: line.update(finish_reason="length"),
    "model": lambda line: line.update(model_served="another"),
    "stamps": lambda line: line.update(stamp_source="user"),
    "t0": lambda line: line.update(sent_at_unix_s=line["sent_at_unix_s"] + 0.001),
    "outcome": lambda line: line.update(outcome="no_usage"),
}


def test_an_untouched_run_agrees_with_its_raw_segments_and_is_valid(folder):
    run = load_run(folder)
    (check,) = [one for one in run.server.checks if one.name == "records against raw segments"]
    assert check.state == "pass" and check.seen.startswith("10 of 10 requests")
    assert overall([reason for reason in run.reasons if reason.scope == "run"]) == "VALID", run.reasons


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_record_under_a_changed_seal_makes_the_run_invalid_and_is_named(folder, tmp_path, name):
    run, plan_id = forged(folder, tmp_path, CHANGES[name])
    assert [problem.code for problem in run.problems if "hash" in problem.code] == []
    (reason,) = [one for one in run.reasons if one.code == "records_differ_from_raw"]
    assert (reason.severity, reason.scope) == ("INVALID", "run")
    assert f"({plan_id}: " in reason.seen and reason.seen.startswith("1 records")


def test_a_record_in_which_a_secret_was_replaced_still_agrees(folder, tmp_path):
    def hide(line):
        text = line["output_text"]
        line.update(said(text.replace("word3", "[redacted]")))

    run, _ = forged(folder, tmp_path, hide)
    assert "records_differ_from_raw" not in [reason.code for reason in run.reasons]


def test_beyond_the_limit_a_sample_is_read_that_the_run_id_decides_and_all_is_all(folder):
    run = open_run(folder)
    one_size = max(request.wire.n_bytes for request in run.requests)
    part = raw_check(run, limit_bytes=3 * one_size)
    assert (part.n_read, part.n_kept, part.n_bytes <= 3 * one_size) == (3, 10, True)
    assert "a sample drawn by the run's id" in part.as_check().seen
    assert raw_check(run, limit_bytes=3 * one_size) == part
    assert raw_check(run, limit_bytes=1).n_read == 1
    assert raw_check(run, limit_bytes=None).n_read == 10


def test_a_run_without_raw_segments_says_that_nothing_could_be_read_again(tmp_path):
    run = load_run(write_run(tmp_path, 4, 3, [1], 0))
    (check,) = [one for one in run.server.checks if one.name == "records against raw segments"]
    assert (check.state, check.why) == ("not observable", "no raw segments are on file")


def test_a_random_byte_of_the_answer_changed_on_file_is_found_too(folder, tmp_path):
    there = copied(folder, tmp_path)
    wire = there / "workers/0/wire/segments.bin"
    data = bytearray(wire.read_bytes())
    at = random.Random(1).choice([n for n in range(len(data)) if data[n : n + 5] == b"word4"])
    data[at + 4] = ord("5")
    wire.write_bytes(bytes(data))
    assert len(raw_check(open_run(there)).differing) == 1


SENT = {
    "halved": lambda line: line.update(sent_at_monotonic_s=line["sent_at_monotonic_s"] / 2),
    "earlier by less than its answer took": lambda line: line.update(
        sent_at_monotonic_s=line["sent_at_monotonic_s"] - 0.005
    ),
    "later by less than its answer took": lambda line: line.update(
        sent_at_monotonic_s=line["sent_at_monotonic_s"] + 0.005
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_the_instant_of_sending_that_every_rate_hangs_on_is_held_to_the_raw_stamps(folder, tmp_path, name):
    run, plan_id = forged(folder, tmp_path, SENT[name])
    (reason,) = [one for one in run.reasons if one.code == "records_differ_from_raw"]
    assert reason.severity == "INVALID"
    assert f"({plan_id}: " in reason.seen and "sent_at_monotonic_s" in reason.seen


def test_without_raw_segments_the_instant_of_sending_is_still_held_to_the_started_line(tmp_path):
    folder = write_run(tmp_path / "made", 8, 3, [1, 2], 0)
    run, plan_id = forged(folder, tmp_path, SENT["halved"])
    (reason,) = [one for one in run.reasons if one.code == "records_differ_from_raw"]
    assert reason.severity == "INVALID" and f"({plan_id}: sent_at_monotonic_s" in reason.seen


def test_a_sending_after_a_step_of_the_wall_clock_agrees_with_the_started_lines_behind_the_step(folder):
    run = open_run(folder)
    step_s = 3.0
    moved = [
        one.model_copy(update={"started_at_unix_s": one.started_at_unix_s + step_s * (one.sequence > 4)})
        for one in run.started
    ]
    sent = run.requests[4].model_copy(update={"sent_at_unix_s": run.requests[4].sent_at_unix_s + step_s})
    assert SentCheck(replace(run, started=tuple(moved))).difference(sent) is None
    assert "further apart" in SentCheck(run).difference(sent)
