"""What a host lacks of a folder of packages: the only part worth carrying to it. Python alone.

A host that has PyTorch needs an engine, not a second PyTorch. Which packages are left out is decided by name; those
that the host has in another version than the engine pins are named as ``also``. Whole files of a package can be left
out too, for instance kernels of other GPUs.
"""

import fnmatch
import importlib.metadata
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.offline.bundle import OfflineError


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A distribution that is carried, and how large what is carried of it is."""

    name: str
    version: str
    size_bytes: int


def overlay(
    site: Path,
    out: Path,
    host: Collection[str],
    *,
    also: Collection[str] = (),
    without: Collection[str] = (),
    skip: Collection[str] = (),
) -> tuple[Taken, ...]:
    """Link or copy into the new folder ``out`` what ``host`` lacks of ``site``; the largest comes first.

    ``also``: packages to take though the host has one of that name. ``without``: packages that nobody will import.
    ``skip``: patterns of files below ``site`` (``*`` matches slashes too). Errors: OfflineError, OSError.
    """
    if out.exists():
        raise OfflineError(f"{out} is there already; name a new folder")
    wanted, left = {canonical(name) for name in also}, {canonical(name) for name in without}
    had = {canonical(name) for name in host} - wanted
    found = {canonical(one.metadata["Name"]): one for one in importlib.metadata.distributions(path=[str(site)])}
    unknown = sorted((wanted | left) - found.keys())
    if unknown:
        raise OfflineError(f"{site} has no package {unknown[0]}; correct the name, or leave it out")
    taken = []
    for name, distribution in sorted(found.items()):
        if name in had or name in left:
            continue
        size = sum(_bring(site, out, file) for file in _files(site, distribution, skip))
        taken.append(Taken(name=name, version=distribution.version, size_bytes=size))
    return tuple(sorted(taken, key=lambda one: -one.size_bytes))


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def host_names(listed: Path) -> frozenset[str]:
    """The names in what ``pip list --format json`` printed on the host. Errors: OfflineError."""
    try:
        return frozenset(str(package["name"]) for package in json.loads(listed.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OfflineError(f"{listed} is no `pip list --format json`: {error!r}") from error


def link_or_copy(source: str, destination: str) -> None:
    """A second name for the same file where the file system can, else a copy with its times."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


def _files(site: Path, distribution: importlib.metadata.Distribution, skip: Collection[str]) -> Iterator[Path]:
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts or not (site / file).is_file():
            continue
        if not any(fnmatch.fnmatch(str(file), pattern) for pattern in skip):
            yield Path(file)


def _bring(site: Path, out: Path, file: Path) -> int:
    destination = out / file
    destination.parent.mkdir(parents=True, exist_ok=True)
    if not destination.exists():  # two distributions may share a file of a namespace
        link_or_copy(str(site / file), str(destination))
    return (site / file).stat().st_size
