"""What goes into a bundle: a run and the launch it cites, or a study whole, its failed launches among the rest."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from analysis.bundle_archive import BundledFile, BundledFolder, BundleManifest, check_name
from analysis.errors import AnalysisError
from evidence import receipts
from evidence.errors import EvidenceError
from evidence.inventory import find_folders, folder_info
from evidence.layout import FolderKind, folder_kind
from evidence.processes import living_writer
from evidence.reading import open_run
from evidence.study_folder import LAUNCHES, RUNS, open_study
from evidence.verify import verify


class Packed(NamedTuple):
    """One folder as it goes into the archive."""

    at: str  # its name in the archive
    source: Path
    kind: FolderKind
    files: dict[str, str]  # SHA-256 by relative name


def gather(path: Path) -> tuple[BundleManifest, list[Path], list[str]]:
    """What a bundle of this folder holds: its manifest, where each file lies, and what had to stay behind and why."""
    kind = folder_kind(path)
    if kind == "unknown" or kind == "shard":
        raise EvidenceError(path, "is no run, launch or study", "give the path of such a folder, runs/run-... say")
    notes: list[str] = []
    packed = [_pack(path, path.resolve().name)]
    if kind == "run":
        packed += _cited(path, notes)
    listed: dict[str, tuple[Path, str]] = {}
    for one in packed:
        for name, sha256 in one.files.items():
            listed[f"{one.at}/{name}"] = (one.source / name, sha256)
    for name in listed:
        if (why := check_name(name)) is not None:
            raise EvidenceError(listed[name][0], f"its name {why}", "rename it before it is exported")
    files = tuple(
        BundledFile(path=name, n_bytes=listed[name][0].stat().st_size, sha256=listed[name][1])
        for name in sorted(listed)
    )
    manifest = BundleManifest(
        kind=kind,
        id=folder_info(path).id,
        folders=tuple(folder for one in packed for folder in _described(one)),
        files=files,
        content_sha256=receipts.content_digest({file.path: file.sha256 for file in files}),
    )
    return manifest, [listed[file.path][0] for file in files], notes


def _pack(path: Path, at: str) -> Packed:
    kind = folder_kind(path)
    inside = [info.path for part in (LAUNCHES, RUNS) if (path / part).is_dir() for info in find_folders(path / part)]
    for folder in [path, *(inside if kind == "study" else ())]:
        if (writer := living_writer(folder)) is not None:
            what = f"is being written by {writer}"
            raise AnalysisError(what, "export it when that has ended", path=folder)
    return Packed(at, path, kind, receipts.file_digests(path))


def _cited(path: Path, notes: list[str]) -> Iterator[Packed]:
    """The launch a run cites, looked for from the run's folder and its parents."""
    try:
        cited = open_run(path).manifest.launch_dir
    except EvidenceError as error:
        notes.append(f"which launch it cites is not known: {error.what}")
        return
    if cited is None:
        notes.append("the run cites no launch")
        return
    named = Path(cited)
    places = [named] if named.is_absolute() else [path / named, *(root / named for root in path.resolve().parents)]
    found = next((place for place in places if folder_kind(place) == "launch"), None)
    if found is None:
        notes.append(f"the launch it cites, {cited}, is not there and stays behind")
    elif (writer := living_writer(found)) is not None:
        notes.append(f"the launch it cites, {cited}, is still at work ({writer}) and stays behind: export again later")
    else:
        yield _pack(found, f"{LAUNCHES}/{found.name}")


def _described(packed: Packed) -> Iterator[BundledFolder]:
    """The folder itself and, of a study, each run and launch in it."""
    yield _one(packed.at, packed.source, packed.files)
    if packed.kind != "study":
        return
    for part in (LAUNCHES, RUNS):
        if (packed.source / part).is_dir():
            for info in find_folders(packed.source / part):
                lead = f"{part}/{info.path.name}/"
                own = {name.removeprefix(lead): sha for name, sha in packed.files.items() if name.startswith(lead)}
                if own:
                    yield _one(f"{packed.at}/{lead.rstrip('/')}", info.path, own)


def _one(at: str, source: Path, files: dict[str, str]) -> BundledFolder:
    info = folder_info(source)
    try:
        found = open_study(source).problems if info.kind == "study" else verify(source)
        problems: tuple[str, ...] = tuple(sorted({str(problem.code) for problem in found}))
    except EvidenceError as error:
        problems = (f"cannot be read: {error.what}",)
    return BundledFolder(
        path=at,
        kind="unknown" if info.kind == "shard" else info.kind,
        id=info.id,
        sealed=info.sealed,
        n_files=len(files),
        content_sha256=receipts.content_digest(files),
        problems=problems,
    )
