"""What happened when: server and client on one time axis, in seconds since the run's first measured request was sent.

A lane is one quantity; it states its unit, where it comes from and what was thinned. The client's instants and the
scrapes carry the client's wall clock, GPU samples the wall clock of the server's host: they are joined by label, and a
difference of the two clocks is not corrected. Health lines carry a worker's monotonic clock and are placed by
the same worker's requests, which carry both.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from analysis.columns import Floats, after_s, arrivals_s, column, packed
from analysis.report_gather import RunView
from analysis.report_slices import Part, Point, largest_of_each, last_of_each, reached
from analysis.windows import read_scrape
from evidence.records import Request
from infra.engines.adapter import Adapter
from infra.engines.labels import chosen
from infra.engines.meaning import Counted, Where
from infra.engines.window import Snapshot

MOST_POINTS = 400  # of a thinned lane
MOST_GPUS = 8

Lane = dict[str, Any]
Read = tuple[float, Snapshot]  # seconds since t0, what the scrape says


def lanes(run: RunView, most: int = MOST_POINTS) -> list[Lane]:
    """The lanes that have something to show, in the order drawn, each of about ``most`` points."""
    reads = _reads(run, most)
    found = [
        _in_flight(run, reads, most),
        _tokens(run, reads, most),
        _gaps(run, most),
        _accepted(run, reads),
        _lag(run, most),
        _cpu(run, most),
        *_gpu(run, most),
    ]
    return [lane for lane in found if lane is not None]


def _lane(name: str, unit: str, kind: str, series: Sequence[dict[str, Any]], note: str) -> Lane | None:
    shown = [one for one in series if one["t"]]
    return {"name": name, "unit": unit, "kind": kind, "series": shown, "note": note} if shown else None


def _series(name: str, points: Iterable[Point], requests: Sequence[int] | None = None) -> dict[str, Any]:
    kept = [(at, value) for at, value in points if math.isfinite(value)]
    found: dict[str, Any] = {
        "name": name,
        "t": [round(at, 4) for at, _ in kept],
        "v": [_short(value) for _, value in kept],
    }
    return found if requests is None else {**found, "r": list(requests)}


def _short(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < 2**53 else float(f"{value:.6g}")


def _in_flight(run: RunView, reads: Sequence[Read], most: int) -> Lane | None:
    changes: list[tuple[float, int]] = []
    for entry in run.entries:
        sent, took = entry.request.sent_at_unix_s, entry.request.end_after_s
        if sent is not None and took is not None:
            changes += [(sent - run.t0_unix_s, 1), (sent - run.t0_unix_s + took, -1)]
    count, points = 0, []
    for at, change in sorted(changes):
        count += change
        points.append((at, float(count)))
    series = [_series("client: sent and not ended", last_of_each(points, 4 * most))]
    adapter = run.loaded.server.adapter
    note = "client from its own records"
    names = () if adapter is None else adapter.meaning.in_flight
    if adapter is not None and (gauges := _sums(reads, names, adapter)):
        series.append(_series("server: " + " + ".join(names), gauges))
        note += "; server as its gauges stood when scraped"
    return _lane("in flight", "requests", "step", series, note)


def _tokens(run: RunView, reads: Sequence[Read], most: int) -> Lane | None:
    since = reads[0][0] if reads else -math.inf  # both curves begin at the first scrape

    def steps() -> Iterator[Part]:
        for entry in run.entries:
            request = entry.request
            if request.n_completion_tokens is not None and request.sent_at_unix_s is not None:
                at, n_tokens = _arrivals(request, request.sent_at_unix_s - run.t0_unix_s)
                yield at[at >= since], n_tokens[at >= since]

    uncounted = sum(bool(e.request.chunks) for e in run.entries if e.request.n_completion_tokens is None)
    series = [_series("client: received", reached(steps, most))]
    note = f"counted from {'the first scrape' if reads else 'the first request, warm-up too'}"
    adapter = run.loaded.server.adapter
    if adapter is not None and isinstance(adapter.meaning.generated, Counted):
        grown = _growth(reads, adapter.meaning.generated, adapter)
        series.append(_series("server: " + " + ".join(adapter.meaning.generated.names), grown))
        if grown:
            note += "; some engines count a request's tokens when it ends"
    if uncounted:
        note += f"; {uncounted} requests carry no count and are left out"
    return _lane("completion tokens so far", "tokens", "step", series, note)


def _arrivals(request: Request, at_s: float) -> Part:
    """Instants, and the tokens that came then; where chunks carry no counts, all at the end of the stream."""
    marks = packed(request.chunks)
    at, so_far = after_s(marks), column(() if marks.tokens is None else marks.tokens)
    so_far = np.maximum.accumulate(so_far)  # a mark without a count adds none
    came = np.diff(so_far, prepend=so_far.dtype.type(0))  # in the small type that the counts are packed in
    at, came = at[: len(came)][came > 0], came[came > 0]
    rest = (request.n_completion_tokens or 0) - int(came.sum())
    if rest > 0:
        at = np.append(at, request.end_after_s or request.last_token_after_s or 0.0)
        came = np.append(came, rest)
    return at_s + at, came


def _gaps(run: RunView, most: int) -> Lane | None:
    def gaps() -> Iterator[tuple[Floats, Floats, int]]:
        for entry in run.entries:
            sent, at = entry.request.sent_at_unix_s, arrivals_s(entry.request.chunks)
            if sent is not None:
                yield sent - run.t0_unix_s + at[1:], np.diff(at) * 1000, entry.number

    kept, n_gaps = largest_of_each(gaps, most)
    name = "gap" if len(kept) == n_gaps else "longest gap of its time slice"
    points = _series(name, [(at, gap) for at, gap, _ in kept], [n for _, _, n in kept])
    said = "every gap" if len(kept) == n_gaps else f"the longest of each of {len(kept)} slices, {n_gaps} gaps"
    return _lane("chunk gaps", "ms", "points", [points], f"{said}; a chunk gap is no inter-token latency")


def _accepted(run: RunView, reads: Sequence[Read]) -> Lane | None:
    adapter = run.loaded.server.adapter
    if adapter is None or run.engine_speculates is False:
        return None
    series = []
    for name, where in (("drafted", adapter.meaning.drafted), ("accepted", adapter.meaning.accepted)):
        if isinstance(where, Counted):
            series.append(_series(f"{name}: " + " + ".join(where.names), _growth(reads, where, adapter)))
    if not any(value for one in series for value in one["v"]):
        return None
    return _lane("draft tokens so far", "tokens", "step", series, "the server's counters from the first scrape on")


def _lag(run: RunView, most: int) -> Lane | None:
    worst = [_series(f"worker {w}: worst", points) for w, points in _health(run, most, lambda one: one.lag_max_s, 1000)]
    half = [_series(f"worker {w}: median", points) for w, points in _health(run, most, lambda one: one.lag_p50_s, 1000)]
    note = "how late a sentinel of the client woke: what a request may have waited for this client"
    return _lane("client lag", "ms", "line", [*worst, *half][:MOST_GPUS], note)


def _cpu(run: RunView, most: int) -> Lane | None:
    used = [
        _series(f"worker {worker}", points) for worker, points in _health(run, most, lambda one: one.cpu_ratio, 100)
    ]
    return _lane("client CPU", "% of a core", "line", used[:MOST_GPUS], "of the Locust process")


def _health(
    run: RunView, most: int, read: Callable[[Any], float | None], scale: float
) -> list[tuple[int, list[Point]]]:
    found = []
    for worker, lines in sorted(run.contents.health.items()):
        offset_s = _wall_offset(run, worker)
        told = [(one.at_monotonic_s, value) for one in lines if (value := read(one)) is not None]
        at = np.array([at for at, _ in told]) + offset_s - run.t0_unix_s
        values = np.array([value for _, value in told]) * scale
        largest, _ = largest_of_each(partial(list, [(at, values, worker)]), most)
        found.append((worker, [(at, value) for at, value, _ in largest]))
    return found


def _wall_offset(run: RunView, worker: int) -> float:
    """Wall clock less monotonic clock of a worker's host."""
    both = [
        entry.request.sent_at_unix_s - entry.request.sent_at_monotonic_s
        for entry in run.entries
        if entry.request.worker == worker
        and entry.request.sent_at_unix_s is not None
        and entry.request.sent_at_monotonic_s is not None
    ]
    clock = run.loaded.manifest.clock
    return statistics.median(both) if both else clock.get("unix_s", 0.0) - clock.get("monotonic_s", 0.0)


