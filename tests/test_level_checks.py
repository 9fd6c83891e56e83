"""Lines of levels.jsonl against the plan, the scenario and the requests: a rewritten one is found and named."""

import json
import shutil

import pytest

from analysis.loading import load_run
from analysis.verdict import overall
from benchmarks.summary_scale import write_run
from evidence.durable import sha256_file
from evidence.layout import LEVELS, SEAL
from evidence.verify import verify


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("levels"), 8, 4, [1, 2], 10_000_000)


def rewritten(folder, tmp_path, change):
    """A copy with its level lines changed, and the seal made to fit."""
    there = shutil.copytree(folder, tmp_path / folder.name)
    lines = [json.loads(line) for line in (there / LEVELS).read_text().splitlines()]
    change(lines)
    (there / LEVELS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal = json.loads((there / SEAL).read_text())
    seal["files"][LEVELS] = sha256_file(there / LEVELS)
    (there / SEAL).write_text(json.dumps(seal) + "\n")
    return there


def found(path):
    return {(one.code, one.line) for one in verify(path) if one.file == LEVELS}


CHANGES = {
    "more started": (lambda ls: ls[0].update(n_started=9999), ("level_counts_mismatch", 1)),
    "fewer completed": (lambda ls: ls[1].update(n_completed=1), ("level_counts_mismatch", 2)),
    "failures": (lambda ls: ls[1].update(n_failed=2), ("level_counts_mismatch", 2)),
    "a line twice": (lambda ls: ls.append(ls[0]), ("level_duplicate", 3)),
    "more users": (lambda ls: ls[1].update(users=100), ("level_differs", 2)),
    "another place": (lambda ls: ls[1].update(index=0), ("level_differs", 2)),
    "another kind": (lambda ls: ls[1].update(kind="arrivals"), ("level_differs", 2)),
    "a label of no plan": (lambda ls: ls[1].update(label="users=7"), ("level_differs", 2)),
    "more planned": (lambda ls: ls[1].update(n_planned=99), ("level_differs", 2)),
    "drained late": (lambda ls: ls[1].update(drained_after_s=600.0), ("level_instants", 2)),
    "drained before it began to": (lambda ls: ls[1].update(drain_after_s=600.0), ("level_instants", 2)),
    "into the next": (lambda ls: ls[0].update(drained_after_s=600.0), ("level_instants", 2)),
    "began early": (lambda ls: ls[0].update(began_at_monotonic_s=0.0), ("level_instants", 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_level_line_that_says_other_than_plan_or_requests_makes_the_run_invalid_and_is_named(folder, tmp_path, name):
    change, expected = CHANGES[name]
    there = rewritten(folder, tmp_path, change)
    assert expected in found(there)
    reasons = [one for one in load_run(there).reasons if one.code == "counts_do_not_balance"]
    assert [one.severity for one in reasons] == ["INVALID"]


def test_an_honest_run_has_no_word_about_its_levels(folder):
    assert verify(folder) == ()
    assert overall([one for one in load_run(folder).reasons if one.scope == "run"]) == "VALID"


def test_a_request_that_was_sent_outside_its_level_is_named(folder, tmp_path):
    there = rewritten(folder, tmp_path, lambda ls: ls[0].update(drain_after_s=0.0, drained_after_s=0.0))
    outside = [one for one in verify(there) if one.code == "sent_outside_level"]
    assert outside and all(one.file == "workers/0/requests.jsonl" for one in outside)


def test_a_stopped_level_may_have_counted_less_than_the_lines_and_never_more(folder, tmp_path):
    less = rewritten(folder, tmp_path / "less", lambda ls: ls[1].update(n_completed=1, ended_by="stopped"))
    assert found(less) == set()
    more = rewritten(folder, tmp_path / "more", lambda ls: ls[1].update(n_completed=99, ended_by="stopped"))
    assert found(more) == {("level_counts_mismatch", 2)}
