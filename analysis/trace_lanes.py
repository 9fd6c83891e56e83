"""One trace file gathered: what each GPU of each rank did, and what the engine marked. Kept in flat arrays.

A torch trace holds one rank; SGLang's merged trace holds several, told apart by a label before each process id
(``[TP00] 3087``). A lane is one GPU of one rank.
"""

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.trace_classes import CLASSES, GPU_CATEGORIES, KernelClass, activity_class
from analysis.trace_intervals import Ns
from analysis.trace_marks import Mark, find_inner, role_of
from analysis.trace_stream import Fault, TraceReader

MOST_NAMES = 20_000
MOST_STREAMS = 256  # what lies beyond is told as one
_BEYOND = "(names beyond the first 20000)"
_LABELLED = re.compile(r"(\[[^\]]*\]) (.*)", re.DOTALL)
_FAR_NS = 1 << 62
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Lane:
    """One GPU of one rank: its activities in the file's order, instants in the trace's own nanoseconds."""

    device: str
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    classes: "array[int]" = field(default_factory=lambda: array("B"))  # places in CLASSES
    streams: "array[int]" = field(default_factory=lambda: array("I"))  # places in stream_names
    stream_names: dict[str, int] = field(default_factory=dict)
    categories: Counter[str] = field(default_factory=Counter)
    names: dict[str, list[int]] = field(default_factory=dict)  # name -> place in CLASSES, how many, nanoseconds

    def add(self, category: str, name: str, stream: str, start_ns: int, duration_ns: int) -> None:
        kind = CLASSES.index(activity_class(category, name))
        self.starts.append(start_ns)
        self.ends.append(start_ns + duration_ns)
        self.classes.append(kind)
        if stream not in self.stream_names and len(self.stream_names) >= MOST_STREAMS:
            stream = "others"
        self.streams.append(self.stream_names.setdefault(stream, len(self.stream_names)))
        self.categories[category] += 1
        known = self.names.get(name)
        if known is None:
            name = name if len(self.names) < MOST_NAMES else f"{_BEYOND} {CLASSES[kind]}"
            known = self.names.setdefault(name, [kind, 0, 0])
        known[1] += 1
        known[2] += duration_ns

    def __len__(self) -> int:
        return len(self.starts)

    def bounds(self) -> tuple[Ns, Ns]:
        """Starts and ends as numpy arrays, without a copy."""
        return np.frombuffer(self.starts, dtype=np.int64), np.frombuffer(self.ends, dtype=np.int64)

    def is_class(self, *wanted: KernelClass) -> Mask:
        """Which activities are of one of these classes."""
        return np.isin(np.frombuffer(self.classes, dtype=np.uint8), [CLASSES.index(one) for one in wanted])

    def is_stream(self, name: str) -> Mask:
        """Which activities ran on this stream."""
        return np.equal(np.frombuffer(self.streams, dtype=np.uintc), self.stream_names[name])


@dataclass(slots=True)
class RankTrace:
    """One rank of one file."""

    label: str | None  # of a merged trace, "[TP00]"
    lanes: dict[str, Lane] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    by_external_id: dict[int, Mark] = field(default_factory=dict)
    on_gpu: list[tuple[str, str, int | None, int, int]] = field(
        default_factory=list
    )  # name, lane, external id, from, to


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFile:
    """One file as read, whole or up to its fault."""

    path: Path
    header: dict[str, Any]
    ranks: tuple[RankTrace, ...]
    n_events: int
    n_bytes: int
    n_text_bytes: int
    sha256: str | None
    n_unusable: int  # events of the GPU or marks without a time that can be read
    fault: Fault | None

    @property
    def base_ns(self) -> int | None:
        """Unix nanoseconds of the trace's instant 0; None where the file does not say."""
        base = self.header.get("baseTimeNanoseconds")
        return base if isinstance(base, int) and not isinstance(base, bool) and 0 < base < _FAR_NS else None


def read_file(path: Path, *, block_bytes: int | None = None) -> TraceFile:
    """Read one trace. Never raises for what is wrong with the file: that is its ``fault``."""
    reader = TraceReader(path) if block_bytes is None else TraceReader(path, block_bytes=block_bytes)
    ranks: dict[str | None, RankTrace] = {}
    n_unusable = 0
    for event in reader.events():
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str):
            continue
        category = category.lower()
        if category in GPU_CATEGORIES or category in {"user_annotation", "gpu_user_annotation"}:
            n_unusable += not _take(event, category, ranks)
    for rank in ranks.values():
        _join_marks(rank)
    return TraceFile(
        path=path,
        header=reader.header,
        ranks=tuple(ranks.values()),
        n_events=reader.n_events,
        n_bytes=reader.n_bytes,
        n_text_bytes=reader.n_text_bytes,
        sha256=reader.sha256,
        n_unusable=n_unusable,
        fault=reader.fault,
    )


def _take(event: dict[str, Any], category: str, ranks: dict[str | None, RankTrace]) -> bool:
    """Put one event where it belongs; False where it has no time that can be read."""
    name, args = str(event.get("name", "")), event.get("args")
    args = args if isinstance(args, dict) else {}
    role = role_of(name) if category.endswith("annotation") else None
    if category.endswith("annotation") and role is None:
        return True
    start_ns, duration_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start_ns is None or duration_ns is None or duration_ns < 0:
        return False
    process = str(event.get("pid"))
    labelled = _LABELLED.fullmatch(process)
    label, process = (labelled[1], labelled[2]) if labelled else (None, process)
    rank = ranks.setdefault(label, RankTrace(label))
    external = args.get("External id")
    external = external if isinstance(external, int) else None
    if category == "user_annotation" and role is not None:
        thread = (process, str(event.get("tid")))
        mark = Mark(name, role[0], role[1], thread, start_ns, start_ns + duration_ns)
        rank.marks.append(mark)
        if external is not None:
            rank.by_external_id[external] = mark
    elif category == "gpu_user_annotation":
        rank.on_gpu.append((name, process, external, start_ns, start_ns + duration_ns))
    else:
        lane = rank.lanes.get(process)
        if lane is None:
            lane = rank.lanes[process] = Lane(process)
        stream = args.get("stream", event.get("tid"))
        lane.add(category, name, str(stream), start_ns, duration_ns)
    return True


def _join_marks(rank: RankTrace) -> None:
    """Give each range on a GPU to the range on the CPU that caused it; alone it is a mark of its own."""
    for name, lane, external, start_ns, end_ns in rank.on_gpu:
        mark = rank.by_external_id.get(external) if external is not None else None
        if mark is None or mark.name != name:
            role = role_of(name)
            if role is None:
                continue
            mark = Mark(name, role[0], role[1], ("GPU", lane), None, None)
            rank.marks.append(mark)
            if external is not None:
                rank.by_external_id[external] = mark
        mark.on_gpu.append((lane, start_ns, end_ns))
    find_inner(rank.marks)


def nanoseconds(value: object) -> int | None:
    """Microseconds as JSON gave them (a whole number, or a fraction's text) in nanoseconds; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        found = value * 1000
    elif isinstance(value, str):
        whole, _, part = value.partition(".")
        if whole.isdecimal() and part.isdecimal() and len(part) <= 3 and value.isascii():
            found = int(whole[:24]) * 1000 + int(part) * 10 ** (3 - len(part))
        else:
            try:
                number = Decimal(value)
                if not number.is_finite() or abs(number) > _FAR_NS:
                    return None
                found = int((number * 1000).to_integral_value())
            except InvalidOperation:
                return None
    else:
        return None
    return found if -_FAR_NS < found < _FAR_NS else None
