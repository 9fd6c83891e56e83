"""A ``/metrics`` body, read whole or refused.

prometheus_client's parser is lax by design: a body cut in the middle of a number still parses, two samples of one
series both stay, a sample of three numbers loses the middle one, and a counter without ``_total`` gets another name.
So every line first has to meet the grammar here, then the library reads it (alone, which keeps its name and tells its
line), and what it read is checked against the rest of the body. One bad line refuses the body: part of a scrape is no
scrape.

The caller keeps the bytes. Nothing here knows what a series means.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from prometheus_client.openmetrics.parser import text_fd_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

METRICS_ACCEPT = "text/plain; version=0.0.4"  # ask for this: OpenMetrics changes the grammar of a line

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_PAIR = r'[ \t]*[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"(?:[^"\\\n]|\\.)*"[ \t]*'
_NUMBER = r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:inity)?)|[nN][aA][nN]"
_SAMPLE = re.compile(
    rf"[ \t]*(?P<name>{_NAME})(?:[ \t]*\{{(?:{_PAIR}(?:,{_PAIR})*,?[ \t]*|[ \t]*)\}}[ \t]*|[ \t]+)"
    rf"(?P<value>{_NUMBER})(?:[ \t]+-?\d+)?[ \t]*",
    re.ASCII,
)
# OpenMetrics: one space before the value and before what may follow it, a time stamp and an exemplar.
_OPENMETRICS_SAMPLE = re.compile(
    rf"{_NAME}(?:\{{(?:{_PAIR}(?:,{_PAIR})*)?\}})? (?:{_NUMBER})(?: -?[0-9.]+(?:[eE][+-]?\d+)?)?(?: # \{{.*)?", re.ASCII
)
_TYPE = re.compile(rf"#[ \t]+TYPE[ \t]+(?P<name>{_NAME})[ \t]+(?P<type>\w+)[ \t]*", re.ASCII)
_TEXT_TYPES = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})

# What may be added to a family's name, by the family's type: ``# TYPE a counter`` also types the sample ``a_total``.
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "summary": ("_sum", "_count", "_created"),
    "info": ("_info",),
}
_WITH_CREATED = frozenset({"counter", "histogram", "summary"})
_SHOWN_CHARACTERS = 120


class ExpositionError(ValueError):
    """The body cannot be used. ``line`` counts from 1 (None: the body as a whole), ``value`` is what stood there."""

    def __init__(self, reason: str, *, line: int | None, value: str) -> None:
        self.reason = reason
        self.line = line
        self.value = value
        shown = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "..."
        where = "the body" if line is None else f"line {line}"
        super().__init__(
            f"metrics, {where}: {reason}: {shown!r}; no value of this scrape may be used: "
            "look at the server's /metrics, or at a proxy before it"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One sample as exposed. ``value`` may be NaN or infinite: it says so itself."""

    name: str
    labels: Mapping[str, str]
    value: float
    line: int

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The series: name and labels in one order, whatever order they came in."""
        return self.name, tuple(sorted(self.labels.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposition:
    """``samples`` in the order exposed; the ``_created`` stamps are no counts and stand apart in ``created``."""

    samples: tuple[Sample, ...]
    created: tuple[Sample, ...]
    types: Mapping[str, str]  # the TYPE lines as they stood: family (or sample) name -> type

    def find(self, name: str, labels: Mapping[str, str] | None = None) -> tuple[Sample, ...]:
        """All samples of this very name that carry at least these labels; () when there are none."""
        wanted = dict(labels or {}).items()
        return tuple(s for s in self.samples if s.name == name and wanted <= dict(s.labels).items())

    def type_of(self, sample_name: str) -> str | None:
        """The type by the sample's own name, else by the family it belongs to; None when no TYPE line covers it."""
        return _type_of(sample_name, self.types)

    def names(self) -> frozenset[str]:
        return frozenset(s.name for s in self.samples)


def parse(body: str | bytes, content_type: str | None) -> Exposition:
    """Read a whole body by its Content-Type (none: the plain text format). Raises ExpositionError."""
    text = _text(body)
    if not text.strip():
        raise ExpositionError("nothing in it", line=None, value=text)
    media = (content_type or "text/plain").split(";", 1)[0].strip().lower()
    if media not in ("text/plain", "application/openmetrics-text"):
        raise ExpositionError("not a metrics body by its Content-Type", line=None, value=content_type or "")
    if not text.endswith("\n"):
        last = text.rsplit("\n", 1)[-1]
        raise ExpositionError("cut: the last line has no newline", line=text.count("\n") + 1, value=last)
    return _assemble(*(_plain(text) if media == "text/plain" else _openmetrics(text)))