def _gpu(run: RunView, most: int) -> list[Lane | None]:
    samples = [one for one in run.contents.gpu if one.record.gpus]
    indices = sorted({gpu.index for one in samples for gpu in one.record.gpus})[:MOST_GPUS]

    def series(read: Callable[[Any], float | None], scale: float) -> list[dict[str, Any]]:
        found = []
        for index in indices:
            points = [
                (one.record.at_unix_s - run.t0_unix_s, value * scale)
                for one in samples
                for gpu in one.record.gpus
                if gpu.index == index and (value := read(gpu)) is not None
            ]
            found.append(_series(f"GPU {index}", last_of_each(points, most)))
        return found

    note = "by the GPU's own sensors"
    return [
        _lane("GPU power", "W", "line", series(lambda gpu: gpu.power_w, 1), note),
        _lane("GPU utilisation", "%", "line", series(lambda gpu: gpu.utilisation_ratio, 100), "a kernel ran, " + note),
        _lane("GPU memory in use", "GiB", "line", series(lambda gpu: gpu.memory_used_bytes, 1 / 2**30), note),
    ]


def _reads(run: RunView, most: int) -> list[Read]:
    """Scrapes of the first URL that can be read, thinned to a bounded number."""
    adapter = run.loaded.server.adapter
    if adapter is None or not run.contents.scrapes:
        return []
    url = run.contents.scrapes[0].record.url
    own = [one.record for one in run.contents.scrapes if one.record.url == url]
    every = max(1, math.ceil(len(own) / most))
    found = []
    for scrape in [*own[::every], *([own[-1]] if (len(own) - 1) % every else [])]:
        read = read_scrape(scrape, adapter, thin=True)
        if isinstance(read, Snapshot):
            found.append(((scrape.send_unix_s + scrape.receive_unix_s) / 2 - run.t0_unix_s, read))
    return found


def _sums(reads: Sequence[Read], names: Sequence[str], adapter: Adapter) -> list[Point]:
    found = []
    for at, read in reads:
        samples = [s for name in names for s in chosen(read.exposition.find(name), adapter.rule)]
        if samples:
            found.append((at, sum(s.value for s in samples)))
    return found


def _growth(reads: Sequence[Read], where: Where, adapter: Adapter) -> list[Point]:
    if not isinstance(where, Counted):
        return []
    points = _sums(reads, where.names, adapter) or _sums(reads, where.instead, adapter)
    return [(at, value - points[0][1]) for at, value in points]
