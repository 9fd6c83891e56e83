"""Does a folder still hold what was sealed, and does it fit together? Finds problems; judging is analysis's part."""

from collections.abc import Iterator
from pathlib import Path

from evidence.checks import check_contents
from evidence.contents import Contents, read_contents
from evidence.counts import count
from evidence.durable import folder_files, is_special, sha256_file
from evidence.errors import EvidenceError, Problem
from evidence.kept import sealed_elsewhere
from evidence.launch_folder import read_launch
from evidence.layout import LAUNCH, SEAL, folder_kind
from evidence.reading import Run, run_of
from evidence.records import Seal

_COUNTS = ("planned", "started", "completed", "failed", "cancelled", "unfinished")


def verify(path: Path) -> tuple[Problem, ...]:
    """Every problem of a run or launch folder; none for a sealed folder in which everything fits.

    Raises EvidenceError only where the path is no such folder or a file of it cannot be opened: unreadable content is a
    problem with its file and line. The codes are ``errors.ProblemCode``.
    """
    kind = folder_kind(path)
    if kind == "launch":
        return tuple(_launch(path))
    return verify_contents(read_contents(path))


def open_verified(path: Path) -> tuple[Run, tuple[Problem, ...]]:
    """A run folder and every problem of it, its files read once. Raises EvidenceError as ``open_run`` does."""
    contents = read_contents(path)
    return run_of(contents), verify_contents(contents)


def verify_contents(contents: Contents) -> tuple[Problem, ...]:
    """Every problem of a run folder whose contents were read; its files are read again for their hashes."""
    path = contents.path
    problems = [*check_contents(contents)]
    if contents.seal is not None:
        problems += _sealed(path, contents.seal, sealed_elsewhere(contents.kept))
        problems += _counts(contents, contents.seal)
    return tuple(problems)


def _launch(path: Path) -> Iterator[Problem]:
    launch, seal, problems = read_launch(path)
    yield from problems
    if seal is None:
        if not any(one.file == SEAL for one in problems):
            yield Problem("seal_missing", "the folder was never closed: the launcher was killed, or is at work", SEAL)
        return
    yield from _sealed(path, seal)
    if launch is not None and launch.launch_id != seal.id:
        yield Problem("wrong_id", f"id {seal.id!r}, but {LAUNCH} has {launch.launch_id!r}", SEAL)


def _sealed(path: Path, seal: Seal, brought: dict[str, str] | None = None) -> Iterator[Problem]:
    """The seal's own words and the files it names against those that are there.

    ``brought``: SHA-256 of files that may have come after the seal, which names the file that has their digests.
    """
    digests = (brought or {}) | seal.files
    if seal.recovered:
        yield Problem("recovered", "closed afterwards: the recorder did not live to seal it", SEAL)
    try:
        there = folder_files(path)
        for name in there:
            if name not in digests:
                yield Problem("file_extra", "the seal does not name it", name)
            elif is_special(path / name):
                yield Problem("hash_mismatch", "it is no regular file any more", name)
            elif sha256_file(path / name) != digests[name]:
                yield Problem("hash_mismatch", "its SHA-256 is not the one in the seal", name)
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise EvidenceError(Path(error.filename or path), what, "check its permissions") from error
    for name in sorted(seal.files.keys() - set(there)):
        yield Problem("file_missing", "the seal names it and it is not there", name)


def _counts(contents: Contents, seal: Seal) -> Iterator[Problem]:
    if contents.manifest is not None and contents.manifest.run_id != seal.id:
        yield Problem("wrong_id", f"id {seal.id!r}, but the manifest has {contents.manifest.run_id!r}", SEAL)
    total = seal.completed + sum(seal.failed.values()) + seal.cancelled + seal.unfinished
    if total != seal.started:
        yield Problem("counts_mismatch", f"started is {seal.started}, the ways of ending sum to {total}", SEAL)
    counts = count(contents)
    for name in _COUNTS:
        if getattr(counts, name) != getattr(seal, name):
            detail = f"{name} is {getattr(seal, name)!r}, the folder's lines give {getattr(counts, name)!r}"
            yield Problem("counts_mismatch", detail, SEAL)
    if contents.torn != seal.torn:
        yield Problem("counts_mismatch", f"torn is {seal.torn}, the folder's files give {contents.torn}", SEAL)
