"""Names of arms that fit the columns of a table and stay apart: two arms never print as one.

A long name loses its middle. Where one of a table's names is too long, what all of them begin with, up to a hyphen,
goes first: it tells nobody apart, and ``…pool4k-fp8kv`` beside ``…pool8k-fp8kv`` is what is read.
"""

from collections.abc import Iterable, Mapping

WIDEST_NAME = 20
NARROW = 14  # in tables of many columns
_CUT = "…"
_JOINS = "-_/. "


def short(name: str, widest: int = WIDEST_NAME) -> str:
    """A name that fits its column: the middle of a long one is left out."""
    if len(name) <= widest:
        return name
    head = widest // 2
    return f"{name[:head]}{_CUT}{name[head + 1 - widest :]}"


def labels(names: Iterable[str], widest: int = WIDEST_NAME) -> Mapping[str, str]:
    """What each of a table's names is printed as; each is wider than ``widest`` only where less would be another's."""
    wanted = list(dict.fromkeys(names))
    begin = _shared(wanted) if any(len(name) > widest for name in wanted) else ""
    bare = {name: f"{_CUT}{name[len(begin) :]}" if begin else name for name in wanted}
    found = {name: short(said, widest) for name, said in bare.items()}
    taken = list(found.values())
    return {name: said if taken.count(said) == 1 else bare[name] for name, said in found.items()}


def _shared(names: list[str]) -> str:
    """What all begin with up to a hyphen or its like; "" for one name alone, or where one would have nothing left."""
    least, most = min(names, default=""), max(names, default="")
    begin = least[: next((at for at, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))]
    end = max((begin.rfind(join) for join in _JOINS), default=-1) + 1
    return begin[:end] if len(names) > 1 and end > 1 and all(len(name) > end for name in names) else ""
