"""The client's own condition: how late a sentinel and our reading are, CPU, collections, connections, requests.

A client that is late reports its own lateness as the server's latency; these lines say whether it was.
"""

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import gevent
import psutil

from evidence.errors import EvidenceError
from evidence.quantiles import nearest_rank
from evidence.records import Health, Request
from locustfiles._reading import reader

SENTINEL_INTERVAL_S = 0.02
RECORD_INTERVAL_S = 1.0


class HealthMonitor:
    """Samples this process from a greenlet of its own and hands one Health record a second to ``sink``."""

    def __init__(
        self, sink: Callable[[Health], None], in_flight: Callable[[], int], n_unread: Callable[[], int] = lambda: 0
    ) -> None:
        self._delays_s: list[float] = []
        self._ended = Counter[str]()  # of the requests that ended in the interval
        self._n_unread = n_unread
        self._sink = sink
        self._in_flight = in_flight
        self._process = psutil.Process()
        self._gc_started_s: float | None = None
        self._gc_pauses_s: list[float] = []
        self._greenlet: gevent.Greenlet | None = None
        self._stopping = False
        self._cut = False

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        """``on_failure`` is told at once when the sampling dies, of a full disk for example."""
        self._on_failure = on_failure
        gc.callbacks.append(self._on_gc)
        self._process.cpu_percent()  # the first call only sets the reference point
        self._greenlet = gevent.spawn(self._watch)
        self._greenlet.link_exception(lambda dead: self._on_failure(dead.exception))

    def stop(self) -> None:
        """Ends the sampling; the interval under way is still recorded."""
        self._stopping = True
        if self._greenlet is not None:
            self._greenlet.join()
            gc.callbacks.remove(self._on_gc)
            self._greenlet = None

    def cut(self) -> None:
        """Ends the interval under way, so that what this process did on purpose is not taken for lateness later."""
        self._cut = True

    def ended(self, record: Request) -> None:
        """Takes note of a request's own signs of lateness, for the interval under way."""
        if record.kernel_to_user_max_s is not None:
            self._delays_s.append(record.kernel_to_user_max_s)
            self._ended["coalesced"] += len(record.chunks) - len({segment for _, segment, _, _ in record.chunks})
            self._ended["stamped"] += 1
        self._ended["chunks"] += len(record.chunks)
        if record.connection is not None:
            self._ended["reused" if record.connection.reused else "connected"] += 1

    def _on_gc(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_started_s = time.perf_counter()
        elif self._gc_started_s is not None:
            self._gc_pauses_s.append(time.perf_counter() - self._gc_started_s)

    def _watch(self) -> None:
        try:
            while not self._stopping:
                self._sink(self._one_interval())
        except EvidenceError as error:  # told in words, without the traceback that gevent prints of a greenlet's death
            self._on_failure(error)

    def _one_interval(self) -> Health:
        began_s = time.perf_counter()
        lags_s: list[float] = []
        self._cut = False
        while not (self._stopping or self._cut) and time.perf_counter() - began_s < RECORD_INTERVAL_S:
            due_s = time.perf_counter() + SENTINEL_INTERVAL_S
            gevent.sleep(SENTINEL_INTERVAL_S)
            lags_s.append(max(0.0, time.perf_counter() - due_s))
        interval_s = time.perf_counter() - began_s
        pauses_s, self._gc_pauses_s = self._gc_pauses_s, []
        lags_s.sort()
        delays_s, self._delays_s = self._delays_s, []
        ended, self._ended = self._ended, Counter()
        sampled_s = self._sampled_s()
        return Health(
            at_monotonic_s=time.monotonic(),
            interval_s=interval_s,
            lag_p50_s=_rank(lags_s, 50),
            lag_p99_s=_rank(lags_s, 99),
            lag_max_s=lags_s[-1] if lags_s else None,
            cpu_ratio=self._process.cpu_percent() / 100.0,
            gc_pauses=len(pauses_s),
            gc_pause_max_s=max(pauses_s, default=0.0),
            in_flight=self._in_flight(),
            kernel_to_user_p50_s=_rank(sampled_s, 50),
            kernel_to_user_p99_s=_rank(sampled_s, 99),
            kernel_to_user_max_s=max((*delays_s, *sampled_s[-1:]), default=None),
            coalesced_chunks=ended["coalesced"] if ended["stamped"] else None,
            n_chunks=ended["chunks"],
            n_connected=ended["connected"],
            n_reused=ended["reused"],
            n_unread=self._n_unread(),
            load_1m=os.getloadavg()[0],
        )

    def _sampled_s(self) -> list[float]:
        """Sorted."""
        reading = reader()
        return [] if reading is None else sorted(reading.take_delays_s())


def _rank(ordered: Sequence[float], percent: int) -> float | None:
    """Whatever their number: a health line says how many there were. None where there is nothing."""
    return nearest_rank(ordered, percent) if ordered else None
