"""What a label means for adding up: a rank that repeats, a rank that adds, and a total that stands beside its parts.

    adds      a data-parallel rank or engine has work of its own, as have a finish reason, a cache source, a mode
    repeats   tensor- and pipeline-parallel ranks do the same work together: the lowest rank of each group is taken,
              which is rank 0, or with attention data parallelism the first rank of each data-parallel group
    parts     an empty value stands for the total over its other values (priorities): then only the total is taken

An API-server process is no shard: engines add up over their processes before they answer, so two of its addresses
answer for one server and are taken once (``window.same_server``). A label that is not known here adds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from infra.wire.exposition import Exposition, Sample

_Group = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelRule:
    """``adds`` is for the reader: whatever neither repeats nor is a part adds."""

    adds: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()


PLAIN = LabelRule()


def chosen(samples: Iterable[Sample], rule: LabelRule) -> tuple[Sample, ...]:
    """Of these samples the ones whose values may be added."""
    kept = tuple(samples)
    if rule.parts:
        totals = {_key(s, rule.parts): s for s in kept if not any(s.labels.get(name) for name in rule.parts)}
        kept = tuple(s for s in kept if totals.get(_key(s, rule.parts), s) is s)
    if not rule.repeats:
        return kept
    lowest: dict[_Group, Sample] = {}
    for sample in kept:
        key = _key(sample, rule.repeats)
        first = lowest.get(key)
        if first is None or _ranks(sample, rule.repeats) < _ranks(first, rule.repeats):
            lowest[key] = sample
    return tuple(lowest.values())


def values_of(exposition: Exposition, label: str, prefix: str) -> tuple[str, ...]:
    """The distinct values of one label over the series with a prefix, sorted."""
    return tuple(
        sorted({s.labels[label] for s in exposition.samples if s.name.startswith(prefix) and label in s.labels})
    )


def _key(sample: Sample, without: frozenset[str]) -> _Group:
    return sample.name, tuple(sorted((n, v) for n, v in sample.labels.items() if n not in without))


def _ranks(sample: Sample, names: frozenset[str]) -> tuple[tuple[int, str], ...]:
    """Ranks in numeric order; what is no number comes last."""
    told = [sample.labels.get(name, "0") for name in sorted(names)]
    return tuple((int(rank), "") if rank.isdigit() else (1 << 60, rank) for rank in told)
