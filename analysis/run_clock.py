"""One clock for the requests of a run. A single worker's monotonic clock is it; several workers each have their own.

Where every worker's clocks were measured against the master's (``clocks.jsonl``), instants are carried over to the
master's monotonic clock by the measurement next before them, and no two workers are further apart than twice the
largest bound. Where one was not measured, wall clocks are compared, those that were measured with their offset taken
off: how far the others are off is not known.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from evidence.level_records import Level
from evidence.records import Request, Started
from evidence.worker_records import WorkerClock


@dataclass(frozen=True, kw_only=True, slots=True)
class RunClock:
    """``bound_s`` is how far an instant may be off, None where nobody knows; ``words`` say the rest."""

    kind: Literal["worker", "master", "wall"]
    bound_s: float | None
    words: str
    measured: Mapping[int, tuple[WorkerClock, ...]]  # of each worker, in time; none where there is one worker
    starts: Mapping[tuple[int, int], Started] = field(default_factory=dict)  # by worker and sequence
    alone: tuple[WorkerClock, ...] = ()  # of the one worker there is, against its master's; () where it has none

    def sent_s(self, request: Request) -> float | None:
        """When a request was sent, in seconds of the run's clock; None where it never was."""
        return self._placed(request.worker, request.sent_at_unix_s, request.sent_at_monotonic_s)

    def started_s(self, started: Started) -> float:
        """When a request was started, just before it was to be sent."""
        at_s = self._placed(started.worker, started.started_at_unix_s, started.started_at_monotonic_s)
        assert at_s is not None
        return at_s

    def begun_s(self, request: Request) -> float | None:
        """When it was sent; of one that never was, when it was started. None where no line says that either."""
        at_s = self.sent_s(request)
        started = self.starts.get((request.worker, request.sequence)) if at_s is None else None
        return at_s if started is None else self.started_s(started)

    def ended_s(self, request: Request) -> float | None:
        """When it ended; of one that never was sent, when it was started: connecting is timed apart. None as above."""
        at_s = self.sent_s(request)
        return self.begun_s(request) if at_s is None else at_s + request.took_s

    def level_began_s(self, level: Level) -> float:
        """A level's begin, which its master wrote, in seconds of this clock."""
        if self.kind == "wall":
            return level.began_at_unix_s
        offset_s = _at(self.alone, level.began_at_monotonic_s).offset_monotonic_s if self.alone else 0.0
        return level.began_at_monotonic_s + offset_s

    def began_there_s(self, level: Level, worker: int) -> tuple[float, float] | None:
        """A level's begin by a worker's own monotonic clock, and how far it may be off; None: nobody measured that."""
        lines = self.measured.get(worker, ()) or self.alone
        if lines:
            line = _at(lines, level.began_at_monotonic_s)
            return level.began_at_monotonic_s + line.offset_monotonic_s, 2 * line.bound_s
        return (level.began_at_monotonic_s, 0.0) if self.kind == "worker" else None

    def _placed(self, worker: int, unix_s: float | None, monotonic_s: float | None) -> float | None:
        at_s = unix_s if self.kind == "wall" else monotonic_s
        lines = self.measured.get(worker)
        if at_s is None or not lines or monotonic_s is None:
            return at_s
        line = _before(lines, monotonic_s)
        return at_s - (line.offset_unix_s if self.kind == "wall" else line.offset_monotonic_s)


OWN = RunClock(kind="worker", bound_s=0.0, words="the worker's own monotonic clock", measured={})


def run_clock(requests: Iterable[Request], clocks: Sequence[WorkerClock], started: Iterable[Started] = ()) -> RunClock:
    """The clock that all of these requests can be placed on, those that were started and never sent among them."""
    starts = {(one.worker, one.sequence): one for one in started}
    workers = {request.worker for request in requests} | {worker for worker, _ in starts}
    if len(workers) <= 1:
        alone = tuple(sorted((one for one in clocks if one.worker in workers), key=lambda one: one.at_monotonic_s))
        return replace(OWN, starts=starts, alone=alone)
    measured = {
        worker: tuple(sorted((one for one in clocks if one.worker == worker), key=lambda one: one.at_monotonic_s))
        for worker in workers
    }
    unknown = sorted(worker for worker, lines in measured.items() if not lines)
    if unknown:
        which = ", ".join(map(str, unknown[:3])) + (f" and {len(unknown) - 3} more" if unknown[3:] else "")
        words = f"the workers' wall clocks; nobody knows how far those of workers {which} are off"
        return RunClock(kind="wall", bound_s=None, words=words, measured=measured, starts=starts)
    bound_s = max(one.bound_s for lines in measured.values() for one in lines)
    words = f"the master's monotonic clock; each worker's is carried over to it to within {1000 * bound_s:.2g} ms"
    return RunClock(kind="master", bound_s=bound_s, words=words, measured=measured, starts=starts)


def _before(lines: Sequence[WorkerClock], at_monotonic_s: float) -> WorkerClock:
    """The measurement next before an instant of the worker's clock, or the first one."""
    after = bisect_right(lines, at_monotonic_s, key=lambda one: one.at_monotonic_s + one.offset_monotonic_s)
    return lines[max(0, after - 1)]


def _at(lines: Sequence[WorkerClock], at_monotonic_s: float) -> WorkerClock:
    """The measurement next before an instant of the master's clock, or the first one."""
    return lines[max(0, bisect_right(lines, at_monotonic_s, key=lambda one: one.at_monotonic_s) - 1)]
