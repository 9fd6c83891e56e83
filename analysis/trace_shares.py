"""What one GPU did in a profiler window: time by kernel class, by stream, and for each pass of the target model.

The window runs from the first GPU activity of the trace to the last. Every instant in which something ran counts once
(the union of the intervals). An instant that several classes share is given to the first of them in the order of
``trace_classes.CLASSES``, so the classes and idle sum to the window; beside it stands ``alone_or_not_s``, the time in
which the class ran at all, whatever ran beside it, and ``summed_s``, the plain sum of durations.

Shares, idle time and the time of a pass are stated only for a trace that was read whole: what a cut file lacks is not
spread evenly over its classes. Of such a file stand the counts and the times of what was read.
"""

import re
from typing import Any

from analysis.trace_classes import CLASSES
from analysis.trace_intervals import Ns, union
from analysis.trace_lanes import Lane, RankTrace, TraceFile
from analysis.trace_marks import Mark
from analysis.trace_passes import cycle_report, marks_report, passes_of, passes_report

TOP_NAMES = 8
_RANK_IN_NAME = re.compile(r"(?:TP|rank)[-_]?(\d+)", re.IGNORECASE)


def lane_report(file: TraceFile, rank: RankTrace, lane: Lane) -> dict[str, Any]:
    """Everything that is said of one GPU of one rank; times in seconds."""
    starts, ends = lane.bounds()
    busy = union(starts, ends)
    from_ns, to_ns = int(busy.starts[0]), int(busy.ends[-1])
    whole = file.fault is None
    passes = passes_of(rank, lane.device)
    return {
        "file": str(file.path),
        **identity(file, rank),
        "device": lane.device,
        "gpu": _gpu_name(file, lane.device),
        "complete": whole,
        "window": {
            "from_unix_s": _unix_s(file, from_ns),
            "to_unix_s": _unix_s(file, to_ns),
            "span_s": (to_ns - from_ns) / 1e9,
            "bounds": "first to last GPU activity of the trace",
        },
        "n_kernels": lane.categories["kernel"],
        "n_copies": lane.categories["gpu_memcpy"],
        "n_sets": lane.categories["gpu_memset"],
        "busy_s": busy.total_ns / 1e9,
        "idle_s": (to_ns - from_ns - busy.total_ns) / 1e9 if whole else None,
        "classes": _classes(lane, starts, ends, to_ns - from_ns, whole),
        "streams": _streams(lane, starts, ends, to_ns - from_ns, whole),
        "passes": passes_report(lane, passes, busy, whole),
        "cycle": cycle_report(rank, lane, passes, busy, whole),
        "marks": marks_report(rank, lane, busy, whole),
        "collective": _collective(file, lane, passes, starts, ends, to_ns - from_ns),
        "top": _top(lane),
    }


def identity(file: TraceFile, rank: RankTrace) -> dict[str, Any]:
    """Which rank of how many, as the trace says, or its label, or the file's name (and which of these it was)."""
    told = file.header.get("distributedInfo")
    told = told if isinstance(told, dict) else {}
    world = told.get("world_size")
    world = world if isinstance(world, int) else None
    if rank.label is not None:
        return {"rank": rank.label.strip("[]"), "world_size": world, "rank_source": "label of the merged trace"}
    if isinstance(told.get("rank"), int):
        return {"rank": str(told["rank"]), "world_size": world, "rank_source": "distributedInfo"}
    named = _RANK_IN_NAME.search(file.path.name)
    if named is not None:
        return {"rank": named[1], "world_size": world, "rank_source": "file name"}
    return {"rank": None, "world_size": world, "rank_source": None}


def _unix_s(file: TraceFile, at_ns: int) -> float | None:
    return None if file.base_ns is None else (file.base_ns + at_ns) / 1e9


def _gpu_name(file: TraceFile, device: str) -> str | None:
    listed = file.header.get("deviceProperties")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and str(one.get("id")) == device and isinstance(one.get("name"), str):
            return str(one["name"])
    return None


