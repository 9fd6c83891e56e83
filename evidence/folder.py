"""Making a run folder: manifest first, then the plan, then lines as things happen, the seal last.

    workers' lines, raw segments and health   evidence/worker.py
    scrapes.jsonl, windows.jsonl, gpu.jsonl   here
    server/, noticed.jsonl                    here
    writer.json, the lock on the folder       evidence/processes.py

Whatever raises EvidenceError here or in a worker means that evidence could not be written: the run must stop, and its
process ends with exit code 3. What was written before stays readable, and `analysis recover` closes it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from evidence.checks import check_contents, summarised
from evidence.contents import Contents, read_contents
from evidence.counts import count
from evidence.durable import AppendFile, cannot_write, write_whole
from evidence.errors import EvidenceError, Problem
from evidence.gpu_records import GpuSample
from evidence.layout import GPU, MANIFEST, NOTICED, PLAN, SCRAPES, SERVER, WINDOWS, WORKERS, is_plain_name
from evidence.lines import canonical, encode
from evidence.notices import NoticeBook
from evidence.processes import FolderLock
from evidence.records import Json, Manifest, Record, Scrape, Seal
from evidence.redact import KnownSecrets, redact_body, redact_json, redact_text
from evidence.sealing import close_folder
from evidence.window_records import Window
from evidence.worker import WorkerWriter

# Found at the end of a run that was stopped, or that met a full disk: the seal counts them and says so.
_SEALED_WITH = frozenset({"seal_missing", "unfinished", "planned_not_started", "torn_tail", "wire_unreferenced"})
_REDACTED_FIELDS = ("arm", "server", "model", "hardware", "calibration", "environment", "options", "request_extra")


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
        self._files: dict[str, AppendFile] = {}  # by name: scrapes, windows, gpu
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
        encoded = encode(_redacted(manifest, path), path / MANIFEST, known).line
        plan_bytes, plan = _checked_plan(path / PLAN, manifest, plan_lines, known)
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


def _redacted(manifest: Manifest, path: Path) -> Manifest:
    """The manifest without secrets, whatever its maker left in."""
    changed: dict[str, Json] = {name: redact_json(getattr(manifest, name)) for name in _REDACTED_FIELDS}
    changed |= {
        name: None if (text := getattr(manifest, name)) is None else redact_text(text) for name in ("label", "note")
    }
    try:
        return Manifest.model_validate(manifest.model_dump(warnings=False) | changed)
    except ValidationError as error:
        remedy = "make it through its constructor with the types its schema names"
        raise EvidenceError(path / MANIFEST, f"does not meet its schema: {error}", remedy, writing=True) from error


def _checked_plan(
    path: Path, manifest: Manifest, plan_lines: Iterable[BaseModel], secrets: KnownSecrets
) -> tuple[bytes, dict[str, dict[str, Json]]]:
    """The plan's bytes and its lines by id. Raises EvidenceError where it is not the plan the manifest names."""
    lines = [canonical(line) for line in plan_lines]
    fields = [json.loads(line) for line in lines]
    by_id = {str(one.get("plan_id", "")): one for one in fields}
    data = b"".join(lines)
    digest = hashlib.sha256(data).hexdigest()
    wrong = None
    if "" in by_id or len(by_id) != len(lines):
        wrong = "a plan id is missing or stands twice"
    elif len(lines) != manifest.n_planned:
        wrong = f"{len(lines)} lines, and the manifest says {manifest.n_planned}"
    elif digest != manifest.plan_sha256:
        wrong = f"its digest is {digest}, and the manifest says {manifest.plan_sha256}"
    elif (source := secrets.found_in(data)) is not None:
        what, remedy = (
            f"a prompt holds a key of this process: {source}",
            "take it out of the prompt, or use another key",
        )
        raise EvidenceError(path, what, remedy, writing=True)
    if wrong is not None:
        raise EvidenceError(path, wrong, "make manifest and plan from the same scenario and prompts", writing=True)
    return data, by_id
