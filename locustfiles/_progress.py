"""How far a run is, on standard error: a bar in a terminal; elsewhere a line a level, and one every ten seconds."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from tqdm import tqdm

LINE_INTERVAL_S = 10.0


class Progress:
    """``in_flight`` is asked for whenever something is shown. ``at_most``: a search sends a part of the requests."""

    def __init__(
        self,
        name: str,
        n_requests: int,
        in_flight: Callable[[], int],
        out: TextIO | None = None,
        *,
        at_most: bool = False,
    ) -> None:
        self._name = name
        self._n_requests = n_requests
        self._in_flight = in_flight
        self._of = "of at most" if at_most else "of"
        self._at_most = at_most
        self._out = out or sys.stderr
        self._bar: tqdm | None = None
        self._said_s = time.monotonic()
        self._n_done = 0
        self._n_failed = 0
        self._level = ""
        self._level_began_s = self._said_s
        self._level_n = n_requests
        self._level_n_done = 0
        self._level_takes_s: float | None = None

    def begin(self) -> None:
        self._said_s = self._level_began_s = time.monotonic()
        if self._out.isatty():
            self._bar = tqdm(total=self._shown_total, desc=self._name, unit="req", file=self._out)

    def level(self, label: str, place: int, n_levels: int, n_requests: int, takes_s: float | None) -> None:
        """A level begins, number ``place`` from 1 (0: the warm-up), with so many requests, or about ``takes_s``."""
        self._level = f"{label} ({place} {self._of} {n_levels})" if place else label
        self._level_began_s = time.monotonic()
        self._level_n, self._level_n_done, self._level_takes_s = n_requests, 0, takes_s
        if self._bar is not None:
            self._bar.set_description(f"{self._name} {self._level}")
        elif place:
            self._line()

    def skip(self, n_requests: int) -> None:
        """Planned requests that will not be sent: a level that ended by time, or one the search leaves out."""
        self._n_requests -= n_requests
        if self._bar is not None:
            self._bar.total = self._shown_total
            self._bar.refresh()

    def ended(self, outcome: str) -> None:
        self._n_done += 1
        self._level_n_done += 1
        self._n_failed += outcome != "completed"
        if self._bar is not None:
            self._bar.update()
        self.tick()

    def tick(self) -> None:
        """Some time has passed: shown again where it was shown long ago."""
        if self._bar is not None:
            left = self._left()
            self._bar.set_postfix_str(f"{self._in_flight()} in flight, {self._n_failed} failed{left}", refresh=False)
        elif time.monotonic() - self._said_s >= LINE_INTERVAL_S:
            self._line()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @property
    def _shown_total(self) -> int | None:
        """What the bar fills up to; None where most of the requests may never be sent."""
        return None if self._at_most else self._n_requests

    def _left(self) -> str:
        """The time left of the level, as far as it can be told."""
        took_s = time.monotonic() - self._level_began_s
        if self._level_takes_s is not None:
            left_s = max(0.0, self._level_takes_s - took_s)
        elif self._level_n_done:
            left_s = took_s / self._level_n_done * max(0, self._level_n - self._level_n_done)
        else:
            return ""
        return f", about {left_s:.0f} s left{' of the level' if self._level else ''}"

    def _line(self) -> None:
        self._said_s = time.monotonic()
        level = f" {self._level}" if self._level else ""
        of = "" if self._level_takes_s is not None else f" {self._of} {self._n_requests}"
        print(
            f"{self._name}{level}: {self._n_done}{of} requests, {self._in_flight()} in flight, "
            f"{self._n_failed} failed{self._left()}",
            file=self._out,
            flush=True,
        )
