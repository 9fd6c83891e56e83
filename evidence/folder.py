"""Making a run folder: manifest first, then the plan, then lines as things happen, the seal last.

    workers' lines, raw segments and health   evidence/worker.py
    scrapes, windows, gpu, levels (.jsonl)    here
    server/, noticed.jsonl                    here
    profile.json, traces/                     here
    writer.json, the lock on the folder       evidence/processes.py

Whatever raises EvidenceError here or in a worker means that evidence could not be written: the run must stop, and its
process ends with exit code 3. What was written before stays readable, and `analysis recover` closes it.
"""

import errno
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from evidence.beginning import checked_plan, redacted_manifest
from evidence.checks import check_contents, summarised
from evidence.contents import Contents, read_contents
from evidence.counts import count
from evidence.durable import AppendFile, cannot_write, write_whole
from evidence.errors import LEVEL_CODES, EvidenceError, Problem
from evidence.gpu_records import GpuSample
from evidence.layout import (
    CLOCKS,
    GPU,
    KEPT,
    LEVELS,
    MANIFEST,
    NOTICED,
    PLAN,
    PROFILE,
    SCRAPES,
    SERVER,
    TRACES,
    WINDOWS,
    WORKER_EVENTS,
    WORKERS,
    is_plain_name,
)
from evidence.level_records import Level
from evidence.lines import encode
from evidence.mirror import Mirror
from evidence.notices import NoticeBook
from evidence.processes import FolderLock
from evidence.profile_records import ProfileWindow
from evidence.records import Json, Manifest, Record, Scrape, Seal
from evidence.redact import KnownSecrets, redact_body, redact_text
from evidence.sealing import close_folder
from evidence.window_records import Window
from evidence.worker import WorkerWriter
from evidence.worker_records import Kept, WorkerClock, WorkerEvent

# Found at the end of a run that was stopped, or that met a full disk: the seal counts them and says so.
# What is odd about a level is for the verdict, and no reason to lose the run.
_SEALED_WITH = frozenset(
    {"seal_missing", "unfinished", "planned_not_started", "torn_tail", "wire_unreferenced", *LEVEL_CODES}
)


