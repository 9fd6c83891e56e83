"""What one worker writes: a line when a request starts, its raw segments, a line when it has ended, its health."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from evidence import frames
from evidence.contents import read_contents
from evidence.counts import differences
from evidence.durable import AppendFile, cannot_write
from evidence.errors import EvidenceError
from evidence.layout import HEALTH, NOTICED, REQUESTS, SEGMENTS, STARTED, WIRE, WORKERS
from evidence.lines import encode
from evidence.notices import NoticeBook
from evidence.processes import FolderLock
from evidence.records import Health, Json, Manifest, Record, Request, Started, WireRef
from evidence.redact import KnownSecrets
from evidence.sealing import refuse_sealed


class WorkerWriter:
    """Appends to ``workers/<n>/``. Every method raises EvidenceError, after which the run must stop with exit code 3.

    Made by ``RunWriter.worker`` in the process that made the run, and through ``ForeignWorker`` in any other.
    """

    def __init__(
        self,
        path: Path,
        worker: int,
        *,
        manifest: Manifest,
        plan: Mapping[str, Mapping[str, Json]],
        secrets: KnownSecrets,
        fsync_each: bool,
        notice: Callable[[str], None],
    ) -> None:
        self.worker = worker
        self.n_started = 0
        self.n_ended = 0
        self._base = f"{WORKERS}/{worker}"
        self._folder = path / self._base
        self._run_id = manifest.run_id
        self._plan = plan
        self._wire_limit_bytes = manifest.wire_limit_bytes // max(1, manifest.n_workers)
        self._secrets = secrets
        self._fsync_each = fsync_each
        self._notice = notice
        self._begun: set[str] = set()  # plan ids
        self._open: dict[int, str] = {}  # sequence -> plan id
        self._kept: dict[int, WireRef] = {}
        self._closed = False
        if not 0 <= worker < manifest.n_workers:
            what = f"worker {worker} of a run of {manifest.n_workers}, counted from 0"
            raise EvidenceError(self._folder, what, "state the number of workers in the manifest", writing=True)
        try:
            (self._folder / WIRE).mkdir(parents=True)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        self._started = AppendFile(self._folder / STARTED, fsync_each=fsync_each)
        self._requests = AppendFile(self._folder / REQUESTS, fsync_each=fsync_each)
        self._health: AppendFile | None = None
        self._wire: AppendFile | None = None

    def started(self, record: Started) -> None:
        """Say that a request is about to be sent. Sequences count from 0 without gaps; a plan id starts once."""
        self._own(record, Started, record.run_id, record.worker)
        if record.sequence != self.n_started:
            raise self._wrong(STARTED, f"sequence {record.sequence}, where {self.n_started} comes next")
        if record.plan_id not in self._plan:
            raise self._wrong(STARTED, f"plan id {record.plan_id!r} is not in the plan")
        if record.plan_id in self._begun:
            raise self._wrong(STARTED, f"plan id {record.plan_id!r} was started before")
        self._append(self._started, record)
        self.n_started += 1
        self._begun.add(record.plan_id)
        self._open[record.sequence] = record.plan_id

    def wire(self, sequence: int, segments: Sequence[frames.SegmentTuple]) -> WireRef | None:
        """Keep the raw segments of a request that is under way, once, before its ``ended``.

        None when there are none, or when they would take this worker's file beyond its equal share of the manifest's
        ``wire_limit_bytes``. A smaller request may still fit later.
        """
        self._refuse_closed()
        if sequence not in self._open or sequence in self._kept:
            raise self._wrong(
                f"{WIRE}/{SEGMENTS}", f"request {sequence} is not under way, or its segments are kept already"
            )
        size = frames.encoded_size(segments)
        n_bytes = len(frames.MAGIC) if self._wire is None else self._wire.n_bytes
        if not segments or n_bytes + size > self._wire_limit_bytes:
            return None
        if self._wire is None:
            self._wire = AppendFile(self._folder / WIRE / SEGMENTS, fsync_each=self._fsync_each)
            self._wire.append(frames.MAGIC)
        offset = self._wire.append(frames.encode(sequence, self._masked(segments)))
        name = f"{self._base}/{WIRE}/{SEGMENTS}"
        self._kept[sequence] = WireRef(file=name, offset=offset, n_bytes=size, n_segments=len(segments))
        return self._kept[sequence]

    def read_back(self, ref: WireRef) -> list[frames.SegmentTuple]:
        """The raw segments that ``wire`` has kept, as they are on file. Raises EvidenceError where they are not."""
        path = self._folder / WIRE / SEGMENTS
        try:
            with path.open("rb") as file:
                file.seek(ref.offset)
                data = file.read(ref.n_bytes)
        except OSError as error:
            raise EvidenceError(path, f"cannot be read back ({error})", "run again, on another disk") from error
        found = [frame.segment for frame in frames.decode(data)]
        if len(found) != ref.n_segments:
            what = f"{len(found)} segments at {ref.offset}, where {ref.n_segments} were kept"
            raise EvidenceError(path, what, "let nobody else write into the folder, and run again")
        return found

    def ended(self, record: Request) -> None:
        """Say how a request ended, whatever its outcome."""
        self._own(record, Request, record.run_id, record.worker)
        if self._open.get(record.sequence) != record.plan_id:
            raise self._wrong(REQUESTS, f"request {record.sequence} ({record.plan_id!r}) is not under way")
        if hashlib.sha256(record.output_text.encode("utf-8", "surrogatepass")).hexdigest() != record.output_sha256:
            raise self._wrong(REQUESTS, f"request {record.sequence}: output_sha256 is not that of output_text")
        if record.wire != self._kept.get(record.sequence):
            raise self._wrong(REQUESTS, f"request {record.sequence}: wire is not what was kept for it")
        if record.wire is None and record.wire_missing is None:
            raise self._wrong(
                REQUESTS, f"request {record.sequence}: no raw segments, and wire_missing does not say why"
            )
        for name, there, planned in differences(record, self._plan[record.plan_id]):
            raise self._wrong(REQUESTS, f"request {record.sequence}: {name} is {there!r}, in the plan {planned!r}")
        self._append(self._requests, record)
        self.n_ended += 1
        del self._open[record.sequence]
        self._kept.pop(record.sequence, None)

    def health(self, record: Health) -> None:
        """Add one interval of this client's own condition."""
        self._refuse_closed()
        if type(record) is not Health:
            raise self._wrong(HEALTH, f"a {type(record).__name__}")
        if self._health is None:
            self._health = AppendFile(self._folder / HEALTH, fsync_each=self._fsync_each)
        self._append(self._health, record)

    def close(self) -> None:
        """Bring the files to the disk and close them; a write after that is refused."""
        self._closed = True
        failures = []
        for file in (self._started, self._requests, self._health, self._wire):
            try:
                if file is not None:
                    file.close()
            except EvidenceError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _append(self, file: AppendFile, record: Record) -> None:
        encoded = encode(record, file.path, self._secrets)
        file.append(encoded.line)
        if encoded.changed is not None:
            self._notice(f"{self._base}/{file.path.name}: in a line of this file {encoded.changed}")

    def _masked(self, segments: Sequence[frames.SegmentTuple]) -> Sequence[frames.SegmentTuple]:
        """Secrets overwritten in place, those that span segments too."""
        joined = b"".join(data for _, _, data in segments)
        masked = self._secrets.mask(joined)
        if masked == joined:
            return segments
        self._notice(f"{self._base}/{WIRE}/{SEGMENTS}: a secret was overwritten with asterisks")
        at, changed = 0, []
        for kernel_ns, user_ns, data in segments:
            changed.append((kernel_ns, user_ns, masked[at : at + len(data)]))
            at += len(data)
        return changed

    def _own(self, record: Record, schema: type[Record], run_id: str, worker: int) -> None:
        self._refuse_closed()
        if type(record) is not schema or run_id != self._run_id or worker != self.worker:
            own = f"run {self._run_id!r}, worker {self.worker}"
            what = f"a {type(record).__name__} of run {run_id!r}, worker {worker}, in {own}"
            raise self._wrong(STARTED if schema is Started else REQUESTS, what)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EvidenceError(self._folder, "is closed", "write everything before the seal", writing=True)

    def _wrong(self, name: str, what: str) -> EvidenceError:
        remedy = "report this as a fault of the recorder's caller; nothing was written"
        return EvidenceError(self._folder / name, what, remedy, writing=True)


class ForeignWorker:
    """The hold of a worker process on a run that another process made; ``writer`` does the writing.

    Use as a context manager, or call ``close``: the run cannot be sealed while it is open.
    """

    def __init__(self, path: Path, worker: int, *, secrets: Iterable[str] = (), fsync_each: bool = False) -> None:
        self._lock = FolderLock(path)
        try:
            refuse_sealed(path)
            contents = read_contents(path)
            manifest = contents.manifest
            if manifest is None:
                what = "has no readable manifest"
                raise EvidenceError(path, what, "let the run be made before its workers begin", writing=True)
            known = KnownSecrets(secrets)
            self._notices = NoticeBook(path / WORKERS / str(worker) / NOTICED, known)
            self.writer = WorkerWriter(
                path,
                worker,
                manifest=manifest,
                plan={line.plan_id: line.fields for line in contents.plan},
                secrets=known,
                fsync_each=fsync_each,
                notice=self._notices.add,
            )
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> WorkerWriter:
        return self.writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the worker's files and let go of the folder."""
        try:
            self._notices.close()
            self.writer.close()
        finally:
            self._lock.release()