def _classes(lane: Lane, starts: Ns, ends: Ns, span_ns: int, whole: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    given_ns = 0
    busy_ns = union(starts, ends).total_ns
    for place, name in enumerate(CLASSES):
        own = lane.is_class(name)
        so_far = lane.is_class(*CLASSES[: place + 1])
        reached_ns = union(starts[so_far], ends[so_far]).total_ns
        found[name] = {
            "n": int(own.sum()),
            "time_s": (reached_ns - given_ns) / 1e9,
            "share": _share(reached_ns - given_ns, span_ns, whole),
            "share_of_busy": _share(reached_ns - given_ns, busy_ns, whole),
            "alone_or_not_s": union(starts[own], ends[own]).total_ns / 1e9,
            "summed_s": int((ends[own] - starts[own]).sum()) / 1e9,
        }
        given_ns = reached_ns
    found["idle"] = {
        "time_s": (span_ns - given_ns) / 1e9 if whole else None,
        "share": _share(span_ns - given_ns, span_ns, whole),
    }
    return found


def _streams(lane: Lane, starts: Ns, ends: Ns, span_ns: int, whole: bool) -> list[dict[str, Any]]:
    found = []
    for name in sorted(lane.stream_names, key=lambda one: (len(one), one)):
        own = lane.is_stream(name)
        busy_ns = union(starts[own], ends[own]).total_ns
        by_class = {}
        for kind in CLASSES:
            both = own & lane.is_class(kind)
            if both.any():
                by_class[kind] = union(starts[both], ends[both]).total_ns / 1e9
        found.append(
            {
                "stream": name,
                "n": int(own.sum()),
                "busy_s": busy_ns / 1e9,
                "share": _share(busy_ns, span_ns, whole),
                "by_class_s": by_class,
            }
        )
    return found


def _collective(file: TraceFile, lane: Lane, passes: list[Mark], starts: Ns, ends: Ns, span_ns: int) -> dict[str, Any]:
    """Number and time of collectives, and for each pass; no share where the trace cannot show one.

    ``added_s`` is the time in which nothing that computes ran beside them.
    """
    own = lane.is_class("collective")
    n, n_passes = int(own.sum()), len(passes)
    found: dict[str, Any] = {"n": n, "time_s": None, "added_s": None, "share": None, "n_per_pass": None}
    found |= {"s_per_pass": None, "added_s_per_pass": None, "why": None}
    if file.fault is not None:
        return found | {"why": "the trace was not read whole"}
    if not lane.categories["kernel"]:
        return found | {"why": "the trace holds no kernel: profile with the GPU among the activities"}
    computing = lane.is_class("matrix", "attention", "other")
    computing_ns = union(starts[computing], ends[computing]).total_ns
    time_ns = union(starts[own], ends[own]).total_ns
    both = own | computing
    added_ns = union(starts[both], ends[both]).total_ns - computing_ns
    found |= {"time_s": time_ns / 1e9, "added_s": added_ns / 1e9, "share": added_ns / span_ns if span_ns else None}
    if n_passes:
        found |= {
            "n_per_pass": n / n_passes,
            "s_per_pass": time_ns / n_passes / 1e9,
            "added_s_per_pass": added_ns / n_passes / 1e9,
        }
    return found


def _top(lane: Lane) -> dict[str, list[dict[str, Any]]]:
    """The names with most time of each class, by which the classification can be checked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, (kind, n, total_ns) in sorted(lane.names.items(), key=lambda one: (-one[1][2], one[0])):
        listed = found.setdefault(CLASSES[kind], [])
        if len(listed) < TOP_NAMES:
            listed.append({"name": name, "n": n, "summed_s": total_ns / 1e9})
    return found


def _share(part_ns: int, span_ns: int, whole: bool) -> float | None:
    return part_ns / span_ns if whole and span_ns else None
