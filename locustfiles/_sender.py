"""What a process that sends needs and does: many users at once, each request from its started to its ended line.

A ``Sender`` knows no run folder: it writes to a sink (evidence.worker.WorkerWriter, here or on another host) and is
told everything else by one value, the ``Briefing``, which travels as JSON. Keys travel in none: each process has its
own.
"""

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gevent
from greenlet import GreenletExit
from pydantic import BaseModel, ConfigDict

from evidence.frames import SegmentTuple
from evidence.records import Health, Request, Started, WireRef
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.target import Target
from locustfiles._desk import Desk, Ended
from locustfiles._health import SENTINEL_INTERVAL_S, HealthMonitor
from locustfiles._options import UsageError
from locustfiles._transports import Habits, OpenAITransport, Transport, WireTransport, most_connections
from scenarios.plan import PlannedRequest
from scenarios.planned import read_planned

PRIMING = "Say hello."  # of no prompt file: what is measured is in no cache for it


class Sink(Protocol):
    """Where a sender's evidence goes: the writer of one worker. Every method may raise EvidenceError."""

    def started(self, record: Started) -> None: ...
    def wire(self, sequence: int, segments: Sequence[SegmentTuple]) -> WireRef | None: ...
    def read_back(self, ref: WireRef) -> Sequence[SegmentTuple]: ...
    def ended(self, record: Request) -> None: ...
    def health(self, record: Health) -> None: ...


class Briefing(BaseModel):
    """Everything a process must know to send its part of a run, keys aside. ``model_dump_json`` carries it."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    run_id: str
    worker: int
    manifest_json: str  # the manifest's one line, for whoever writes a worker's folder elsewhere
    host: str
    transport: Literal["wire", "openai"]
    model: str
    request_extra: dict[str, Any]  # the engine's and the user's own body fields
    timeout_s: float
    stall_s: float | None
    wire_limit_bytes: int
    first_line: str | None  # the plan's first request, whose fields priming takes; None where the plan has none


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What this process itself was given: never written, never sent to another process by us."""

    api_key: str | None
    own_headers: dict[str, str]  # --header

    @property
    def headers(self) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}), **self.own_headers}


def keys_of(own_headers: Mapping[str, str]) -> Keys:
    """From the environment and ``--header``. Raises UsageError for a key that no header can carry."""
    key = os.environ.get("OPENAI_API_KEY")
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise UsageError(
            "OPENAI_API_KEY holds white space, a line break or other signs no header can carry: set it anew"
        )
    return Keys(api_key=key, own_headers=dict(own_headers))


class ResetAge:
    """How many requests were sent since the server's cache was last reset; None before the first reset.

    Of several processes each is told how many it is when it alone sends a level; where several send, the order of
    their requests is not known as they go out, and the age of each is None.
    """

    def __init__(self) -> None:
        self.n: int | None = None

    def reset(self) -> None:
        self.n = 0

    def sending(self) -> int | None:
        """The age at which a request goes out; it is one more from then on."""
        age = self.n
        if self.n is not None:
            self.n += 1
        return age

    def sent_elsewhere(self, n: int | None) -> None:
        """Another process has sent so many; None: nobody knows how many, as of one that was lost."""
        self.n = None if n is None or self.n is None else self.n + n