def _text(body: str | bytes) -> str:
    if isinstance(body, str):
        return body
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ExpositionError("not UTF-8", line=line, value=repr(body[error.start : error.end])) from error


def _plain(text: str) -> tuple[list[Sample], dict[str, str]]:
    samples: list[Sample] = []
    types: dict[str, str] = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if not line.strip(" \t"):
            continue
        if line.lstrip(" \t").startswith("#"):
            _read_type(line.strip(" \t"), number, types)
            continue
        if _SAMPLE.fullmatch(line) is None:
            raise ExpositionError("not a sample", line=number, value=line)
        try:
            (family,) = read_text(line + "\n")
            (read,) = family.samples
            value = float(read.value)
        except (ValueError, OverflowError) as error:
            reason = f"not a sample ({error})" if str(error) else "not a sample"
            raise ExpositionError(reason, line=number, value=line) from error
        samples.append(Sample(name=read.name, labels=dict(read.labels), value=value, line=number))
    return samples, types


def _read_type(line: str, number: int, types: dict[str, str]) -> None:
    if not re.match(r"#[ \t]+TYPE(?:[ \t]|$)", line):
        return  # HELP, or a comment
    match = _TYPE.fullmatch(line)
    if match is None or match["type"] not in _TEXT_TYPES:
        raise ExpositionError("not a TYPE line of this format", line=number, value=line)
    if types.setdefault(match["name"], match["type"]) != match["type"]:
        raise ExpositionError(
            f"a second type for {match['name']}, which was {types[match['name']]}", line=number, value=line
        )


class _CountedLines:
    """Hands lines to a parser and remembers where it is: its errors do not say."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")[:-1]
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.line += 1
            yield line + "\n"

    def current(self) -> str:
        return self._lines[self.line - 1] if self._lines else ""

    def sample_lines(self) -> list[tuple[int, str]]:
        return [(n, line) for n, line in enumerate(self._lines, 1) if not line.startswith("#")]


def _openmetrics(text: str) -> tuple[list[Sample], dict[str, str]]:
    lines = _CountedLines(text)
    numbers = lines.sample_lines()
    for number, line in numbers:
        if line and _OPENMETRICS_SAMPLE.fullmatch(line) is None:
            raise ExpositionError("not an OpenMetrics sample", line=number, value=line)
    try:
        families = list(read_openmetrics(lines))  # type: ignore[no-untyped-call]  # this function has no annotations
    except (ValueError, IndexError) as error:
        reason = f"not OpenMetrics ({error})" if str(error) else "not OpenMetrics"
        raise ExpositionError(reason, line=lines.line, value=lines.current()) from error
    read = [sample for family in families for sample in family.samples]
    if len(read) != len(numbers):
        raise ExpositionError(
            f"{len(numbers)} sample lines, {len(read)} samples read", line=None, value=lines.current()
        )
    samples: list[Sample] = []
    for sample, (number, _) in zip(read, numbers, strict=True):
        value = cast(float | None, sample.value)  # None for a native histogram, whatever the library's types say
        if value is None:
            raise ExpositionError("a native histogram is not read", line=number, value=sample.name)
        samples.append(Sample(name=sample.name, labels=dict(sample.labels), value=float(value), line=number))
    types = {family.name: family.type for family in families if family.type != "unknown"}
    return samples, types


def _assemble(samples: Iterable[Sample], types: dict[str, str]) -> Exposition:
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    counts: list[Sample] = []
    created: list[Sample] = []
    for sample in samples:
        first = seen.setdefault(sample.key, sample)
        if first is not sample:
            raise ExpositionError(
                f"the series of line {first.line} again (it said {first.value:g})",
                line=sample.line,
                value=f"{sample.name}{dict(sample.labels) or ''} {sample.value:g}",
            )
        (created if _is_created(sample.name, types) else counts).append(sample)
    return Exposition(samples=tuple(counts), created=tuple(created), types=types)


def _type_of(name: str, types: Mapping[str, str]) -> str | None:
    if name in types:
        return types[name]
    for family_type, suffixes in _SUFFIXES.items():
        for suffix in suffixes:
            if name.endswith(suffix) and types.get(name.removesuffix(suffix)) == family_type:
                return family_type
    return None


def _is_created(name: str, types: Mapping[str, str]) -> bool:
    """A creation stamp only beside something that was created: a series may be called ``jobs_created`` itself."""
    if not name.endswith("_created"):
        return False
    family = name.removesuffix("_created")
    return types.get(family) in _WITH_CREATED or types.get(family + "_total") in _WITH_CREATED
