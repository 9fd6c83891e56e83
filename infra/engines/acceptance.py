"""Speculative acceptance as it is reported: three counts, two ratios, and why any of them is missing.

    rate    accepted / drafted                  no bonus token in either
    length  1 + accepted / verify steps         only steps that carried a draft
    tokens per target step  decode tokens / all target steps    undrafted steps too; the first token is prefill's

A zero is a measurement only where something was drafted. Neither ratio is the per-token acceptance probability of the
speculative-decoding model: drafts behind a rejected one are drafted and never judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from infra.engines.readings import Absent, Measured, Reading, State, Unmeasured, state_of, value_or_none, why_none

Source = Literal["counters", "timings"]


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

    @property
    def state(self) -> State:
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
            "why": self.why,
            "reasons": reasons,
        }


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
    tokens_per_target_step: Reading,
    uncertainty: float = 0.0,
    note: str | None = None,
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
        tokens_per_target_step=tokens_per_target_step,
        rate_uncertainty=ratio_uncertainty,
        note=note,
    )


def _length(n_accepted: float, steps: Reading) -> Reading:
    if not isinstance(steps, Measured):
        return steps
    if steps.value <= 0:
        return Unmeasured(why=f"{n_accepted:g} accepted in {steps.value:g} verify steps: the counters disagree")
    return Measured(1 + n_accepted / steps.value)


def tokens_per_target_step(n_tokens: float, n_first: float, n_accepted: float) -> Reading:
    """Decode tokens over the target's decode steps, each of which yields its accepted drafts and one token of its own.

    ``n_first`` tokens (one a request) come from prefill. Exact unless the last step of a request was cut by a stop.
    """
    decode_tokens = n_tokens - n_first
    steps = decode_tokens - n_accepted
    if decode_tokens <= 0:
        return Unmeasured(why="no token after the first")
    if steps <= 0:
        return Unmeasured(
            why=f"{n_accepted:g} accepted drafts leave no target step in {decode_tokens:g} decode tokens: "
            "the last steps were cut"
        )
    return Measured(decode_tokens / steps)


def pooled(parts: Sequence[Acceptance], tokens: Reading) -> Acceptance:
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
    if drafted == 0:
        return replace(parts[0], tokens_per_target_step=tokens)
    return counted(
        source="timings",
        n_drafted=drafted,
        n_accepted=accepted,
        n_verify_steps=parts[0].n_verify_steps,
        tokens_per_target_step=tokens,
    )
