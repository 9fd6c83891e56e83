"""A worker's lines on their way to the master: nothing is lost, doubled or out of order, whatever the messages do."""

import hashlib
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import evidence_samples as sample
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.checks import check_contents
from evidence.contents import read_contents
from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.layout import MANIFEST, SHARD
from evidence.lines import canonical
from evidence.mirror import Mirror
from evidence.outbox import RESEND_AFTER_S, WINDOW, Outbox
from evidence.replication import REPLICATED, Batch, Have
from evidence.shard import Shard, read_shard

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
N_PLANNED = 6


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


class Pair:
    """A master's run folder and one worker's shard of it, with what carries lines between them."""

    def __init__(self, folder: Path, *, worker: int = 1, batch_bytes: int = 700) -> None:
        self.run: RunWriter = sample.create(folder / "master", N_PLANNED, n_workers=2)
        self.noticed: list[str] = []
        self.mirror = Mirror(self.run.path, sample.RUN_ID, self.noticed.append)
        self.mirror.admit(worker)
        manifest = (self.run.path / MANIFEST).read_bytes()
        self.shard = Shard(folder / "worker", manifest, worker, client="host_1")
        self.shard.deal(map(canonical, sample.plan(N_PLANNED)))
        self.outbox = Outbox(self.shard.folder, sample.RUN_ID, worker, batch_bytes=batch_bytes)
        self.now_s = 0.0

    def play(self, sequence: int, **changes: object) -> None:
        self.shard.started(sample.started(sequence, worker=self.shard.worker))
        wire = self.shard.wire(sequence, sample.SEGMENTS)
        self.shard.ended(sample.ended(sequence, worker=self.shard.worker, wire=wire, **changes))

    def carry(self) -> None:
        """Everything written so far, over a channel that does nothing wrong."""
        while not self.outbox.empty():
            batch = self.outbox.next(self.now_s)
            if batch is None:
                self.now_s += RESEND_AFTER_S + 1
                continue
            answer = self.mirror.apply(batch)
            assert answer is not None, self.noticed
            self.outbox.have(answer, self.now_s)

    def equal(self) -> bool:
        here = self.run.path / "workers" / str(self.shard.worker)
        return all(_bytes(here / name) == _bytes(self.shard.folder / name) for name in REPLICATED)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_every_line_is_with_the_master_while_the_run_goes_on(place: Path) -> None:
    pair = Pair(place)
    for sequence in range(3):
        pair.play(sequence)
        pair.shard.health(sample.health())
        pair.carry()
        assert pair.equal()
        assert pair.mirror.of(1).n_ended == sequence + 1
    totals = pair.shard.totals(pair.outbox.files())
    assert pair.mirror.missing(totals) == ()
    pair.mirror.sync(1)
    pair.mirror.close()
    seal = pair.run.seal()
    assert (seal.started, seal.completed, seal.unfinished) == (3, 3, 0)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), drop=st.floats(0, 0.6), batch_bytes=st.sampled_from([37, 211, 700, 100_000]))
