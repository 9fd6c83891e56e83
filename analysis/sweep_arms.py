"""Arms beside each other at each level of a sweep: ratios to the baseline, the cost of a step there, break-even.

At every level stand two ratios that answer different questions. ``throughput`` is all output tokens a second of the
server, arm over baseline: what capacity follows; each launch gives one number. ``decode`` is the geometric mean of
paired per-prompt decode rates: what a request feels; prompts and launches both vary in its interval. Both are above 1
where the arm is ahead. TTFT is a time: below 1 is faster. Equal settings are compared with equal settings only: never
one arm's users with another's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.arm_runs import Sides, comparability, sides, why_not
from analysis.arm_speculation import cost_of, decode_steps
from analysis.break_even import BreakEven, RatioAt, break_even
from analysis.cycle_by_counters import decoded_by_counters
from analysis.effect import judge
from analysis.errors import AnalysisError
from analysis.measures import Derived
from analysis.paired import crossed
from analysis.pairing import Observation, Request, Table, pair
from analysis.speculation import CycleCost, NoCost, decoded
from analysis.study_loading import CellRun, Material
from analysis.sweep_levels import UNITS, LevelNumbers
from analysis.sweep_ratio import LaunchRatio, launch_ratio

Which = Literal["steady", "full"]
Numbers = Mapping[str, Mapping[str, LevelNumbers]]  # by run id, by level
Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelAgainst:
    """An arm at one level against the baseline. ``window`` says which throughput was compared."""

    level: str
    setting: float | None
    window: Which
    throughput: LaunchRatio
    goodput: LaunchRatio
    decode: Fields
    ttft: Fields
    cost: CycleCost | NoCost | None
    cost_why: str | None

    def as_json(self) -> Fields:
        return {
            "level": self.level,
            "setting": self.setting,
            "window": self.window,
            "throughput": self.throughput.as_json(),
            "goodput": self.goodput.as_json(),
            "decode": self.decode,
            "ttft": self.ttft,
            "cycle_cost": None if self.cost is None else self.cost.as_json(),
            "why": {} if self.cost_why is None else {"cycle_cost": self.cost_why},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSweep:
    """One arm, or the control, over all levels; ``refused`` says why nothing was compared."""

    arm: str
    role: str
    refused: str | None
    levels: tuple[LevelAgainst, ...]
    break_even: Mapping[str, BreakEven]  # of throughput and of decode

    def as_json(self) -> Fields:
        return {
            "arm": self.arm,
            "role": self.role,
            "refused": self.refused,
            "levels": [one.as_json() for one in self.levels],
            "break_even": {name: one.as_json() for name, one in self.break_even.items()},
        }


def sweep_arms(material: Material, numbers: Numbers, kind: str) -> tuple[ArmSweep, ...]:
    """Every arm that ran, and the control where there is one."""
    base = material.of(material.baseline, "baseline")
    found = []
    for arm in material.arms:
        cells = material.of(arm, "arm")
        if cells:
            found.append(_arm(arm, "arm", base, cells, numbers, kind))
    control = material.of(material.baseline, "control")
    if control:
        found.append(_arm(material.baseline, "control", base, control, numbers, kind))
    return tuple(found)


def _arm(
    arm: str, role: str, base: Mapping[int, CellRun], cells: Mapping[int, CellRun], numbers: Numbers, kind: str
) -> ArmSweep:
    both = sides(base, cells)
    keys = comparability(both)
    if not keys.ok:
        refused = f"not comparable with the baseline: {'; '.join(keys.said)}"
        return ArmSweep(arm=arm, role=role, refused=refused, levels=(), break_even={})
    ours = both.observations(both.base, "baseline")
    theirs = both.observations(both.arm, arm)
    steps = decode_steps(both) if role == "arm" else {}
    labels = dict.fromkeys(one.level for one in (*ours, *theirs) if one.level is not None)
    levels = tuple(_level(level, both, numbers, ours, theirs, steps) for level in labels)
    unit = UNITS.get(kind, "")
    return ArmSweep(
        arm=arm,
        role=role,
        refused=None,
        levels=levels,
        break_even={
            "throughput": _break_even([_of_launches(one) for one in levels], unit),
            "decode": _break_even([_of_pairs(one) for one in levels], unit),
        },
    )


def _level(
    level: str,
    both: Sides,
    numbers: Numbers,
    ours: Sequence[Observation],
    theirs: Sequence[Observation],
    steps: Mapping[tuple[int, Request], int | None],
) -> LevelAgainst:
    mine, other = ([one for one in side if one.level == level] for side in (ours, theirs))
    window, throughput, goodput = _launches(level, both, numbers)
    table = pair(mine, other)
    cost, why = _cost(both, level, table, steps)
    known = [found[level] for found in numbers.values() if level in found]
    return LevelAgainst(
        level=level,
        setting=known[0].setting if known else None,
        window=window,
        throughput=throughput,
        goodput=goodput,
        decode=_paired(table),
        ttft=_paired(pair(mine, other, read=_ttft), judged=False),
        cost=cost,
        cost_why=why,
    )


def _launches(level: str, both: Sides, numbers: Numbers) -> tuple[Which, LaunchRatio, LaunchRatio]:
    """Throughput and goodput by launch: of the steady window where every launch has one in both arms, else of all."""
    cells = [
        (both.places[place].launch, numbers[base.run.manifest.run_id][level], numbers[arm.run.manifest.run_id][level])
        for place, base, arm in both.both("rate")
        if all(level in numbers.get(one.run.manifest.run_id, {}) for one in (base, arm))
    ]
    steady = bool(cells) and all(one.throughput("steady") for _, *two in cells for one in two)
    window: Which = "steady" if steady else "full"
    rates: dict[int, list[tuple[float, float]]] = {}
    good: dict[int, list[tuple[float, float]]] = {}
    why, why_good = _why_no_pair(both), None
    for launch, base, arm in cells:
        a, b = base.throughput(window), arm.throughput(window)
        if a and b:
            rates.setdefault(launch, []).append((a, b))
        else:
            why = base.full.why.get("output_tok_per_s") or arm.full.why.get("output_tok_per_s") or why
        c, d = _good(base), _good(arm)
        if c.value and d.value:
            good.setdefault(launch, []).append((c.value, d.value))
        else:
            why_good = c.why or d.why or "no request of one arm met the objectives"
    return window, launch_ratio(rates, why), launch_ratio(good, why_good or why)


def _good(one: LevelNumbers) -> Derived:
    found = one.full.good_per_s
    if found is None:
        return Derived(None, one.full.why.get("good_per_s") or "no goodput")
    if found[0] != found[1]:
        return Derived(None, "requests are undecided: goodput is an interval")
    return Derived(found[0], None)


def _why_no_pair(both: Sides) -> str | None:
    whys = [why_not(one, "rate") for one in (*both.base.values(), *both.arm.values())]
    return next((why for why in whys if why is not None), None)


def _ttft(one: Observation) -> float | None:
    return one.ttft_s


def _cost(
    both: Sides, level: str, table: Table, steps: Mapping[tuple[int, Request], int | None]
) -> tuple[CycleCost | NoCost | None, str | None]:
    """By the answers' own steps; where none tells them, by the counters around a level of one request at a time."""
    if all(one.run.server.speculative is False for one in both.arm.values()):
        return None, "the arm does not speculate"
    told = [one for one in table.pairs if steps.get((one.arm.launch, one.arm.request)) is not None]
    if told:
        mine, other = decoded(told, steps)
    else:
        mine, other, why = decoded_by_counters(both, table.pairs, level=level)
        if not mine:
            return None, f"no answer tells its target steps, and the counters do not stand in: {why or 'no pair'}"
    cost = cost_of(table.pairs, mine, other)
    return cost, cost.why if isinstance(cost, NoCost) else None


