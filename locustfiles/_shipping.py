"""A worker's lines on their way to the master while the worker sends: batches of what is new, until acknowledged.

Reading and sending happen in a greenlet of the worker itself. Kernel receive stamps do not move while it works; what it
costs is in the worker's own health lines.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from evidence.outbox import WINDOW, Outbox
from evidence.redact import redact_text
from evidence.replication import Have
from evidence.shard import Shard
from evidence.worker_records import FileTotal
from locustfiles._post import Post

LOOK_EVERY_S = 0.1
WAIT_FOR_ANSWERS_S = 20.0  # without one, at the end; the shard stays then


class Shipper:
    """Ships one shard where ``shards`` is "ship"; else it only knows what is in it.

    "keep": the shard stays where it is. Anything else is a folder or URL, to which a process of its own copies it
    (evidence/shard_store.py).
    """

    def __init__(self, shard: Shard, post: Post, shards: str) -> None:
        self._shard = shard
        self._post = post
        self.ships = shards == "ship"
        window = WINDOW if self.ships else 1 << 40  # what is not sent is only read, for its digest
        self._outbox = Outbox(shard.folder, shard.manifest.run_id, shard.worker, window=window)
        self._news = Event()
        self._stopping = False
        self._greenlet: gevent.Greenlet | None = None
        self._heard_s = time.monotonic()
        self._where = shards
        self._copying: subprocess.Popen[str] | None = None

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        """Begin to ship, or to copy; once. ``on_failure`` is told what ends the shipping before ``stop`` does.

        Raises OSError where the process that copies cannot be started.
        """
        if self.ships:
            self._greenlet = gevent.spawn(self._ship)
            self._greenlet.link_exception(lambda dead: on_failure(dead.exception))
        elif self._where != "keep":
            self._copying = subprocess.Popen(
                [sys.executable, "-m", "evidence.shard_store", str(self._shard.path), self._where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def have(self, message: dict[str, Any]) -> None:
        """The master has said what it has."""
        self._heard_s = time.monotonic()
        answer = Have(message["run_id"], message["worker"], message["number"], bool(message["gap"]))
        self._outbox.have(answer, self._heard_s)
        self._news.set()

    def finish(self) -> dict[str, FileTotal] | None:
        """Every line goes out and is acknowledged; the digests of the files.

        None where the master did not answer for a while: nothing is proven, and the shard must stay.
        """
        if not self.ships:
            while self._outbox.next(0.0) is not None:
                gevent.sleep(0)
            return self._outbox.files()
        self._heard_s = time.monotonic()
        while not self._outbox.empty():
            if time.monotonic() - self._heard_s > WAIT_FOR_ANSWERS_S:
                return None
            self._news.set()
            gevent.sleep(LOOK_EVERY_S / 4)
        return self._outbox.files()

    def where(self) -> tuple[str, bool]:
        """Where the shard can be had from now on, and whether all of it is there; waits for whoever copies it."""
        if self._copying is None:
            return str(self._shard.path.resolve()), False
        said, _ = self._copying.communicate()
        if self._copying.returncode != 0:
            return f"{self._shard.path.resolve()} (it could not be copied to {redact_text(self._where)})", False
        return redact_text(said.strip()), True

    def stop(self) -> None:
        """No batch goes out any more, acknowledged or not; whoever copies looks once more and ends by itself.

        Stopping twice is harmless.
        """
        self._stopping = True
        self._news.set()
        if self._greenlet is not None:
            self._greenlet.kill()
        if self._copying is not None and self._copying.stdin is not None:
            with contextlib.suppress(OSError):
                self._copying.stdin.close()

    def _ship(self) -> None:
        while not self._stopping:
            self._news.clear()
            while (batch := self._outbox.next(time.monotonic())) is not None:
                self._post.send("batch", **batch._asdict())
                gevent.sleep(0)
            self._news.wait(LOOK_EVERY_S)
