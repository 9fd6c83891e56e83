"""What speculation costs and yields on the clock, from counts and times alone.

    E[A]       tokens a target step = decode tokens / all target steps, pooled: the totals' ratio, no mean of ratios
    t_base     the baseline's decode time a token
    t_cycle    the speculative arm's decode time / its target steps: drafting, verifying and the rest together
    cost       t_cycle / t_base, which is also the break-even: with fewer tokens a step than this, speculation loses
    S          E[A] t_base / t_cycle; theorem 3.8 of Leviathan et al. (2023, arXiv 2211.17192) without its assumptions
               that verifying costs one target pass and that acceptance is independent

Over the requests that gave the numbers, S is the total-token ratio by arithmetic and predicts nothing; a gap there says
that counts and times cover different tokens. What it does predict: the speed-up of each domain from the domain's own
E[A] and the cost of all domains. Where prediction and measurement part, the cost of a step is not the same in them.
Single-stream costs: at a higher concurrency a step verifies more tokens, and t_cycle is another number.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.errors import AnalysisError
from analysis.paired import Bounds, mean_interval
from analysis.pairing import Observation, Pair, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """One request's decoding after its first segment. ``n_steps`` counts all target steps, None where not known."""

    launch: int
    domain: str
    n_tokens: int  # N - n_first
    decode_s: float  # t_last - t_first
    n_steps: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainCost:
    """One domain, or all. ``predicted`` uses the domain's E[A] with the cost of all domains."""

    domain: str
    n_tokens: int
    tokens_per_step: float
    t_base_s: float
    t_cycle_s: float
    cost: float
    predicted: float
    measured: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleCost:
    """Cost and yield of a step. ``cost_interval`` is Student's over paired launches, on the logarithm."""

    n_launches: int
    tokens_per_step: float
    t_base_s: float
    t_cycle_s: float
    cost: float
    cost_interval: Bounds | None
    cost_interval_why: str | None
    break_even_tokens_per_step: float
    pays: bool | None  # the break-even lies below (True) or above E[A] with the interval leaving it out, else None
    domains: tuple[DomainCost, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "n_launches": self.n_launches,
            "tokens_per_step": self.tokens_per_step,
            "t_base_s": self.t_base_s,
            "t_cycle_s": self.t_cycle_s,
            "cost": self.cost,
            "cost_interval": None if self.cost_interval is None else list(self.cost_interval),
            "break_even_tokens_per_step": self.break_even_tokens_per_step,
            "pays": self.pays,
            "predicted_speedup": self.tokens_per_step / self.cost,
            "by_domain": {
                one.domain: {
                    "n_tokens": one.n_tokens,
                    "tokens_per_step": one.tokens_per_step,
                    "t_cycle_s": one.t_cycle_s,
                    "cost": one.cost,
                    "predicted_speedup": one.predicted,
                    "measured_speedup": one.measured,
                }
                for one in self.domains
            },
            "why": {} if self.cost_interval_why is None else {"cost_interval": self.cost_interval_why},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCost:
    """Why there is no cycle cost."""

    why: str

    def as_json(self) -> dict[str, Any]:
        return {"cost": None, "why": {"cost": self.why}}


def decoded(
    pairs: Iterable[Pair], steps: Mapping[tuple[int, Request], int | None]
) -> tuple[list[Decoded], list[Decoded]]:
    """Baseline and arm of a table's pairs, the arm's target steps by launch and request; pairs without times left out.

    ``steps`` counts those of the decode window: all of the request's where the first segment held the first token only.
    """
    ours, theirs = [], []
    for one in pairs:
        base, arm = _decoded(one.base, None), _decoded(one.arm, steps.get((one.arm.launch, one.arm.request)))
        if base is not None and arm is not None:
            ours.append(base)
            theirs.append(arm)
    return ours, theirs


def cycle_cost(base: Iterable[Decoded], arm: Iterable[Decoded]) -> CycleCost | NoCost:
    """From the requests of both arms, paired by launch; the same prompts in both, as the caller pairs them.

    Raises AnalysisError on a negative count and on a time that is not positive.
    """
    ours, theirs = _sound(base), _sound(arm)
    unknown = sum(one.n_steps is None for one in theirs)
    if unknown:
        return NoCost(why=f"target steps are not known of {unknown} of {len(theirs)} requests")
    if not _tokens(ours) or not _steps(theirs):
        return NoCost(why="no decode tokens in the baseline, or no target step in the arm")
    launches = sorted({one.launch for one in ours} & {one.launch for one in theirs})
    by_launch = []
    for launch in launches:
        mine, other = _of_launch(ours, launch), _of_launch(theirs, launch)
        if _tokens(mine) and _steps(other):
            by_launch.append(math.log(_cycle_s(other) / _token_s(mine)))
    bounds, why = mean_interval(by_launch)
    interval = None if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1]))
    cost, length = _cycle_s(theirs) / _token_s(ours), _tokens(theirs) / _steps(theirs)
    return CycleCost(
        n_launches=len(by_launch),
        tokens_per_step=length,
        t_base_s=_token_s(ours),
        t_cycle_s=_cycle_s(theirs),
        cost=cost,
        cost_interval=interval,
        cost_interval_why=why,
        break_even_tokens_per_step=cost,
        pays=None if interval is None or interval[0] <= length <= interval[1] else length > interval[1],
        domains=tuple(_domains(ours, theirs, cost)),
    )


