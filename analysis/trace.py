"""``analysis trace FILE... [--run RUN]``: where the GPU's time went in a profiler window, rank by rank.

Reads what ``torch.profiler`` exports (Chrome JSON, gzip or plain, of any size) as a stream. A share of collectives is
stated from a trace or not at all. What is wrong with a file is a failure with a name (``trace_stream.FaultCode``), and
what could be read of it is shown beside it, without shares.

Exit codes: 0 good; 1 a window in which no step ran, or no request of the run; 2 a file that is not there, cut, damaged
or no trace.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis import trace_view
from analysis.errors import AnalysisError
from analysis.profiled import traces_of
from analysis.trace_across import across, waiting_note
from analysis.trace_lanes import TraceFile, read_file
from analysis.trace_requests import alignment, read_requests
from analysis.trace_shares import lane_report
from analysis.trace_stream import Fault

GOOD, NO, USAGE = 0, 1, 2
Requests = dict[str, Any] | None
_OF_THE_WINDOW = ("window_without_steps", "no_request_in_window")

_NOTES = (
    "Classes are told by kernel names; `top` in the JSON report lists the names with most time of each class.",
    "A profiled server is slower: the CPU's part, and with it the idle time and the cycle, is more than without the "
    "profiler. Kernel times stand; no latency or rate of a profiled launch does.",
)
_WAITING = "A rank that reaches a collective early waits inside it: their time holds waiting for the slowest rank."
_CLOCKS = (
    "Windows and requests are joined by Unix time of two hosts: an offset between their clocks shifts the join by as "
    "much, and nothing here measures it."
)
_MERGED = "A merged trace keeps one base time: Unix times of its other ranks stand only if their bases were the same."
_NOT_TIMED = "The run's scenario does not say that this launch was profiled: do not use the run's latencies or rates."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of ``trace``."""
    parser.add_argument(
        "file",
        type=Path,
        nargs="*",
        metavar="FILE",
        help="a trace of torch.profiler, .json or .json.gz (default: those of the run)",
    )
    parser.add_argument("--run", type=Path, metavar="RUN", help="lay the windows beside this run's requests")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, the JSON object, the lines. Raises EvidenceError where ``--run`` is no run that can be read.

    Raises AnalysisError where neither a file nor a run with traces is named.
    """
    files = options.file or (() if options.run is None else traces_of(options.run))
    if not files:
        there = "no trace is named" if options.run is None else "it holds no traces"
        raise AnalysisError(there, "name a FILE, or a run that was profiled with --run", path=options.run)
    report = trace(files, run=options.run)
    codes = {failure["code"] for failure in report["failures"]}
    code = USAGE if codes - set(_OF_THE_WINDOW) else NO if codes else GOOD
    return code, report, trace_view.lines(report)


def trace(paths: Sequence[Path], *, run: Path | None = None) -> dict[str, Any]:
    """Everything ``trace --json`` prints."""
    opened = None if run is None else read_requests(run)
    files = tuple(read_file(path) for path in dict.fromkeys(paths))
    faults = [(file, fault) for file in files if (fault := file.fault or _empty(file)) is not None]
    lanes = [(file, rank, lane) for file in files for rank in file.ranks for lane in rank.lanes.values()]
    ranks = [lane_report(*one) for one in lanes]
    together = across(ranks, [lane for _, _, lane in lanes], [file.base_ns for file, _, _ in lanes])
    requests = None
    if opened is not None:
        requests, missed = alignment(opened, files)
        faults += missed
    return {
        "complete": not any(file.fault for file in files),
        "failures": [
            {"file": str(file.path), "code": fault.code, "seen": fault.seen, "remedy": fault.remedy}
            for file, fault in faults
        ],
        "files": [_file(file) for file in files],
        "ranks": ranks,
        "across_ranks": together,
        "requests": requests,
        "notes": _notes(files, ranks, together, requests),
    }


def _empty(file: TraceFile) -> Fault | None:
    """A whole trace in which nothing ran: the window closed before a request did."""
    if any(len(lane) for rank in file.ranks for lane in rank.lanes.values()):
        return None
    marked = sum(len(rank.marks) for rank in file.ranks)
    if marked:
        seen = f"the trace has {marked} marked steps and no activity of a GPU"
        remedy = "profile with the GPU among the activities"
    else:
        seen = (
            f"the trace has {file.n_events} events, none of a GPU, and no step: the window closed before a request ran"
        )
        remedy = "open the window while a request decodes, and give that request more tokens"
    return Fault(code="window_without_steps", seen=seen, remedy=remedy)


def _file(file: TraceFile) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "sha256": file.sha256,
        "n_bytes": file.n_bytes,
        "n_text_bytes": file.n_text_bytes,
        "n_events": file.n_events,
        "n_unusable_events": file.n_unusable,
        "base_unix_s": None if file.base_ns is None else file.base_ns / 1e9,
        "failure": None if file.fault is None else file.fault.code,
    }


def _notes(
    files: Sequence[TraceFile], ranks: Sequence[dict[str, Any]], together: dict[str, Any], requests: Requests
) -> list[str]:
    found = list(_NOTES) if ranks else []
    found += [
        f"{file.path}: {file.n_unusable} events have no time that can be read and are left out"
        for file in files
        if file.n_unusable
    ]
    if any(rank["collective"]["n"] for rank in ranks):
        found += [_WAITING, waiting_note(together)]
    seen = {rank["rank"] for rank in ranks}
    world = together["world_size"]
    if isinstance(world, int) and world > len(seen):
        found.append(f"Traces of {len(seen)} of {world} ranks were given: nothing is said of the others.")
    if any(rank.label is not None for file in files for rank in file.ranks):
        found.append(_MERGED)
    if requests is not None:
        found += [] if requests["one_clock"] else [_CLOCKS]
        found += [] if requests["profiled_by_plan"] else [_NOT_TIMED]
    return found
