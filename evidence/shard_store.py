"""Shards carried to a shared folder or an object store while they grow, in parts: objects cannot be appended to.

    python -m evidence.shard_store SHARD WHERE

runs beside a worker in a process of its own, so that copying takes nothing from the process that keeps time. It copies
what is new every few seconds, and once more when its standard input ends, which it does when the worker ends in any
way, killed or not; then it prints where the shard is and exits.

WHERE is a folder (mounted on every host, or local) or a URL that fsspec knows, such as ``s3://bucket/runs``; keys come
from where the store's own library looks for them. In it lies ``<run_id>.shard-<n>/`` with the shard's own small files
and, for each growing file, ``NAME@OFFSET`` parts of 12 digits, which ``fetch`` puts together again.
"""

import argparse
import importlib
import os
import re
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from evidence.durable import cannot_write, write_whole
from evidence.errors import EvidenceError
from evidence.layout import DEALT, MANIFEST, SHARD, WORKERS, is_plain_name
from evidence.redact import redact_text
from evidence.replication import REPLICATED
from evidence.shard import read_shard

_FIRST_LINE = (__doc__ or "").split("\n", 1)[0]
PART_BYTES = 8 * 1024 * 1024
EVERY_S = 2.0
# Of Python's own errors those by which a store refuses: not reached or not permitted, a store that cannot be written,
# a URL that is none, a package that is not there.
_SAYS_NO = (OSError, NotImplementedError, ValueError, ImportError)
_PART = re.compile(r"(.+)@(\d{12})")
_OF_A_WORKER = re.compile(rf"{WORKERS}/(?:0|[1-9][0-9]{{0,8}})/(.+)")


class Store(Protocol):
    """A place for objects with names such as ``a/b.json@000000000000``.

    Every method raises EvidenceError, with the folder or URL and the name, where the place refuses or is not reached.
    """

    def put(self, name: str, data: bytes) -> None:
        """Keep an object whole, in place of one of that name; on return the store has taken it."""

    def get(self, name: str) -> bytes:
        """The bytes of an object that is there; EvidenceError where there is none."""

    def names(self, under: str) -> list[str]:
        """Every object below ``under``, sorted, with names as ``put`` was given them; [] where there is none."""


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
        base = self._folder / under
        try:
            found = [path for path in base.rglob("*") if path.is_file()]
        except OSError as error:
            raise EvidenceError(base, f"cannot be listed ({error.strerror})", "check the path") from error
        return sorted(path.relative_to(self._folder).as_posix() for path in found)


class ObjectStore:
    """Whatever fsspec reaches. The package is needed here only, and asked for here only."""

    def __init__(self, url: str) -> None:
        self._url = redact_text(url)
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            what, remedy = "needs the package fsspec", "install requirements-shards.txt, or name a folder"
            raise EvidenceError(self._url, what, remedy, writing=True) from None
        remedy = "name a folder, or install the store's own package beside fsspec (s3fs, gcsfs)"
        with self._reached("", remedy, writing=True):
            self._fs, self._root = fsspec.core.url_to_fs(url)

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        remedy = "see that the store takes objects, and that its keys are in the environment"
        with self._reached(name, remedy, writing=True):
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def get(self, name: str) -> bytes:
        with self._reached(name, "see that the object is there, and that the store's keys are in the environment"):
            found: bytes = self._fs.cat_file(f"{self._root}/{name}")
        return found

    @contextmanager
    def _reached(self, name: str, remedy: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each store's library has errors of its own, without a common class
            if type(error).__module__ == "builtins" and not isinstance(error, _SAYS_NO):
                raise  # a TypeError, say, is a fault of a program and no word of the store
            what = f"cannot be reached: {type(error).__name__}: {redact_text(str(error))[:300]}"
            raise EvidenceError(f"{self._url}/{name}".rstrip("/"), what, remedy, writing=writing) from error

    def names(self, under: str) -> list[str]:
        base = f"{self._root}/{under}"
        with self._reached(under, "see that the store can be listed, and that its keys are in the environment"):
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

    Only files a shard has are taken; whatever else lies there stays there. Raises EvidenceError where there is none,
    where a part is missing, or where ``into`` cannot be written.
    """
    if not is_plain_name(name):
        raise EvidenceError(redact_text(where), f"{name!r} is the name of no shard", "name one such as run-....shard-1")
    store = store_at(where)
    target = into / name
    there = store.names(name)
    if f"{name}/{SHARD}" not in there:
        here = f"it holds {', '.join(there[:5]) or 'nothing'}: name one of its shards"
        raise EvidenceError(redact_text(where), f"holds no shard {name}", here)
    for one in there:
        if not _of_a_shard(one.removeprefix(f"{name}/")):
            continue
        part = _PART.fullmatch(one)
        path = into / (one if part is None else part[1])
        if part is not None and _size(path) != int(part[2]):
            raise EvidenceError(path, f"a part is missing before {one}", "copy the shard from the worker's own disk")
        data = store.get(one)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as opened:
                opened.write(data)
        except OSError as error:
            raise cannot_write(path, error) from error
    return target


def _of_a_shard(name: str) -> bool:
    """Whether an object's name within a shard is that of a file ``Carrier`` puts there."""
    part = _PART.fullmatch(name)
    plain = name if part is None else part[1]
    inside = _OF_A_WORKER.fullmatch(plain)
    return (inside is not None and inside[1] in REPLICATED) or plain in (SHARD, MANIFEST, DEALT)


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


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 when the shard is whole there, 2 for what was typed or cannot be read, 3 where it cannot go."""
    parser = argparse.ArgumentParser(prog="python -m evidence.shard_store", description=_FIRST_LINE)
    parser.add_argument("shard", type=Path, metavar="SHARD", help="a worker's shard folder (runs/run-....shard-1)")
    parser.add_argument("where", metavar="WHERE", help="a folder, or a URL that fsspec knows, without credentials")
    options = parser.parse_args(argv)
    shard, where = options.shard, options.where
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
    sys.exit(main(sys.argv[1:]))