class Sender:
    """Sends for the users of this process. ``on_ended`` is told of every record once its line is written."""

    def __init__(self, briefing: Briefing, sink: Sink, keys: Keys, *, age: ResetAge | None = None) -> None:
        self.briefing = briefing
        self.in_flight = 0
        self.n_started = 0
        self.n_ended = 0
        self.on_ended: Callable[[Request], None] | None = None
        self._sink = sink
        self._keys = keys
        self.age = age or ResetAge()
        self._habits = Habits(most_open=most_connections())
        self._health = HealthMonitor(sink.health, lambda: self.in_flight, lambda: self.n_unread)
        self._desk = Desk(self._keep, sink.read_back, self._write, lambda: self.in_flight)
        self._settled = False
        self._openai: OpenAIClient | None = None
        if briefing.transport == "openai":
            self._openai = OpenAIClient(
                briefing.host,
                api_key=keys.api_key,
                timeout_s=briefing.timeout_s,
                stall_s=briefing.stall_s,
                headers=keys.own_headers,
            )

    def transport(self) -> Transport:
        """A transport for one user; the openai client is shared."""
        if self._openai is not None:
            return OpenAITransport(self._openai)
        return WireTransport(
            Target.parse(self.briefing.host),
            self._keys.headers,
            timeout_s=self.briefing.timeout_s,
            stall_s=self.briefing.stall_s,
            habits=self._habits,
        )

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        """Begins to watch this process's own condition; ``on_failure`` is told where that cannot be written."""
        self._health.start(on_failure)
        self._desk.start(on_failure)

    def prime(self) -> str | None:
        """One unmeasured request where the openai client needs it; what to note about it, None where none was sent.

        Before any level: what the server counts of it is none of a level's.
        """
        if self._openai is None or self.briefing.first_line is None:
            return None
        planned = read_planned(self.briefing.first_line)
        asked = (
            {"prompt": PRIMING} if planned.messages is None else {"messages": [{"role": "user", "content": PRIMING}]}
        )
        try:
            self._openai.prime(self.body_of(planned) | asked, planned.endpoint)
        except OpenAITransportError as error:
            return f"the priming request failed: {error}"
        return "one priming request of one token was sent before the warm-up, unmeasured"

    def settle(self) -> None:
        """Before a window: what is garbage is collected now, and what that took is not taken for lateness.

        The intervals of health before and after it are others: requests fall into neither of its own.
        """
        self._health.cut()
        gevent.sleep(2 * SENTINEL_INTERVAL_S)
        gc.collect()
        gc.freeze()
        self._settled = True
        self._health.cut()

    def unsettle(self) -> None:
        """After a window; does nothing where none was."""
        if self._settled:
            gc.unfreeze()
            self._settled = False

    @property
    def n_unread(self) -> int:
        """Requests that have ended and whose line is not written yet."""
        return self._desk.n_waiting

    def drain(self) -> None:
        """Waits until every request that has ended has its line."""
        self._desk.drain()

    def stop(self) -> None:
        """Nothing is sent any more. Doing so twice is harmless."""
        self._desk.drain()
        self._health.stop()

    def close(self) -> None:
        if self._openai is not None:
            self._openai.close()
            self._openai = None

    def body_of(self, planned: PlannedRequest) -> dict[str, Any]:
        """The request's body: what the plan says, then the engine's and the user's own fields."""
        body: dict[str, Any] = {"model": self.briefing.model}
        if planned.messages is not None:
            body["messages"] = [message.model_dump() for message in planned.messages]
        else:
            body["prompt"] = planned.prompt
        body.update(stream=True, max_tokens=planned.max_tokens, temperature=planned.temperature, seed=planned.seed)
        if planned.ignore_eos:
            body["ignore_eos"] = True
        return {**body, **self.briefing.request_extra}

    def send(
        self,
        planned: PlannedRequest,
        transport: Transport,
        *,
        due_ns: int | None = None,
        told: Callable[[Request], None] | None = None,
    ) -> None:
        """One planned request from its started line to the end of its answer.

        Its record is made and written by the desk, at once where no other request is under way, and then ``told`` is
        told of it. ``due_ns`` is the monotonic instant it is scheduled for: it is sent then, or at once where that is
        past. Raises GreenletExit, once the desk has it, where the user was killed meanwhile.
        """
        started = Started(
            run_id=self.briefing.run_id,
            worker=self.briefing.worker,
            sequence=self.n_started,
            plan_id=planned.plan_id,
            started_at_unix_s=time.time(),
            started_at_monotonic_s=time.monotonic(),
        )
        self._sink.started(started)
        self.n_started += 1
        since_reset = self.age.sending()
        self.in_flight += 1
        gc.disable()
        try:
            exchange = transport.send(planned, self.body_of(planned), due_ns=due_ns)
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                gc.enable()
        transport.keep(exchange.reusable)
        self._desk.put(
            Ended(
                planned=planned, started=started, exchange=exchange, since_reset=since_reset, due_ns=due_ns, told=told
            )
        )
        if exchange.killed:
            raise GreenletExit

    def _keep(self, ended: Ended) -> tuple[WireRef | None, str | None]:
        segments = ended.exchange.segments
        if not segments:
            return None, "nothing was received"
        wire = self._sink.wire(ended.started.sequence, segments)
        missing = f"beyond the manifest's {self.briefing.wire_limit_bytes} bytes of raw segments"
        return wire, missing if wire is None else None

    def _write(self, ended: Ended, record: Request) -> None:
        self._sink.ended(record)
        self.n_ended += 1
        self._health.ended(record)
        if self.on_ended is not None:
            self.on_ended(record)
        if ended.told is not None:
            ended.told(record)
