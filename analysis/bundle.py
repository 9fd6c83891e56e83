"""``export RUN|STUDY --to bundle`` and ``unpack BUNDLE``: evidence carried off a machine in one verified archive.

A run's bundle holds its folder and the launch it cites; a study's holds the whole study, failed launches included.
What was written is read again and compared with the folder before the archive gets its name; then a receipt is laid
beside the folder (``evidence.receipts``). Beside the archive lies ``<archive>.sha256`` in the form of ``sha256sum``.
"""

import argparse
import gzip
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from analysis.bundle_archive import (
    NO_MORE_THAN,
    BundledFile,
    BundleManifest,
    Limits,
    open_new,
    read_archive,
    write_archive,
)
from analysis.bundle_contents import gather
from analysis.errors import AnalysisError
from evidence import receipts
from evidence.durable import sha256_file
from evidence.errors import EvidenceError
from evidence.layout import folder_kind

SUFFIX = ".bundle.tar.gz"  # .bundle.tar.xz where --out says so: a third of the size, several times the time


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A bundle that was written and verified."""

    path: Path
    sha256: str
    n_bytes: int
    manifest: BundleManifest
    receipt: Path | None
    receipt_missing: str | None
    notes: tuple[str, ...]


def bundle(path: Path, out: Path | None = None) -> Bundle:
    """Pack a run, launch or study, verify the archive by reading it again, and leave a receipt beside the folder.

    Raises EvidenceError where the folder cannot be read or the archive cannot be written, AnalysisError where the
    folder is being written, changes meanwhile, or the archive does not read back as it was.
    """
    out = _destination(path, out)
    manifest, sources, notes = gather(path)
    partial = out.with_name(out.name + ".partial")
    try:
        write_archive(partial, manifest, sources, name=out.name)
        verify_bundle(partial, expected=manifest)
        sha256, n_bytes = sha256_file(partial, sync=True), partial.stat().st_size
        out.with_name(out.name + ".sha256").write_text(f"{sha256}  {out.name}\n", encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise EvidenceError(out, what, "give another file with --out", writing=True) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    receipt, why = None, None
    try:
        receipt = receipts.write_receipt(
            path,
            receipts.Receipt(
                bundle=out.name,
                bundle_sha256=sha256,
                bundle_bytes=n_bytes,
                contents={folder.id: folder.content_sha256 for folder in manifest.folders},
                verified_at_unix_s=time.time(),
            ),
        )
    except EvidenceError as error:
        why = error.what
    return Bundle(
        path=out,
        sha256=sha256,
        n_bytes=n_bytes,
        manifest=manifest,
        receipt=receipt,
        receipt_missing=why,
        notes=tuple(notes),
    )


def verify_bundle(path: Path, *, expected: BundleManifest | None = None) -> BundleManifest:
    """Read a whole bundle and check every hash. Raises AnalysisError where anything is not as listed."""
    found = read_archive(path, lambda _: nullcontext(None))
    if expected is not None and found != expected:
        raise AnalysisError("it does not read back as it was written", "export again", path=path, exit_code=1)
    return found


def unpack(path: Path, folder: Path, *, limits: Limits = NO_MORE_THAN) -> BundleManifest:
    """Unpack a bundle into ``folder``, which must be absent or empty; nothing is left behind where it is refused.

    Every hash is verified before ``folder`` appears. Raises AnalysisError: see ``bundle_archive.read_archive``.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise AnalysisError("is there already, and not empty", "give another folder with --out", path=folder)
    staging = folder.resolve().with_name(f".{folder.resolve().name}.unpacking-{os.getpid()}")

    @contextmanager
    def place(file: BundledFile) -> Iterator[IO[bytes]]:
        at = staging / file.path
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            with open_new(at) as opened:
                yield opened
        except gzip.BadGzipFile:  # of the archive, not of the file that is being made
            raise
        except OSError as error:
            raise _cannot_make(at, error) from error

    try:
        staging.mkdir(parents=True)
        free = shutil.disk_usage(staging).free
        limits = Limits(
            total_bytes=min(limits.total_bytes, free), n_files=limits.n_files, manifest_bytes=limits.manifest_bytes
        )
        manifest = read_archive(path, place, limits=limits)
        staging.replace(folder)
    except OSError as error:
        raise _cannot_make(folder, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _cannot_make(path: Path, error: OSError) -> AnalysisError:
    what = f"cannot be made ({error.strerror or error})"
    return AnalysisError(what, "give another folder with --out, on a disk with space", path=path, exit_code=3)


def _destination(path: Path, out: Path | None) -> Path:
    name = path.resolve().name + SUFFIX
    out = Path(name) if out is None else out / name if out.is_dir() else out
    if any(folder_kind(parent) != "unknown" for parent in out.absolute().parents):
        raise EvidenceError(out, "lies in a folder of evidence", "write it anywhere else with --out")
    return out


def export_command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """``export --to bundle``. ``options`` has ``run`` and ``out``."""
    made = bundle(options.run, options.out)
    report = {
        "out": str(made.path),
        "sha256": made.sha256,
        "n_bytes": made.n_bytes,
        **_contents(made.manifest),
        "verified": True,
        "receipt": None if made.receipt is None else str(made.receipt),
        "receipt_missing": made.receipt_missing,
        "notes": list(made.notes),
    }
    told = [
        f"{made.path}: {made.n_bytes} bytes, {len(made.manifest.files)} files, read again and verified",
        f"sha256 {made.sha256}",
        *_folder_lines(made.manifest),
        *made.notes,
        f"receipt: {made.receipt}"
        if made.receipt is not None
        else f"no receipt could be written: {made.receipt_missing}",
        f"unpack it elsewhere: python -m analysis unpack {made.path}",
    ]
    return 0, report, told


def add_unpack_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of ``unpack``."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="an archive that `export --to bundle` wrote")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to make (default: the archive's name)")
    parser.add_argument("--sha256", metavar="HEX", help="the archive's hash as printed where it was made")


def unpack_command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """``unpack BUNDLE``: verified, into a folder of its own."""
    path: Path = options.bundle
    folder = options.out or Path(path.name.removesuffix(SUFFIX).removesuffix(".bundle.tar.xz") + "-unpacked")
    if options.sha256 is not None:
        try:
            found = sha256_file(path)
        except OSError as error:
            raise AnalysisError(f"cannot be read ({error.strerror})", "check the path", path=path) from error
        if found != options.sha256.strip().lower():
            what = f"its SHA-256 is {found}, not {options.sha256}"
            raise AnalysisError(what, "fetch it again from where it was made", path=path, exit_code=1)
    manifest = unpack(path, folder)
    report = {"out": str(folder), **_contents(manifest), "verified": True}
    return 0, report, [f"{folder}: {len(manifest.files)} files, every hash verified", *_folder_lines(manifest)]


def _contents(manifest: BundleManifest) -> dict[str, Any]:
    return {
        "kind": manifest.kind,
        "id": manifest.id,
        "n_files": len(manifest.files),
        "n_content_bytes": sum(file.n_bytes for file in manifest.files),
        "content_sha256": manifest.content_sha256,
        "folders": [folder.model_dump(mode="json") for folder in manifest.folders],
    }


def _folder_lines(manifest: BundleManifest) -> list[str]:
    return [
        f"  {folder.kind} {folder.path}: {'sealed' if folder.sealed else 'not sealed'}, "
        f"{', '.join(folder.problems) or 'as it was sealed'}"
        for folder in manifest.folders
    ]
