"""Speculative acceptance as it is reported: three counts, three ratios, and why any of them is missing.

    acceptance rate         accepted / drafted                  no bonus token in either
    acceptance length       1 + accepted / verify steps         only steps that carried a draft; with the bonus token
    tokens per target step  decode tokens / all target steps    undrafted steps too; the first token is prefill's

Where an engine counts no drafted tokens but steps of a fixed window, the denominator of the rate is the window's slots,
filled or not: then 1.0 may be out of reach, and the rate is no one's but that engine's.

A zero is a measurement only where something was drafted. Neither ratio is the per-token acceptance probability of the
speculative-decoding model: drafts behind a rejected one are drafted and never judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from infra.engines.per_step import UNTOLD, PerStep
from infra.engines.readings import Absent, Measured, Reading, State, Unmeasured, state_of, value_or_none, why_none

Source = Literal["counters", "timings", "sglext", "meta_info", "speculative_decoding"]
Drafted = Literal["draft tokens", "window_slots"]
Accepted = Literal["counted", "derived"]  # derived: decode tokens less verify steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """``state`` is the state of ``rate``; ``why`` says why there is no rate, or what limits the one there is."""

    source: Source | None  # None when nothing could be read
    n_drafted: Reading
    n_accepted: Reading
    n_verify_steps: Reading
    rate: Reading
    length: Reading
    tokens_per_target_step: Reading
    rate_uncertainty: float = 0.0  # half-width from the rounding of printed counters
    note: str | None = None  # a limit of a measured value
    drafted_are: Drafted = "draft tokens"
    accepted_are: Accepted = "counted"
    n_decode_tokens: Reading = UNTOLD  # numerator of tokens_per_target_step
    n_target_steps: Reading = UNTOLD  # and its denominator

    @property
    def state(self) -> State:
        """Of the rate; of the length where steps were counted and drafted tokens were not."""
        if not isinstance(self.rate, Measured) and isinstance(self.length, Measured):
            return "zero" if self.length.value == 1 else "value"
        return state_of(self.rate)

    @property
    def why(self) -> str | None:
        return why_none(self.rate) or self.note

    def as_json(self) -> dict[str, Any]:
        """The fields of ``summary --json``; null where there is no number, with ``reasons`` beside."""
        readings = {
            "n_drafted": self.n_drafted,
            "n_accepted": self.n_accepted,
            "n_verify_steps": self.n_verify_steps,
            "rate": self.rate,
            "length": self.length,
            "tokens_per_target_step": self.tokens_per_target_step,
        }
        numbers: dict[str, Any] = {name: value_or_none(reading) for name, reading in readings.items()}
        for name in ("n_drafted", "n_accepted", "n_verify_steps"):
            numbers[name] = None if numbers[name] is None else int(numbers[name])
        reasons = {name: why_none(reading) for name, reading in readings.items() if why_none(reading)}
        return {
            "state": self.state,
            "source": self.source,
            **numbers,
            "rate_uncertainty": self.rate_uncertainty,
            "drafted_are": self.drafted_are,
            "accepted_are": self.accepted_are,
            "ratios": self._ratios(),
            "why": self.why,
            "reasons": reasons,
        }

    def _ratios(self) -> dict[str, dict[str, Any]]:
        """Each ratio's parts by name and value."""
        accepted = "accepted" if self.accepted_are == "counted" else "accepted (decode tokens - verify steps)"
        parts = {
            "rate": (accepted, self.n_accepted, self.drafted_are, self.n_drafted),
            "length": (f"verify steps + {accepted}", _sum(self.n_verify_steps, self.n_accepted), "verify steps",
                       self.n_verify_steps),
            "tokens_per_target_step": ("decode tokens", self.n_decode_tokens, "target steps", self.n_target_steps),
        }  # fmt: skip
        return {
            name: {
                "numerator": over,
                "numerator_n": value_or_none(n),
                "denominator": under,
                "denominator_n": value_or_none(d),
            }
            for name, (over, n, under, d) in parts.items()
        }


def _sum(one: Reading, other: Reading) -> Reading:
    if isinstance(one, Measured) and isinstance(other, Measured):
        return Measured(one.value + other.value)
    return other if isinstance(one, Measured) else one


def nowhere(reading: Absent | Unmeasured, *, source: Source | None = None) -> Acceptance:
    """No number at all, for one reason."""
    return Acceptance(
        source=source,
        n_drafted=reading,
        n_accepted=reading,
        n_verify_steps=reading,
        rate=reading,
        length=reading,
        tokens_per_target_step=reading,
    )


