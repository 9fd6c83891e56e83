"""The passes of the target model in a profiler window, and what the GPU did in each of them and between them."""

import statistics
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from analysis.trace_intervals import Union, union
from analysis.trace_lanes import Lane, RankTrace
from analysis.trace_marks import DRAFTING, PASSES, Mark


def passes_of(rank: RankTrace, device: str) -> list[Mark]:
    """The target's passes in order: forward and verify steps that are not the draft model's own; else engine steps.

    A pass that launched nothing on this GPU within the window (the one that the window's end cut) is left out where
    others did launch something.
    """
    found = [mark for mark in rank.marks if mark.role in PASSES and not mark.inside_draft]
    found = found or [mark for mark in rank.marks if mark.role == "engine_step"]
    launched = [mark for mark in found if mark.gpu_ranges(device)]
    return sorted(launched or found, key=lambda mark: began_ns(mark, device))


def began_ns(mark: Mark, device: str) -> int:
    """When a mark began on this GPU, else on the CPU."""
    return min([start for start, _ in mark.gpu_ranges(device)] or [mark.start_ns or 0])


def passes_report(lane: Lane, passes: list[Mark], busy: Union, whole: bool) -> dict[str, Any]:
    """GPU time of a pass. The whole window's busy time over the passes, and what fell inside their own ranges."""
    n = len(passes)
    ranges = [span for mark in passes for span in mark.gpu_ranges(lane.device)]
    inside_ns = _covered(busy, ranges)
    begun = [began_ns(mark, lane.device) for mark in passes]
    cycles = list(pairwise(begun))
    why = None if n else "the trace has no mark of a target pass: " + _no_marks(whole)
    return {
        "n": n,
        "names": dict(sorted(Counter(mark.kind for mark in passes).items())),
        "what": "engine steps, drafting included" if n and passes[0].role == "engine_step" else "target passes",
        "gpu_busy_s_per_pass": busy.total_ns / n / 1e9 if n and whole else None,
        "inside_s_per_pass": inside_ns / n / 1e9 if n and ranges and whole else None,
        "outside_s_per_pass": (busy.total_ns - inside_ns) / n / 1e9 if n and ranges and whole else None,
        "cycle_median_s": statistics.median(later - first for first, later in cycles) / 1e9 if cycles else None,
        "cycle_gpu_busy_median_s": statistics.median(busy.within(cycles)) / 1e9 if cycles and whole else None,
        "why": why or (None if whole else "the trace was not read whole"),
    }


def cycle_report(rank: RankTrace, lane: Lane, passes: list[Mark], busy: Union, whole: bool) -> dict[str, Any]:
    """GPU time of a speculative cycle in its parts: verifying, drafting, the rest. None, and why, where marks lack."""
    verify = [mark for mark in passes if mark.role == "verify"]
    draft = [mark for mark in rank.marks if mark.role in DRAFTING]
    found: dict[str, Any] = {"n": len(verify), "verify_s": None, "draft_s": None, "rest_s": None}
    if not whole:
        return found | {"why": "the trace was not read whole"}
    verify_ranges = [span for mark in verify for span in mark.gpu_ranges(lane.device)]
    if not verify_ranges:
        return found | {"why": "no verify pass is marked in the window"}
    n = len(verify)
    verify_ns = _covered(busy, verify_ranges)
    found["verify_s"] = verify_ns / n / 1e9
    draft_ranges = [span for mark in draft for span in mark.gpu_ranges(lane.device)]
    draft_ns = _covered(busy, draft_ranges)
    found["draft_s"] = draft_ns / n / 1e9 if draft_ranges else None
    why = None if draft_ranges else "no drafting is marked: an n-gram look-up has no mark, and its time is in the rest"
    if n == len(passes):
        found["rest_s"] = (busy.total_ns - verify_ns - draft_ns) / n / 1e9
    else:
        why = "the window holds passes that verify nothing, so the rest belongs to several kinds of passes"
    return found | {"why": why}


def marks_report(rank: RankTrace, lane: Lane, busy: Union, whole: bool) -> list[dict[str, Any]]:
    """Each kind of mark: how often, how long on the CPU, and how much GPU time fell into its ranges on this GPU."""
    found = []
    kinds: dict[tuple[str, str, bool], list[Mark]] = {}
    for mark in rank.marks:
        kinds.setdefault((mark.kind, mark.role, mark.inside_draft), []).append(mark)
    for (name, role, inner), marks in sorted(kinds.items(), key=lambda one: one[0]):
        ranges = [span for mark in marks for span in mark.gpu_ranges(lane.device)]
        on_cpu = [
            mark.end_ns - mark.start_ns for mark in marks if mark.start_ns is not None and mark.end_ns is not None
        ]
        found.append(
            {
                "name": name,
                "role": role,
                "inside_draft": inner,
                "n": len(marks),
                "cpu_median_s": statistics.median(on_cpu) / 1e9 if on_cpu else None,
                "gpu_span_median_s": statistics.median(end - start for start, end in ranges) / 1e9 if ranges else None,
                "gpu_busy_s": sum(busy.within(ranges)) / 1e9 if ranges and whole else None,
                "gpu_busy_median_s": statistics.median(busy.within(ranges)) / 1e9 if ranges and whole else None,
                "drafting": role in DRAFTING or inner,
            }
        )
    return found


def _covered(busy: Union, ranges: list[tuple[int, int]]) -> int:
    """Busy nanoseconds in ranges that may overlap each other."""
    both = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    spans = union(both[:, 0], both[:, 1])
    return sum(busy.within(list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))))


def _no_marks(whole: bool) -> str:
    return "profile with the CPU among the activities" if whole else "it was not read whole"
