"""The client's own floor beside what it measured: a cited calibration, and whether the run went beyond it.

A floor stands for the load it was measured at. At more streams or chunks a second than that the client's error may be
larger, so that the floor is a lower bound only: it still degrades, and what goes beyond it is said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.columns import packed
from analysis.facts import Floor, Scope
from analysis.measures import Row
from evidence.calibration_records import SHOWN, doubts, read_calibration
from evidence.errors import EvidenceError
from evidence.quantiles import distribution
from evidence.records import Json, Manifest, Request

# metric of the calibration -> what it limits, and the measure whose median it stands beside; None: it is shown, and
# judges nothing, since a server that sends several events a step has gaps that nobody waits for
FLOORS: Mapping[str, tuple[Scope, str | None]] = {
    "ttft_s": ("latency", "ttft_s"),
    "ttfv_s": ("latency", "ttfv_s"),
    "e2e_s": ("latency", "e2e_s"),
    "chunk_gap_s": ("latency", None),
    "tpot_s": ("rate", "tpot_s"),
}
BEYOND = 1.1  # times what was calibrated: the rates of two runs are not equal to the digit


def floors(calibration: Json | None, completed: Sequence[Row]) -> Iterator[Floor]:
    """The floors of a cited calibration, each beside the smallest median of a level.

    It is ``{"client_floor_s": {metric: seconds}}``; one number stands for all metrics.
    """
    cited = calibration.get("client_floor_s") if isinstance(calibration, Mapping) else None
    if not isinstance(cited, Mapping):
        cited = dict.fromkeys(("ttft_s", "ttfv_s", "e2e_s", "tpot_s"), cited)
    for metric, (scope, measure) in FLOORS.items():
        floor_s = cited.get(metric)
        if isinstance(floor_s, int | float) and not isinstance(floor_s, bool):
            level, median_s = _smallest(measure, completed)
            yield Floor(metric=metric, scope=scope, floor_s=float(floor_s), median_s=median_s, level=level)


def _smallest(measure: str | None, completed: Sequence[Row]) -> tuple[str | None, float | None]:
    if measure is None:
        return None, None
    by_level: dict[str | None, list[float]] = {}
    for row in completed:
        value = getattr(row.measures, measure).value
        if value is not None:
            by_level.setdefault(row.request.level, []).append(value)
    medians = [(median, level) for level, values in by_level.items() if (median := distribution(values).median)]
    if not medians:
        return None, None
    median_s, level = min(medians, key=lambda one: one[0])
    return level, median_s


def calibration_json(
    manifest: Manifest, requests: Iterable[Request], path: Path
) -> tuple[dict[str, Any] | None, str | None]:
    """What the summary says of the calibration cited by the run in ``path``, or why there is none."""
    cited = manifest.calibration
    if not isinstance(cited, Mapping):
        said = next((one.why for one in manifest.missing if one.what == "calibration"), None)
        return None, said or "the run cites no calibration of the client"
    found = {name: cited.get(name) for name in ("calibration_id", "file", "n_streams", "chunks_per_s", "differs")}
    found["total_chunks_per_s"] = cited.get("total_chunks_per_s")
    found["floor_quantile"] = cited.get("floor_quantile")
    found["unverified"] = unverified(cited, path)
    found["beyond"] = beyond(cited, list(requests))
    return found, None


def unverified(calibration: Json | None, run_path: Path) -> list[str]:
    """In words, why a calibration that the run in ``run_path`` cites cannot be traced to the run it was made by.

    Its file is looked for beside the run, as cited. () where it can be traced, and where none is cited.
    """
    if not isinstance(calibration, Mapping):
        return []
    name, before = calibration.get("file"), calibration.get("differs")
    try:
        found, digest = read_calibration(run_path.parent / str(name))
    except EvidenceError as error:
        said = [f"its file {str(name)[:SHOWN]!r} {error.what}: not verified"]
    else:
        said = doubts(run_path.parent / str(name), found)
        if digest != calibration.get("sha256"):
            said.append("its file is not the one that the run cited: not verified")
    return [one for one in said if not isinstance(before, list) or one not in before]


def beyond(calibration: Mapping[str, Json], requests: Sequence[Request]) -> list[str]:
    """In words, how the busiest of the run's processes went beyond the load that was calibrated; () within it."""
    streams = rate_per_s = 0.0
    by_worker: dict[int, list[Request]] = {}
    for request in requests:
        by_worker.setdefault(request.worker, []).append(request)
    for mine in by_worker.values():
        streams = max(streams, _peak((one.sent_at_monotonic_s, one.end_after_s, 0.0, 1.0) for one in mine))
        rate_per_s = max(rate_per_s, _peak(_rates(mine)))
    said = []
    limit = calibration.get("n_streams")
    if isinstance(limit, int) and streams > limit:
        said.append(f"{streams:.0f} requests under way at once in one process, calibrated at {limit}")
    total = calibration.get("total_chunks_per_s")
    if isinstance(total, int | float) and rate_per_s > BEYOND * total:
        said.append(f"{rate_per_s:.0f} chunks/s in one process, calibrated at {total:.0f}")
    return said


def _rates(requests: Iterable[Request]) -> Iterator[tuple[float | None, float | None, float, float]]:
    """(t0, last chunk, first chunk, chunks a second between them) of each request with a decode window."""
    for request in requests:
        after_s = packed(request.chunks).after_s
        if len(after_s) > 1 and after_s[-1] > after_s[0]:
            yield request.sent_at_monotonic_s, after_s[-1], after_s[0], (len(after_s) - 1) / (after_s[-1] - after_s[0])


def _peak(spans: Iterable[tuple[float | None, float | None, float, float]]) -> float:
    """The largest sum of weights that overlap; a span is (t0, end, begin, weight), end and begin counted from t0."""
    changes: list[tuple[float, float]] = []
    for t0_s, end_s, begin_s, weight in spans:
        if t0_s is not None and end_s is not None:
            changes += [(t0_s + begin_s, weight), (t0_s + end_s, -weight)]
    peak = now = 0.0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak
