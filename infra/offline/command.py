"""``python -m infra offline ...``: overlay, pack, verify, unpack, lay an environment, carry kernels, make models.

Also ``python -m infra.offline ...``, which needs Python alone (but for ``models``: numpy and gguf). Exit codes: 0 good,
1 a bundle is not what its manifest says, 2 usage or unreadable input, 3 what is made could not be written.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.offline.bundle import NotWholeError, OfflineError, pack
from infra.offline.environment import lay_environment
from infra.offline.kernels import gather, lay
from infra.offline.overlay import host_names, overlay
from infra.offline.unbundle import faults, unpack


@dataclass(frozen=True)
class Done:
    """What a verb did: as fields of one JSON object, and as lines to read."""

    fields: dict[str, Any]
    lines: Sequence[str]
    code: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Any, words: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = verbs.add_parser(name, help=words, description=words)
        added.add_argument("--json", action="store_true", help="one JSON object")
        added.set_defaults(verb=run)
        return added

    packing = verb("pack", _pack, "pack folders and files into pieces that can be carried, with every hash")
    packing.add_argument("out", metavar="BUNDLE", type=Path, help="a folder that is not there or empty")
    packing.add_argument("contents", metavar="NAME=PATH", nargs="+", help="what to pack, under which name")
    packing.add_argument("--piece-mb", metavar="MB", type=_megabytes, default=1_000_000_000, help="(default: 1000)")
    packing.add_argument("--level", type=int, choices=range(10), default=6, help="of xz (%(default)s)")

    verifying = verb("verify", _verify, "compare every piece with the manifest")
    verifying.add_argument("bundle", metavar="BUNDLE", type=Path)
    verifying.add_argument("--partial", action="store_true", help="pieces that have not come yet are no fault")

    unpacking = verb("unpack", _unpack, "verify, then lay out the contents; what is there already stays")
    unpacking.add_argument("bundle", metavar="BUNDLE", type=Path)
    unpacking.add_argument("destination", metavar="DIR", type=Path)
    unpacking.add_argument("--partial", action="store_true", help="lay out what is complete so far")

    laying = verb("environment", _environment, "an environment of brought packages before this interpreter's own")
    laying.add_argument("path", metavar="DIR", type=Path, help="where it is made; DIR/bin/python starts it")
    laying.add_argument("--site", metavar="DIR", type=Path, required=True, help="the folder of packages")
    laying.add_argument("--with-host", action="store_true", help="what the folder lacks comes from this interpreter")
    laying.add_argument("--move", action="store_true", help="move the packages (default: link or copy them)")

    trimming = verb("overlay", _overlay, "of a folder of packages, only what a host lacks")
    trimming.add_argument("site", metavar="SITE", type=Path, help="the site-packages of an environment made here")
    trimming.add_argument("out", metavar="OUT", type=Path, help="a folder that is not there yet")
    trimming.add_argument("--host", metavar="FILE", type=Path, required=True, help="its `pip list --format json`")
    trimming.add_argument("--also", metavar="NAME", action="append", default=[], help="take it though the host has one")
    trimming.add_argument("--without", metavar="NAME", action="append", default=[], help="nobody will import it")
    trimming.add_argument("--skip", metavar="PATTERN", action="append", default=[], help="files to leave out")

    carrying = verb("kernels", _kernels, "carry kernels that an engine compiled at its first start")
    carrying.add_argument("what", choices=("gather", "lay"), help="out of this home folder, or into it")
    carrying.add_argument("folder", metavar="DIR", type=Path, help="where they are gathered; pack it like any folder")
    carrying.add_argument("--home", metavar="DIR", type=Path, default=Path.home(), help="(default: yours)")

    making = verb("models", _models, "the model folders of the GPU study, from the packaged GGUF file")
    making.add_argument("source", metavar="GGUF", type=Path)
    making.add_argument("out", metavar="DIR", type=Path, help="for the stock recipes: models, in the project's folder")


def command(options: argparse.Namespace) -> int:
    """Run one verb. Errors are said on standard error (with ``--json`` on standard output too); exit codes as above."""
    try:
        done: Done = options.verb(options)
    except OfflineError as error:
        return _refused(str(error), 1 if isinstance(error, NotWholeError) else 2, options.json)
    except OSError as error:
        return _refused(f"{error}: see that the disk has space, and that the folder may be written", 3, options.json)
    _put(json.dumps({"exit_code": done.code, **done.fields}) if options.json else "\n".join(done.lines))
    return done.code


def _refused(said: str, code: int, as_json: bool) -> int:
    sys.stderr.write(f"infra: {said}\n")
    if as_json:
        _put(json.dumps({"error": said, "exit_code": code}))
    return code


def _pack(options: argparse.Namespace) -> Done:
    contents: dict[str, Path] = {}
    for word in options.contents:
        name, equals, path = word.partition("=")
        if not equals or name in contents:
            raise OfflineError(f"{word!r} is not NAME=PATH with a new name: write, for example, models=/data/models")
        contents[name] = Path(path)
    manifest = pack(contents, options.out, piece_bytes=options.piece_mb, level=options.level)
    lines = [
        f"{one.name}: {one.size_bytes / 1e6:.1f} MB in {one.stored_bytes / 1e6:.1f} MB" for one in manifest.contents
    ]
    lines.append(f"{options.out}: {len(manifest.pieces)} pieces")
    return Done({"bundle": str(options.out), **manifest.as_json()}, lines)


def _verify(options: argparse.Namespace) -> Done:
    found = faults(options.bundle, partial=options.partial)
    lines = found or (f"{options.bundle}: every piece is as its manifest says",)
    return Done({"bundle": str(options.bundle), "faults": list(found)}, lines, code=1 if found else 0)


def _unpack(options: argparse.Namespace) -> Done:
    names = unpack(options.bundle, options.destination, partial=options.partial)
    paths = [str(options.destination / name) for name in names]
    return Done({"unpacked": paths}, paths)


def _environment(options: argparse.Namespace) -> Done:
    path = str(lay_environment(options.path, options.site, with_host=options.with_host, move=options.move))
    return Done({"environment": path}, [path])


def _overlay(options: argparse.Namespace) -> Done:
    chosen = {"also": options.also, "without": options.without, "skip": options.skip}
    taken = overlay(options.site, options.out, host_names(options.host), **chosen)
    lines = [f"{one.size_bytes / 1e6:8.2f} MB  {one.name} {one.version}" for one in taken]
    lines.append(f"{sum(one.size_bytes for one in taken) / 1e6:8.2f} MB  in {options.out}")
    packages = [{"name": one.name, "version": one.version, "size_bytes": one.size_bytes} for one in taken]
    return Done({"overlay": str(options.out), "packages": packages}, lines)


def _kernels(options: argparse.Namespace) -> Done:
    caches = gather(options.home, options.folder) if options.what == "gather" else lay(options.folder, options.home)
    return Done({"caches": list(caches)}, caches)


def _models(options: argparse.Namespace) -> Done:
    try:
        from infra.offline.model_folders import make_all  # numpy and gguf: needed only here
    except ModuleNotFoundError as error:
        raise OfflineError(f"{error.name} is not installed; use an environment that has numpy and gguf") from error
    from infra.offline.gguf_reading import UnreadableModelError

    said: list[str] = []
    try:
        make_all(options.source, options.out, say=said.append if options.json else _put)
    except UnreadableModelError as error:
        raise OfflineError(str(error)) from error
    return Done({"models": str(options.out), "said": said}, ())


def _put(text: str) -> None:
    if text:
        sys.stdout.write(text + "\n")


def _megabytes(word: str) -> int:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not 1e-6 <= number <= 1e6:
        raise argparse.ArgumentTypeError(f"{word!r} is no size in megabytes: give one from 0.000001 to 1000000, as 500")
    return round(number * 1_000_000)
