"""The series of the load generator itself: their names, their labels, and how requests add up to them.

A live exporter and the export of a sealed run use the same tally, so a dashboard shows the same numbers for both. Only
completed requests are observed in the three latency histograms; tokens are counted for every request whose server
counted them. ``level`` and ``domain`` are empty where there is none.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from infra.wire.decode_time import Mark, first_tokens, tpot_bounds_s

PREFIX = "llm_client_"
REQUESTS = "llm_client_requests"
OUTPUT_TOKENS = "llm_client_output_tokens"
TTFT = "llm_client_ttft_seconds"
TPOT = "llm_client_tpot_seconds"
E2E = "llm_client_e2e_seconds"
IN_FLIGHT = "llm_client_in_flight"
LAG = "llm_client_lag_seconds"
CPU = "llm_client_cpu_ratio"
GC_PAUSE = "llm_client_gc_pause_seconds"
READ_DELAY = "llm_client_read_delay_seconds"
CHUNKS = "llm_client_chunks"
COALESCED = "llm_client_coalesced_events"
INFO = "llm_client"

Kind = Literal["counter", "gauge", "histogram", "info"]

# Family -> type and what it is. A counter's samples end in _total, an info's in _info.
FAMILIES: Mapping[str, tuple[Kind, str]] = {
    REQUESTS: ("counter", "Requests ended, by outcome."),
    OUTPUT_TOKENS: ("counter", "Completion tokens by the server's own count."),
    TTFT: ("histogram", "Time to the first token of any kind, completed requests."),
    TPOT: ("histogram", "Time per output token after the first ones, completed requests; the server's token counts."),
    E2E: ("histogram", "Time to the end of the stream, completed requests."),
    CHUNKS: ("counter", "Chunks received."),
    COALESCED: ("counter", "Events that shared a received segment with an earlier one."),
    IN_FLIGHT: ("gauge", "Requests started and not ended."),
    LAG: ("gauge", "How late a sentinel of the client woke, in its last interval."),
    CPU: ("gauge", "The client's CPU time in its last interval, of one core."),
    GC_PAUSE: ("gauge", "Longest pause for garbage collection in the client's last interval."),
    READ_DELAY: ("gauge", "Largest delay between the kernel's receive stamp and our reading it, last request."),
    INFO: ("info", "The run: engine, version, model and scenario."),
}
BUCKETS: Mapping[str, tuple[float, ...]] = {
    TTFT: (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0),
    TPOT: (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0),
    E2E: (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
}

Labels = Mapping[str, str]


class ClientSample(NamedTuple):
    """One sample: its name ends in what its family's type adds."""

    family: str
    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What is told of one ended request; None where it is not known."""

    outcome: str
    domain: str
    level: str | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    n_output_tokens: int | None
    n_chunks: int
    n_coalesced: int | None


def per_token_s(
    *, first_s: float | None, last_s: float | None, marks: Sequence[Mark], n_tokens: int | None
) -> float | None:
    """(t_last - t_first) / (N - n_first), where n_first counts the tokens that came in the first token's segment.

    None where one of the four is not known, no token came after the first ones, or the time is not resolved.
    """
    n_first = None if first_s is None else first_tokens(marks, first_s)
    bounds = tpot_bounds_s(first_s=first_s, last_s=last_s, n_first=n_first, n_tokens=n_tokens)
    return None if n_first is None or bounds is None else bounds[0]


@dataclass(slots=True)
class _Histogram:
    edges: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.edges) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


class Tally:
    """Adds up ended requests. Everything it gives grows, as counters must."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str], int] = {}
        self._sums: dict[str, dict[tuple[str, str], int]] = {OUTPUT_TOKENS: {}, CHUNKS: {}, COALESCED: {}}
        self._histograms: dict[str, dict[tuple[str, str], _Histogram]] = {name: {} for name in BUCKETS}

    def expect(self, domain: str, level: str | None) -> None:
        """Show a group of planned requests from zero on: a rate cannot see the first value of a counter."""
        group = (domain, level or "")
        self._requests.setdefault(("completed", *group), 0)
        for sums in self._sums.values():
            sums.setdefault(group, 0)
        for name, histograms in self._histograms.items():
            histograms.setdefault(group, _Histogram(BUCKETS[name]))

    def add(self, ended: Ended) -> None:
        """Count one ended request."""
        group = (ended.domain, ended.level or "")
        key = (ended.outcome, *group)
        self._requests[key] = self._requests.get(key, 0) + 1
        counts = {OUTPUT_TOKENS: ended.n_output_tokens, CHUNKS: ended.n_chunks, COALESCED: ended.n_coalesced}
        for name, n in counts.items():
            if n is not None:
                self._sums[name][group] = self._sums[name].get(group, 0) + n
        if ended.outcome != "completed":
            return
        for name, value in ((TTFT, ended.ttft_s), (TPOT, ended.tpot_s), (E2E, ended.e2e_s)):
            if value is not None:
                self._histograms[name].setdefault(group, _Histogram(BUCKETS[name])).observe(value)

    def samples(self) -> Iterator[ClientSample]:
        """Every sample as it stands, family by family, the buckets of a histogram cumulative."""
        for (outcome, domain, level), n in self._requests.items():
            labels = {"outcome": outcome, "domain": domain, "level": level}
            yield ClientSample(REQUESTS, REQUESTS + "_total", labels, n)
        for name, sums in self._sums.items():
            for group, n in sums.items():
                yield ClientSample(name, name + "_total", _named(group), n)
        for name, histograms in self._histograms.items():
            for group, histogram in histograms.items():
                yield from _exposed(name, _named(group), histogram)


def _named(group: tuple[str, str]) -> dict[str, str]:
    return {"domain": group[0], "level": group[1]}


def _exposed(name: str, labels: dict[str, str], histogram: _Histogram) -> Iterator[ClientSample]:
    n = 0
    for edge, count in zip((*histogram.edges, None), histogram.counts, strict=True):
        n += count
        yield ClientSample(name, name + "_bucket", labels | {"le": "+Inf" if edge is None else repr(edge)}, n)
    yield ClientSample(name, name + "_count", labels, n)
    yield ClientSample(name, name + "_sum", labels, histogram.total)
