"""llama.cpp's server: what its series mean.

Read from the source of b11434 (server-task.cpp, server-context.cpp) and seen on xllamacpp 2026.10.11549.

- Token and speculation counters are added when a slot is released: a request under way is invisible, so windows
  start and end at rest. ``n_decode_total`` moves while decoding, which is what the idle check needs: it grows between
  any two scrapes, since the server answers a scrape only between two decode calls.
- The three ``spec_decode_num_*`` counters are always there and read 0 with speculation off: only the server's own
  word (``/slots``) or its launch arguments tell "off" from "nothing drafted". The per-position series appear with
  the first speculative request.
- ``num_drafts`` counts verify steps that carried a draft. Accepted counts no bonus token.
- Numbers are printed with six significant digits: 1234567 reads 1.23457e+06. The per-position ones are exact.
- ``prompt_tokens_total`` leaves cached tokens out. With a draft model ``prompt_seconds_total`` was seen to be about
  half of the time the requests' own timings state: a lower bound, no more.
- ``n_tokens_max`` is typed counter and is a high-water mark; the two ``*_tokens_seconds`` gauges are averages since the
  previous scrape, whoever scraped. None of the three is ever read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from infra.engines import llamacpp_request
from infra.engines.acceptance import Acceptance, counted, nowhere
from infra.engines.fields import ColdProof
from infra.engines.histogram import Latency, latency
from infra.engines.labels import PLAIN, LabelRule
from infra.engines.meaning import Counted, Meaning, Nowhere, growth
from infra.engines.per_step import PerStep, not_per_step, steps_by_accepted
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.window import Delta, Snapshot, Window, open_window, total
from infra.wire.exposition import Exposition

ENGINE = "llama.cpp"
PREFIX = "llamacpp:"

PROMPT_TOKENS = "llamacpp:prompt_tokens_total"
PROMPT_CACHED = "llamacpp:prompt_tokens_cached_total"
PROMPT_SECONDS = "llamacpp:prompt_seconds_total"
GENERATED_TOKENS = "llamacpp:tokens_predicted_total"
GENERATED_SECONDS = "llamacpp:tokens_predicted_seconds_total"
DECODE_CALLS = "llamacpp:n_decode_total"
DRAFTED = "llamacpp:spec_decode_num_draft_tokens_total"
ACCEPTED = "llamacpp:spec_decode_num_accepted_tokens_total"
VERIFY_STEPS = "llamacpp:spec_decode_num_drafts_total"
ACCEPTED_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"

COUNTERS = (
    PROMPT_TOKENS,
    PROMPT_CACHED,
    PROMPT_SECONDS,
    GENERATED_TOKENS,
    GENERATED_SECONDS,
    DECODE_CALLS,
    DRAFTED,
    ACCEPTED,
    VERIFY_STEPS,
    ACCEPTED_PER_POSITION,
)
MEANING = Meaning(
    generated=Counted(names=(GENERATED_TOKENS,)),
    prompt=Counted(names=(PROMPT_TOKENS, PROMPT_CACHED)),
    cached=Counted(names=(PROMPT_CACHED,)),
    requests=Nowhere(why="llama.cpp counts no requests"),
    drafted=Counted(names=(DRAFTED,)),
    accepted=Counted(names=(ACCEPTED,)),
    verify_steps=Counted(names=(VERIFY_STEPS,)),
    per_position=Counted(names=(ACCEPTED_PER_POSITION,), late=True),
    ttft=Nowhere(why="llama.cpp publishes no latency histogram"),
    tpot=Nowhere(why="llama.cpp publishes no latency histogram"),
    inter_token=Nowhere(why="llama.cpp publishes no latency histogram"),
    in_flight=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    bonus="accepted counts no bonus token; num_drafts counts the steps that carried a draft",
    kinds={
        "llamacpp:n_tokens_max": "high-water mark",
        "llamacpp:prompt_tokens_seconds": "window gauge",
        "llamacpp:predicted_tokens_seconds": "window gauge",
        "llamacpp:requests_processing": "gauge",
        "llamacpp:requests_deferred": "gauge",
        "llamacpp:n_busy_slots_per_decode": "gauge",
    },
)
_SECONDS = frozenset({PROMPT_SECONDS, GENERATED_SECONDS})
_START_HEADER = "process-start-time-unix"  # microseconds of the engine's own clock: an identity, not a date
_SIGNIFICANT_DIGITS = 6


def rounding(name: str, value: float) -> float:
    """Half of what one unit of the last printed digit is worth; 0 where the number was printed exactly.

    A whole counter below a million is exact, and so is one with more than six significant digits (a build that
    prints them all). Seconds are rounded always.
    """
    if name == ACCEPTED_PER_POSITION or value == 0 or not math.isfinite(value):
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - _SIGNIFICANT_DIGITS + 1)
    if name in _SECONDS:
        return unit / 2
    if unit <= 1 or value % unit != 0:
        return 0.0
    return unit / 2


def per_position(*windows: Window) -> tuple[float, ...] | None:
    """Accepted drafts by position in the draft, from the window; None when there are none or the window is broken."""
    after = [s for window in windows for s in window.after.exposition.find(ACCEPTED_PER_POSITION)]
    positions = {s.labels.get("position") for s in after}
    found: list[float] = []
    for position in range(len(positions)):
        delta = total(windows, ACCEPTED_PER_POSITION, {"position": str(position)})
        if not isinstance(delta.reading, Measured):
            return None
        found.append(delta.reading.value)
    return tuple(found) or None


def acceptance(*windows: Window, speculative: bool | None, n_requests: int | None) -> Acceptance:
    """Acceptance of everything the server (or servers, a window each) did in the window, in four states.

    ``speculative`` is what the server or its resolved arguments say (None: not known). ``n_requests`` is how many
    requests ran in it, each with a first token that no target decode step made (None: not known).
    """
    drafted, accepted, steps = (total(windows, name) for name in (DRAFTED, ACCEPTED, VERIFY_STEPS))
    for delta in (drafted, accepted):
        if isinstance(delta.reading, Absent) and speculative is False:
            return nowhere(Absent(why=_OFF))
        if not isinstance(delta.reading, Measured):
            return nowhere(delta.reading)
    n_drafted, n_accepted = _number(drafted), _number(accepted)
    uncertainty = max(drafted.uncertainty, accepted.uncertainty)
    if n_drafted <= 0 and n_accepted <= 0 and drafted.uncertainty == 0 and speculative is False:
        return nowhere(Absent(why=_OFF))
    per_step = _per_target_step(windows, n_accepted, n_requests, _number(steps))
    if n_drafted <= drafted.uncertainty:
        unmeasured = Unmeasured(why=_nothing_drafted(n_drafted, n_accepted, drafted.uncertainty, speculative))
        return Acceptance(
            source="counters",
            n_drafted=drafted.reading if drafted.uncertainty == 0 else unmeasured,
            n_accepted=accepted.reading if accepted.uncertainty == 0 else unmeasured,
            n_verify_steps=steps.reading if steps.uncertainty == 0 else unmeasured,
            rate=unmeasured,
            length=unmeasured,
            tokens_per_target_step=per_step.ratio,
            n_decode_tokens=per_step.decode_tokens,
            n_target_steps=per_step.steps,
        )
    return counted(
        source="counters",
        n_drafted=n_drafted,
        n_accepted=n_accepted,
        n_verify_steps=steps.reading,
        tokens_per_target_step=per_step,
        uncertainty=uncertainty,
        note="speculation should be off by the configuration, and the counters moved" if speculative is False else None,
    )


_OFF = "speculation is off by the server's resolved configuration"


def _nothing_drafted(n_drafted: float, n_accepted: float, uncertainty: float, speculative: bool | None) -> str:
    if uncertainty:
        return f"{n_drafted:g} drafted within a rounding of {uncertainty:g}: the printed counters are too coarse"
    if n_accepted:
        return f"{n_accepted:g} accepted and {n_drafted:g} drafted: the counters disagree"
    if speculative is None:
        return "nothing was drafted, and whether the server speculates at all is not known"
    return "speculation is on, and nothing was drafted"


def _per_target_step(
    windows: Sequence[Window], n_accepted: float, n_requests: int | None, n_verify_steps: float
) -> PerStep:
    if n_requests is None:
        return not_per_step(Unmeasured(why="how many requests ran in the window is not known"))
    generated = total(windows, GENERATED_TOKENS).reading
    if not isinstance(generated, Measured):
        return not_per_step(generated)
    return steps_by_accepted(generated.value, n_requests, n_accepted, n_verify_steps=n_verify_steps)


def _number(delta: Delta) -> float:
    return delta.reading.value if isinstance(delta.reading, Measured) else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaCpp:
    """The adapter; ``infra.engines.adapter`` says what each part is for."""

    version: str | None = None
    engine: ClassVar[str] = ENGINE
    prefix: ClassVar[str] = PREFIX
    rule: ClassVar[LabelRule] = PLAIN
    meaning: ClassVar[Meaning] = MEANING
    counters: ClassVar[tuple[str, ...]] = COUNTERS

    def identity(self, exposition: Exposition, headers: Mapping[str, str]) -> str | None:
        return headers.get(_START_HEADER)

    def window(self, before: Snapshot, after: Snapshot, during: Sequence[Snapshot] = ()) -> Window:
        late = frozenset({ACCEPTED_PER_POSITION})
        return open_window(before, after, counters=COUNTERS, late=late, uncertainty=rounding, during=during)

    def finished(self, windows: Sequence[Window]) -> Delta:
        return growth(MEANING.requests, windows)

    def inter_token(self, windows: Sequence[Window]) -> Latency:
        return latency(MEANING.inter_token, windows)

    def tpot(self, windows: Sequence[Window]) -> Latency:
        return latency(MEANING.tpot, windows)

    def acceptance(
        self, windows: Sequence[Window], *, speculative: bool | None, n_requests: int | None = None
    ) -> Acceptance:
        return acceptance(*windows, speculative=speculative, n_requests=n_requests)

    def draft_limit(self, windows: Sequence[Window]) -> Reading:
        return Absent(why="llama.cpp publishes no limit of the draft")

    def request_extras(self, *, cold_per_request: bool) -> dict[str, Any]:
        return llamacpp_request.request_extras(cold_per_request=cold_per_request)

    def request_acceptance(self, fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
        return llamacpp_request.request_acceptance(fields, speculative=speculative)

    def pooled_acceptance(
        self, answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None
    ) -> Acceptance:
        return llamacpp_request.pooled_acceptance([fields for fields, _ in answers], speculative=speculative)

    def cold_proof(self, fields: Mapping[str, Any], usage: Any) -> ColdProof:
        return llamacpp_request.cold_proof(fields, usage)
