"""A Python environment made without a network: a folder of packages first, this interpreter's own after it.

``lay_environment`` makes ``PATH/bin/python`` like a virtual environment. The packages of ``site`` hide those of the
same name in the host's interpreter; nothing of the host's is changed. Engine and load generator get one each, so that
their pins never meet. Python alone.
"""

import os
import shutil
import site as interpreter_site
import sys
import sysconfig
import venv
from pathlib import Path

from infra.offline.bundle import OfflineError
from infra.offline.overlay import link_or_copy

HOST_FILE = "zz-host.pth"  # read last: what the host has comes after what was brought


def lay_environment(path: Path, site: Path, *, with_host: bool, move: bool = False) -> Path:
    """Make the environment and return its ``python``. ``with_host``: what ``site`` lacks comes from this interpreter.

    ``move`` moves the packages out of ``site``, else they are linked where the file system can, copied where not.
    Errors: OfflineError, OSError.
    """
    if not site.is_dir():
        raise OfflineError(f"{site} is no folder of packages; unpack the bundle first")
    if path.exists():
        raise OfflineError(f"{path} is there already; name another folder or remove it")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(path)
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars={"base": str(path), "platbase": str(path)}))
    _bring(site, packages, move=move)
    if with_host:
        lines = [f"import site; site.addsitedir({folder!r})" for folder in host_folders()]
        (packages / HOST_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    _scripts(packages / "bin", path / "bin")
    return path / "bin" / "python"


def host_folders() -> list[str]:
    """Where this interpreter looks for installed packages, in its own order."""
    known = {*interpreter_site.getsitepackages(), interpreter_site.getusersitepackages()}
    return [folder for folder in sys.path if folder in known]


def _bring(site: Path, packages: Path, *, move: bool) -> None:
    for entry in sorted(site.iterdir()):
        if move:
            shutil.move(entry, packages / entry.name)
        elif entry.is_dir():
            shutil.copytree(entry, packages / entry.name, symlinks=True, copy_function=link_or_copy)
        else:
            link_or_copy(str(entry), str(packages / entry.name))


def _scripts(brought: Path, into: Path) -> None:
    """Start scripts that came with the packages name an interpreter of another machine: write them for this one."""
    if not brought.is_dir():
        return
    for script in sorted(brought.iterdir()):
        lines = script.read_bytes().split(b"\n", 1)
        if script.is_file() and lines[0].startswith(b"#!") and b"python" in lines[0] and len(lines) == 2:
            target = into / script.name
            target.write_bytes(b"#!" + os.fsencode(into / "python") + b"\n" + lines[1])
            target.chmod(0o755)
