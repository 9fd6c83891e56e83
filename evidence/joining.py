"""A worker's shard that was found after the run: its lines brought into the run folder, checked against what is there.

What is in the folder is a beginning of what the shard has (evidence/replication.py), so joining appends, and nothing
that was recorded changes:

    the folder has no seal               the rest of each file is appended; ``recover`` closes the folder
    it has one, and the worker's digests the files are put in place; the seal covers them by those digests
    it has one, without them             the folder stays as it is; a copy beside it takes the lines and is closed
"""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.durable import cannot_write
from evidence.errors import EvidenceError
from evidence.kept import differing, read_kept
from evidence.layout import MANIFEST, PARTIAL, SEAL, SHARD, WORKERS, folder_kind
from evidence.processes import living_writer
from evidence.reading import open_run
from evidence.records import Seal
from evidence.recover import recover
from evidence.replication import REPLICATED
from evidence.shard import read_shard
from evidence.shard_store import fetch
from evidence.worker_records import ShardFacts

_JOINED = ".joined"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Joined:
    """``path`` is the folder that holds the lines now: the run's own, or a copy of it. ``said``: what was done."""

    path: Path
    seal: Seal
    said: tuple[str, ...]


def join(run: Path, shards: Sequence[str | Path]) -> Joined:
    """Bring shards into a run folder, and close it where it is open.

    A shard is the folder a worker wrote, or the place in a store where it was copied to. Raises EvidenceError where a
    shard is none of this run's, is still being written, or holds other bytes than those that are here already; nothing
    is changed then.
    """
    if folder_kind(run) != "run":
        raise EvidenceError(run, "is no run folder", "give the path of a run folder, then its shards with --shard")
    with tempfile.TemporaryDirectory(prefix="shards-") as scratch:
        local = [_local(shard, Path(scratch)) for shard in shards]
        return _join(run, [(shard, _checked(run, shard)) for shard in local])


def _join(run: Path, found: Sequence[tuple[Path, ShardFacts]]) -> Joined:
    if not (run / SEAL).exists():
        return _into_open(run, found)
    kept, _ = read_kept(run)
    if all(facts.worker in kept for _, facts in found):
        return _into_sealed(run, found)
    return _into_copy(run, found)


def _local(shard: str | Path, scratch: Path) -> Path:
    """The shard as a worker wrote it; one that lies in a store in parts is put together in ``scratch``."""
    where, _, name = str(shard).rstrip("/").rpartition("/")
    if "://" not in where and not any(Path(shard).glob(f"{WORKERS}/*/*@*")):
        return Path(shard)
    return fetch(where or ".", name, scratch)


def _checked(run: Path, shard: Path) -> ShardFacts:
    facts = read_shard(shard)
    try:
        digest = hashlib.sha256((run / MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise EvidenceError(run / MANIFEST, f"cannot be read ({error.strerror})", "check the folder") from error
    if digest != facts.manifest_sha256:
        what = f"belongs to run {facts.run_id}, or to another manifest of it"
        raise EvidenceError(shard / SHARD, what, f"give a shard of the run at {run}")
    living = living_writer(shard)
    if living is not None:
        raise EvidenceError(shard, f"is still being written by {living}", "stop that process first")
    for name in REPLICATED:
        here, there = (run / WORKERS / str(facts.worker) / name), (shard / WORKERS / str(facts.worker) / name)
        if here.exists() and not _begins_with(there, here):
            what = f"is not a longer form of {here}"
            raise EvidenceError(there, what, "keep both: one of them was changed after it was written")
    return facts


def _begins_with(longer: Path, shorter: Path) -> bool:
    try:
        with longer.open("rb") as long_file, shorter.open("rb") as short_file:
            while block := short_file.read(_BLOCK_BYTES):
                if long_file.read(len(block)) != block:
                    return False
    except FileNotFoundError:
        return shorter.stat().st_size == 0
    return True


def _into_open(run: Path, shards: Sequence[tuple[Path, ShardFacts]], *, why: str | None = None) -> Joined:
    living = living_writer(run)
    if living is not None:
        raise EvidenceError(run, f"is still being written by {living}", "stop that process first")
    said = [] if why is None else [why]
    for shard, facts in shards:
        n_bytes = sum(_append_rest(run, shard, facts.worker, name) for name in REPLICATED)
        what = f"{n_bytes} bytes that had not reached the master" if n_bytes else "which held nothing that was not here"
        said.append(f"joined with the shard of worker {facts.worker} (host {facts.host}), {what}")
    return Joined(path=run, seal=recover(run, noticed=said), said=tuple(said))


def _append_rest(run: Path, shard: Path, worker: int, name: str) -> int:
    here, there = (run / WORKERS / str(worker) / name), (shard / WORKERS / str(worker) / name)
    if not there.exists():
        return 0
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        with here.open("ab") as target, there.open("rb") as source:
            begin = target.tell()
            source.seek(begin)
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
            return target.tell() - begin
    except OSError as error:
        raise cannot_write(here, error) from error


def _into_sealed(run: Path, shards: Sequence[tuple[Path, ShardFacts]]) -> Joined:
    kept, _ = read_kept(run)
    said = []
    for shard, facts in shards:
        folder = shard / WORKERS / str(facts.worker)
        wrong = differing(folder, kept[facts.worker])
        if wrong:
            what = f"is not what worker {facts.worker} said it wrote: {wrong[0]}"
            raise EvidenceError(folder, what, "find the shard as the worker left it")
    for shard, facts in shards:
        for name in kept[facts.worker].totals.files:
            _put(shard / WORKERS / str(facts.worker) / name, run / WORKERS / str(facts.worker) / name)
        said.append(f"the lines of worker {facts.worker} are here now; they have the digests that were sealed")
    seal = open_run(run).seal
    if seal is None:
        raise EvidenceError(run / SEAL, "cannot be read", "close the folder with `python -m analysis recover`")
    return Joined(path=run, seal=seal, said=tuple(said))


def _put(source: Path, target: Path) -> None:
    """Whole or not at all; the order of a worker's files does not matter here, since every digest is known."""
    partial = target.with_name(target.name + PARTIAL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, partial)
        partial.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error


def _into_copy(run: Path, shards: Sequence[tuple[Path, ShardFacts]]) -> Joined:
    copy = run.with_name(run.name + _JOINED)
    sealed = hashlib.sha256((run / SEAL).read_bytes()).hexdigest()
    try:
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns(SEAL))
    except OSError as error:
        raise cannot_write(copy, error) from error
    why = f"a copy of {run.name}, whose {SEAL} has the SHA-256 {sealed}: that folder is as it was"
    return _into_open(copy, shards, why=why)
