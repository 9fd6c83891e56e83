"""What happened between two scrapes of one server process, or why that cannot be said.

A window is valid when both ends and everything scraped between them come from one process whose counters only grew.
A restart is not repaired: neither the value after it, nor zero, nor the negative difference is the number of anything.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from infra.engines.labels import PLAIN, LabelRule, chosen
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.wire.exposition import Exposition, Sample

BrokenCode = Literal["restart", "several_servers", "series_differ", "not_a_counter"]
Uncertainty = Callable[[str, float], float]  # series name, printed value -> half-width of its rounding
_GROWING = frozenset({"counter", "histogram"})


def exact(_name: str, _value: float) -> float:
    """The rounding of an engine that prints its numbers in full."""
    return 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A scrape that could be read. ``identity`` tells one server process from another; None: it says nothing."""

    exposition: Exposition
    identity: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """Why a window is no window."""

    code: BrokenCode
    seen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """A counter's growth, within plus or minus ``uncertainty`` (0 when its ends were printed exactly)."""

    reading: Reading
    uncertainty: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """``before`` and ``after`` are scrapes at rest; ``broken`` is () when deltas may be taken."""

    before: Snapshot
    after: Snapshot
    broken: tuple[Broken, ...]
    uncertainty: Uncertainty = field(repr=False)
    rule: LabelRule = PLAIN
    during: tuple[Snapshot, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.broken

    @property
    def why(self) -> str | None:
        """None for a valid window."""
        return "; ".join(b.seen for b in self.broken) or None

    def delta(self, name: str, labels: Mapping[str, str] | None = None) -> Delta:
        """The growth of a counter, summed by the label rule over its series with these labels.

        A series that is new counts from zero. A gauge has no growth, whatever its name.
        """
        before = chosen(self.before.exposition.find(name, labels), self.rule)
        after = chosen(self.after.exposition.find(name, labels), self.rule)
        if not before and not after:
            return Delta(reading=Absent(why=f"no series {name}"))
        if self.why is not None:
            return Delta(reading=Unmeasured(why=f"the window is not usable: {self.why}"))
        kind = self.after.exposition.type_of(name)
        if kind is not None and kind not in _GROWING:
            return Delta(reading=Unmeasured(why=f"{name} is a {kind}: its difference is no count"))
        values = [s.value for s in (*before, *after)]
        if any(value != value or value in (float("inf"), float("-inf")) for value in values):
            return Delta(reading=Unmeasured(why=f"{name} is not a finite number"))
        uncertainty = sum(self.uncertainty(name, value) for value in values)
        growth = sum(s.value for s in after) - sum(s.value for s in before)
        return Delta(reading=Measured(growth), uncertainty=uncertainty)


def total(
    windows: Sequence[Window], name: str, labels: Mapping[str, str] | None = None, *, from_first: bool = False
) -> Delta:
    """The growth over several servers that share the load, each with a window of its own.

    ``from_first``: the series appears with its first increment, so a server that lacks it beside one that has it
    counts zero.
    """
    deltas = [window.delta(name, labels) for window in windows]
    if from_first and any(isinstance(delta.reading, Measured) for delta in deltas):
        deltas = [delta for delta in deltas if not isinstance(delta.reading, Absent)]
    readings = [delta.reading for delta in deltas]
    missing = next((reading for reading in readings if not isinstance(reading, Measured)), None)
    if missing is not None:
        return Delta(reading=missing)
    if not readings:
        return Delta(reading=Unmeasured(why="no window"))
    growth = sum(reading.value for reading in readings if isinstance(reading, Measured))
    return Delta(reading=Measured(growth), uncertainty=sum(delta.uncertainty for delta in deltas))


def open_window(
    before: Snapshot,
    after: Snapshot,
    *,
    counters: Sequence[str],
    late: frozenset[str],
    uncertainty: Uncertainty = exact,
    during: Sequence[Snapshot] = (),
    rule: LabelRule = PLAIN,
) -> Window:
    """Judge the scrapes of one URL in the order they were taken.

    ``counters`` are the sample names whose deltas will be taken; those in ``late`` may first appear within the window.
    """
    chain = (before, *during, after)
    broken = [*_identity(chain), *_types(chain, counters)]
    for earlier, later in itertools.pairwise(chain):
        broken += _shrunk(earlier, later, counters)
    if not broken:
        broken += _differs(before, after, counters, late)
    return Window(
        before=before,
        after=after,
        broken=tuple(broken[:8]),
        uncertainty=uncertainty,
        rule=rule,
        during=tuple(during),
    )


def same_server(one: Window, other: Window) -> bool:
    """Whether two addresses answer for one server: the same process, or the same counts at both ends.

    Two servers that both did work never show the same counts down to the sums of their latencies; two that did
    nothing may be taken once without harm.
    """
    if one.before.identity is not None and other.before.identity is not None:
        return one.before.identity == other.before.identity
    return all(_all_counts(a) == _all_counts(b) for a, b in ((one.before, other.before), (one.after, other.after)))


def _all_counts(snapshot: Snapshot) -> list[tuple[object, float]]:
    shown = snapshot.exposition
    return sorted((s.key, s.value) for s in shown.samples if shown.type_of(s.name) in _GROWING)


def _identity(chain: Sequence[Snapshot]) -> list[Broken]:
    changes = [chain[0].identity]
    for snapshot in chain[1:]:
        if snapshot.identity != changes[-1]:
            changes.append(snapshot.identity)
    if len(changes) == 1:
        return []
    shown = ", then ".join(str(c) for c in changes[:6])
    if None in changes or len(set(changes)) < len(changes):
        return [Broken(code="several_servers", seen=f"more than one process answered: start stamp {shown}")]
    return [Broken(code="restart", seen=f"the server restarted in the window: start stamp {shown}")]


def _types(chain: Sequence[Snapshot], counters: Sequence[str]) -> list[Broken]:
    """The delta of a gauge is no count, whatever its name."""
    broken = []
    for name in counters:
        kinds = {s.exposition.type_of(name) for s in chain if s.exposition.find(name)}
        if kinds - _GROWING:
            said = ", ".join(sorted(str(kind) for kind in kinds))
            broken.append(Broken(code="not_a_counter", seen=f"{name} is typed {said}: no delta may be taken"))
    return broken


def _shrunk(earlier: Snapshot, later: Snapshot, counters: Sequence[str]) -> list[Broken]:
    broken = []
    for name in counters:
        now = {s.key: s.value for s in later.exposition.find(name)}
        for sample in earlier.exposition.find(name):
            value = now.get(sample.key)
            if value is None or value < sample.value:
                to = "gone" if value is None else f"{value:g}"
                seen = f"{_shown(sample)} went from {sample.value:g} to {to}: a restart, or another server"
                broken.append(Broken(code="restart", seen=seen))
    return broken


def _differs(before: Snapshot, after: Snapshot, counters: Sequence[str], late: frozenset[str]) -> list[Broken]:
    known = {s.key for name in counters for s in before.exposition.find(name)}
    return [
        Broken(code="series_differ", seen=f"{_shown(sample)} is new in the window: not the same server or build")
        for name in counters
        if name not in late
        for sample in after.exposition.find(name)
        if sample.key not in known
    ]


def _shown(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}" if labels else sample.name
