"""What every session that records has in common, whether its own process sends the requests or its workers do."""

from abc import ABC, abstractmethod
from pathlib import Path

import gevent

from evidence.errors import EvidenceError
from evidence.records import Request
from locustfiles._conductor import Conductor
from locustfiles._progress import Progress
from locustfiles._recorder import Recorder


class Recording(ABC):
    """A run from its folder to its verdict. ``conductor`` is None for a plan without levels, which one user replays."""

    recorder: Recorder
    progress: Progress
    conductor: Conductor | None
    _conducting: gevent.Greenlet | None = None
    _profiled = False
    _signal: str | None = None  # that ends the run

    @property
    def path(self) -> Path:
        return self.recorder.path

    @property
    def conducting(self) -> bool:
        return self._conducting is not None

    def conduct(self) -> Conductor:
        """Begins with the plan's levels, in a greenlet of their own; the conductor says when they are over."""
        assert self.conductor is not None, "a plan without levels is replayed by its one user"
        if self._conducting is None:
            self._conducting = gevent.spawn(self._run)
            self._conducting.link(self._conducted)
        return self.conductor

    def failed(self, error: BaseException) -> None:
        self.recorder.failed(error)

    def beside_failed(self, error: BaseException) -> None:
        self.recorder.beside_failed(error)

    def verdict(self) -> int:
        """Prints what ``analysis check`` says of the folder; the exit code of the run."""
        return self.recorder.verdict()

    def signalled(self, name: str) -> None:
        """The run is ended by a signal: noticed once, with the level that was under way."""
        if self._signal is not None or self.recorder.over:
            return
        self._signal = name
        at = None if self.conductor is None else self.conductor.under_way
        try:
            self.recorder.notice(f"stopped by {name}{'' if at is None else f' in the middle of {at}'}")
        except EvidenceError as error:
            self.failed(error)

    @abstractmethod
    def _n_under_way(self) -> int:
        """Requests under way in all processes that send."""

    def _run(self) -> None:
        assert self.conductor is not None
        self.conductor.run()

    def _conducted(self, over: gevent.Greenlet) -> None:
        if over.exception is not None:
            self.failed(over.exception)
        if self.conductor is not None:
            self.conductor.finish()

    def _cut(self) -> None:
        """The level under way ends where it is, once nobody takes a request any more; a failed write is remembered."""
        if self.conductor is None:
            return
        try:
            self.conductor.cut()
        except EvidenceError as error:
            self.failed(error)

    def _stop_conducting(self) -> None:
        if self._conducting is not None:
            self._conducting.kill()

    def _profile(self) -> None:
        """The first window is open: the profiler waits for its requests."""
        if self.recorder.profiling is not None and not self._profiled:
            self._profiled = True
            self.recorder.profiling.begin(self.path, self._n_under_way)

    def _ended(self, record: Request) -> None:
        self.progress.ended(record.outcome)
        if self.conductor is not None:
            self.conductor.ended(record)
        if self.recorder.profiling is not None:
            self.recorder.profiling.ended(record)
