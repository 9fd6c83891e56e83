"""Writes the digests of the images in compose.yml and the Dockerfile, as their registries give them.

    python -m infra.boards.image_digests            ask, and write NAME:TAG@sha256:... where an answer came
    python -m infra.boards.image_digests --check    ask, and say where a tag has moved or has no digest; write nothing

``docker buildx imagetools inspect`` is asked where it is there, else the registry itself. A digest that nobody gave is
never written: an image that could not be asked for stays as it is, and the exit code is 1. An image with a digest keeps
it, also when its tag has moved since; ``--renew`` takes the tag's present one.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.boards.image_registry import ImageError, Reference, manifest_digest, parse_reference

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "compose.yml", ROOT / "infra" / "compose" / "Dockerfile")
ASK_LIMIT_S = 60.0
_LINE = re.compile(r"^(?P<head>\s*(?:image:|FROM)\s+)(?P<image>[^\s#\"']+)(?P<tail>.*)$")
_BUILT_HERE = "# built here"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One image: its digest, or why there is none. ``file`` and ``line`` are where it stands."""

    file: Path
    line: int
    reference: Reference
    digest: str | None
    why: str | None


def references(file: Path) -> list[tuple[int, Reference]]:
    """The images named in a file with their lines. Raises ImageError for one without a version."""
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        match = _LINE.match(line)
        if match is not None and _BUILT_HERE not in match["tail"]:
            found.append((number, parse_reference(match["image"])))
    return found


def docker_digest(reference: Reference) -> str:
    """What docker says. Raises ImageError where it is missing, has no buildx, or gets no answer."""
    docker = shutil.which("docker")
    if docker is None:
        raise ImageError(reference.tagged, "docker is not installed")
    argv = [docker, "buildx", "imagetools", "inspect", reference.tagged, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=ASK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(reference.tagged, f"docker did not answer ({type(error).__name__})") from error
    said = done.stdout.strip()
    if done.returncode == 0 and _DIGEST.fullmatch(said):
        return said
    reason = (done.stderr.strip().splitlines() or [said or "no word"])[0]
    if "unknown flag" in reason or "not a docker command" in reason:
        raise ImageError(reference.tagged, "docker has no buildx")
    raise ImageError(reference.tagged, f"docker buildx: {reason}")


def ask(reference: Reference) -> tuple[str | None, str | None]:
    """The digest, or why nobody gave one: docker's reason and the registry's."""
    reasons = []
    for source in (docker_digest, manifest_digest):
        try:
            return source(reference), None
        except ImageError as error:
            reasons.append(error.why)
    return None, "; ".join(reasons)


def ask_all(files: Sequence[Path]) -> list[Asked]:
    """Every image of the files, each tag asked for once."""
    known: dict[str, tuple[str | None, str | None]] = {}
    found = []
    for file in files:
        for line, reference in references(file):
            if reference.tagged not in known:
                known[reference.tagged] = ask(reference)
            digest, why = known[reference.tagged]
            found.append(Asked(file=file, line=line, reference=reference, digest=digest, why=why))
    return found


def write(asked: Sequence[Asked], *, renew: bool) -> list[str]:
    """Put the digests that came into the files; what was changed, in words."""
    changed = []
    for file in dict.fromkeys(one.file for one in asked):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for one in asked:
            if one.file != file or one.digest is None or (one.reference.digest is not None and not renew):
                continue
            if one.reference.digest == one.digest:
                continue
            pinned = f"{one.reference.tagged}@{one.digest}"
            lines[one.line - 1] = lines[one.line - 1].replace(one.reference.written, pinned, 1)
            changed.append(f"{file.name}, line {one.line}: {pinned}")
        partial = file.with_name(file.name + ".partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(file)
    return changed


def told(one: Asked) -> Mapping[str, str | int | None]:
    """For ``--json``."""
    state = "unknown" if one.digest is None else "unpinned"
    if one.reference.digest is not None and one.digest is not None:
        state = "pinned" if one.reference.digest == one.digest else "moved"
    return {
        "file": one.file.name,
        "line": one.line,
        "image": one.reference.tagged,
        "pinned": one.reference.digest,
        "digest": one.digest,
        "state": state,
        "why": one.why,
    }


def main(argv: Sequence[str]) -> int:
    """Exit code 0: every image has the digest its tag has now; 1: not; 2: an image without a version."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.boards.image_digests", description="Digests of the images used."
    )
    parser.add_argument("files", nargs="*", type=Path, default=FILES, help="(default: compose.yml and the Dockerfile)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--renew", action="store_true", help="replace digests whose tag has moved")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(argv)
    try:
        asked = ask_all(options.files)
        changed = [] if options.check else write(asked, renew=options.renew)
        if changed:
            asked = [
                Asked(file=one.file, line=one.line, reference=now, digest=one.digest, why=one.why)
                for one, now in zip(asked, [r for f in options.files for _, r in references(f)], strict=True)
            ]
    except (ImageError, OSError) as error:
        sys.stderr.write(f"image digests: {error}\n")
        return 2
    rows = [told(one) for one in asked]
    good = all(row["state"] == "pinned" for row in rows)
    if options.json:
        sys.stdout.write(json.dumps({"images": rows, "changed": changed}) + "\n")
    else:
        sys.stdout.write("".join(f"written: {one}\n" for one in changed))
        sys.stdout.write("".join(f"{row['state']}: {row['image']}{_because(row)}\n" for row in rows))
    return 0 if good else 1


def _because(row: Mapping[str, str | int | None]) -> str:
    return f" ({row['why']})" if row["why"] else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