class RunWriter:
    """Writes one run folder; made by ``create``. Holds the folder until ``seal`` or ``close``."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        plan: Mapping[str, Mapping[str, Json]],
        lock: FolderLock,
        secrets: KnownSecrets,
        fsync_each: bool,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._plan = plan
        self._lock = lock
        self._secrets = secrets
        self._fsync_each = fsync_each
        self._notices = NoticeBook(path / NOTICED, secrets)
        self._workers: dict[int, WorkerWriter] = {}
        self._files: dict[str, AppendFile] = {}  # by name: scrapes, windows, gpu, levels
        self._closed = False

    @classmethod
    def create(
        cls,
        runs_dir: Path,
        run_id: str,
        manifest: Manifest,
        plan_lines: Iterable[BaseModel],
        *,
        secrets: Iterable[str] = (),
        fsync_each: bool = False,
    ) -> "RunWriter":
        """Make ``runs_dir/run_id`` with its manifest and plan.

        ``secrets`` are the keys this process was given (``redact.collect_secrets``); they reach no file. The manifest's
        ``plan_sha256`` must be SHA-256 over the plan's canonical lines, ``n_planned`` their number. ``fsync_each``
        brings every line to the disk as it is written: it then outlives a power cut, at the price of the disk's
        latency. Raises EvidenceError where the folder exists, may not be written, or manifest and plan do not belong
        together.
        """
        path, known = runs_dir / run_id, KnownSecrets(secrets)
        if not is_plain_name(run_id) or manifest.run_id != run_id:
            what = f"run id {run_id!r} with a manifest of {manifest.run_id!r}"
            raise EvidenceError(path, what, "make one id with evidence.layout.new_id and use it for both", writing=True)
        encoded = encode(redacted_manifest(manifest, path), path / MANIFEST, known).line
        plan_bytes, plan = checked_plan(path / PLAN, manifest, plan_lines, known)
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except OSError as error:
            raise cannot_write(path, error) from error
        lock = FolderLock(path)
        try:
            write_whole(path / MANIFEST, encoded)
            lock.record()
            write_whole(path / PLAN, plan_bytes)
        except BaseException:
            lock.release()
            raise
        written = Manifest.model_validate_json(encoded)
        return cls(path, written, plan, lock, known, fsync_each)

    def worker(self, worker: int) -> WorkerWriter:
        """The writer of one worker (from 0), made on the first call. Other processes use ``worker.ForeignWorker``."""
        self._refuse_closed()
        if worker not in self._workers:
            self._workers[worker] = WorkerWriter(
                self.path,
                worker,
                manifest=self.manifest,
                plan=self._plan,
                secrets=self._secrets,
                fsync_each=self._fsync_each,
                notice=self._notices.add,
            )
        return self._workers[worker]

    def scrape(self, record: Scrape) -> None:
        """Append one scrape, its body whole."""
        self._line(SCRAPES, record, Scrape)

    def window(self, record: Window) -> None:
        """Append one answer of a Prometheus server."""
        self._line(WINDOWS, record, Window)

    def gpu(self, record: GpuSample) -> None:
        """Append one sample of the GPUs, or the reason there is none."""
        self._line(GPU, record, GpuSample)

    def level(self, record: Level) -> None:
        """Append one level, once it is over."""
        self._line(LEVELS, record, Level)

    def worker_event(self, record: WorkerEvent) -> None:
        """Append something that became of a worker; credentials in the words of a URL are replaced."""
        detail = None if record.detail is None else redact_text(record.detail)
        self._line(WORKER_EVENTS, record.model_copy(update={"detail": detail}), WorkerEvent)

    def worker_clock(self, record: WorkerClock) -> None:
        """Append one measurement of a worker's clocks."""
        self._line(CLOCKS, record, WorkerClock)

    def kept(self, record: Kept) -> None:
        """Take digests and counts of a worker whose lines stay elsewhere; credentials in a URL are replaced."""
        self._refuse_closed()
        record = record.model_copy(update={"where": redact_text(record.where), "why": redact_text(record.why)})
        file = self.path / WORKERS / str(record.worker) / KEPT
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(file, error) from error
        write_whole(file, encode(record, file, self._secrets).line)

    def mirror(self) -> Mirror:
        """The copy of other processes' lines in this folder; close it before the seal."""
        return Mirror(self.path, self.manifest.run_id, self.notice)

    def _line(self, name: str, record: Record, schema: type[Record]) -> None:
        self._refuse_closed()
        run_id = getattr(record, "run_id", None)
        if type(record) is not schema or run_id != self.manifest.run_id:
            what = f"a {type(record).__name__} of run {run_id!r}"
            raise EvidenceError(self.path / name, what, f"give it the id {self.manifest.run_id!r}", writing=True)
        if name not in self._files:
            self._files[name] = AppendFile(self.path / name, fsync_each=self._fsync_each)
        encoded = encode(record, self.path / name, self._secrets)
        self._files[name].append(encoded.line)
        if encoded.changed is not None:
            self.notice(f"{name}: in a line of this file {encoded.changed}")

    def server_body(self, name: str, data: bytes) -> None:
        """Keep one raw answer of the server as ``server/<name>``. Secrets in it are replaced and the notice says so."""
        self._refuse_closed()
        file = self.path / SERVER / name
        if not is_plain_name(name):
            raise EvidenceError(
                file, f"{name!r} is no plain file name", "use letters, digits, dots and hyphens", writing=True
            )
        clean, changed = redact_body(data)
        masked = self._secrets.mask(clean)
        if changed or masked != clean:
            self.notice(f"{SERVER}/{name}: secrets were replaced; the rest is as the server sent it")
        try:
            file.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(file, error) from error
        write_whole(file, masked)

    def trace(self, source: Path, *, move: bool = False) -> str:
        """Take a trace that has been written whole into ``traces/``; returns its name relative to the run's folder."""
        self._refuse_closed()
        name = re.sub(r"[^A-Za-z0-9._-]", "_", source.name).lstrip(".-")
        file = self.path / TRACES / name
        try:
            file.parent.mkdir(exist_ok=True)
            if file.exists():
                raise FileExistsError(errno.EEXIST, "is there already")
            (shutil.move if move else shutil.copyfile)(source, file)
        except OSError as error:
            raise cannot_write(file, error) from error
        return f"{TRACES}/{name}"

    def profile(self, record: ProfileWindow) -> None:
        """Write the record of the run's profiler window; once."""
        self._refuse_closed()
        write_whole(self.path / PROFILE, encode(record, self.path / PROFILE, self._secrets).line)

    def notice(self, text: str) -> None:
        """Note something the recorder noticed; it stands in the seal, and on file at once."""
        self._notices.add(text)

    def seal(self, *, now_unix_s: float | None = None) -> Seal:
        """Close every file, read the folder back, and write the seal.

        Requests that are unfinished or never started and a tail torn by a full disk are counted, noticed and sealed.
        Whatever else does not fit together (an end without a start, a sequence twice, a line that is lost or meets no
        schema) is noticed, and the seal is refused with EvidenceError: ``recover`` can still close the folder, as
        what it is. The writer is closed in both cases.
        """
        self._refuse_closed()
        if not self._lock.alone():
            what = "another worker process still writes this run"
            raise EvidenceError(self.path, what, "seal it after every worker has closed", writing=True)
        try:
            self._close_files()
            contents = read_contents(self.path)
            found = [*check_contents(contents), *self._lost(contents)]
            for text in summarised(problem for problem in found if problem.code != "seal_missing"):
                self.notice(text)
            refused = [problem for problem in found if problem.code not in _SEALED_WITH]
            self._notices.close()
            if refused:
                what = f"the seal is refused: {refused[0]}" + (f" (and {len(refused) - 1} more)" if refused[1:] else "")
                remedy = "close it as what it is with `python -m analysis recover`"
                raise EvidenceError(self.path, what, remedy, value=tuple(refused), writing=True)
            earlier = [one.text for one in contents.notices if one.text not in self._notices.texts]
            return close_folder(
                self.path,
                folder_id=self.manifest.run_id,
                counts=count(contents),
                torn=contents.torn,
                noticed=[*earlier, *self._notices.texts],
                recovered=False,
                now_unix_s=now_unix_s,
            )
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the folder without a seal; ``recover`` can close it then. Doing so twice is harmless."""
        self._closed = True
        try:
            self._close_files()
            self._notices.close()
        finally:
            self._lock.release()

    def _close_files(self) -> None:
        for worker in self._workers.values():
            worker.close()
        for file in self._files.values():
            file.close()

    def _lost(self, contents: Contents) -> Iterator[Problem]:
        """Lines of this process's workers that are not in the files although they were written."""
        starts = Counter(one.record.worker for one in contents.started)
        ends = Counter(one.record.worker for one in contents.requests)
        for number, worker in self._workers.items():
            if starts[number] != worker.n_started or ends[number] != worker.n_ended:
                wrote = f"{worker.n_started} starts and {worker.n_ended} ends were written"
                there = f"{starts[number]} and {ends[number]} are in the files"
                yield Problem("counts_mismatch", f"{wrote}, {there}", f"{WORKERS}/{number}")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EvidenceError(self.path, "is closed: nothing may be added to it", "start a new run", writing=True)
