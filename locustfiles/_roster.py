"""Who sends for a master: each worker's number, whether it lives, its clocks, and how far it is."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evidence.folder import RunWriter
from evidence.mirror import Mirror
from evidence.processes import process_lives
from evidence.worker_records import Totals, WorkerClock, WorkerEvent, WorkerEventKind
from locustfiles._crew import Tally
from locustfiles._post import Message, own_place

LOST_S = 10.0  # so long without a word from a worker on another system: it is lost
NOTED_MESSAGES = 5  # refused ones, of each client
HUNG_S = 30.0  # the same of one on this system, whose process is there


@dataclass(slots=True)
class Ping:
    """One answer: the round trip, and what the worker's clocks differ by (evidence.worker_records.WorkerClock)."""

    sent_ns: int
    round_trip_ns: int
    offset_monotonic_ns: int
    offset_unix_ns: int


@dataclass(slots=True)
class Member:
    """One worker. ``ready``: it has its shard, and may be dealt to."""

    number: int
    client: str
    place: Message  # host, pid, system
    heard_s: float
    ready: bool = False
    lost: bool = False  # for good: it is dealt nothing any more
    returned: bool = False  # it was lost, and is heard again: what it has is still taken
    shard: str | None = None
    deal: int = 0  # of its last tally
    tally: Tally = field(default_factory=Tally)
    n_dealt: dict[int, int] = field(default_factory=dict)  # by deal: lines it has said it has
    pings: list[Ping] = field(default_factory=list)
    offset_monotonic_ns: int = 0
    totals: Totals | None = None  # it has ended, with all it wrote
    where: str | None = None
    copied: bool = False  # all of its shard is there
    may_go: bool = False  # its lines are proven to be here


