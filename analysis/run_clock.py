"""One clock for the requests of a run. A single worker's monotonic clock is it; several workers each have their own.

Where every worker's clocks were measured against the master's (``clocks.jsonl``), instants are carried over to the
master's monotonic clock by the measurement next before them, and no two workers are further apart than twice the
largest bound. Where one was not measured, wall clocks are compared, those that were measured with their offset taken
off: how far the others are off is not known.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evidence.records import Request
from evidence.worker_records import WorkerClock


@dataclass(frozen=True, kw_only=True, slots=True)
class RunClock:
    """``bound_s`` is how far an instant may be off, None where nobody knows; ``words`` say the rest."""

    kind: Literal["worker", "master", "wall"]
    bound_s: float | None
    words: str
    measured: Mapping[int, tuple[WorkerClock, ...]]  # of each worker, in time; none where there is one worker

    def sent_s(self, request: Request) -> float | None:
        """When a request was sent, in seconds of the run's clock; None where it never was."""
        at_s = request.sent_at_unix_s if self.kind == "wall" else request.sent_at_monotonic_s
        lines = self.measured.get(request.worker)
        if at_s is None or not lines or request.sent_at_monotonic_s is None:
            return at_s
        line = _before(lines, request.sent_at_monotonic_s)
        return at_s - (line.offset_unix_s if self.kind == "wall" else line.offset_monotonic_s)


OWN = RunClock(kind="worker", bound_s=0.0, words="the worker's own monotonic clock", measured={})


def run_clock(requests: Iterable[Request], clocks: Sequence[WorkerClock]) -> RunClock:
    """The clock that all of these requests can be placed on."""
    workers = {request.worker for request in requests}
    if len(workers) <= 1:
        return OWN
    measured = {
        worker: tuple(sorted((one for one in clocks if one.worker == worker), key=lambda one: one.at_monotonic_s))
        for worker in workers
    }
    unknown = sorted(worker for worker, lines in measured.items() if not lines)
    if unknown:
        which = ", ".join(map(str, unknown[:3])) + (f" and {len(unknown) - 3} more" if unknown[3:] else "")
        words = f"the workers' wall clocks; nobody knows how far those of workers {which} are off"
        return RunClock(kind="wall", bound_s=None, words=words, measured=measured)
    bound_s = max(one.bound_s for lines in measured.values() for one in lines)
    words = f"the master's monotonic clock; each worker's is carried over to it to within {1000 * bound_s:.2g} ms"
    return RunClock(kind="master", bound_s=bound_s, words=words, measured=measured)


def _before(lines: Sequence[WorkerClock], at_monotonic_s: float) -> WorkerClock:
    """The measurement next before an instant of the worker's clock, or the first one."""
    after = bisect_right(lines, at_monotonic_s, key=lambda one: one.at_monotonic_s + one.offset_monotonic_s)
    return lines[max(0, after - 1)]
