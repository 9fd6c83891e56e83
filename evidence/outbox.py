"""What of a worker's files the master does not have yet: batches of it, until they are acknowledged."""

import hashlib
from collections import deque
from pathlib import Path
from typing import NamedTuple

from evidence.errors import EvidenceError
from evidence.replication import BATCH_BYTES, REPLICATED, Batch, Have
from evidence.worker_records import FileTotal

WINDOW = 8  # batches under way at once
RESEND_AFTER_S = 2.0


class _Sent(NamedTuple):
    number: int
    file: str
    offset: int
    n_bytes: int
    sha256: str


class Outbox:
    """What of a worker's folder (``workers/<n>/`` of its shard) the mirror does not have yet."""

    def __init__(
        self, folder: Path, run_id: str, worker: int, *, batch_bytes: int = BATCH_BYTES, window: int = WINDOW
    ) -> None:
        self._folder = folder
        self._run_id = run_id
        self._worker = worker
        self._batch_bytes = batch_bytes
        self._window = window
        self._read: dict[str, int] = dict.fromkeys(REPLICATED, 0)  # bytes made into batches
        self._hashes = {name: hashlib.sha256() for name in REPLICATED}
        self._todo: list[tuple[str, int]] = []  # files and the sizes to read them up to
        self._under_way: deque[_Sent] = deque()
        self._again: deque[_Sent] = deque()
        self._n_made = 0
        self._heard_at_s = 0.0
        self.n_resent = 0

    @property
    def acknowledged(self) -> int:
        """The number of the last batch of which the mirror said that it has it."""
        return self._under_way[0].number - 1 if self._under_way else self._n_made

    def next(self, now_s: float) -> Batch | None:
        """The next batch to send; None while nothing is new, or while enough is under way.

        Raises EvidenceError where a file cannot be read.
        """
        if self._under_way and now_s - self._heard_at_s > RESEND_AFTER_S and not self._again:
            self._send_again(now_s)
        if self._again:
            sent = self._again.popleft()
            self.n_resent += 1
            return self._batch(sent, self._bytes(sent.file, sent.offset, sent.n_bytes))
        if len(self._under_way) >= self._window:
            return None
        if not self._todo:
            self._look()
        if not self._todo:
            return None
        file, size = self._todo[0]
        offset = self._read[file]
        data = self._bytes(file, offset, min(self._batch_bytes, size - offset))
        self._hashes[file].update(data)
        self._read[file] += len(data)
        if self._read[file] >= size:
            self._todo.pop(0)
        self._n_made += 1
        sent = _Sent(self._n_made, file, offset, len(data), self._hashes[file].hexdigest())
        if not self._under_way:
            self._heard_at_s = now_s
        self._under_way.append(sent)
        return self._batch(sent, data)

    def have(self, answer: Have, now_s: float) -> None:
        """Take the mirror's answer in. An answer to another run or worker is ignored."""
        if (answer.run_id, answer.worker) != (self._run_id, self._worker):
            return
        while self._under_way and self._under_way[0].number <= answer.number:
            self._under_way.popleft()
            self._heard_at_s = now_s
        while self._again and self._again[0].number <= answer.number:
            self._again.popleft()
        if answer.gap and not self._again:
            self._send_again(now_s)

    def empty(self) -> bool:
        """Whether everything written so far is with the mirror."""
        if self._under_way:
            return False
        if not self._todo:
            self._look()
        return not self._todo

    def files(self) -> dict[str, FileTotal]:
        """Every file there is, as far as it was read: whole once ``empty``."""
        return {
            name: FileTotal(n_bytes=n_bytes, sha256=self._hashes[name].hexdigest())
            for name, n_bytes in self._read.items()
            if n_bytes or (self._folder / name).exists()
        }

    def _send_again(self, now_s: float) -> None:
        self._again = deque(self._under_way)
        self._heard_at_s = now_s

    def _look(self) -> None:
        """What the files have gained. The last file of the order is looked at first: a line has its cause before it."""
        sizes = {name: self._size(name) for name in reversed(REPLICATED)}
        self._todo = [(name, sizes[name]) for name in REPLICATED if sizes[name] > self._read[name]]

    def _size(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def _bytes(self, file: str, offset: int, n_bytes: int) -> bytes:
        path = self._folder / file
        try:
            with path.open("rb", buffering=0) as opened:
                opened.seek(offset)
                data = opened.read(n_bytes)
        except OSError as error:
            raise EvidenceError(path, f"cannot be read ({error.strerror})", "check the worker's disk") from error
        if len(data) != n_bytes:
            what = f"has lost bytes: {len(data)} of {n_bytes} from byte {offset} on"
            raise EvidenceError(path, what, "check the worker's disk; nothing may change a shard while it is written")
        return data

    def _batch(self, sent: _Sent, data: bytes) -> Batch:
        return Batch(self._run_id, self._worker, sent.number, sent.file, sent.offset, sent.sha256, data)
