"""Has a folder been carried away? A receipt lies beside the folder, never in it, and names what it held when it was
exported and verified.

    runs/run-x/                     the folder
    runs/run-x.exported.json        its receipt

For a folder inside a study the receipt is the study's: nothing is written into a folder of evidence. A receipt counts
only while the folder still holds the same bytes: a study that was resumed since is not exported.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from evidence.durable import sha256_file, write_whole
from evidence.errors import EvidenceError
from evidence.inventory import find_runs, folder_info
from evidence.layout import MANIFEST, folder_kind
from evidence.records import SCHEMA_VERSION, Count, Record, Sha256, Version

RECEIPT = ".exported.json"


class Receipt(Record):
    """What was exported. ``contents`` is each folder's digest by its id: see ``content_digest``."""

    schema_version: Version = SCHEMA_VERSION
    bundle: str  # file name
    bundle_sha256: Sha256
    bundle_bytes: Count
    contents: dict[str, Sha256]
    verified_at_unix_s: float


def exported(path: Path) -> bool:
    """True where a receipt shows that this folder, as it is now, was exported and verified.

    ``path`` is a run, a launch or a study. Raises EvidenceError where a file of it cannot be read.
    """
    found = folder_info(path)
    digests = {receipt.contents[found.id] for receipt in _receipts(path) if found.id in receipt.contents}
    return bool(digests) and content_digest(file_digests(path)) in digests


def not_exported(path: Path) -> str | None:
    """What to say of a folder before its machine goes away; None where it was exported."""
    if exported(path):
        return None
    return f"{path} is not exported and verified yet: python -m analysis export {path} --to bundle"


def runs_not_exported(launch: Path) -> tuple[str, ...]:
    """The same for every run beside a launch folder's own that cites this launch, before its server is torn down.

    Runs that cannot be read are passed over: the verdict says what is wrong with them.
    """
    launch_id, told = folder_info(launch).id, []
    for folder in dict.fromkeys((launch.resolve().parent.parent, launch.resolve().parent)):
        for run in find_runs(folder):
            try:
                cites = json.loads((run / MANIFEST).read_bytes()).get("launch_id")
                said = not_exported(run) if cites == launch_id else None
            except (OSError, ValueError, AttributeError, EvidenceError):
                continue
            told += [said] if said is not None else []
    return tuple(told)


def file_digests(path: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder by its relative name. Raises EvidenceError for a link or what is no file."""
    try:
        return {name: sha256_file(path / name) for name in plain_files(path)}
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise EvidenceError(Path(error.filename or path), what, "check its permissions") from error


def content_digest(files: Mapping[str, str]) -> str:
    """One SHA-256 for a folder: over the lines ``<sha256>  <name>`` sorted by name, as ``sha256sum`` prints them."""
    lines = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def plain_files(path: Path) -> tuple[str, ...]:
    """Every file below a folder, relative, with forward slashes, sorted. Links and devices are refused."""
    found = []

    def refuse(error: OSError) -> None:
        raise EvidenceError(
            Path(error.filename or path), f"cannot be listed ({error.strerror})", "check its permissions"
        )

    for base, folders, names in os.walk(path, onerror=refuse):
        for name in (*names, *folders):
            one = Path(base) / name
            mode = one.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "is a link" if stat.S_ISLNK(mode) else "is no plain file"
                raise EvidenceError(one, what, "evidence is plain files: replace it with what it stands for")
            if stat.S_ISREG(mode):
                found.append(one.relative_to(path).as_posix())
    return tuple(sorted(found))


def outermost(path: Path) -> Path:
    """The folder of evidence that holds this one (the study of a run), or the folder itself."""
    here = path.resolve()
    return next((parent for parent in reversed(here.parents) if folder_kind(parent) != "unknown"), here)


def receipt_path(path: Path) -> Path:
    """Where the receipt of a folder lies: beside it, or beside the study that holds it."""
    return outermost(path).parent / (path.resolve().name + RECEIPT)


def write_receipt(path: Path, receipt: Receipt) -> Path:
    """Write the receipt of a folder, in place of an older one. Raises EvidenceError where the system refuses."""
    place = receipt_path(path)
    write_whole(place, receipt.model_dump_json(indent=1).encode() + b"\n", replace=True)
    return place


def _receipts(path: Path) -> list[Receipt]:
    """The receipts that may speak of a folder. One that cannot be read shows nothing and is passed over."""
    place = outermost(path).parent
    found = []
    for file in sorted([*place.glob(f"*{RECEIPT}"), *place.parent.glob(f"*{RECEIPT}")]):
        try:
            found.append(Receipt.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found
