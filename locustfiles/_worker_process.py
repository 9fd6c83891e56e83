"""A Locust worker: it is told what to send, keeps its own lines, and ships them while it sends.

    hello -> run            a number, the briefing and the manifest; or refused, and the process ends
    deal, settle, begin     one level: its planned requests, then the instant it begins by this process's clock
    halt, over              no request is taken any more; the level has been drained
    end -> totals           everything is flushed, shipped and counted
    release                 the master has proven that it has every line: the shard may go

A worker whose master falls silent for a few seconds stops sending and ends; its shard stays, whole, on its disk.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from evidence.errors import EvidenceError
from evidence.processes import process_lives
from evidence.shard import Shard
from locustfiles._crew import Crew, Order
from locustfiles._post import Message, Post, own_place
from locustfiles._sender import Briefing, Keys, Sender
from locustfiles._shipping import Shipper
from scenarios.plan import PlannedRequest, read_planned

HELLO_EVERY_S = 0.5
RELEASE_S = 10.0  # after the totals are out
SILENT_S = 5.0  # so long without a word from the master: it is gone
TALLY_EVERY_S = 0.05
AT_LEAST_EVERY_S = 0.5


class MessageError(Exception):
    """A message of the master cannot be read; the message says which and what to do."""


class WorkerProcess:
    """One worker's part of one run. ``stop_users`` ends what is under way; ``leave`` ends the process.

    ``secrets`` are keys of this process, which reach no file.
    """

    def __init__(
        self,
        keys: Keys,
        run_dir: Path,
        *,
        secrets: tuple[str, ...],
        stop_users: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self.exit_code: int | None = None
        self.sender: Sender | None = None
        self.crew: Crew | None = None
        self.shard: Shard | None = None
        self.ready = Event()
        self.post: Post  # given by whoever makes both
        self._keys = keys
        self._run_dir = run_dir
        self._secrets = secrets
        self._stop_users = stop_users
        self._leave = leave
        self._sending: Sender | None = None  # None once it has been stopped
        self._shipper: Shipper | None = None
        self._dealt: dict[int, list[PlannedRequest]] = {}  # by deal
        self._deal = 0  # of the level under way
        self._heard_s: float | None = None
        self._master: Message | None = None
        self._ended = False
        self._said_all = False  # the totals are out
        self._released = Event()

    def start(self, post: Post) -> None:
        """Say hello until there is an answer."""
        self.post = post
        for work in (self._introduce, self._watch):
            gevent.spawn(work).link_exception(lambda dead: self.failed(dead.exception))

    def heard(self) -> None:
        """The master gave a sign of life."""
        self._heard_s = time.monotonic()

    def take(self, _client: str, message: Message) -> None:
        """One message of the master.

        Raises EvidenceError where the shard cannot be written, and MessageError for a message that is none.
        """
        kind = message.get("kind")
        try:
            self._take(kind, message)
        except (KeyError, TypeError, ValueError) as error:
            what = f"the master's message {str(kind)[:40]!r} is none ({type(error).__name__}: {str(error)[:200]})"
            raise MessageError(f"{what}: run the same version of this program on the master and here") from error

    def _take(self, kind: object, message: Message) -> None:
        if self.shard is None:
            if kind == "run":
                self._join(message)
            elif kind == "refused":
                self._end_for(str(message["why"]), exit_code=1)
            return
        if message.get("run_id") != self.shard.manifest.run_id:
            return  # another master's, on the same port
        self.heard()
        handler: Callable[[Message], None] | None = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(message)

    def failed(self, error: BaseException) -> None:
        """This process's recorder failed: the master is told, which ends the run."""
        if self.exit_code is not None:
            return
        self.exit_code = error.exit_code if isinstance(error, EvidenceError) else 1
        print(f"this worker stops: {type(error).__name__}: {error}", file=sys.stderr)
        run_id = None if self.shard is None else self.shard.manifest.run_id
        self.post.send("failed", run_id=run_id, error=f"{type(error).__name__}: {error}", exit_code=self.exit_code)
        if self.crew is not None:
            self.crew.close()

    def close(self) -> None:
        """The process ends: what is not with the master yet goes there, as far as the master answers.

        The shard goes where the master has released it, or where nothing was ever sent.
        """
        if self.shard is not None and not self._ended:
            self._ended = True
            self._end()
        if self._said_all:
            self._released.wait(RELEASE_S)
        shard, self.shard = self.shard, None
        if shard is None:
            return
        self._stop_sender()
        if self._shipper is not None:
            self._shipper.stop()
        if self._released.is_set() or shard.n_started == 0:
            shard.remove()
            return
        shard.close()
        print(f"this worker's lines stay at {shard.path}", file=sys.stderr)

    def _introduce(self) -> None:
        while self.shard is None and not self._ended:
            self.post.send("hello", **own_place())
            gevent.sleep(HELLO_EVERY_S)

    def _join(self, message: Message) -> None:
        briefing = Briefing.model_validate_json(message["briefing"])
        manifest: bytes = message["manifest"]
        self.shard = Shard(
            self._run_dir, manifest, briefing.worker, client=message["client_name"], secrets=self._secrets
        )
        self.heard()
        self._master = message["master"]
        self._shipper = Shipper(self.shard, self.post, message["shards"])
        self.sender = self._sending = Sender(briefing, self.shard, self._keys)
        self.crew = Crew(self.sender)
        self.sender.on_ended = self.crew.ended
        self._shipper.start(self.failed)
        self.sender.start(self.failed)
        said = self.sender.prime()
        if said is not None:
            self.shard.notice(said)
        gevent.spawn(self._tell).link_exception(lambda dead: self.failed(dead.exception))
        self._say("ready", worker=briefing.worker, shard=str(self.shard.path.resolve()))
        self.ready.set()

    def _say(self, kind: str, **fields: Any) -> None:
        assert self.shard is not None
        self.post.send(kind, run_id=self.shard.manifest.run_id, **fields)

    def _on_run(self, _message: Message) -> None:
        assert self.shard is not None
        self._say("ready", worker=self.shard.worker, shard=str(self.shard.path.resolve()))

    def _on_ping(self, message: Message) -> None:
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        self._say("pong", sent_ns=message["sent_ns"], read_ns=now_ns, wall_ns=wall_ns, answered_ns=time.monotonic_ns())

    def _on_have(self, message: Message) -> None:
        assert self._shipper is not None
        self._shipper.have(message)

    def _on_deal(self, message: Message) -> None:
        assert self.shard is not None
        lines: list[bytes] = message["lines"]
        self.shard.deal(lines)
        dealt = self._dealt.setdefault(message["number"], [])
        dealt += map(read_planned, lines)
        if message["last"]:
            self._say("dealt", number=message["number"], n_lines=len(dealt))

    def _on_settle(self, _message: Message) -> None:
        assert self.crew is not None
        self.crew.ready()

    def _on_begin(self, message: Message) -> None:
        assert self.crew is not None
        self._deal = message["number"]
        order = Order.model_validate_json(message["order"])
        lines = self._dealt.pop(self._deal, [])
        assert self.sender is not None
        self.sender.age.n = order.sent_since_reset
        self.crew.begin(order, lines, place=message["place"], n_places=message["n_places"])

    def _on_halt(self, _message: Message) -> None:
        assert self.crew is not None
        self.crew.halt()

    def _on_over(self, _message: Message) -> None:
        assert self.crew is not None
        self.crew.over()

    def _on_end(self, _message: Message) -> None:
        if not self._ended:
            self._ended = True
            gevent.spawn(self._end).link_exception(lambda dead: self.failed(dead.exception))

    def _on_refused(self, message: Message) -> None:
        self._end_for(str(message["why"]), exit_code=1)

    def _on_release(self, _message: Message) -> None:
        self._released.set()

    def _end(self) -> None:
        assert self.shard is not None and self.crew is not None
        assert self.sender is not None and self._shipper is not None
        self.crew.close()
        self._stop_users()
        self._stop_sender()
        files = self._shipper.finish()
        if files is None:
            return
        self._shipper.stop()
        self._say_tally()
        where, is_whole = self._shipper.where()
        self._say("totals", totals=self.shard.totals(files).model_dump_json(), where=where, is_whole=is_whole)
        self._said_all = self._shipper.ships or is_whole

    def _stop_sender(self) -> None:
        sender, self._sending = self._sending, None
        if sender is None:
            return
        try:
            sender.stop()
        except EvidenceError as error:
            self.failed(error)  # what was written before is sent all the same
        sender.close()

    def _tell(self) -> None:
        """How far the level is, whenever something has moved, and now and then as a sign of life."""
        assert self.crew is not None
        while not self._ended:
            self.crew.wait(AT_LEAST_EVERY_S)
            self._say_tally()
            gevent.sleep(TALLY_EVERY_S)

    def _say_tally(self) -> None:
        assert self.crew is not None
        self._say("tally", number=self._deal, tally=self.crew.tally().model_dump_json())

    def _watch(self) -> None:
        while not self._ended:
            gevent.sleep(0.5)
            if self.shard is not None and self._heard_s is not None and self._master_is_gone():
                self._end_for("the master is gone; this worker stops sending", exit_code=1)

    def _master_is_gone(self) -> bool:
        assert self._heard_s is not None and self._master is not None
        system = own_place()["system"]
        if system is not None and system == self._master["system"] and not process_lives(self._master["pid"]):
            return True
        return time.monotonic() - self._heard_s > SILENT_S

    def _end_for(self, why: str, *, exit_code: int) -> None:
        """There is no master to send anything to: the shard stays where lines are in it."""
        print(why, file=sys.stderr)
        self._ended = True
        self.exit_code = exit_code
        if self.crew is not None:
            self.crew.close()
        gevent.spawn(self._leave)
