"""SGLang: acceptance over a window, from requests, generated tokens and verify calls; its gauges are never asked."""

from collections.abc import Sequence

from infra.engines.acceptance import Acceptance, counted, nowhere, undrafted
from infra.engines.meaning import Meaning, growth, known
from infra.engines.per_step import not_per_step, per_step
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.window import Window

_OFF = "speculation is off by the server's resolved configuration"


def acceptance(windows: Sequence[Window], meaning: Meaning, slots: Reading, *, speculative: bool | None) -> Acceptance:
    """``slots`` is how many drafts a verify step has room for."""
    verify = growth(meaning.verify_steps, windows).reading
    decoded = _decode_tokens(windows, meaning)
    if isinstance(verify, Absent):
        return _never_verified(decoded, speculative)
    if not isinstance(verify, Measured):
        return nowhere(verify)
    if not isinstance(decoded, Measured):
        return nowhere(decoded)
    if verify.value <= 0:
        why = "no verify call in the window; the spec_* gauges show an earlier one and are no value"
        per_target = not_per_step(Unmeasured(why=why))
        return undrafted(source="counters", why=why, n_verify_steps=verify, tokens_per_target_step=per_target)
    return _verified(decoded.value, verify.value, slots, speculative)


def _decode_tokens(windows: Sequence[Window], meaning: Meaning) -> Reading:
    """Generated tokens less one a request: the first comes from prefill."""
    parts = [growth(where, windows) for where in (meaning.generated, meaning.requests)]
    bad = next((part.reading for part in parts if not isinstance(part.reading, Measured)), None)
    return bad or Measured((known(parts[0]) or 0.0) - (known(parts[1]) or 0.0))


def _never_verified(decoded: Reading, speculative: bool | None) -> Acceptance:
    """No verify counter at all: it comes with the first finished request that speculated."""
    if speculative is False:
        return nowhere(Absent(why=_OFF))
    if not isinstance(decoded, Measured) or decoded.value <= 0:
        why = "no verify call counted yet: the counter appears when a request that speculated finishes"
        return nowhere(Unmeasured(why=why))
    if speculative:
        why = f"configured but inactive: {decoded.value:g} decode tokens were made and no verify call was counted"
        return nowhere(Unmeasured(why=why))
    return nowhere(
        Absent(why=f"{decoded.value:g} decode tokens were made and no verify call counted: it does not speculate")
    )


def _verified(decoded: float, verify: float, slots: Reading, speculative: bool | None) -> Acceptance:
    accepted = decoded - verify
    if accepted < 0:
        why = f"{decoded:g} decode tokens in {verify:g} verify calls: requests were cut, or counted elsewhere"
        return nowhere(Unmeasured(why=why))
    note = "drafts accepted behind a stop are trimmed and not counted"
    if speculative is False:
        note = f"speculation should be off by the configuration, and verify calls were counted; {note}"
    if isinstance(slots, Measured) and slots.value > 0:
        return counted(
            source="counters",
            n_drafted=verify * slots.value,
            n_accepted=accepted,
            n_verify_steps=Measured(verify),
            tokens_per_target_step=per_step(decoded, verify),
            note=note,
            drafted_are="window_slots",
            accepted_are="derived",
        )
    why = slots.why if not isinstance(slots, Measured) else "a draft window of one token holds no draft"
    steps = per_step(decoded, verify)
    return Acceptance(
        source="counters",
        n_drafted=Unmeasured(why=why),
        n_accepted=Measured(accepted),
        n_verify_steps=Measured(verify),
        rate=Unmeasured(why=why),
        length=Measured(1 + accepted / verify),
        tokens_per_target_step=steps.ratio,
        n_decode_tokens=steps.decode_tokens,
        n_target_steps=steps.steps,
        note=note,
        drafted_are="window_slots",
        accepted_are="derived",
    )
