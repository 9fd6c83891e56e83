"""The workers of a run as one crew: dealt to, told when a level begins and ends, and counted together.

The conductor of a run talks to this as to the users of its own process. A worker that is lost counts no more: a level
ends without it, and the seal says what of its lines is here. One that comes late takes part from the next level on.
"""

import time
from collections.abc import Callable

import gevent
from gevent.event import Event

from evidence.errors import EvidenceError
from evidence.layout import MANIFEST
from evidence.records import Request
from evidence.worker_records import Totals
from locustfiles._crew import Order, Tally
from locustfiles._dealing import Part, in_messages, parts_of
from locustfiles._lines_in import LinesIn
from locustfiles._post import LocustWorkers, Message, Post, own_place
from locustfiles._recorder import Recorder
from locustfiles._roster import Member, Roster
from locustfiles._said import fault_of

ANSWER_S = 15.0  # for a deal to be confirmed
BEGIN_IN_S = 0.1  # from the order to the instant all workers begin
FINISH_S = 20.0  # at the end, without a line from a worker that still owes some
UNEVEN_S = 1.5
N_PINGS = 8
PING_EVERY_S = 1.0
CANNOT_WRITE = 3


class WorkersFailed(Exception):
    """A worker's recorder failed, or too few workers came; the message says which and why."""


