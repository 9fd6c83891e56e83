"""A worker's own copy of its lines: a folder that stays on its disk until the master has proven that it has them all.

    <runs>/<run_id>.shard-<n>/
        shard.json      whose lines these are
        manifest.json   the run's, byte for byte as the master sent it
        dealt.jsonl     the planned requests this worker was given, in the order they came
        workers/<n>/    the same files, byte for byte, as in the master's folder

Locally, worker 0 writes into the run folder itself and there is no shard.
"""

import hashlib
import json
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from evidence import frames
from evidence.durable import AppendFile, cannot_write, sync_folder, write_whole
from evidence.errors import EvidenceError, Problem
from evidence.layout import DEALT, MANIFEST, NOTICED, SHARD, WORKERS, shard_folder
from evidence.lines import decode_one, encode
from evidence.notices import NoticeBook
from evidence.processes import FolderLock
from evidence.records import Health, Json, Manifest, Request, Started, WireRef
from evidence.redact import KnownSecrets
from evidence.worker import WorkerWriter
from evidence.worker_records import FileTotal, ShardFacts, Totals


class Shard:
    """Writes one worker's lines, and counts them. Every method raises EvidenceError, after which the run must stop.

    ``manifest`` are the bytes of the master's ``manifest.json``. Raises EvidenceError where they are none, or where the
    folder exists or cannot be made.
    """

    def __init__(
        self,
        runs_dir: Path,
        manifest: bytes,
        worker: int,
        *,
        client: str | None = None,
        secrets: Iterable[str] = (),
        fsync_each: bool = False,
    ) -> None:
        found = decode_one(manifest, Manifest, MANIFEST)
        if isinstance(found, Problem):
            remedy = "run the same version of this program on the master and on every worker"
            raise EvidenceError(runs_dir / MANIFEST, found.detail, remedy, writing=True)
        self.manifest = found
        self.worker = worker
        self.path = shard_folder(runs_dir, found.run_id, worker)
        self.folder = self.path / WORKERS / str(worker)
        self.n_started = 0
        self._outcomes: Counter[str] = Counter()
        self._plan: dict[str, dict[str, Json]] = {}
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._lock = FolderLock(self.path)
        try:
            facts = ShardFacts(
                run_id=found.run_id,
                worker=worker,
                host=socket.gethostname(),
                pid=os.getpid(),
                client=client,
                manifest_sha256=hashlib.sha256(manifest).hexdigest(),
                began_at_unix_s=time.time(),
            )
            write_whole(self.path / SHARD, encode(facts, self.path / SHARD).line)
            write_whole(self.path / MANIFEST, manifest)
            self._lock.record()
            known = KnownSecrets(secrets)
            self._notices = NoticeBook(self.folder / NOTICED, known)
            # A worker that came late has a number beyond the manifest's: it takes a share of the wire limit like any.
            self._writer = WorkerWriter(
                self.path,
                worker,
                manifest=found.model_copy(update={"n_workers": max(found.n_workers, worker + 1)}),
                plan=self._plan,
                secrets=known,
                fsync_each=fsync_each,
                notice=self._notices.add,
            )
            self._dealt = AppendFile(self.path / DEALT)
        except BaseException:
            self._lock.release()
            raise

    @property
    def n_ended(self) -> int:
        return self._outcomes.total()

    def deal(self, lines: Iterable[bytes]) -> None:
        """Take planned requests over, as canonical lines; only these may be started here."""
        for line in lines:
            fields = json.loads(line)
            self._dealt.append(line)
            self._plan[fields["plan_id"]] = fields

    def started(self, record: Started) -> None:
        """As ``WorkerWriter.started``."""
        self._writer.started(record)
        self.n_started += 1

    def wire(self, sequence: int, segments: Sequence[frames.SegmentTuple]) -> WireRef | None:
        """As ``WorkerWriter.wire``."""
        return self._writer.wire(sequence, segments)

    def read_back(self, ref: WireRef) -> list[frames.SegmentTuple]:
        """As ``WorkerWriter.read_back``."""
        return self._writer.read_back(ref)

    def ended(self, record: Request) -> None:
        """As ``WorkerWriter.ended``."""
        self._writer.ended(record)
        self._outcomes[record.outcome] += 1

    def health(self, record: Health) -> None:
        """As ``WorkerWriter.health``."""
        self._writer.health(record)

    def notice(self, text: str) -> None:
        """Note something this worker noticed."""
        self._notices.add(text)

    def totals(self, files: dict[str, FileTotal]) -> Totals:
        """The counts so far, with the files' digests, which the caller has from reading them."""
        failed = dict(sorted(self._outcomes.items()))
        return Totals(
            run_id=self.manifest.run_id,
            worker=self.worker,
            started=self.n_started,
            completed=failed.pop("completed", 0),
            cancelled=failed.pop("cancelled", 0),
            failed=failed,
            unfinished=self.n_started - self.n_ended,
            files=files,
        )

    def close(self) -> None:
        """Bring the files to the disk and let go of the folder, which stays. Closing twice is harmless."""
        try:
            self._notices.close()
            self._writer.close()
            self._dealt.close()
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Close, and delete the folder: for a worker whose lines are proven to be elsewhere."""
        self.close()
        try:
            shutil.rmtree(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise cannot_write(self.path, error) from error


def read_shard(path: Path) -> ShardFacts:
    """Whose lines a shard folder holds. Raises EvidenceError where it is none."""
    try:
        found = decode_one((path / SHARD).read_bytes(), ShardFacts, SHARD)
    except OSError as error:
        what = f"is no shard: its {SHARD} cannot be read ({error.strerror})"
        raise EvidenceError(path, what, "give a folder such as runs/run-....shard-1") from error
    if isinstance(found, Problem):
        raise EvidenceError(path / SHARD, found.detail, "read it with the version of this program that wrote it")
    return found
