"""Samples with instants as OpenMetrics text that promtool and strict parsers both read.

Series stand whole and in order of time, as backfilling needs. Instants are milliseconds: Prometheus reads the text's
seconds as a double, multiplies by 1000 and cuts, so the digits written are those that come out as the millisecond
meant. Two samples of a series in one millisecond are one in Prometheus: the later stands, the other is counted.
A family that breaks its type's rules (a counter that is NaN or negative, a histogram without +Inf, a counter whose name
lacks _total) is written without a type, its samples unchanged.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, NamedTuple

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "summary": ("", "_count", "_sum", "_created"),
    "info": ("_info",),
    "gauge": ("",),
    "unknown": ("",),
}
_MUST_GROW = ("_total", "_bucket", "_count")

LabelKey = tuple[tuple[str, str], ...]


class Written(NamedTuple):
    """What went into the text."""

    n_series: int
    n_samples: int
    n_same_instant: int  # samples another of the same millisecond stands for


NOTHING = Written(0, 0, 0)


@dataclass(slots=True)
class _Series:
    instants_ms: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def ordered(self) -> dict[int, float]:
        """By instant, in order; of two at one instant the one added later."""
        found = dict(zip(self.instants_ms, self.values, strict=True))
        return dict(sorted(found.items()))


@dataclass(slots=True)
class _Family:
    kind: str
    words: str
    series: dict[tuple[str, LabelKey], _Series] = field(default_factory=dict)  # by sample name and labels


class SampleBook:
    """Collects samples in any order; ``write`` puts them down."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._family_of: dict[str, str] = {}  # sample name -> family, as first seen

    def add(
        self,
        *,
        family: str,
        kind: str,
        name: str,
        labels: Mapping[str, str],
        at_unix_s: float,
        value: float,
        words: str,
    ) -> None:
        """One sample. ``kind`` is a key of SUFFIXES; the family and type a sample name first came with stand."""
        family = self._family_of.setdefault(name, family)
        book = self._families.setdefault(family, _Family(kind, words))
        key = (name, tuple(sorted((label, text) for label, text in labels.items() if text)))
        series = book.series.setdefault(key, _Series())
        series.instants_ms.append(round(at_unix_s * 1000))
        series.values.append(value)

    def write(self, out: IO[str]) -> Written:
        """All of it, ending in ``# EOF``."""
        taken: set[str] = set()
        n_samples = n_series = n_given = 0
        families = list(self._resolved(taken))
        for name, family in families:
            if family.words:
                out.write(f"# HELP {name} {_escaped(family.words)}\n")
            out.write(f"# TYPE {name} {family.kind}\n")
            for group in _groups(family):
                for line in _lines(group, family.kind):
                    out.write(line)
                    n_samples += 1
            n_series += len(family.series)
            n_given += sum(len(series.values) for series in family.series.values())
        out.write("# EOF\n")
        return Written(n_series, n_samples, n_given - n_samples)

    def _resolved(self, taken: set[str]) -> Iterator[tuple[str, _Family]]:
        """Each family under a name no other family claims; one that cannot keep its type comes as its sample names."""
        for name, family in self._families.items():
            claimed = {name, *(name + suffix for suffix in SUFFIXES[family.kind])}
            if _sound(name, family) and not claimed & taken:
                taken |= claimed
                yield name, family
                continue
            parts: dict[str, _Family] = {}
            for (sample_name, labels), series in family.series.items():
                part = parts.setdefault(sample_name, _Family("unknown", family.words))
                part.series[(sample_name, labels)] = series
            taken |= set(parts)
            yield from parts.items()


def _sound(name: str, family: _Family) -> bool:
    allowed = {name + suffix for suffix in SUFFIXES[family.kind]}
    if not {sample_name for sample_name, _ in family.series} <= allowed:
        return False
    if family.kind not in ("counter", "histogram", "summary"):
        return True
    for (sample_name, _), series in family.series.items():
        if sample_name.removeprefix(name) in _MUST_GROW and any(not value >= 0 for value in series.values):
            return False
    if family.kind != "histogram":
        return True
    labelled = {key for sample_name, key in family.series if sample_name == name + "_bucket"}
    groups = {_without_le(key) for key in labelled}
    return all(not math.isnan(_edge(key)) for key in labelled) and all(
        tuple(sorted((*group, ("le", "+Inf")))) in labelled for group in groups
    )


def _without_le(labels: LabelKey) -> LabelKey:
    return tuple(label for label in labels if label[0] != "le")


_Group = list[tuple[str, LabelKey, _Series]]


def _groups(family: _Family) -> Iterator[_Group]:
    """The series that belong to one label set, since they must stand together."""
    found: dict[LabelKey, _Group] = {}
    for (name, labels), series in family.series.items():
        key = _without_le(labels) if family.kind == "histogram" else labels
        if family.kind == "summary":
            key = tuple(label for label in labels if label[0] != "quantile")
        found.setdefault(key, []).append((name, labels, series))
    yield from found.values()


def _lines(group: _Group, kind: str) -> Iterator[str]:
    placed: list[tuple[int, int, float, str, float]] = []
    for name, labels, series in group:
        head = name + _braced(labels)
        rank = 0 if name.endswith("_bucket") or kind != "histogram" else 1
        edge = _edge(labels) if kind == "histogram" and rank == 0 else 0.0
        placed += [(ms, rank, edge, head, value) for ms, value in series.ordered().items()]
    placed.sort(key=lambda one: one[:4])
    for ms, _, _, head, value in placed:
        yield f"{head} {_number(value)} {_seconds(ms)}\n"


def _edge(labels: LabelKey) -> float:
    try:
        return float(dict(labels).get("le", "nan"))
    except ValueError:
        return math.nan


def _braced(labels: LabelKey) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels) + "}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _seconds(ms: int) -> str:
    """Seconds whose product with 1000, cut as Prometheus cuts it, is the millisecond meant."""
    text = f"{ms // 1000}.{ms % 1000:03d}"
    return text if int(float(text) * 1000) == ms else text + "1"
