"""Answers that were received and never read: raw segments on file of requests without a line that says how they ended.

What a request received goes to the disk once its exchange is over, and its line is written when somebody has read it.
A process that is killed in between leaves the segments. No line can be made of them: when the request was sent, over
which connection and how late, stood in that line alone. What the bytes themselves say can be read again.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from evidence import frames
from evidence.durable import is_special
from evidence.layout import SEGMENTS, WIRE, WORKERS
from evidence.records import Started, WireRef


def unread(path: Path, unfinished: Iterable[Started]) -> dict[tuple[int, int], WireRef]:
    """Where the whole frames of unfinished requests lie, by (worker, sequence); those that left none are not there.

    Of the last request before a torn end the last frames may be missing. A file that cannot be read has none.
    """
    wanted: dict[int, set[int]] = defaultdict(set)
    for one in unfinished:
        wanted[one.worker].add(one.sequence)
    found: dict[tuple[int, int], WireRef] = {}
    for worker, sequences in sorted(wanted.items()):
        name = f"{WORKERS}/{worker}/{WIRE}/{SEGMENTS}"
        index = _index(path / name)
        if index is None:
            continue
        ends = [*index.offsets[1:], index.end]
        for place, sequence in enumerate(index.sequences):
            if sequence not in sequences:
                continue
            known = found.get((worker, sequence))
            offset = index.offsets[place] if known is None else known.offset
            n_segments = 1 if known is None else known.n_segments + 1
            found[worker, sequence] = WireRef(
                file=name, offset=offset, n_bytes=ends[place] - offset, n_segments=n_segments
            )
    return found


def _index(path: Path) -> frames.Index | None:
    if is_special(path):
        return None
    try:
        with path.open("rb") as opened:
            return frames.index(opened) if opened.read(len(frames.MAGIC)) == frames.MAGIC else None
    except OSError:
        return None
