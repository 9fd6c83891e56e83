"""The two ways a request's stream is timed: our own connection with kernel stamps, and the openai client beside it."""

import contextlib
import errno
import json
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from greenlet import GreenletExit

from evidence.records import ConnectionFacts, ErrorFacts
from infra.dial import Dialed, DialError, dial, read_clocks
from infra.openai_client import OpenAIClient, OpenAITransportError, Opened
from infra.target import Target
from infra.wire.stamps import Ended, Segment
from locustfiles._exchange import Exchange, Failure
from locustfiles._loop import GEVENT_IO, closed_while_idle, converse, wait_until
from scenarios.plan import PlannedRequest

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
CONNECT_TIMEOUT_S = 10.0
NEVER_SENT = ("connect_refused", "connect_failed", "tls_failed")
N_CLOCK_READINGS = 5
SPARE_DESCRIPTORS = 32  # for evidence, scrapes and what the system is asked of this process
WATCHED_S = 0.05  # before the first reuse of a connection
UNREAD_WITHIN_S = 0.005  # or two round trips, where those are longer
CANCELLED = Failure(
    outcome="cancelled", error=ErrorFacts(kind="GreenletExit", message="the run was stopped before anything was sent")
)


def most_connections() -> int | None:
    """How many connections leave this process the descriptors it needs for its files; None where that is not known."""
    try:
        n_open = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else max(1, limit - n_open - SPARE_DESCRIPTORS)


class Transport(Protocol):
    def prepare(self) -> None:
        """Makes a connection ready, ahead of the instant a request is due. What fails here will fail in ``send``."""

    def send(self, planned: PlannedRequest, body: Mapping[str, Any], *, due_ns: int | None = None) -> Exchange:
        """One request, at the monotonic instant it is due or at once, and whatever came back.

        Never raises for what a server or a network does.
        """

    def keep(self, reusable: bool) -> None:
        """Whether the connection may carry the next request, once the last response has been read."""

    def close(self) -> None: ...


@dataclass(kw_only=True)
class Habits:
    """What the connections of one process share: what one of them has shown of the server, and how many there are."""

    keeps: bool | None = None  # connections stay open between requests; None: not known
    n_open: int = 0
    most_open: int | None = None  # beyond it none is made; None: the system decides


class WireTransport:
    """One user's connection: dialled when needed, kept alive where the server keeps it.

    Some servers close a kept connection after each answer without saying so: before the first reuse the connection is
    watched for a moment, outside of any timing. A server may still close one at the very moment it is used again: when
    the request could not be sent whole, or the connection ended without one byte within a round trip, it was not read
    and is sent once more on a new one (``connection.sent_before_s``). Anything later is the server's failure.
    """

    def __init__(
        self,
        target: Target,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        stall_s: float | None,
        habits: Habits | None = None,
    ) -> None:
        self._target = target
        self._headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream"), *headers.items()]
        self._timeout_s = timeout_s
        self._stall_s = stall_s
        self._dialed: Dialed | None = None
        self._carried = False  # whether the connection has carried a request
        self._server_keeps: bool | None = None  # None: not known yet
        self._habits = habits or Habits()

    def prepare(self) -> None:
        with contextlib.suppress(DialError):
            self._connection()

    def send(self, planned: PlannedRequest, body: Mapping[str, Any], *, due_ns: int | None = None) -> Exchange:
        payload = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        request = self._target.request("POST", PATHS[planned.endpoint], self._headers, payload)
        first = self._exchange(request, sent_first_ns=None, due_ns=due_ns)
        if not self._was_not_read(first):
            return first
        self._server_keeps = False
        self.close()
        again = self._exchange(request, sent_first_ns=first.t0_monotonic_ns)
        if again.t0_monotonic_ns is None:
            reason = again.failure.error.message if again.failure else "no connection"
            return replace(first, killed=again.killed, notes=(*first.notes, f"could not be sent again: {reason}"))
        return again

    def _was_not_read(self, exchange: Exchange) -> bool:
        if exchange.connection is None or not exchange.connection.reused or exchange.segments or exchange.killed:
            return False
        if exchange.ended not in ("eof", "reset") or exchange.t0_monotonic_ns is None or self._dialed is None:
            return False
        round_trip_s = max(UNREAD_WITHIN_S, 2 * self._dialed.connect_s)
        took_s = (exchange.ended_monotonic_ns - exchange.t0_monotonic_ns) / 1e9
        return took_s < round_trip_s or any(note.startswith("sending:") for note in exchange.notes)

    def _exchange(self, request: bytes, *, sent_first_ns: int | None, due_ns: int | None = None) -> Exchange:
        try:
            dialed, reused = self._connection()
            if due_ns is not None:
                wait_until(due_ns)
        except DialError as error:
            return _nothing_sent(Failure(outcome=error.outcome, error=ErrorFacts(kind="DialError", message=str(error))))
        except GreenletExit:
            return _nothing_sent(CANCELLED)
        clocks = read_clocks(N_CLOCK_READINGS)
        conn = dialed.conn
        self._carried = True
        t0_ns, killed = converse(conn, request, timeout_s=self._timeout_s, stall_s=self._stall_s)
        ended, ended_ns = conn.ended, conn.ended_at_ns
        assert ended is not None and ended_ns is not None, "converse returns when the response has ended"
        notes = [conn.fault] if conn.fault else []
        if conn.want_write:
            notes.append("the response ended before the request was sent whole")
        return Exchange(
            transport="wire",
            framing="http",
            segments=conn.segments,
            ended=ended,
            t0_monotonic_ns=t0_ns,
            clocks=clocks,
            ended_monotonic_ns=ended_ns,
            clocks_at_end=read_clocks(N_CLOCK_READINGS),
            connection=ConnectionFacts(
                reused=reused,
                resolve_s=None if reused else dialed.resolve_s,
                connect_s=None if reused else dialed.connect_s,
                tls_s=None if reused else dialed.tls_s,
                tls_version=dialed.tls_version,
                sent_before_s=None if sent_first_ns is None else (t0_ns - sent_first_ns) / 1e9,
            ),
            reusable=conn.reusable,
            killed=killed,
            notes=tuple(notes),
        )

    def _connection(self) -> tuple[Dialed, bool]:
        if self._dialed is not None:
            conn = self._dialed.conn
            if not self._carried and not conn.stale():
                return self._dialed, False
            if self._server_keeps is None:
                self._server_keeps = self._habits.keeps or not closed_while_idle(conn, WATCHED_S)
                self._habits.keeps = self._habits.keeps or self._server_keeps or None
            if self._carried and self._server_keeps and not conn.stale():
                return self._dialed, True
            self.close()
        self._dialed = self._dial()
        self._carried = False
        return self._dialed, False

    def _dial(self) -> Dialed:
        habits = self._habits
        if habits.most_open is not None and habits.n_open >= habits.most_open:
            detail = f"{os.strerror(errno.EMFILE)}: {habits.n_open} connections are open, the rest is for the evidence"
            raise DialError(self._target, "connect_failed", detail, "Raise the limit (ulimit -n), or use fewer users")
        habits.n_open += 1
        try:
            return dial(self._target, min(CONNECT_TIMEOUT_S, self._timeout_s), io=GEVENT_IO)
        except BaseException:
            habits.n_open -= 1
            raise

    def keep(self, reusable: bool) -> None:
        if self._dialed is None:
            return
        if (
            reusable
            and self._server_keeps is not False
            and self._dialed.conn.ended == "complete"
            and not self._dialed.conn.want_write
        ):
            self._dialed.conn.reset()
        else:
            self.close()

    def close(self) -> None:
        if self._dialed is not None:
            self._dialed.conn.close()
            self._dialed = None
            self._habits.n_open -= 1


