"""The parts of a GGUF model that was split: ``name-00001-of-00003.gguf``."""

import re
from pathlib import Path

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def shards_of(path: Path) -> tuple[Path, ...]:
    """Every part of the model that ``path`` is, or is a part of, in order; whether they are there is not asked."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return (path,)
    return tuple(path.with_name(f"{found[1]}-{n:05d}-of-{found[3]}.gguf") for n in range(1, int(found[3]) + 1))
