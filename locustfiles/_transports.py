"""The two ways a request's stream is timed: our own connection with kernel stamps, and the openai client beside it."""

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from greenlet import GreenletExit

from evidence.records import ConnectionFacts, ErrorFacts
from infra.dial import Dialed, DialError, dial, read_clocks
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.target import Target
from infra.wire.stamps import Ended, Segment
from locustfiles._exchange import Exchange, Failure
from locustfiles._loop import GEVENT_IO, converse
from scenarios.plan import PlannedRequest

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
CONNECT_TIMEOUT_S = 10.0
N_CLOCK_READINGS = 5
CANCELLED = Failure(
    outcome="cancelled", error=ErrorFacts(kind="GreenletExit", message="the run was stopped before anything was sent")
)


class Transport(Protocol):
    def send(self, planned: PlannedRequest, body: Mapping[str, Any]) -> Exchange:
        """One request and whatever came back. Never raises for what a server or a network does."""

    def keep(self, reusable: bool) -> None:
        """Whether the connection may carry the next request, once the last response has been read."""

    def close(self) -> None: ...


class WireTransport:
    """One user's connection: dialled when needed, kept alive where the server keeps it.

    A server may close a kept connection at the very moment it is used again. Such a request was never read: when a
    reused connection ends without one byte, the request is sent once more on a new one (t0 is that of the second), the
    record says so, and from then on this user dials for each request.
    """

    def __init__(self, target: Target, headers: Mapping[str, str], *, timeout_s: float, stall_s: float | None) -> None:
        self._target = target
        self._headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream"), *headers.items()]
        self._timeout_s = timeout_s
        self._stall_s = stall_s
        self._dialed: Dialed | None = None
        self._server_keeps = True

    def send(self, planned: PlannedRequest, body: Mapping[str, Any]) -> Exchange:
        payload = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        request = self._target.request("POST", PATHS[planned.endpoint], self._headers, payload)
        exchange = self._exchange(request, note=None)
        unread = exchange.ended in ("eof", "reset") and not exchange.segments
        if unread and exchange.connection is not None and exchange.connection.reused:
            self._server_keeps = False
            self.close()
            exchange = self._exchange(request, note="sent again: the server had closed the kept connection")
        return exchange

    def _exchange(self, request: bytes, note: str | None) -> Exchange:
        try:
            dialed, reused = self._connection()
        except DialError as error:
            return _nothing_sent(Failure(outcome=error.outcome, error=ErrorFacts(kind="DialError", message=str(error))))
        except GreenletExit:
            return _nothing_sent(CANCELLED)
        offset_ns = wall_minus_monotonic_ns()
        conn = dialed.conn
        t0_ns = converse(conn, request, timeout_s=self._timeout_s, stall_s=self._stall_s)
        ended, ended_ns = conn.ended, conn.ended_at_ns
        assert ended is not None and ended_ns is not None, "converse returns when the response has ended"
        return Exchange(
            transport="wire",
            framing="http",
            segments=conn.segments,
            ended=ended,
            t0_monotonic_ns=t0_ns,
            wall_minus_monotonic_ns=offset_ns,
            ended_monotonic_ns=ended_ns,
            wall_minus_monotonic_at_end_ns=wall_minus_monotonic_ns(),
            connection=ConnectionFacts(
                reused=reused,
                resolve_s=None if reused else dialed.resolve_s,
                connect_s=None if reused else dialed.connect_s,
                tls_s=None if reused else dialed.tls_s,
                tls_version=dialed.tls_version,
            ),
            notes=tuple(text for text in (note, conn.fault) if text),
        )

    def _connection(self) -> tuple[Dialed, bool]:
        if self._dialed is not None:
            if not self._dialed.conn.stale():
                return self._dialed, True
            self._server_keeps = False
            self.close()
        self._dialed = dial(self._target, min(CONNECT_TIMEOUT_S, self._timeout_s), io=GEVENT_IO)
        return self._dialed, False

    def keep(self, reusable: bool) -> None:
        if self._dialed is None:
            return
        if (
            reusable
            and self._server_keeps
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


class OpenAITransport:
    """The shared openai client: user stamps of a busy library, bodies without their HTTP framing."""

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client

    def send(self, planned: PlannedRequest, body: Mapping[str, Any]) -> Exchange:
        segments: list[Segment] = []
        status: int | None = None
        headers_ns: int | None = None
        ended: Ended = "complete"
        failure: Failure | None = None
        offset_ns = wall_minus_monotonic_ns()
        t0_ns = time.monotonic_ns()
        try:
            with self._client.stream(body, planned.endpoint) as opened:
                status, headers_ns = opened.status, opened.headers_ns
                framed = {name.lower() for name in opened.headers} & {"content-length", "transfer-encoding"}
                for user_ns, data in opened.segments():
                    segments.append(Segment(None, user_ns, data))
                ended = "complete" if framed else "eof"
        except OpenAITransportError as error:
            ended = "eof"
            status = status or error.status
            failure = Failure(
                outcome=error.outcome,
                error=ErrorFacts(kind=error.kind, message=error.message, http_status=error.status, body=error.body),
            )
        except GreenletExit:
            ended = "cancelled"
        return Exchange(
            transport="openai",
            framing="body",
            segments=segments,
            ended=ended,
            t0_monotonic_ns=t0_ns,
            wall_minus_monotonic_ns=offset_ns,
            ended_monotonic_ns=time.monotonic_ns(),
            wall_minus_monotonic_at_end_ns=wall_minus_monotonic_ns(),
            connection=None,
            http_status=status,
            headers_after_s=None if headers_ns is None else (headers_ns - t0_ns) / 1e9,
            failure=failure,
        )

    def keep(self, reusable: bool) -> None:
        """The library's pool decides."""

    def close(self) -> None:
        """The client is shared: the session closes it."""


def wall_minus_monotonic_ns() -> int:
    return read_clocks(N_CLOCK_READINGS).wall_minus_monotonic_ns


def _nothing_sent(failure: Failure) -> Exchange:
    now_ns = time.monotonic_ns()
    offset_ns = wall_minus_monotonic_ns()
    return Exchange(
        transport="wire",
        framing="http",
        segments=(),
        ended="cancelled" if failure.outcome == "cancelled" else "eof",
        t0_monotonic_ns=None,
        wall_minus_monotonic_ns=offset_ns,
        ended_monotonic_ns=now_ns,
        wall_minus_monotonic_at_end_ns=offset_ns,
        connection=None,
        failure=failure,
    )
