"""A worker's files carried to the master while they grow: byte ranges in numbered batches, acknowledged, sent again.

    evidence/outbox.py   on the worker: reads what its files have gained, and makes batches of it
    evidence/mirror.py   on the master: appends each batch to the same file of its own folder

Both sides only append, so what the master has is at every instant a beginning of what the worker has, and a batch that
comes twice changes nothing. The files of one worker grow in an order that keeps every beginning consistent: a line that
refers to another one (an end to its start, a reference to its raw segments) is sent after it.

Each batch carries the SHA-256 of the whole file up to its end: an acknowledged batch proves everything before it.
Nothing here knows a network, a clock or Locust: messages are dicts of plain values, and instants are arguments.
"""

from collections.abc import Mapping
from typing import NamedTuple

from evidence.layout import HEALTH, NOTICED, REQUESTS, SEGMENTS, STARTED, WIRE

WIRE_FILE = f"{WIRE}/{SEGMENTS}"
# The order in which a worker's files are sent. Their sizes are looked up in the opposite order.
REPLICATED = (STARTED, WIRE_FILE, REQUESTS, NOTICED, HEALTH)
BATCH_BYTES = 256 * 1024


class Batch(NamedTuple):
    """Bytes [offset, offset + len(data)) of one file of one worker; ``sha256`` is that of the file up to their end."""

    run_id: str
    worker: int
    number: int  # counts from 1 over all files of the worker
    file: str
    offset: int
    sha256: str
    data: bytes

    @classmethod
    def of(cls, message: object) -> "Batch | None":
        """The batch a message holds; None where it holds none."""
        if not isinstance(message, Mapping) or set(message) != set(cls._fields):
            return None
        types = {"run_id": str, "worker": int, "number": int, "file": str, "offset": int, "sha256": str, "data": bytes}
        if any(type(message[name]) is not kind for name, kind in types.items()):
            return None
        found = cls(**message)
        return found if found.worker >= 0 and found.number >= 1 and found.offset >= 0 and found.data else None


class Have(NamedTuple):
    """The mirror's answer: every batch up to ``number`` is on file. ``gap``: the next one is wanted again."""

    run_id: str
    worker: int
    number: int
    gap: bool = False