class Roster:
    """The members of one run, and what is recorded of them."""

    def __init__(self, writer: RunWriter, mirror: Mirror, *, on_lost: Callable[[Member], None]) -> None:
        self.members: dict[str, Member] = {}  # by client
        self._writer = writer
        self._mirror = mirror
        self._on_lost = on_lost
        self._run_id = writer.manifest.run_id
        self._system = own_place()["system"]
        self._refused: set[str] = set()
        self._malformed: Counter[str] = Counter()  # by client

    def join(self, client: str, place: Message) -> Member:
        """A new worker, with the next number."""
        member = Member(len(self.members), client, place, time.monotonic())
        self._mirror.admit(member.number)
        self.members[client] = member
        return member

    def refuse(self, client: str, why: str) -> None:
        """Note a stranger, once."""
        if client in self._refused:
            return
        self._refused.add(client)
        self._writer.notice(f"worker {client} was refused: {why}")
        self._write(event="refused", worker=None, client=client, host=None, pid=None, detail=why)

    def malformed(self, client: str, fault: str) -> None:
        """Note that a message was refused which is none a worker may send; of each client the first few."""
        self._malformed[client] += 1
        if self._malformed[client] > NOTED_MESSAGES:
            return
        last = "; more of it are refused without a word" if self._malformed[client] == NOTED_MESSAGES else ""
        remedy = "run the same version of this program on the master and on every worker"
        self._writer.notice(f"a message of worker {client} was refused: {fault}; {remedy}{last}")

    def taking_part(self) -> list[Member]:
        """Those that can be dealt to, by number."""
        return [one for one in self.members.values() if one.ready and not one.lost and one.totals is None]

    def owing(self) -> list[Member]:
        """Those that have not yet said what they wrote in all, and may still do so."""
        heard = (one for one in self.members.values() if one.ready and (one.returned or not one.lost))
        return [one for one in heard if one.totals is None]

    def is_ready(self, member: Member, shard: str, level: str | None) -> None:
        """It has its shard, and may be dealt to."""
        if not member.ready:
            member.ready, member.shard = True, shard
            self.record("joined", member, level)

    def heard(self, member: Member, level: str | None) -> bool:
        """A sign of life; True where it is the first of a lost worker."""
        member.heard_s = time.monotonic()
        if not member.lost or member.returned:
            return False
        member.returned = True
        what = f"worker {member.number} was heard again after it had been given up"
        self._writer.notice(f"{what}: its lines are taken, and it gets no more requests")
        self.record("returned", member, level)
        return True

    def find_lost(self, level: str | None) -> list[Member]:
        """Those that have fallen silent since the last look, or whose process has ended on this system."""
        gone = [one for one in self.members.values() if one.totals is None and self._is_gone(one)]
        for one in gone:
            one.returned = False
        found = [one for one in gone if not one.lost]
        for one in found:
            self.give_up(one, level, f"not heard for {time.monotonic() - one.heard_s:.1f} s")
        return found

    def give_up(self, member: Member, level: str | None, why: str, *, still_there: bool = False) -> None:
        """A worker is lost: what is here of it stands in the folder. ``still_there``: it may yet send what it owes."""
        member.lost, member.returned = True, still_there
        standing = self._mirror.of(member.number)
        under_way = standing.n_started - standing.n_ended
        here = f"{standing.n_started} started and {standing.n_ended} ended requests of it are here"
        place = f"{member.place.get('host')}, process {member.place.get('pid')}"
        shard = f"; its own lines lie there in {member.shard}" if member.shard else ""
        lost = f"worker {member.number} ({place}) was lost: {why}; {here}, {under_way} of them without an end"
        self._writer.notice(f"{lost}, up to batch {standing.number}{shard}")
        self.record("lost", member, level, detail=why)
        self._on_lost(member)

    def record(
        self,
        event: WorkerEventKind,
        member: Member,
        level: str | None = None,
        *,
        plan_ids: tuple[str, ...] = (),
        detail: str | None = None,
    ) -> None:
        """One line of ``workers.jsonl``, with what is here of the worker."""
        standing = self._mirror.of(member.number)
        self._write(
            event=event,
            worker=member.number,
            client=member.client,
            host=member.place.get("host"),
            pid=member.place.get("pid"),
            level=level,
            plan_ids=plan_ids,
            n_batches=standing.number,
            files=dict(standing.sizes),
            shard=member.shard,
            detail=detail,
        )

    def pong(self, member: Member, message: Message, read_ns: int) -> None:
        """An answer to a ping."""
        sent_ns, theirs_ns, answered_ns = message["sent_ns"], message["read_ns"], message["answered_ns"]
        ours_ns = (sent_ns + read_ns) // 2
        wall_ours_ns = ours_ns + time.time_ns() - time.monotonic_ns()
        member.pings.append(
            Ping(
                sent_ns=sent_ns,
                round_trip_ns=(read_ns - sent_ns) - (answered_ns - theirs_ns),
                offset_monotonic_ns=(theirs_ns + answered_ns) // 2 - ours_ns,
                offset_unix_ns=message["wall_ns"] - theirs_ns + (theirs_ns + answered_ns) // 2 - wall_ours_ns,
            )
        )

    def clock(self, member: Member) -> None:
        """One line of ``clocks.jsonl`` from the pings answered since the last one, if there are any."""
        pings, member.pings = member.pings, []
        if not pings:
            return
        best = min(pings, key=lambda one: one.round_trip_ns)
        member.offset_monotonic_ns = best.offset_monotonic_ns
        self._writer.worker_clock(
            WorkerClock(
                run_id=self._run_id,
                worker=member.number,
                at_unix_s=(best.sent_ns + time.time_ns() - time.monotonic_ns()) / 1e9,
                at_monotonic_s=best.sent_ns / 1e9,
                n_pings=len(pings),
                offset_monotonic_s=best.offset_monotonic_ns / 1e9,
                offset_unix_s=best.offset_unix_ns / 1e9,
                bound_s=max(0, best.round_trip_ns) / 2e9,
            )
        )

    def _is_gone(self, member: Member) -> bool:
        pid, silent_s = member.place.get("pid"), time.monotonic() - member.heard_s
        if self._system is not None and member.place.get("system") == self._system and isinstance(pid, int):
            return not process_lives(pid) or silent_s > HUNG_S
        return silent_s > LOST_S

    def _write(self, **fields: Any) -> None:
        event = WorkerEvent(run_id=self._run_id, at_unix_s=time.time(), at_monotonic_s=time.monotonic(), **fields)
        self._writer.worker_event(event)
