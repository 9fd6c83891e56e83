"""A master and any number of simulated workers in one process: the real protocol, shards and mirror, and no network."""

import importlib
import json
import resource
import time
from collections import deque
from pathlib import Path
from typing import Any, cast

from benchmarks.sample_lines import new_run, plan_of, send
from evidence.folder import RunWriter
from evidence.outbox import WINDOW, Outbox
from evidence.replication import Have
from evidence.shard import Shard
from locustfiles._crew import Order, Tally
from locustfiles._recorder import Recorder
from locustfiles._sender import Briefing
from locustfiles._workers import Workers
from scenarios.plan import Plan, PlannedRequest

msgpack: Any = importlib.import_module("msgpack")  # comes with Locust, whose messages it packs; it carries no types


class SimulatedRecorder:
    """What ``Workers`` asks of a recorder."""

    def __init__(self, writer: RunWriter, plan: Plan) -> None:
        self.writer, self.plan = writer, plan
        self.run_id, self.path = writer.manifest.run_id, writer.path
        self._manifest = writer.manifest.model_dump_json()

    def briefing(self, worker: int) -> Briefing:
        return Briefing(
            run_id=self.run_id,
            worker=worker,
            manifest_json=self._manifest,
            host="http://127.0.0.1:1",
            transport="wire",
            model="m",
            request_extra={},
            timeout_s=60.0,
            stall_s=None,
            wire_limit_bytes=1 << 40,
            first_line=None,
        )

    def notice(self, text: str) -> None:
        self.writer.notice(text)

    def beside_failed(self, error: BaseException) -> None:
        raise error


class SimulatedWorker:
    """The worker's side of the protocol without a process, a network or a server."""

    def __init__(self, client: str, crowd: "Crowd") -> None:
        self.client, self.crowd = client, crowd
        self.shard: Shard | None = None
        self.lines: list[PlannedRequest] = []
        self.released = False

    def take(self, message: dict[str, Any]) -> None:
        kind, shard = message["kind"], self.shard
        if kind == "run":
            number = Briefing.model_validate_json(message["briefing"]).worker
            self.shard = Shard(self.crowd.folder / "workers", message["manifest"], number, client=self.client)
            window = WINDOW if self.crowd.ships else 1 << 40
            self.outbox = Outbox(self.shard.folder, message["run_id"], number, window=window)
            self.say("ready", shard=str(self.shard.path))
            self.say_tally(0, Tally(n_seats=1))
        elif kind == "ping":
            now_ns = time.monotonic_ns()
            self.say("pong", sent_ns=message["sent_ns"], read_ns=now_ns, wall_ns=time.time_ns(), answered_ns=now_ns)
        elif kind == "deal" and shard is not None:
            shard.deal(message["lines"])
            self.lines += [self.crowd.by_id[json.loads(line)["plan_id"]] for line in message["lines"]]
            if message["last"]:
                self.say("dealt", number=message["number"], n_lines=len(self.lines))
        elif kind == "begin":
            self.number, self.playing = message["number"], True
            self.crowd.playing.append(self)
        elif kind == "have":
            self.outbox.have(
                Have(message["run_id"], message["worker"], message["number"], message["gap"]), time.monotonic()
            )
            self.ship()
        elif kind == "end":
            self.end()
        elif kind == "release":
            self.released = True

    def play(self) -> bool:
        """One request, and its lines on their way; False when there is none left."""
        assert self.shard is not None
        if not self.lines:
            return False
        send(self.shard, self.crowd.run_id, self.lines.pop(0), self.crowd.n_chunks)
        n_started = self.shard.n_started
        self.say_tally(self.number, Tally(n_seats=1, n_let_go=1, n_left=len(self.lines), n_started=n_started))
        self.ship()
        return True

    def ship(self) -> None:
        while self.crowd.ships and (batch := self.outbox.next(time.monotonic())) is not None:
            self.say("batch", **batch._asdict())

    def end(self) -> None:
        assert self.shard is not None
        while not self.crowd.ships and self.outbox.next(0.0) is not None:
            pass
        if self.crowd.ships and not self.outbox.empty():
            self.ship()
            self.crowd.ending.append(self)
            return
        totals = self.shard.totals(self.outbox.files()).model_dump_json()
        self.say("totals", totals=totals, where=str(self.shard.path), is_whole=False)

    def say_tally(self, number: int, tally: Tally) -> None:
        self.say("tally", number=number, tally=tally.model_dump_json())

    def say(self, kind: str, **fields: Any) -> None:
        run_id = {} if kind == "hello" else {"run_id": self.crowd.run_id}
        self.crowd.to_master.append((self.client, packed({"kind": kind, **run_id, **fields})))


