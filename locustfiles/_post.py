"""Messages between a master and its workers, over Locust's own channel: in order, one handler, nothing swallowed.

Every message is a dict with its ``kind`` and, but for a worker's first ``hello``, the ``run_id`` it belongs to. Locust
prints what a handler raises and goes on; here the handler runs in a greenlet of ours, whose death ends the run.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import gevent
from gevent.queue import Queue

MESSAGE = "evidence"

Message = dict[str, Any]
Handler = Callable[[str, Message], None]  # who sent it (by Locust's name), and what


class Post(Protocol):
    """One end of the channel. A worker's messages go to its master, whatever ``client`` is."""

    def send(self, kind: str, client: str | None = None, **fields: Any) -> None: ...


class LocustPost:
    """The end of one Locust runner. ``on_failure`` is told where the handler died."""

    def __init__(self, runner: Any, handler: Handler, on_failure: Callable[[BaseException], None]) -> None:
        self._runner = runner
        self._handler = handler
        self._queue: Queue[tuple[str, Message]] = Queue()
        self._on_failure = on_failure
        runner.custom_messages.pop(MESSAGE, None)  # who kept quiet before (``keep_quiet``)
        runner.register_message(MESSAGE, self._received, concurrent=True)
        self._greenlet = gevent.spawn(self._handle)
        self._greenlet.link_exception(lambda dead: on_failure(dead.exception))

    def send(self, kind: str, client: str | None = None, **fields: Any) -> None:
        """Returns once the message is with the sender's own socket; whether it arrives, answers tell."""
        self._runner.send_message(MESSAGE, {"kind": kind, **fields}, client_id=client)

    def _received(self, msg: Any, **_environment: Any) -> None:
        if isinstance(msg.data, dict):
            self._queue.put((msg.node_id, msg.data))

    def _handle(self) -> None:
        for client, message in self._queue:
            self._handler(client, message)


def keep_quiet(runner: Any) -> None:
    """Workers say hello until a run has begun; until then there is nobody to answer, and nothing to warn of."""
    runner.register_message(MESSAGE, lambda **_: None)


class LocustWorkers:
    """What Locust's own master believes of its workers, kept in step with us.

    Locust spreads its users anew at once when a worker connects, and to do so it kills users in the middle of their
    requests: a worker that connects while a level runs is acknowledged and kept from the dispatcher until the level is
    over. Of a worker that we know to be lost it would go on counting the users for some seconds.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._handle: Callable[[str, Any], None] = runner.handle_message
        self._waiting: dict[str, Any] = {}
        self._holding = False
        runner.handle_message = self._filtered

    def hold(self) -> None:
        self._holding = True

    def let_in(self) -> None:
        self._holding = False
        waiting, self._waiting = self._waiting, {}
        for client, message in waiting.items():
            self._handle(client, message)

    def forget(self, client: str) -> None:
        """A worker is lost; its users, all idle ones, come to others."""
        self._waiting.pop(client, None)
        gevent.spawn(self._handle, client, SimpleNamespace(type="quit", data=None, node_id=client))

    def spread(self) -> None:
        """Users anew over all workers, where Locust left them as they were when the workers changed."""
        if self._runner.state == "running" and self._runner.spawning_completed:
            self._runner.start(self._runner.target_user_count, self._runner.spawn_rate)

    def _filtered(self, client: str, message: Any) -> None:
        if self._holding and message.type == "client_ready" and client not in self._runner.clients:
            self._waiting[client] = message
            self._runner.send_message("ack", client_id=client, data={"index": self._runner.get_worker_index(client)})
        elif message.type == "client_ready" and client in self._waiting:
            return
        else:
            self._handle(client, message)


def own_place() -> dict[str, Any]:
    """Where this process runs: host name, process id, and ``system``, equal where two ids may be compared.

    ``system`` is None where the kernel does not tell (not Linux).
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        system = f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  no path: "pid:[4026531836]"
    except OSError:
        system = None
    return {"host": socket.gethostname(), "pid": os.getpid(), "system": system}