def test_a_channel_that_loses_doubles_and_reorders_costs_nothing(seed: int, drop: float, batch_bytes: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        pair = Pair(Path(folder), batch_bytes=batch_bytes)
        todo, under_way = list(range(N_PLANNED)), []
        for _ in range(20_000):
            pair.now_s += chance.choice([0.0, 0.5, 2.5])
            if todo and chance.random() < 0.2:
                pair.play(todo.pop(0))
            if (batch := pair.outbox.next(pair.now_s)) is not None:
                under_way += [batch] * chance.choice([1, 1, 1, 2])
            chance.shuffle(under_way)
            if under_way and chance.random() > drop:
                answer = pair.mirror.apply(under_way.pop())
                if answer is not None and chance.random() > drop:
                    pair.outbox.have(answer, pair.now_s)
            elif under_way:
                under_way.pop()
            if not todo and pair.outbox.empty():
                break
        assert pair.equal()
        assert pair.mirror.missing(pair.shard.totals(pair.outbox.files())) == ()


def test_whatever_has_arrived_is_a_beginning_that_fits_together(place: Path) -> None:
    pair = Pair(place, batch_bytes=90)
    for sequence in range(4):
        pair.play(sequence)
    allowed = {"seal_missing", "planned_not_started", "torn_tail", "unfinished", "wire_unreferenced"}
    pair.shard.started(sample.started(4, worker=1))
    while (batch := pair.outbox.next(0.0)) is not None:
        answer = pair.mirror.apply(batch)
        assert answer is not None
        pair.outbox.have(answer, 0.0)
        found = {problem.code for problem in check_contents(read_contents(pair.run.path))}
        assert found <= allowed, found
    assert pair.equal()


def test_a_batch_of_another_run_is_refused_and_noticed_once(place: Path) -> None:
    pair = Pair(place)
    pair.play(0)
    batch = pair.outbox.next(0.0)
    assert batch is not None
    assert pair.mirror.apply(batch._replace(run_id="run-20260101T000000Z-ffffff")) is None
    assert "another run (run-20260101T000000Z-ffffff)" in pair.noticed[0]
    assert pair.mirror.of(1).number == 0
    assert pair.mirror.apply(batch) == Have(sample.RUN_ID, 1, 1)


def test_a_worker_that_was_not_admitted_writes_nothing(place: Path) -> None:
    pair = Pair(place)
    pair.play(0)
    batch = pair.outbox.next(0.0)
    assert batch is not None
    assert pair.mirror.apply(batch._replace(worker=2)) is None
    assert not (pair.run.path / "workers" / "2").exists()
    assert pair.mirror.apply(batch._replace(file="../../manifest.json")) is None
    assert len(pair.noticed) == 2


def test_bytes_that_are_not_those_of_their_digest_are_asked_for_again_and_then_refused(place: Path) -> None:
    pair = Pair(place)
    pair.play(0)
    batch = pair.outbox.next(0.0)
    assert batch is not None
    wrong = batch._replace(data=b"x" + batch.data[1:])
    assert pair.mirror.apply(wrong) == Have(sample.RUN_ID, 1, 0, gap=True)
    assert pair.mirror.apply(batch) == Have(sample.RUN_ID, 1, 1)
    again = pair.outbox.next(0.0)
    assert again is not None
    damaged = again._replace(data=b"x" + again.data[1:])
    answers = [pair.mirror.apply(damaged) for _ in range(3)]
    assert answers[-1] is None
    assert pair.mirror.apply(again) is None, "nothing more is taken from it"
    assert "refused for the third time" in pair.noticed[-1]


def test_no_more_than_a_window_is_under_way(place: Path) -> None:
    pair = Pair(place, batch_bytes=10)
    pair.play(0)
    sent = [pair.outbox.next(0.0) for _ in range(WINDOW + 3)]
    assert [one is not None for one in sent] == [True] * WINDOW + [False] * 3
    resent = pair.outbox.next(RESEND_AFTER_S + 0.1)
    assert resent == sent[0]
    assert pair.outbox.acknowledged == 0


def test_what_a_lost_worker_wrote_and_the_master_has_not_is_said_in_bytes(place: Path) -> None:
    pair = Pair(place)
    pair.play(0)
    pair.carry()
    pair.play(1)
    while pair.outbox.next(pair.now_s) is not None:
        pass  # made and never arrived
    missing = pair.mirror.missing(pair.shard.totals(pair.outbox.files()))
    assert {one.split(":")[0] for one in missing} == {"started.jsonl", "requests.jsonl", "wire/segments.bin"}
    seal = pair.run.seal()
    assert (seal.planned, seal.started, seal.completed) == (N_PLANNED, 1, 1)


@pytest.mark.parametrize(
    "change",
    [{"number": 0}, {"data": b""}, {"worker": True}, {"offset": -1}, {"sha256": None}, {"extra": 1}],
    ids=lambda change: next(iter(change)),
)
def test_a_message_that_is_no_batch_is_none(change: dict[str, object]) -> None:
    fields = {"run_id": "r", "worker": 1, "number": 1, "file": "started.jsonl", "offset": 0, "data": b"x"}
    whole = fields | {"sha256": hashlib.sha256(b"x").hexdigest()}
    assert Batch.of(whole) is not None
    assert Batch.of(whole | change) is None
    assert Batch.of([]) is None


def test_a_shard_says_whose_it_is_and_is_gone_once_removed(place: Path) -> None:
    pair = Pair(place)
    facts = read_shard(pair.shard.path)
    assert (facts.run_id, facts.worker, facts.client) == (sample.RUN_ID, 1, "host_1")
    with pytest.raises(EvidenceError, match=SHARD):
        read_shard(pair.run.path)
    pair.shard.remove()
    assert not pair.shard.path.exists()


def test_only_what_was_dealt_may_be_started_on_a_worker(place: Path) -> None:
    pair = Pair(place)
    with pytest.raises(EvidenceError, match="not in the plan"):
        pair.shard.started(sample.started(0, worker=1, plan_id="m9999"))
