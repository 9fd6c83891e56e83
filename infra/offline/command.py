"""``python -m infra offline ...``: overlay, pack, verify, unpack, lay an environment, carry kernels, make models.

Also ``python -m infra.offline ...``, which needs Python alone (but for ``models``: numpy and gguf). Exit codes: 0 good,
1 a bundle is not what its manifest says, 2 usage, 3 nothing could be written.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from infra.offline.bundle import OfflineError, pack
from infra.offline.environment import lay_environment
from infra.offline.kernels import gather, lay
from infra.offline.overlay import host_names, overlay
from infra.offline.unbundle import faults, unpack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Any, words: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = verbs.add_parser(name, help=words, description=words)
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
    """Run one verb. Errors are said on standard error; the exit code is as the module says."""
    try:
        code: int = options.verb(options)
    except OfflineError as error:
        _say(f"infra: {error}")
        return 1
    except OSError as error:
        _say(f"infra: {error}")
        return 3
    return code


def _pack(options: argparse.Namespace) -> int:
    contents: dict[str, Path] = {}
    for word in options.contents:
        name, equals, path = word.partition("=")
        if not equals or name in contents:
            _say(f"infra: {word!r} is not NAME=PATH with a new name")
            return 2
        contents[name] = Path(path)
    manifest = pack(contents, options.out, piece_bytes=options.piece_mb, level=options.level)
    for content in manifest.contents:
        _put(f"{content.name}: {content.size_bytes / 1e6:.1f} MB in {content.stored_bytes / 1e6:.1f} MB")
    _put(f"{options.out}: {len(manifest.pieces)} pieces")
    return 0


def _verify(options: argparse.Namespace) -> int:
    found = faults(options.bundle, partial=options.partial)
    _put("\n".join(found) if found else f"{options.bundle}: every piece is as its manifest says")
    return 1 if found else 0


def _unpack(options: argparse.Namespace) -> int:
    for name in unpack(options.bundle, options.destination, partial=options.partial):
        _put(str(options.destination / name))
    return 0


def _environment(options: argparse.Namespace) -> int:
    _put(str(lay_environment(options.path, options.site, with_host=options.with_host, move=options.move)))
    return 0


def _overlay(options: argparse.Namespace) -> int:
    chosen = {"also": options.also, "without": options.without, "skip": options.skip}
    taken = overlay(options.site, options.out, host_names(options.host), **chosen)
    for one in taken:
        _put(f"{one.size_bytes / 1e6:8.2f} MB  {one.name} {one.version}")
    _put(f"{sum(one.size_bytes for one in taken) / 1e6:8.2f} MB  in {options.out}")
    return 0


def _kernels(options: argparse.Namespace) -> int:
    caches = gather(options.home, options.folder) if options.what == "gather" else lay(options.folder, options.home)
    _put("\n".join(caches))
    return 0


def _models(options: argparse.Namespace) -> int:
    try:
        from infra.offline.model_folders import make_all  # numpy and gguf: needed only here
    except ModuleNotFoundError as error:
        raise OfflineError(f"{error.name} is not installed; use an environment that has numpy and gguf") from error
    from infra.offline.gguf_reading import UnreadableModelError

    try:
        make_all(options.source, options.out, say=_put)
    except UnreadableModelError as error:
        raise OfflineError(str(error)) from error
    return 0


def _put(text: str) -> None:
    sys.stdout.write(text + "\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _megabytes(word: str) -> int:
    number = float(word)
    if not 1e-6 <= number <= 1e6:
        raise argparse.ArgumentTypeError(f"{word} is no size in megabytes")
    return round(number * 1_000_000)