def counted(
    *,
    source: Source,
    n_drafted: float,
    n_accepted: float,
    n_verify_steps: Reading,
    tokens_per_target_step: PerStep,
    uncertainty: float = 0.0,
    note: str | None = None,
    drafted_are: Drafted = "draft tokens",
    accepted_are: Accepted = "counted",
) -> Acceptance:
    """From counts with ``n_drafted`` above zero; ``uncertainty`` is the half-width of each count's rounding.

    A rate outside [0, 1] by more than the rounding is refused and shows both counts: one of them holds bonus tokens,
    or another server's.
    """
    ratio_uncertainty = 0.0
    if uncertainty:
        ratio_uncertainty = (uncertainty + uncertainty * n_accepted / n_drafted) / n_drafted
    rate: Reading
    length: Reading
    if n_accepted < 0 or n_accepted - uncertainty > n_drafted + uncertainty:
        rate = length = Unmeasured(
            why=f"{n_accepted:g} accepted of {n_drafted:g} drafted is no rate: the two do not count the same tokens"
        )
    else:
        rate = Measured(min(1.0, n_accepted / n_drafted))
        length = _length(n_accepted, n_verify_steps)
    if uncertainty:
        rounding = f"the printed counters are rounded: each count is within {uncertainty:g}"
        note = rounding if note is None else f"{note}; {rounding}"
    return Acceptance(
        source=source,
        n_drafted=Measured(n_drafted),
        n_accepted=Measured(n_accepted),
        n_verify_steps=n_verify_steps,
        rate=rate,
        length=length,
        tokens_per_target_step=tokens_per_target_step.ratio,
        n_decode_tokens=tokens_per_target_step.decode_tokens,
        n_target_steps=tokens_per_target_step.steps,
        rate_uncertainty=ratio_uncertainty,
        note=note,
        drafted_are=drafted_are,
        accepted_are=accepted_are,
    )


def undrafted(
    *, source: Source, why: str, n_verify_steps: Reading, tokens_per_target_step: PerStep, n_zero: Reading | None = None
) -> Acceptance:
    """On, and nothing drafted: no rate and no length. ``n_zero`` stands where the counts themselves are not known."""
    unmeasured = Unmeasured(why=why)
    zero = Measured(0.0) if n_zero is None else n_zero
    return Acceptance(
        source=source,
        n_drafted=zero,
        n_accepted=zero,
        n_verify_steps=n_verify_steps,
        rate=unmeasured,
        length=unmeasured,
        tokens_per_target_step=tokens_per_target_step.ratio,
        n_decode_tokens=tokens_per_target_step.decode_tokens,
        n_target_steps=tokens_per_target_step.steps,
    )


def _length(n_accepted: float, steps: Reading) -> Reading:
    if not isinstance(steps, Measured):
        return steps
    if steps.value <= 0:
        return Unmeasured(why=f"{n_accepted:g} accepted in {steps.value:g} verify steps: the counters disagree")
    return Measured(1 + n_accepted / steps.value)


def pooled(parts: Sequence[Acceptance], tokens: PerStep) -> Acceptance:
    """One acceptance from those of single requests: counts are summed, never rates averaged.

    A request in which nothing was drafted adds zero. ``tokens`` is the tokens per target step of all of them.
    """
    missing = [part for part in parts if part.source is None]
    if not parts:
        return nowhere(Unmeasured(why="no request"))
    if missing:
        first = missing[0].rate
        if len(missing) == len(parts) and isinstance(first, Absent):
            return nowhere(first)
        why = why_none(first) or "no reading"
        return nowhere(Unmeasured(why=f"{len(missing)} of {len(parts)} requests: {why}"))
    drafted = sum(value_or_none(part.n_drafted) or 0.0 for part in parts)
    accepted = sum(value_or_none(part.n_accepted) or 0.0 for part in parts)
    like = next((part for part in parts if isinstance(part.rate, Measured)), parts[0])
    if drafted == 0:
        return replace(
            like,
            tokens_per_target_step=tokens.ratio,
            n_decode_tokens=tokens.decode_tokens,
            n_target_steps=tokens.steps,
        )
    return counted(
        source=like.source or "timings",
        n_drafted=drafted,
        n_accepted=accepted,
        n_verify_steps=_summed_steps(parts),
        tokens_per_target_step=tokens,
        drafted_are=like.drafted_are,
        accepted_are=like.accepted_are,
    )


def _summed_steps(parts: Sequence[Acceptance]) -> Reading:
    """All verify steps, or the first reason why one request's are not known."""
    missing = next((part.n_verify_steps for part in parts if not isinstance(part.n_verify_steps, Measured)), None)
    if missing is not None:
        return missing
    return Measured(sum(value_or_none(part.n_verify_steps) or 0.0 for part in parts))
