"""A small file that a user named: read whole, or an error that says what it is instead.

A device, a pipe or a socket by that name is not waited for, and what has no end is not read.
"""

from pathlib import Path

from evidence.errors import EvidenceError


def read_named(path: Path, most_bytes: int, remedy: str) -> bytes:
    """The whole file. Raises EvidenceError for what is missing, unreadable, no regular file or larger than that."""
    try:
        if path.exists() and not path.is_file():
            raise EvidenceError(path, "is a folder" if path.is_dir() else "is no regular file", remedy)
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # a null byte in the path is the latter
        raise EvidenceError(path, f"cannot be read ({getattr(error, 'strerror', None) or error})", remedy) from error
    if len(data) > most_bytes:
        raise EvidenceError(path, f"is larger than {most_bytes / 2**20:g} MiB", remedy)
    return data