class Workers:
    """Made on the master, once a run. ``on_ended`` is told of every record that arrives, where it is given."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        n_expected: int,
        shards: str = "ship",
        locust: LocustWorkers | None = None,
        on_ended: Callable[[Request], None] | None = None,
    ) -> None:
        self.post: Post  # given by whoever makes both
        self._recorder = recorder
        self._run_id = recorder.run_id
        self._manifest = (recorder.path / MANIFEST).read_bytes()
        self._mirror = recorder.writer.mirror()
        self._roster = Roster(recorder.writer, self._mirror, on_lost=self._forget)
        self._lines_in = LinesIn(recorder.writer, self._mirror, self._roster, on_ended=on_ended)
        self._n_expected = n_expected
        self._shards = shards
        self._locust = locust
        self._moved = Event()
        self._deal = 0
        self._n_aged = 0  # requests of this deal that the age of the cache has in it
        self._level: str | None = None
        self._running = False
        self._began_s: float | None = None
        self._uneven_since_s: float | None = None
        self._done = False
        self._pinging: gevent.Greenlet | None = None

    # what the conductor does

    @property
    def n_processes(self) -> int:
        """Of those that take part; 1 where there is none, and then no user comes either."""
        return max(1, len(self._roster.taking_part()))

    def gather(self, timeout_s: float) -> None:
        """Wait until the expected number of workers is ready. Raises WorkersFailed when the time has passed."""
        self._pinging = gevent.spawn(self._ping_on)
        self._pinging.link_exception(lambda dead: self._recorder.beside_failed(dead.exception))
        due_s = time.monotonic() + timeout_s
        while len(self._roster.taking_part()) < self._n_expected:
            if time.monotonic() > due_s:
                there = len(self._roster.taking_part())
                raise WorkersFailed(
                    f"{there} of {self._n_expected} workers were ready after {timeout_s:g} s: see what the others print"
                )
            self.wait(0.1)
        self._measure_clocks()

    def ready(self) -> None:
        """A level is about to begin."""
        self._tell("settle")
        self._measure_clocks()

    def begin(self, order: Order) -> None:
        """Deal the level's requests, each to one worker; begin once all have confirmed what they have.

        Raises WorkersFailed where no worker is left.
        """
        self._level = order.label
        while True:
            members = self._roster.taking_part()
            if not members:
                raise WorkersFailed("no worker is left: see what the last ones printed")
            self._deal += 1
            parts = parts_of(self._recorder.plan, order, len(members))
            for member, part in zip(members, parts, strict=True):
                self._roster.record("dealt", member, self._level, plan_ids=tuple(line.plan_id for line in part))
                for lines, last in in_messages(part):
                    self._to(member, "deal", number=self._deal, lines=lines, last=last)
            if self._confirmed(members, parts):
                break
            self._recorder.notice(f"level {self._level}: dealt again, for a worker was lost while it was dealt to")
        self._n_aged, alone = 0, sum(map(bool, parts)) == 1
        order = order.model_copy(update={"sent_since_reset": self._recorder.age.n if alone else None})
        self._began_s = max(order.begin_at_monotonic_s or 0.0, time.monotonic() + BEGIN_IN_S)
        if self._locust is not None:
            self._locust.hold()
        self._running = True
        for place, (member, part) in enumerate(zip(members, parts, strict=True)):
            theirs_s = self._began_s + member.offset_monotonic_ns / 1e9
            own = order.model_copy(update={"begin_at_monotonic_s": theirs_s}).model_dump_json()
            member.deal, member.tally = self._deal, Tally(n_seats=member.tally.n_seats, n_left=len(part))
            self._to(member, "begin", number=self._deal, order=own, place=place, n_places=len(members))

    def halt(self) -> None:
        """No request of the level is taken any more."""
        self._tell("halt")
        self._running = False
        self._age()

    def over(self) -> None:
        """The level has been drained."""
        self._tell("over")
        self._running = False
        self._level = None
        self._age()
        if self._locust is not None:
            self._locust.let_in()

    def _age(self) -> None:
        """What the level has sent since this was asked last ages the server's cache; of a lost worker nobody knows."""
        n_sent = self.tally().n_started
        lost = any(member.lost and member.deal == self._deal for member in self._roster.members.values())
        self._recorder.age.sent_elsewhere(None if lost else n_sent - self._n_aged)
        self._n_aged = n_sent

    def tally(self) -> Tally:
        """Of all workers. Of one that was lost, what it had begun and ended still counts, and nothing is left.

        Seats count as far as every worker has as many: each takes its share of a level.
        """
        total = Tally(began_at_monotonic_s=self._began_s)
        for member in self._roster.members.values():
            own = member.tally if member.deal == self._deal else Tally(n_seats=member.tally.n_seats)
            if member.lost or member.totals is not None:
                gone = dict.fromkeys(("n_seats", "n_let_go", "n_left", "n_under_way", "n_unread"), 0)
                own = own.model_copy(update=gone | {"n_lost": own.n_left})
            total = total + own
        seats = [member.tally.n_seats for member in self._roster.taking_part()]
        if seats and max(seats) != min(seats):
            return total.model_copy(update={"n_seats": len(seats) * min(seats)})
        return total

    def _spread_users(self) -> None:
        """Between levels, users that have stayed uneven for a while are spread anew."""
        seats = [member.tally.n_seats for member in self._roster.taking_part()]
        if self._running or self._locust is None or not seats or max(seats) == min(seats):
            self._uneven_since_s = None
        elif self._uneven_since_s is None:
            self._uneven_since_s = time.monotonic()
        elif time.monotonic() - self._uneven_since_s > UNEVEN_S:
            self._uneven_since_s = None
            self._locust.spread()

    def wait(self, timeout_s: float) -> None:
        """Until a worker has said something, or the time has passed."""
        self._moved.wait(timeout_s)
        self._moved.clear()
        self._roster.find_lost(self._level)
        self._spread_users()

    def _forget(self, member: Member) -> None:
        if self._locust is not None:
            self._locust.forget(member.client)

    def close(self) -> None:
        """The end of the run: every worker stops, flushes, ships and counts; what is here is proven, or noticed.

        Doing so twice is harmless.
        """
        if self._done:
            return
        self._done = True
        for member in self._roster.owing():
            self._to(member, "end")
        n_batches, news_s = self._mirror.n_batches, time.monotonic()
        while owing := self._roster.owing():
            self.wait(0.1)
            if self._mirror.n_batches != n_batches:
                n_batches, news_s = self._mirror.n_batches, time.monotonic()
            if time.monotonic() - news_s > FINISH_S:
                for member in owing:
                    self._roster.give_up(member, None, f"it owed lines and sent none for {FINISH_S:g} s")
        if self._pinging is not None:
            self._pinging.kill()
        self._mirror.close()

    # what workers say

    def take(self, client: str, message: Message) -> None:
        """One message; what is none is noticed and refused. Raises EvidenceError where the folder cannot be written."""
        fault = fault_of(message)
        if fault is not None:
            self._roster.malformed(client, fault)
            return
        kind, run_id = message["kind"], message.get("run_id")
        if kind == "hello":
            self._hello(client, message)
            return
        member = self._roster.members.get(client)
        if member is None or run_id != self._run_id:
            if kind != "failed":
                self._roster.refuse(client, f"it belongs to run {run_id}, and this is {self._run_id}")
            self.post.send("refused", client, run_id=run_id, why=f"this master runs {self._run_id}")
            return
        if self._roster.heard(member, self._level):
            self._to(member, "halt")
        if kind == "batch":
            answer = self._lines_in.batch(member, message)
            if answer is not None:
                self._to(member, "have", worker=answer.worker, number=answer.number, gap=answer.gap)
        elif kind == "tally":
            if message["number"] == self._deal or not member.deal:
                member.tally, member.deal = Tally.model_validate_json(message["tally"]), message["number"]
        elif kind == "pong":
            self._roster.pong(member, message, time.monotonic_ns())
        elif kind == "ready":
            self._roster.is_ready(member, message["shard"], self._level)
        elif kind == "dealt":
            member.n_dealt[message["number"]] = message["n_lines"]
        elif kind == "totals":
            self._totals(member, message)
        elif kind == "failed":
            self._failed(member, str(message["error"]), int(message["exit_code"]))
        self._moved.set()

    def _hello(self, client: str, message: Message) -> None:
        if self._done:
            self.post.send("refused", client, run_id=self._run_id, why="the run is over")
            return
        member = self._roster.members.get(client)
        if member is None:
            place = {name: message.get(name) for name in ("host", "pid", "system")}
            member = self._roster.join(client, place)
            if member.number >= self._n_expected:
                when = "from the next level on" if self._running else "from now on"
                self._recorder.notice(f"worker {member.number} came late and takes part {when}")
        self._to(
            member,
            "run",
            client_name=client,
            briefing=self._recorder.briefing(member.number).model_dump_json(),
            manifest=self._manifest,
            shards=self._shards,
            master=own_place(),
        )

    def _totals(self, member: Member, message: Message) -> None:
        if member.totals is None:
            totals = Totals.model_validate_json(message["totals"])
            if (totals.run_id, totals.worker) != (self._run_id, member.number):
                self._roster.malformed(member.client, f"totals: they are of worker {totals.worker} of {totals.run_id}")
                return
            member.totals = totals
            member.where, member.copied = message["where"], message["is_whole"]
            if not self._done:
                self._recorder.notice(f"worker {member.number} was told to end before the run was over, and has ended")
            member.may_go = self._lines_in.prove(member, self._shards)
        if member.may_go:
            self._to(member, "release")

    def _failed(self, member: Member, error: str, exit_code: int) -> None:
        what = f"worker {member.number} on {member.place.get('host')} stopped: {error}"
        self._roster.give_up(member, self._level, f"its recorder failed: {error}", still_there=True)
        remedy = "see that worker's disk and messages, and run again"
        if exit_code == CANNOT_WRITE:
            self._recorder.beside_failed(EvidenceError(self._recorder.path, what, remedy, writing=True))
        else:
            self._recorder.beside_failed(WorkersFailed(f"{what}; {remedy}"))

    # how it is done

    def _confirmed(self, members: list[Member], parts: list[Part]) -> bool:
        due_s = time.monotonic() + ANSWER_S
        while True:
            late = [one for one, part in zip(members, parts, strict=True) if one.n_dealt.get(self._deal) != len(part)]
            if any(one.lost or one.totals is not None for one in members):
                return False
            if not late:
                return True
            if time.monotonic() > due_s:
                for member in late:
                    self._roster.give_up(member, self._level, "it did not confirm its requests")
                return False
            self.wait(0.05)

    def _measure_clocks(self) -> None:
        """Some pings one after the other, and a line for each worker that has answered any."""
        for _ in range(N_PINGS):
            self._tell("ping", sent_ns=time.monotonic_ns())
            gevent.sleep(0.01)
        gevent.sleep(0.05)
        for member in self._roster.taking_part():
            self._roster.clock(member)

    def _ping_on(self) -> None:
        while True:
            gevent.sleep(PING_EVERY_S)
            self._tell("ping", sent_ns=time.monotonic_ns())
            self._roster.find_lost(self._level)

    def _tell(self, kind: str, **fields: object) -> None:
        for member in self._roster.taking_part():
            self._to(member, kind, **fields)

    def _to(self, member: Member, kind: str, **fields: object) -> None:
        self.post.send(kind, member.client, run_id=self._run_id, **fields)
