"""What an engine's series mean, as data: which names are which count, what a histogram observes, what may not be read.

``Counted`` names are added; ``Nowhere`` says why the engine tells no such count. Kinds tell counters from what only
looks like one: a window gauge holds the average of some last steps until the next report, so it is stale at once and
never a value for a run; configuration is a constant; a high-water mark has no difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from infra.engines.readings import Absent, Measured, Unmeasured
from infra.engines.window import Delta, Window, total

Kind = Literal["counter", "histogram", "gauge", "window gauge", "configuration", "high-water mark"]
# What one observation of a latency histogram is.
Observes = Literal["request", "token", "step", "interval once a token"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """``late``: a series appears with its first increment, so it may be new in a window.

    ``instead`` names what says the same where ``names`` are absent, in another version. ``zero_beside`` names a series
    whose growth shows that the engine would have counted: absent beside it is zero.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    late: bool = False
    instead: tuple[str, ...] = ()
    zero_beside: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nowhere:
    """The engine tells no such thing, and this is why."""

    why: str


Where = Counted | Nowhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """A latency histogram in seconds: the first of ``names`` that is there; ``observes`` one thing a time."""

    names: tuple[str, ...]
    observes: Observes
    note: str = ""


Latencies = Observed | Nowhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """An engine's dictionary. ``prompt`` counts cached tokens too; ``requests`` are those that ended well.

    ``undrafted_counted``: the engine's verify steps are all target steps, not only the drafted ones.
    """

    generated: Where
    prompt: Where
    cached: Where
    requests: Where
    drafted: Where
    accepted: Where
    verify_steps: Where
    per_position: Where
    ttft: Latencies
    tpot: Latencies
    inter_token: Latencies
    in_flight: tuple[str, ...] = ()  # gauges that add up to the requests inside the engine
    why_no_in_flight: str = "the engine publishes no requests in flight"
    undrafted_counted: bool = False
    bonus: str = ""  # which of its numbers hold the bonus token
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # of the series that are no counter here

    def counts(self) -> tuple[Counted, ...]:
        """Every count the engine tells."""
        found = (self.generated, self.prompt, self.cached, self.requests, self.drafted, self.accepted)
        both = (*found, self.verify_steps, self.per_position)
        return tuple(where for where in both if isinstance(where, Counted))

    def histograms(self) -> tuple[str, ...]:
        """Every latency histogram read."""
        return tuple(
            name for one in (self.ttft, self.tpot, self.inter_token) if isinstance(one, Observed) for name in one.names
        )


def growth(where: Where, windows: Sequence[Window]) -> Delta:
    """How much a count grew over the windows, added over its names, or why that is not known."""
    if isinstance(where, Nowhere):
        return Delta(reading=Absent(why=where.why))
    parts = [total(windows, name, dict(where.labels), from_first=where.late) for name in where.names]
    missing = next((part for part in parts if not isinstance(part.reading, Measured)), None)
    if missing is None:
        value = sum(part.reading.value for part in parts if isinstance(part.reading, Measured))
        return Delta(reading=Measured(value), uncertainty=sum(part.uncertainty for part in parts))
    if isinstance(missing.reading, Absent) and where.instead:
        return growth(replace(where, names=where.instead, instead=()), windows)
    if isinstance(missing.reading, Absent) and where.zero_beside is not None:
        beside = total(windows, where.zero_beside, from_first=True).reading
        if isinstance(beside, Measured) and beside.value > 0:
            return Delta(reading=Measured(0.0))
        if isinstance(beside, Unmeasured):
            return Delta(reading=beside)
        return Delta(reading=Unmeasured(why=f"{missing.reading.why}, and nothing was counted beside it"))
    return missing


def known(delta: Delta) -> float | None:
    """The growth as a number, or None."""
    return delta.reading.value if isinstance(delta.reading, Measured) else None