def cycle_bounds(rates_tok_per_s: Sequence[float], n_drafts: int) -> Bounds | None:
    """Where acceptance was not recorded: t_cycle lies in [1 / slowest, (g + 1) / fastest] if it is one constant.

    A step commits 1 to g + 1 tokens. None where the two exclude each other: t_cycle is then no constant.
    """
    low, high = 1 / min(rates_tok_per_s), (n_drafts + 1) / max(rates_tok_per_s)
    return (low, high) if low <= high else None


def _domains(ours: Sequence[Decoded], theirs: Sequence[Decoded], cost: float) -> Iterable[DomainCost]:
    for domain in dict.fromkeys(one.domain for one in theirs):
        mine, other = ([one for one in side if one.domain == domain] for side in (ours, theirs))
        if _tokens(mine) and _steps(other):
            length = _tokens(other) / _steps(other)
            yield DomainCost(
                domain=domain,
                n_tokens=_tokens(other),
                tokens_per_step=length,
                t_base_s=_token_s(mine),
                t_cycle_s=_cycle_s(other),
                cost=_cycle_s(other) / _token_s(mine),
                predicted=length / cost,
                measured=_token_s(mine) / _token_s(other),
            )


def _decoded(one: Observation, n_steps: int | None) -> Decoded | None:
    if one.decode_tokens is None or one.decode_s is None:
        return None
    return Decoded(
        launch=one.launch, domain=one.domain, n_tokens=one.decode_tokens, decode_s=one.decode_s, n_steps=n_steps
    )


def _sound(decoded: Iterable[Decoded]) -> list[Decoded]:
    found = list(decoded)
    for one in found:
        if one.n_tokens < 0 or (one.n_steps or 0) < 0 or not (math.isfinite(one.decode_s) and one.decode_s > 0):
            raise AnalysisError(
                f"{one.n_tokens} tokens in {one.n_steps} steps and {one.decode_s} s cannot be decoding",
                "leave out requests without tokens after the first, and say so",
                value=one,
            )
    return found


def _of_launch(found: Sequence[Decoded], launch: int) -> list[Decoded]:
    return [one for one in found if one.launch == launch]


def _tokens(found: Sequence[Decoded]) -> int:
    return sum(one.n_tokens for one in found)


def _steps(found: Sequence[Decoded]) -> int:
    return sum(one.n_steps or 0 for one in found)


def _token_s(found: Sequence[Decoded]) -> float:
    return math.fsum(one.decode_s for one in found) / _tokens(found)


def _cycle_s(found: Sequence[Decoded]) -> float:
    return math.fsum(one.decode_s for one in found) / _steps(found)
