"""Tokens per target step: decode tokens over all steps of the target, drafted or not; first tokens are prefill's."""

from dataclasses import dataclass

from infra.engines.readings import Absent, Measured, Reading, Unmeasured

UNTOLD = Absent(why="not told apart")


@dataclass(frozen=True, kw_only=True, slots=True)
class PerStep:
    """Tokens per target step with its numerator and denominator."""

    ratio: Reading
    decode_tokens: Reading = UNTOLD
    steps: Reading = UNTOLD


def not_per_step(why: Absent | Unmeasured) -> PerStep:
    return PerStep(ratio=why, decode_tokens=why, steps=why)


def per_step(n_decode_tokens: float, n_steps: float) -> PerStep:
    """From counted decode tokens and counted target steps, drafted or not."""
    tokens, steps = Measured(n_decode_tokens), Measured(n_steps)
    if n_decode_tokens <= 0:
        return PerStep(ratio=Unmeasured(why="no token after the first"), decode_tokens=tokens, steps=steps)
    if n_steps <= 0:
        why = f"{n_decode_tokens:g} decode tokens in {n_steps:g} steps: the counters disagree"
        return PerStep(ratio=Unmeasured(why=why), decode_tokens=tokens, steps=steps)
    return PerStep(ratio=Measured(n_decode_tokens / n_steps), decode_tokens=tokens, steps=steps)


def steps_by_accepted(n_tokens: float, n_first: float, n_accepted: float, *, n_verify_steps: float = 0) -> PerStep:
    """Where steps are not counted: each target step yields its accepted drafts and one token of its own.

    ``n_first`` tokens (one a request) come from prefill. Exact unless the last step of a request was cut by a stop:
    then accepted drafts were no tokens, and the steps that verified are the least there were (``n_verify_steps``, where
    they are counted), so that this ratio is never above the acceptance length.
    """
    decode_tokens = n_tokens - n_first
    steps = max(decode_tokens - n_accepted, n_verify_steps)
    if decode_tokens > 0 and steps <= 0:
        why = (
            f"{n_accepted:g} accepted drafts leave no target step in {decode_tokens:g} decode tokens: "
            "the last steps were cut"
        )
        return PerStep(ratio=Unmeasured(why=why), decode_tokens=Measured(decode_tokens))
    return per_step(decode_tokens, steps)
