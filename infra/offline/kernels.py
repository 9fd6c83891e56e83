"""Kernels that an engine compiled at its first start, carried to the next machine: minutes of a start become seconds.

They are of use only to the same engine version on the same kind of GPU, with its packages in a folder of the same path.
Times of modification are kept: the build tools compare them. Python alone.
"""

import shutil
from pathlib import Path

from infra.offline.bundle import OfflineError

# Below a home folder: FlashInfer's modules, TVM's (SGLang's own kernels), DeepGEMM's, and Triton's.
CACHES = (".cache/flashinfer", ".cache/tvm-ffi", ".cache/deep_gemm", ".triton/cache")


def gather(home: Path, out: Path) -> tuple[str, ...]:
    """Copy what was compiled below ``home`` into the new folder ``out``; returns which caches were there.

    Errors: OfflineError where ``out`` is there already or nothing was compiled.
    """
    if out.exists():
        raise OfflineError(f"{out} is there already; name a new folder")
    found = tuple(cache for cache in CACHES if (home / cache).is_dir())
    if not found:
        raise OfflineError(f"no compiled kernels below {home}; start the engine once, then run this again")
    for cache in found:
        shutil.copytree(home / cache, out / _visible(cache), symlinks=True)
    return found


def lay(folder: Path, home: Path) -> tuple[str, ...]:
    """Copy a gathered folder's caches below ``home``; a file that is there already stays. Returns which were laid.

    Errors: OfflineError where the folder holds none.
    """
    found = tuple(cache for cache in CACHES if (folder / _visible(cache)).is_dir())
    if not found:
        raise OfflineError(f"{folder} holds no compiled kernels; give the folder that `kernels gather` made")
    for cache in found:
        shutil.copytree(
            folder / _visible(cache), home / cache, symlinks=True, dirs_exist_ok=True, copy_function=_copy_new
        )
    return found


def _visible(cache: str) -> str:
    """A cache's name as one folder that no tool takes for hidden."""
    return cache.removeprefix(".").replace("/.", "-").replace("/", "-")


def _copy_new(source: str, destination: str) -> str:
    if not Path(destination).exists():
        shutil.copy2(source, destination)
    return destination
