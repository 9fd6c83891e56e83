"""Run as a process of its own: drives the gevent transport against a small server, prints what happened as JSON.

python -m tests.gevent_transport CASE
"""

import locust  # noqa: F401  first: it patches the process, as in a run

# ruff: noqa: I001
import json
import socket
import sys
import threading
import time
from typing import Any

import gevent

from infra.target import Target
from locustfiles._exchange import Exchange
from locustfiles._transports import WireTransport
from scenarios.plan import Message, PlannedRequest

BODY = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\ndata: [DONE]\n\n'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "
    + str(len(BODY)).encode()
    + b"\r\n\r\n"
    + BODY
)
PLANNED = PlannedRequest(
    plan_id="m0000", sequence=0, phase="measured", domain="code", prompt_id="c", prompt_sha256="0" * 64, level=None,
    pass_index=0, repeat=0, endpoint="chat", messages=(Message(role="user", content="x"),), prompt=None, max_tokens=4,
    temperature=0.0, seed=0, ignore_eos=False, salt=None, check=None,
)  # fmt: skip


class Server:
    """Accepts connections one after another and plays ``script``: one function a connection."""

    def __init__(self, *script: Any) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.n_requests = 0
        self._script = list(script)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def read(self, peer: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(peer)
        length = int(data.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(data) < data.index(b"\r\n\r\n") + 4 + length:
            data += self._more(peer)
        self.n_requests += 1

    def _more(self, peer: socket.socket) -> bytes:
        data = peer.recv(65536)
        if not data:
            raise ConnectionError("the client closed")
        return data

    def _serve(self) -> None:
        for play in self._script:
            peer, _ = self.listener.accept()
            play(self, peer)
        self.listener.close()


def answers(n: int, close: bool) -> Any:
    def play(server: Server, peer: socket.socket) -> None:
        for _ in range(n):
            server.read(peer)
            peer.sendall(ANSWER)
        if close:
            peer.close()
        else:
            server.kept = peer  # type: ignore[attr-defined]  kept from the collector

    return play


def answer_then_work_and_close(work_s: float) -> Any:
    def play(server: Server, peer: socket.socket) -> None:
        server.read(peer)
        peer.sendall(ANSWER)
        server.read(peer)
        time.sleep(work_s)
        peer.close()

    return play


def said(exchange: Exchange) -> dict[str, Any]:
    from locustfiles._exchange import facts_of

    return {
        "outcome": facts_of(exchange, lambda: None).outcome if exchange.failure is None else exchange.failure.outcome,
        "reused": None if exchange.connection is None else exchange.connection.reused,
        "sent_before": exchange.connection is not None and exchange.connection.sent_before_s is not None,
        "killed": exchange.killed,
        "notes": list(exchange.notes),
    }


def send(transport: WireTransport) -> dict[str, Any]:
    from locustfiles._exchange import facts_of

    exchange = transport.send(PLANNED, {"model": "m"})
    transport.keep(facts_of(exchange, lambda: None).reusable)
    return said(exchange)


def run(case: str) -> dict[str, Any]:
    scripts = {
        "kept": [answers(3, close=False)],
        "closed_after_each": [answers(1, close=True), answers(1, close=True), answers(1, close=True)],
        "worked_then_closed": [answer_then_work_and_close(0.3), answers(1, close=True)],
        "dropped_at_reuse": [answer_then_work_and_close(0.0), answers(1, close=True)],
        "dropped_and_gone": [answer_then_work_and_close(0.0)],
        "killed": [lambda server, peer: server.read(peer) or time.sleep(30)],
    }
    server = Server(*scripts[case])
    transport = WireTransport(Target.parse(server.url), {}, timeout_s=5.0, stall_s=None)
    if case == "killed":
        found: list[Any] = []
        user = gevent.spawn(lambda: found.append(said(transport.send(PLANNED, {"model": "m"}))))
        gevent.sleep(0.3)
        user.kill()
        return {"sent": found, "n_requests": server.n_requests}
    n = {"kept": 3, "closed_after_each": 3}.get(case, 2)
    return {"sent": [send(transport) for _ in range(n)], "n_requests": server.n_requests}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
