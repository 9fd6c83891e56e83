"""Engine versions, compared by their leading numbers: "0.5.17", "0.33.0rc1", "b11434"."""

import re

_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")


def parsed(version: str | None) -> tuple[int, ...] | None:
    """The leading numbers, or None where there are none (an unknown version, a build tag)."""
    match = _NUMBERS.match(version or "")
    return None if match is None else tuple(int(part) for part in match[1].split("."))


def at_least(version: str | None, wanted: tuple[int, ...]) -> bool | None:
    """Whether the version is that one or a later one; None where it is not known."""
    numbers = parsed(version)
    return None if numbers is None else numbers >= wanted
