"""Does the engine run in a container, and in which image? An image is known by its digest, not by its name.

From inside, the kernel tells at most a container's id; the image's digest has to be told: by the arm, or by a variable
that whoever started the container set.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLES = ("CONTAINER_IMAGE_DIGEST", "IMAGE_DIGEST", "CONTAINER_DIGEST")
_DIGEST = re.compile(r"(\S+@)?sha256:[0-9a-f]{64}")
_ID = re.compile(r"(?:docker|containerd|crio|libpod|kubepods|lxc)\S*?([0-9a-f]{64})")
_MARKS = (".dockerenv", "run/.containerenv")
# Inside a container its own id stands in what is mounted on these; outside, other containers' mounts say nothing.
_OWN_MOUNT = re.compile(r"containers/([0-9a-f]{64})/\S+ /etc/(?:hostname|hosts|resolv\.conf) ")


def container(
    arm_digest: str | None, *, environment: Mapping[str, str], pid: int | str = "self", root: Path = Path("/")
) -> dict[str, Any]:
    """``runs_in_one`` (True, False, None: not known), ``digest``, ``id``, ``source``, and ``why`` no digest is known.

    ``pid`` is the engine's process on this host; ``environment`` the one it was started with.
    """
    inside, identity = _seen(root, pid)
    facts: dict[str, Any] = {"runs_in_one": inside, "id": identity, "digest": None, "source": None, "why": None}
    if arm_digest is not None:
        return facts | {"runs_in_one": True, "digest": arm_digest, "source": "arm"}
    for name in VARIABLES:
        told = environment.get(name, "")
        if _DIGEST.fullmatch(told):
            return facts | {"runs_in_one": True, "digest": told, "source": f"environment variable {name}"}
    if inside is False:
        return facts | {"why": "it runs in no container"}
    if inside is None:
        return facts | {
            "why": "this system does not tell whether it runs in a container; name it in the arm (container)"
        }
    which = f"container {identity[:12]}" if identity else "a container"
    return facts | {"why": f"it runs in {which}, whose image's digest is not told; name it in the arm (container)"}


def foreign(arm_digest: str | None) -> dict[str, Any]:
    """The same for a server on another host, or one that someone else runs: only the arm can tell."""
    why = None if arm_digest else "a server run by someone else does not tell it; name it in the arm (container)"
    return {
        "runs_in_one": None if arm_digest is None else True,
        "id": None,
        "digest": arm_digest,
        "source": "arm" if arm_digest else None,
        "why": why,
    }


def _seen(root: Path, pid: int | str) -> tuple[bool | None, str | None]:
    groups, mounts = (_text(root / "proc" / str(pid) / name) for name in ("cgroup", "mountinfo"))
    match = _ID.search(groups or "") or _OWN_MOUNT.search(mounts or "")
    found = match[1] if match else None
    if found is not None or any((root / mark).exists() for mark in _MARKS):
        return True, found
    return (None if groups is None else False), None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