class OpenAITransport:
    """The shared openai client: each chunk is stamped when the library hands its object over, as to any of its users.

    Bodies come without their HTTP framing. Its t0 is the instant of the call, so a connection that it has to make first
    is part of its latencies.
    """

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client

    def prepare(self) -> None:
        """The library connects when it sends."""

    def send(self, planned: PlannedRequest, body: Mapping[str, Any], *, due_ns: int | None = None) -> Exchange:
        segments: list[Segment] = []
        status: int | None = None
        headers_ns: int | None = None
        ended: Ended = "complete"
        failure: Failure | None = None
        killed = False
        opened: Opened | None = None
        try:
            if due_ns is not None:
                wait_until(due_ns)
        except GreenletExit:
            return replace(_nothing_sent(CANCELLED), transport="openai", framing="body")
        clocks = read_clocks(N_CLOCK_READINGS)
        t0_ns = time.monotonic_ns()
        try:
            with self._client.stream(body, planned.endpoint) as opened:
                status, headers_ns = opened.status, opened.headers_ns
                framed = {name.lower() for name in opened.headers} & {"content-length", "transfer-encoding"}
                opened.receive(segments)
                ended = "complete" if framed else "eof"
        except OpenAITransportError as error:
            ended = "eof"
            status = status or error.status
            failure = Failure(
                outcome=error.outcome,
                error=ErrorFacts(kind=error.kind, message=error.message, http_status=error.status, body=error.body),
            )
        except GreenletExit:
            ended, killed = "cancelled", True
        sent = failure is None or failure.outcome not in NEVER_SENT
        return Exchange(
            transport="openai",
            framing="body",
            segments=segments,
            ended=ended,
            t0_monotonic_ns=t0_ns if sent else None,
            clocks=clocks,
            ended_monotonic_ns=time.monotonic_ns(),
            clocks_at_end=read_clocks(N_CLOCK_READINGS),
            connection=None,
            http_status=status,
            headers_after_s=None if headers_ns is None else (headers_ns - t0_ns) / 1e9,
            failure=failure,
            killed=killed,
            refusal=None if opened is None else opened.refusal,
            notes=() if opened is None or opened.refusal is None else (opened.refusal,),
        )

    def keep(self, reusable: bool) -> None:
        """The library's pool decides."""

    def close(self) -> None:
        """The client is shared: the session closes it."""


def _nothing_sent(failure: Failure) -> Exchange:
    clocks = read_clocks()
    cancelled = failure.outcome == "cancelled"
    return Exchange(
        transport="wire",
        framing="http",
        segments=(),
        ended="cancelled" if cancelled else "eof",
        t0_monotonic_ns=None,
        clocks=clocks,
        ended_monotonic_ns=time.monotonic_ns(),
        clocks_at_end=clocks,
        connection=None,
        failure=failure,
        killed=cancelled,
    )
