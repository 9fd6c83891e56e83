"""What stands beside an arm's ratio: its runs, what was left out and why, distributions, and the share in time."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from analysis import goodput
from analysis.arm_runs import Sides, why_not
from analysis.study_loading import CellRun, NotMeasured
from analysis.verdict import by_scope, overall
from evidence.quantiles import FLOORS, distribution

SPREADS = ("ttft_s", "ttfv_s", "tpot_s", "e2e_s", "decode_tok_per_s")


def run_json(one: CellRun) -> dict[str, Any]:
    """A run by its names and verdicts."""
    return {
        "run_id": one.run.manifest.run_id,
        "pair": one.pair,
        "index": one.index,
        "launch_id": one.run.manifest.launch_id,
        "path": str(one.run.path),
        "verdict": overall(one.run.reasons),
        "verdicts": by_scope(one.run.reasons),
        "codes": list(dict.fromkeys(reason.code for reason in one.run.reasons)),
    }


def lost_json(one: NotMeasured) -> dict[str, Any]:
    """A cell that has no run: where it stopped, and how that showed."""
    names = ("pair", "index", "state", "stage", "symptom", "folder")
    return {name: getattr(one, name) for name in names}


def shared_launches(found: Sides) -> list[str]:
    """Pairs that are one launch between them."""
    by_launch: dict[int, list[int]] = {}
    for pair, place in found.places.items():
        by_launch.setdefault(place.launch, []).append(pair)
    return [
        f"pairs {', '.join(map(str, pairs))} are one launch: nothing shows an engine started between them"
        for pairs in by_launch.values()
        if len(pairs) > 1
    ]


def degraded(cells: Iterable[CellRun]) -> dict[str, int]:
    """How many runs carry each DEGRADED reason."""
    codes = [{r.code for r in one.run.reasons if r.severity == "DEGRADED"} for one in cells]
    return dict(Counter(code for own in codes for code in sorted(own)))


def spreads(cells: Iterable[CellRun]) -> dict[str, Any]:
    """Quantiles over all requests of all launches, each request counted once; None below its floor, with the reason."""
    shown: dict[str, Any] = {}
    kept = list(cells)
    for name in SPREADS:
        scope: Literal["latency", "rate"] = "rate" if name in ("tpot_s", "decode_tok_per_s") else "latency"
        rows = [row for one in kept if why_not(one, scope) is None for row in one.run.measured]
        values = [getattr(row.measures, name).value for row in rows if row.request.outcome == "completed"]
        spread = distribution(value for value in values if value is not None)
        whys = {f"p{percent}": spread.why_none(percent) for percent in FLOORS if percent != 50}
        whys["median"] = spread.why_none(50)
        shown[name] = asdict(spread) | {"why": {key: why for key, why in whys.items() if why is not None}}
    return shown


def goodputs(found: Sides, baseline: str, arm: str) -> dict[str, Any]:
    """The share of requests within the scenario's objectives, failed ones counted as not."""
    shown = {}
    for name, side in ((baseline, found.base), (arm, found.arm)):
        kept = [one for one in side.values() if why_not(one, "run") is None]
        limits = [_limits_of(one) for one in kept]
        told = limits[0] if limits else (None, None)
        rows = [row for one in kept for row in one.run.measured]
        shown[name] = goodput.goodput(rows, window_s=None, ttft_slo_s=told[0], tpot_slo_s=told[1]).as_json()
    return shown


def _limits_of(one: CellRun) -> tuple[float | None, float | None]:
    scenario = one.run.manifest.scenario
    limits = scenario.get("limits") if isinstance(scenario, Mapping) else None
    if not isinstance(limits, Mapping):
        return None, None
    return limits.get("ttft_slo_s"), limits.get("tpot_slo_s")