class SimulatedMaster(Workers):
    """Whatever it waits for, its workers do at once."""

    crowd: "Crowd"
    at_once = False

    def wait(self, timeout_s: float) -> None:
        if self.at_once:
            self.crowd.settle(in_master=True)
        else:
            super().wait(timeout_s)


class Crowd:
    """A master and its simulated workers, with two queues between them."""

    def __init__(self, folder: Path, n_workers: int, n_requests: int, n_chunks: int, *, shards: str) -> None:
        self.folder, self.n_chunks, self.ships = folder, n_chunks, shards == "ship"
        plan = plan_of(folder, n_requests, n_workers)
        self.by_id = {planned.plan_id: planned for planned in plan.measured}
        self.writer = new_run(folder / "master", plan, n_workers)
        self.run_id = self.writer.manifest.run_id
        self.to_master: deque[tuple[str, bytes]] = deque()
        self.to_workers: deque[tuple[str, bytes]] = deque()
        self.playing: list[SimulatedWorker] = []
        self.ending: list[SimulatedWorker] = []
        self.master_s = 0.0  # within the master's code
        self.inner_s = 0.0  # of it, within what the master waits for
        self.master = SimulatedMaster(
            cast(Recorder, SimulatedRecorder(self.writer, plan)), n_expected=n_workers, shards=shards
        )
        self.master.post = self
        self.master.crowd = self
        self.workers = {f"host_{n}": SimulatedWorker(f"host_{n}", self) for n in range(n_workers)}
        self.level = plan.levels[0]

    def send(self, kind: str, client: str | None = None, **fields: Any) -> None:
        assert client is not None
        self.to_workers.append((client, packed({"kind": kind, **fields})))

    def settle(self, *, in_master: bool = False) -> None:
        """Every message is taken, until none is left. ``in_master``: called from within the master's own code."""
        while self.to_master or self.to_workers or self.ending:
            for worker in self.ending[:]:
                self.ending.remove(worker)
                worker.end()
            while self.to_master:
                client, data = self.to_master.popleft()
                began_s = time.process_time()
                self.master.take(client, msgpack.loads(data, raw=False))
                took_s = time.process_time() - began_s
                self.inner_s += took_s if in_master else 0.0
                self.master_s += 0.0 if in_master else took_s
            while self.to_workers:
                client, data = self.to_workers.popleft()
                self.workers[client].take(msgpack.loads(data, raw=False))

    def run(self) -> dict[str, float]:
        began_s = time.process_time()
        for worker in self.workers.values():
            worker.say("hello", host="host", pid=1, system=None)
        self.settle()
        gathered_s = time.process_time()
        self.master.at_once = True
        self.master.begin(Order(label=self.level.label, kind="concurrency", users=len(self.workers)))
        self.settle()
        dealt_s = time.process_time()
        before_s = self.master_s
        busy = True
        while busy:
            busy = sum(worker.play() for worker in self.playing) > 0
            self.settle()
        sent_s = time.process_time()
        level_s = self.master_s - before_s
        self.inner_s = 0.0
        self.master.close()
        self.settle()
        ended_s = time.process_time()
        seal = self.writer.seal()
        sealed_s = time.process_time()
        assert seal.completed == seal.planned == seal.started, seal.noticed
        return {
            "n_workers": len(self.workers),
            "n_records": seal.completed,
            "gather_s": gathered_s - began_s,
            "deal_s": dealt_s - gathered_s,
            "level_master_s": level_s,
            "level_master_records_per_s": seal.completed / level_s,
            "end_master_s": self.inner_s,
            "end_wall_s": ended_s - sent_s,
            "seal_s": sealed_s - ended_s,
            "master_folder_bytes": sum(path.stat().st_size for path in self.writer.path.rglob("*") if path.is_file()),
            "shards_left": sum(not worker.released for worker in self.workers.values()),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def packed(message: dict[str, Any]) -> bytes:
    """As Locust sends it."""
    data: bytes = msgpack.dumps(message)
    return data