def _paired(table: Table, *, judged: bool = True) -> Fields:
    """A paired ratio of one level: with its crossed interval, or the sampling of prompts where one launch ran."""
    found = None if table.empty else crossed(table.log_ratios)
    if found is None:
        left = next(iter([*table.coverage.left_out_launches.values(), *table.coverage.left_out_prompts.values()]), None)
        why = "no prompt was completed in both arms in every launch" + ("" if left is None else f" ({left})")
        return _no_ratio(why)
    said = judge(found)
    return {
        "ratio": found.ratio,
        "interval": None if found.interval is None else list(found.interval),
        "prompt_sampling_interval": None if found.prompt_sampling is None else list(found.prompt_sampling),
        "n_launches": found.n_launches,
        "n_prompts": found.n_prompts,
        "n_requests": len(table.pairs),
        "scope": found.scope,
        "mde": said.mde,
        "mde_prompts": said.mde_prompts,
        "verdict": said.verdict if judged else None,
        "why": found.why,
    }


def _no_ratio(why: str) -> Fields:
    names = ("ratio", "interval", "prompt_sampling_interval", "scope", "mde", "mde_prompts", "verdict")
    return dict.fromkeys(names) | {"n_launches": 0, "n_prompts": 0, "n_requests": 0, "why": why}


def _of_launches(one: LevelAgainst) -> RatioAt | None:
    found = one.throughput
    if one.setting is None or found.ratio is None:
        return None
    return RatioAt(
        level=one.level,
        setting=one.setting,
        ratio=found.ratio,
        interval=found.interval,
        scope=found.scope or "launches",
        why=found.why,
    )


def _of_pairs(one: LevelAgainst) -> RatioAt | None:
    found = one.decode
    if one.setting is None or found["ratio"] is None:
        return None
    alone = found["scope"] == "prompts only"
    bounds = found["prompt_sampling_interval"] if alone else found["interval"]
    return RatioAt(
        level=one.level,
        setting=one.setting,
        ratio=found["ratio"],
        interval=None if bounds is None else (bounds[0], bounds[1]),
        scope=found["scope"],
        why=found["why"],
    )


def _break_even(points: Sequence[RatioAt | None], unit: str) -> BreakEven:
    """Of a setting that was run twice the first level stands: the second shows what changed between the two."""
    kept: dict[float, RatioAt] = {}
    for one in points:
        if one is not None:
            kept.setdefault(one.setting, one)
    try:
        return break_even(list(kept.values()), unit=unit)
    except AnalysisError as error:
        said = f"not resolved: {error.what}"
        return BreakEven(
            state="not resolved",
            at=None,
            interval=None,
            between=None,
            pays=None,
            scope=None,
            n_levels=len(points),
            said=said,
        )
