"""Shards carried to a shared folder or an object store while they grow, in parts: objects cannot be appended to.

    python -m evidence.shard_store SHARD WHERE

runs beside a worker in a process of its own, so that copying takes nothing from the process that keeps time. It copies
what is new every few seconds, and once more when its standard input ends, which it does when the worker ends in any
way, killed or not; then it prints where the shard is and exits.

WHERE is a folder (mounted on every host, or local) or a URL that fsspec knows, such as ``s3://bucket/runs``; keys come
from where the store's own library looks for them. In it lies ``<run_id>.shard-<n>/`` with the shard's own small files
and, for each growing file, ``NAME@OFFSET`` parts of 12 digits, which ``fetch`` puts together again.
"""

import importlib
import os
import re
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from evidence.durable import cannot_write, write_whole
from evidence.errors import EvidenceError
from evidence.layout import DEALT, MANIFEST, SHARD, WORKERS
from evidence.replication import REPLICATED
from evidence.shard import read_shard

PART_BYTES = 8 * 1024 * 1024
EVERY_S = 2.0
_PART = re.compile(r"(.+)@(\d{12})")


class Store(Protocol):
    """A place for objects with names such as ``a/b.json@000000000000``."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def names(self, under: str) -> list[str]: ...


class FolderStore:
    """A folder: one that every host has mounted, or a local one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_whole(path, data, replace=True)

    def get(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise EvidenceError(self._folder / name, f"cannot be read ({error.strerror})", "check the path") from error

    def names(self, under: str) -> list[str]:
        found = (self._folder / under).rglob("*")
        return sorted(path.relative_to(self._folder).as_posix() for path in found if path.is_file())


class ObjectStore:
    """Whatever fsspec reaches. The package is needed here only, and asked for here only."""

    def __init__(self, url: str) -> None:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            what, remedy = "needs the package fsspec", "install requirements-shards.txt, or name a folder"
            raise EvidenceError(Path(url), what, remedy, writing=True) from None
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            remedy = "name a folder, or install the store's own package beside fsspec (s3fs, gcsfs)"
            raise EvidenceError(Path(url), f"cannot be reached: {error}", remedy, writing=True) from error

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._fs.pipe_file(path, data)

    def get(self, name: str) -> bytes:
        found: bytes = self._fs.cat_file(f"{self._root}/{name}")
        return found

    def names(self, under: str) -> list[str]:
        base = f"{self._root}/{under}"
        found = self._fs.find(base)
        # Stores give their names with or without a leading slash.
        return sorted(under + str(path)[str(path).index(base.strip("/")) + len(base.strip("/")) :] for path in found)


def store_at(where: str) -> Store:
    """The store at a folder's path or a URL. Raises EvidenceError where a URL cannot be reached."""
    return ObjectStore(where.rstrip("/")) if "://" in where else FolderStore(Path(where))


class Carrier:
    """Copies one shard, again and again, until it is whole there."""

    def __init__(self, shard: Path, store: Store) -> None:
        self._shard = shard
        self._store = store
        facts = read_shard(shard)
        self._name = shard.name
        self._base = f"{WORKERS}/{facts.worker}"
        self._copied: dict[str, int] = {}
        for name in (SHARD, MANIFEST):
            store.put(f"{self._name}/{name}", (shard / name).read_bytes())

    def copy_new(self) -> int:
        """Copy what the shard's files have gained; how many bytes that was."""
        files = [*(f"{self._base}/{name}" for name in REPLICATED), DEALT]
        sizes = {name: _size(self._shard / name) for name in reversed(files)}
        return sum(self._copy(name, sizes[name]) for name in files)

    def _copy(self, name: str, size: int) -> int:
        begin = at = self._copied.get(name, 0)
        while at < size:
            with (self._shard / name).open("rb") as opened:
                opened.seek(at)
                data = opened.read(min(PART_BYTES, size - at))
            self._store.put(f"{self._name}/{name}@{at:012d}", data)
            at += len(data)
            self._copied[name] = at
        return at - begin


def fetch(where: str, name: str, into: Path) -> Path:
    """Put the shard ``name`` of a store together as a folder in ``into``.

    Raises EvidenceError where there is none, or where a part is missing.
    """
    store = store_at(where)
    target = into / name
    there = store.names(name)
    if f"{name}/{SHARD}" not in there:
        raise EvidenceError(Path(where), f"holds no shard {name}", f"it holds {', '.join(there[:5]) or 'nothing'}")
    for one in there:
        part = _PART.fullmatch(one)
        path = into / (one if part is None else part[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        if part is not None and _size(path) != int(part[2]):
            raise EvidenceError(path, f"a part is missing before {one}", "copy the shard from the worker's own disk")
        with path.open("ab") as opened:
            opened.write(store.get(one))
    return target


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _until_closed(every_s: float) -> Iterator[None]:
    """One turn each ``every_s`` until standard input ends, and one after that."""
    while True:
        due_s = time.monotonic() + every_s
        while (left_s := due_s - time.monotonic()) > 0:
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], left_s)
            if readable and not os.read(sys.stdin.fileno(), 4096):
                yield
                return
        yield


def main(shard: Path, where: str) -> int:
    try:
        carrier = Carrier(shard, store_at(where))
        for _ in _until_closed(EVERY_S):
            carrier.copy_new()
    except EvidenceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{where.rstrip('/')}/{shard.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
