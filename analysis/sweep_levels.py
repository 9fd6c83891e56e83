"""One level of a sweep in numbers: of one run, and of an arm over its launches.

A level is one setting of the load: so many users at once, prompts of so many tokens, or so many arrivals a second.
Latencies are those of the requests of that level; of several launches each request counts once. Throughput, goodput and
what the server says belong to a launch; over launches the geometric mean stands for throughput, and never for less than
all of them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from analysis.measures import Derived
from analysis.report_energy import Energy
from evidence.quantiles import FLOORS, Distribution, distribution

Kind = Literal["concurrency", "context", "arrivals"]
UNITS: Mapping[str, str] = {"concurrency": "users", "context": "tokens", "arrivals": "requests/s"}
METRICS = ("ttft_s", "ttfv_s", "tpot_s", "decode_tok_per_s", "e2e_s")
FROM_SCHEDULE = ("ttft_from_schedule_s", "ttfv_from_schedule_s", "e2e_from_schedule_s")
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Throughput of one window of a level: the whole level, or its steady part. ``why`` gives the reason of a None."""

    window_s: float | None
    output_tok_per_s: float | None
    requests_per_s: float | None
    mean_in_flight: float | None
    good_per_s: tuple[float, float] | None  # (fewest, most)
    good_share: tuple[float, float] | None
    n_sent: int | None
    n_good: int | None
    n_undecided: int | None  # None where goodput is not known
    why: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for name in ("good_per_s", "good_share"):
            found[name] = None if found[name] is None else list(found[name])
        return found | {"why": dict(self.why)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelNumbers:
    """One level of one run. ``values`` are the requests' own numbers by metric, what quantiles are taken from."""

    run_id: str
    pair: int  # the paired launch of a study, 0 for a run by itself
    level: str
    kind: str
    setting: float | None  # users, tokens or requests a second; None: a trace has none
    n_planned: int
    n_completed: int
    n_failed: int
    n_cancelled: int
    n_unfinished: int
    failed: Mapping[str, int]  # by outcome
    ended_by: str | None
    full: Window
    steady: Window
    values: Mapping[str, Sequence[float]]
    asked_rate_per_s: float | None
    scheduled_rate_per_s: float | None  # over the same arrivals: a Poisson process strays from its nominal rate
    achieved_rate_per_s: Derived
    rate_missed: str | None
    send_lag_s: Fields
    n_cap_hits: int | None
    acceptance: Fields
    server: Fields
    cached_share: float | None
    client_floor_s: Mapping[str, float] | None
    driver_bytes: Derived  # largest sum over the host's GPUs within the level
    energy: Energy | str

    @property
    def n_lost(self) -> int:
        """Requests that were begun and not answered: what a throughput does not show."""
        return self.n_failed + self.n_cancelled + self.n_unfinished

    def throughput(self, window: str) -> float | None:
        """Output tokens a second in ``full`` or ``steady``."""
        found: Window = getattr(self, window)
        return found.output_tok_per_s

    def as_json(self) -> dict[str, Any]:
        """Everything but the single values."""
        whys = {"achieved_rate_per_s": self.achieved_rate_per_s.why, "driver_bytes": self.driver_bytes.why}
        whys["energy"] = self.energy if isinstance(self.energy, str) else None
        return {
            "run_id": self.run_id,
            "pair": self.pair,
            "n_planned": self.n_planned,
            "n_completed": self.n_completed,
            "n_failed": self.n_failed,
            "n_cancelled": self.n_cancelled,
            "n_unfinished": self.n_unfinished,
            "failed": dict(self.failed),
            "ended_by": self.ended_by,
            "full": self.full.as_json(),
            "steady": self.steady.as_json(),
            "asked_rate_per_s": self.asked_rate_per_s,
            "scheduled_rate_per_s": self.scheduled_rate_per_s,
            "achieved_rate_per_s": self.achieved_rate_per_s.value,
            "rate_missed": self.rate_missed,
            "send_lag_s": dict(self.send_lag_s),
            "n_cap_hits": self.n_cap_hits,
            "acceptance": dict(self.acceptance),
            "server": dict(self.server),
            "cached_share": self.cached_share,
            "client_floor_s": None if self.client_floor_s is None else dict(self.client_floor_s),
            "driver_bytes": self.driver_bytes.value,
            "energy": None if isinstance(self.energy, str) else self.energy.as_json(),
            "why": {name: why for name, why in whys.items() if why is not None},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmLevel:
    """A level of one arm over its launches, in the order of pairs; ``runs`` is never empty."""

    arm: str
    role: str
    runs: tuple[LevelNumbers, ...]

    @property
    def level(self) -> str:
        return self.runs[0].level

    @property
    def setting(self) -> float | None:
        return self.runs[0].setting

    def spread(self, metric: str) -> Distribution:
        """Quantiles over the requests of all launches."""
        return distribution(value for one in self.runs for value in one.values.get(metric, ()))

    def mean(self, window: str, name: str) -> Derived:
        """Geometric mean over launches of a number of a window; None, with the reason, where one launch has none."""
        values = []
        for one in self.runs:
            found: Window = getattr(one, window)
            value = getattr(found, name)
            if value is None or value <= 0:
                return Derived(None, found.why.get(name) or f"{one.run_id} has none")
            values.append(math.log(value))
        return Derived(math.exp(math.fsum(values) / len(values)), None)

    def good_share(self) -> tuple[tuple[float, float] | None, str | None]:
        """Share of all requests sent that met the objectives, (fewest, most), or why there is none."""
        sent = [one.full.n_sent for one in self.runs]
        good = [one.full.n_good for one in self.runs]
        if any(one is None for one in (*sent, *good)) or not sum(n or 0 for n in sent):
            return None, next((one.full.why["good_share"] for one in self.runs if "good_share" in one.full.why), None)
        n_sent, n_good = sum(n or 0 for n in sent), sum(n or 0 for n in good)
        n_open = sum(one.full.n_undecided or 0 for one in self.runs)
        return (n_good / n_sent, (n_good + n_open) / n_sent), None

    def as_json(self) -> dict[str, Any]:
        share, why = self.good_share()
        failed: Counter[str] = Counter()
        for one in self.runs:
            failed.update(one.failed)
        means = {
            f"{window}_{name}": self.mean(window, name)
            for window in ("full", "steady")
            for name in ("output_tok_per_s", "requests_per_s")
        }
        whys = {name: found.why for name, found in means.items()} | {"good_share": why}
        scheduled = FROM_SCHEDULE if self.runs[0].kind == "arrivals" else ()
        return {
            "arm": self.arm,
            "role": self.role,
            "level": self.level,
            "kind": self.runs[0].kind,
            "setting": self.setting,
            "n_launches": len(self.runs),
            "n_planned": sum(one.n_planned for one in self.runs),
            "n_completed": sum(one.n_completed for one in self.runs),
            "n_lost": sum(one.n_lost for one in self.runs),
            "failed": dict(failed),
            **{name: found.value for name, found in means.items()},
            "good_share": None if share is None else list(share),
            **{name: spread_json(self.spread(name)) for name in (*METRICS, *scheduled)},
            "launches": [one.as_json() for one in self.runs],
            "why": {name: said for name, said in whys.items() if said is not None},
        }


def spread_json(spread: Distribution) -> dict[str, Any]:
    """Quantiles with the reasons of those below their floors, as ``summary --json`` has them."""
    whys = {("median" if percent == 50 else f"p{percent}"): spread.why_none(percent) for percent in FLOORS}
    return asdict(spread) | {"why": {name: why for name, why in whys.items() if why is not None}}


def in_order(levels: Sequence[ArmLevel]) -> list[ArmLevel]:
    """By setting, those without one last, arms in the order given."""
    return sorted(levels, key=lambda one: (one.setting is None, one.setting or 0.0))
