"""Which files a model is: SHA-256 of each, and the revision in the name of a hub's snapshot folder.

Hashing tens of gigabytes takes minutes, so digests are kept in this project's cache folder under path, size and time of
change; a file whose size or time is another is hashed anew.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from infra.launching.models import cache_root, file_sha256

_ENDS = (".safetensors", ".gguf", ".bin", ".json", ".jinja", ".model", ".txt")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Snapshot(NamedTuple):
    """A folder of a hub's cache: whose model, at which commit."""

    repository: str
    commit: str


def snapshot_of(path: Path) -> Snapshot | None:
    """The repository and commit in ``.../models--ORG--NAME/snapshots/COMMIT``; None for another path."""
    for folder in (path, *path.parents):
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            if _COMMIT.fullmatch(folder.name) is None:
                return None
            return Snapshot(folder.parent.parent.name.removeprefix("models--").replace("--", "/"), folder.name)
    return None


def shown_name(path: Path) -> str:
    """A model's name for messages: the snapshot's, else the file's or folder's own; no path of this machine."""
    found = snapshot_of(path)
    return path.resolve().name if found is None else f"{found.repository}@{found.commit[:12]}"


def model_hashes(
    path: Path, *, cache: Path | None = None, hashing: Callable[[Path], str] = file_sha256, small_only: bool = False
) -> dict[str, Any]:
    """``files`` (name to SHA-256), ``sha256`` over names and digests, ``n_bytes``; of a GGUF file or a model folder.

    ``small_only`` leaves the weights out (``files_left_out`` names them), for a folder too large to read now. Raises
    OSError where a file cannot be read.
    """
    files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.suffix in _ENDS and one.is_file())
    left = [one for one in files if small_only and one.suffix in (".safetensors", ".gguf", ".bin")]
    chosen = [one for one in files if one not in left]
    known = _Known(cache if cache is not None else cache_root() / "hashes.json")
    digests = {one.name: known.digest(one, hashing) for one in chosen}
    known.keep()
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return {
        "files": digests,
        "sha256": hashlib.sha256(lines.encode()).hexdigest() if digests else None,
        "n_bytes": sum(one.stat().st_size for one in chosen),
        "files_left_out": [one.name for one in left],
    }


class _Known:
    """The cache file: losing it costs time and nothing else, so that faults in it are no errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed = False
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            found = {}
        self.digests: dict[str, list[Any]] = found if isinstance(found, dict) else {}

    def digest(self, file: Path, hashing: Callable[[Path], str]) -> str:
        real = file.resolve()
        stat = real.stat()
        key = [stat.st_size, stat.st_mtime_ns]
        entry = self.digests.get(str(real))
        if isinstance(entry, list) and entry[:2] == key and len(entry) == 3 and isinstance(entry[2], str):
            return entry[2]
        digest = hashing(real)
        self.digests[str(real)] = [*key, digest]
        self.changed = True
        return digest

    def keep(self) -> None:
        if not self.changed:
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
            partial.write_text(json.dumps(self.digests), encoding="utf-8")
            partial.replace(self.path)
