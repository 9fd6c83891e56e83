"""What comes over the network to a master, and what of the command line may go out over it."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evidence_samples as sample
import pytest

from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from locustfiles._crew import Tally
from locustfiles._distributed import MasterSession
from locustfiles._lines_in import LinesIn
from locustfiles._manifest import _shown_options
from locustfiles._options import Options, UsageError, _shards
from locustfiles._roster import NOTED_MESSAGES, Roster
from locustfiles._said import fault_of

PONG = {"kind": "pong", "sent_ns": 1, "read_ns": 2, "answered_ns": 3, "wall_ns": 4}


def master(folder: Path) -> tuple[RunWriter, Roster, LinesIn]:
    run = sample.create(folder, 1, n_workers=2)
    mirror = run.mirror()
    roster = Roster(run, mirror, on_lost=lambda _member: None)
    return run, roster, LinesIn(run, mirror, roster, on_ended=None)


def noticed(run: RunWriter) -> str:
    path = run.path / "noticed.jsonl"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({}, "kind 'None' is none"),
        ({"kind": ["tally"]}, "is none that workers say"),
        ({"kind": "_totals"}, "kind '_totals' is none"),
        ({"kind": "tally", "number": 1}, "tally: tally is not there"),
        ({"kind": "tally", "number": "1", "tally": "{}"}, "number is '1', which is no int"),
        ({"kind": "tally", "number": 1, "tally": '{"n_seats": "many"}'}, "tally: n_seats"),
        ({"kind": "totals", "totals": "", "where": "x", "is_whole": True}, "totals: the whole"),
        ({"kind": "ready", "shard": None}, "shard is None, which is no str"),
        ({"kind": "hello", "pid": 0}, "pid is 0, which no process has"),
        ({"kind": "hello", "pid": True}, "pid is True, which is no int"),
        ({**PONG, "sent_ns": 1.5}, "sent_ns is 1.5"),
    ],
)
def test_a_message_that_is_none_is_named_with_what_is_wrong(message, says):
    assert says in str(fault_of(message))


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "hello"},
        {"kind": "hello", "host": "h", "pid": 7, "system": None},
        {"kind": "tally", "number": 0, "tally": Tally().model_dump_json()},
        {"kind": "failed", "error": "x", "exit_code": 3, "run_id": None},
        PONG,
    ],
)
def test_what_workers_say_is_taken(message):
    assert fault_of(message) is None


def test_a_batch_that_is_none_is_refused_with_its_values_and_a_remedy(tmp_path):
    run, roster, lines = master(tmp_path)
    member = roster.join("w1", {})
    assert lines.batch(member, {"kind": "batch", "number": "seven"}) is None
    run.close()
    assert "number 'seven'" in noticed(run)
    assert "run the same version" in noticed(run)


def test_whoever_sends_nothing_but_nonsense_fills_no_disk(tmp_path):
    run, roster, _ = master(tmp_path)
    for number in range(100):
        roster.malformed("w1", f"kind {number} is none")
    run.close()
    assert noticed(run).count("\n") == NOTED_MESSAGES


def test_a_worker_that_did_not_say_where_it_runs_has_no_host_and_no_process(tmp_path):
    run, roster, _ = master(tmp_path)
    roster.is_ready(roster.join("w1", {}), "/shards/x", None)
    run.close()
    line = (run.path / "workers.jsonl").read_text()
    assert '"host":null,"pid":null' in line


@pytest.mark.parametrize(
    "place", ["sftp://anna:opensesame@h/x", "s3://AKIA:opensesame@bucket/x", "https://h/x?token=opensesame1"]
)
def test_a_place_for_shards_holds_no_credentials(place):
    with pytest.raises(UsageError, match="credentials") as raised:
        _shards(place)
    assert "opensesame" not in str(raised.value)
    assert "environment" in str(raised.value)


@pytest.mark.parametrize("place", ["ship", "keep", "s3://bucket/runs", "/mnt/a@b", "file:///tmp/x"])
def test_a_place_without_credentials_is_taken_as_it_is(place):
    assert _shards(place) == place


def test_every_option_is_on_record_as_it_was_given_and_secrets_are_not():
    options = Options(
        host="http://h",
        scenario=Path("s.toml"),
        arm=None,
        label="x",
        run_dir=Path("runs"),
        model=None,
        metrics_urls=(),
        transport="wire",
        extra_body={},
        headers={"X-Key": "opensesame"},
        note=None,
        prometheus_url="http://anna:opensesame@p:9090",
        client_metrics_port=9200,
        passes=1,
        seed=None,
        no_profile=True,
        calibration=Path("c.json"),
        shards="s3://bucket/runs",
    )
    shown = _shown_options(options)
    elsewhere = {"arm", "label", "note"}  # fields of the manifest itself
    assert {one.name for one in fields(Options)} - elsewhere - {"cite_calibration"} == set(shown)
    assert "opensesame" not in str(shown)
    assert shown["prometheus_url"] == "http://[redacted]@p:9090"
    assert (shown["calibration"], shown["shards"], shown["no_profile"]) == ("c.json", "s3://bucket/runs", True)


def test_a_level_that_cannot_be_written_at_the_end_fails_the_run_and_the_folder_is_still_closed():
    def refuse() -> None:
        raise EvidenceError(Path("levels.jsonl"), "disk is full", "free space", writing=True)

    done: list[Any] = []
    session = MasterSession.__new__(MasterSession)
    session._conducting = None
    parts: dict[str, Any] = {
        "crew": SimpleNamespace(close=lambda: None),
        "conductor": SimpleNamespace(cut=refuse),
        "progress": SimpleNamespace(close=lambda: None),
        "recorder": SimpleNamespace(failed=done.append, seal=lambda _stop: done.append("sealed")),
    }
    vars(session).update(parts)
    session.seal()
    assert [getattr(one, "exit_code", one) for one in done] == [3, "sealed"]
