"""The master's copy of its workers' files: the same bytes in the same places, so that every reference stays true."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.durable import cannot_write, sync_folder
from evidence.errors import EvidenceError
from evidence.layout import REQUESTS, STARTED, WIRE, WORKERS
from evidence.replication import BATCH_BYTES, REPLICATED, Batch, Have
from evidence.worker_records import Totals

_OPEN_FILES = 256  # at once: a thousand workers have five files each


@dataclass(slots=True)
class Standing:
    """What the mirror has of one worker."""

    number: int = 0  # of the last batch applied
    sizes: dict[str, int] = field(default_factory=dict)
    n_started: int = 0
    n_ended: int = 0
    refused: str | None = None  # why nothing more is taken from it
    hashes: dict[str, Any] = field(default_factory=dict)
    n_wrong: int = 0


class Mirror:
    """The master's copy of its workers' files, in ``workers/<n>/`` of the run folder at ``path``.

    ``notice`` is told of everything that is refused. Every method raises EvidenceError where the folder cannot be
    written, after which the run must stop.
    """

    def __init__(self, path: Path, run_id: str, notice: Callable[[str], None]) -> None:
        self._path = path
        self._run_id = run_id
        self._notice = notice
        self._workers: dict[int, Standing] = {}
        self._open: OrderedDict[tuple[int, str], int] = OrderedDict()
        self.n_batches = 0
        self.n_bytes = 0

    def admit(self, worker: int) -> None:
        """Make the folder of a new worker. Its batches are refused before."""
        try:
            (self._path / WORKERS / str(worker) / WIRE).mkdir(parents=True)
        except OSError as error:
            raise cannot_write(self._path / WORKERS / str(worker), error) from error
        self._workers[worker] = Standing()

    def of(self, worker: int) -> Standing:
        """What is here of a worker that was admitted."""
        return self._workers[worker]

    def apply(self, batch: Batch) -> Have | None:
        """Append a batch. What is here already is acknowledged once more; after a gap the next one is asked for again.

        None where the batch is refused: of another run, of a worker that was not admitted, of a file no worker has, or
        with bytes that are not those of its digest for the third time.
        """
        if batch.run_id != self._run_id:
            self._notice(f"lines of another run ({batch.run_id}) were sent here and refused: an orphan worker is about")
            return None
        standing = self._workers.get(batch.worker)
        if standing is None or batch.file not in REPLICATED or len(batch.data) > 16 * BATCH_BYTES:
            self._notice(f"a batch of worker {batch.worker}, file {batch.file!r}, was refused: none such was agreed on")
            return None
        if standing.refused is not None:
            return None
        size = standing.sizes.get(batch.file, 0)
        if batch.number <= standing.number:
            return Have(self._run_id, batch.worker, standing.number)
        if batch.number != standing.number + 1:
            return Have(self._run_id, batch.worker, standing.number, gap=True)
        digest = standing.hashes.get(batch.file, hashlib.sha256()).copy()
        digest.update(batch.data)
        if batch.offset != size or digest.hexdigest() != batch.sha256:
            return self._wrong(standing, batch, size)
        self._append(batch)
        standing.hashes[batch.file] = digest
        standing.sizes[batch.file] = size + len(batch.data)
        standing.number, standing.n_wrong = batch.number, 0
        if batch.file == STARTED:
            standing.n_started += batch.data.count(b"\n")
        elif batch.file == REQUESTS:
            standing.n_ended += batch.data.count(b"\n")
        self.n_batches += 1
        self.n_bytes += len(batch.data)
        return Have(self._run_id, batch.worker, batch.number)

    def missing(self, totals: Totals) -> tuple[str, ...]:
        """What a worker wrote and is not here, file by file in words; () where every byte is proven to be here."""
        standing = self._workers[totals.worker]
        found = []
        for name, there in totals.files.items():
            size = standing.sizes.get(name, 0)
            digest = standing.hashes.get(name, hashlib.sha256()).hexdigest()
            if size < there.n_bytes:
                found.append(f"{name}: {there.n_bytes - size} of {there.n_bytes} bytes")
            elif size > there.n_bytes or digest != there.sha256:
                found.append(f"{name}: the worker's file is not the one it sent")
        found += [f"{name}: the worker has no such file" for name in standing.sizes if name not in totals.files]
        ended = totals.started - totals.unfinished
        if not found and (standing.n_started, standing.n_ended) != (totals.started, ended):
            here = f"{standing.n_started} started and {standing.n_ended} ended requests are here"
            found.append(f"{here}, the worker counts {totals.started} and {ended}")
        return tuple(found)

    def sync(self, worker: int) -> None:
        """Bring a worker's files to the disk."""
        folder = self._path / WORKERS / str(worker)
        try:
            for file in self._workers[worker].sizes:
                os.fsync(self._descriptor(worker, file))
                sync_folder((folder / file).parent)
            sync_folder(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error

    def close(self) -> None:
        """Close every file. Closing twice is harmless."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _wrong(self, standing: Standing, batch: Batch, size: int) -> Have | None:
        standing.n_wrong += 1
        name = f"{WORKERS}/{batch.worker}/{batch.file}"
        if batch.offset != size:
            what = f"batch {batch.number} begins at byte {batch.offset} of {name}, of which {size} are here"
        else:
            what = f"batch {batch.number} of {name} is not what its digest says"
        if standing.n_wrong < 3:
            self._notice(f"{what}: asked for again")
            return Have(self._run_id, batch.worker, standing.number, gap=True)
        standing.refused = what
        self._notice(f"{what}: refused for the third time; the worker's own shard has its lines")
        return None

    def _append(self, batch: Batch) -> None:
        path = self._path / WORKERS / str(batch.worker) / batch.file
        try:
            n_written = os.write(self._descriptor(batch.worker, batch.file), batch.data)
        except OSError as error:
            raise cannot_write(path, error) from error
        if n_written != len(batch.data):
            what = f"only {n_written} of {len(batch.data)} bytes could be written: the disk is full"
            remedy = "free space; the workers' shards have every line"
            raise EvidenceError(path, what, remedy, value=n_written, writing=True)

    def _descriptor(self, worker: int, file: str) -> int:
        key = (worker, file)
        fd = self._open.pop(key, None)
        if fd is None:
            path = self._path / WORKERS / str(worker) / file
            new = 0 if self._workers[worker].sizes.get(file) else os.O_EXCL
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | new, 0o666)
        self._open[key] = fd
        while len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return fd
