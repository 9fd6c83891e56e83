"""vLLM (V1): what its series mean.

Read from the sources of 0.32 and 0.33.

- Token and speculation counters move with each scheduler step; ``request_success_total`` counts every ended request,
  aborted and failed ones too, under ``finished_reason``.
- The ``spec_decode_*`` series exist only when speculation is configured: absent means off, zero means nothing drafted.
- ``num_drafts`` counts (request, step) pairs that carried a draft: steps in which an n-gram found nothing are in no
  speculation series. Accepted counts no bonus token.
- ``inter_token_latency_seconds`` observes once a request and engine step, however many tokens the step made: its count
  is the number of decode steps, its mean a step time and no time per token. ``request_time_per_output_token_seconds``
  is one; it observes 0 for answers of one token, which are taken out here by the first bucket of
  ``request_generation_tokens``.
- ``iteration_tokens_total`` is a histogram in spite of its name and is never read.
- Engines (data-parallel ranks) add, under the label ``engine``. With several API servers the exposition comes from a
  multiprocess registry without ``_created`` and ``process_*``; it is still whole, and an API server is no shard.
- ``process_start_time_seconds`` and the ``_created`` stamps identify the process where they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from infra.engines import vllm_request
from infra.engines.acceptance import Acceptance, counted, nowhere, undrafted
from infra.engines.fields import ColdProof
from infra.engines.histogram import Latency, latency
from infra.engines.labels import LabelRule
from infra.engines.meaning import Counted, Meaning, Observed, growth, known
from infra.engines.per_step import PerStep, not_per_step, per_step
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.window import Delta, Snapshot, Window, open_window, total
from infra.wire.exposition import Exposition

ENGINE = "vllm"
PREFIX = "vllm:"

GENERATED_TOKENS = "vllm:generation_tokens_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
PROMPT_CACHED = "vllm:prompt_tokens_cached_total"
CACHE_HITS = "vllm:prefix_cache_hits_total"
ENDED = "vllm:request_success_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
INTER_TOKEN = "vllm:inter_token_latency_seconds"
OLD_INTER_TOKEN = "vllm:time_per_output_token_seconds"  # its name before 0.11: the same observations
_LENGTHS = "vllm:request_generation_tokens"
FINISHED_WELL = ("stop", "length", "repetition")

RULE = LabelRule(adds=frozenset({"engine", "finished_reason", "source", "model_name"}))
_OFF = "the series vllm:spec_decode_* are absent, and they are there only when speculation is configured"

MEANING = Meaning(
    generated=Counted(names=(GENERATED_TOKENS,)),
    prompt=Counted(names=(PROMPT_TOKENS,)),
    cached=Counted(names=(PROMPT_CACHED,), instead=(CACHE_HITS,)),
    requests=Counted(names=(ENDED,), note="stop, length and repetition; aborted and failed ones are left out"),
    drafted=Counted(names=(DRAFTED,)),
    accepted=Counted(names=(ACCEPTED,)),
    verify_steps=Counted(names=(DRAFTS,), note="steps that carried a draft"),
    per_position=Counted(names=(ACCEPTED_PER_POSITION,)),
    ttft=Observed(names=(TTFT,), observes="request", note="from arrival at the API server"),
    tpot=Observed(names=(TPOT,), observes="request"),
    inter_token=Observed(
        names=(INTER_TOKEN, OLD_INTER_TOKEN),
        observes="step",
        note="once a request and engine step: a step time, not a time per token",
    ),
    in_flight=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    bonus="accepted counts no bonus token",
    kinds={
        "vllm:num_requests_running": "gauge",
        "vllm:num_requests_waiting": "gauge",
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:iteration_tokens_total": "histogram",
        "vllm:cache_config_info": "configuration",
    },
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VLLM:
    """The adapter; ``infra.engines.adapter`` says what each part is for."""

    version: str | None = None
    engine: ClassVar[str] = ENGINE
    prefix: ClassVar[str] = PREFIX
    rule: ClassVar[LabelRule] = RULE
    meaning: ClassVar[Meaning] = MEANING
    counters: ClassVar[tuple[str, ...]] = (
        *(GENERATED_TOKENS, PROMPT_TOKENS, PROMPT_CACHED, CACHE_HITS, ENDED),
        *(DRAFTED, ACCEPTED, DRAFTS, ACCEPTED_PER_POSITION),
        *(name + "_count" for name in (TTFT, TPOT, INTER_TOKEN, OLD_INTER_TOKEN)),
    )

    def identity(self, exposition: Exposition, headers: Mapping[str, str]) -> str | None:
        return _process(exposition)

    def window(self, before: Snapshot, after: Snapshot, during: Sequence[Snapshot] = ()) -> Window:
        """With a multiprocess registry a series may come with its first increment."""
        late = frozenset() if before.exposition.created else frozenset(self.counters)
        return open_window(before, after, counters=self.counters, late=late, during=during, rule=RULE)

    def draft_limit(self, windows: Sequence[Window]) -> Reading:
        """Drafts at most a step: one position for each."""
        positions = {s.labels.get("position") for w in windows for s in w.after.exposition.find(ACCEPTED_PER_POSITION)}
        if not positions:
            return Absent(why="no series of acceptance by position")
        return Measured(len(positions))

    def finished(self, windows: Sequence[Window]) -> Delta:
        """Requests that ended by a stop, their limit or a repetition rule; aborted and failed ones are left out."""
        return _by_reason(windows, FINISHED_WELL)

    def inter_token(self, windows: Sequence[Window]) -> Latency:
        return latency(MEANING.inter_token, windows)

    def tpot(self, windows: Sequence[Window]) -> Latency:
        return per_token(windows)

    def acceptance(
        self, windows: Sequence[Window], *, speculative: bool | None, n_requests: int | None = None
    ) -> Acceptance:
        """Of everything the server did in the window, by its own counts."""
        per_target = _per_target_step(windows)
        drafted, accepted, steps = (
            growth(where, windows).reading for where in (MEANING.drafted, MEANING.accepted, MEANING.verify_steps)
        )
        if isinstance(drafted, Absent) and isinstance(steps, Absent):
            contradiction = "; the launch says that it speculates" if speculative else ""
            return _with(nowhere(Absent(why=_OFF + contradiction)), per_target)
        for reading in (drafted, accepted):
            if not isinstance(reading, Measured):
                return nowhere(reading)
        n_drafted = drafted.value if isinstance(drafted, Measured) else 0.0
        n_accepted = accepted.value if isinstance(accepted, Measured) else 0.0
        if n_drafted <= 0:
            why = "speculation is configured, and nothing was drafted in the window"
            if n_accepted:
                why = f"{n_accepted:g} accepted and {n_drafted:g} drafted: the counters disagree"
            return undrafted(source="counters", why=why, n_verify_steps=steps, tokens_per_target_step=per_target)
        return counted(
            source="counters",
            n_drafted=n_drafted,
            n_accepted=n_accepted,
            n_verify_steps=steps,
            tokens_per_target_step=per_target,
        )

    def request_extras(self, *, cold_per_request: bool) -> dict[str, Any]:
        return vllm_request.request_extras()

    def request_acceptance(self, fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
        return vllm_request.request_acceptance(fields, usage, speculative=speculative)

    def pooled_acceptance(
        self, answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None
    ) -> Acceptance:
        return vllm_request.pooled_acceptance(answers, speculative=speculative)

    def cold_proof(self, fields: Mapping[str, Any], usage: Any) -> ColdProof:
        return vllm_request.cold_proof(usage, self.version)


def per_token(windows: Sequence[Window]) -> Latency:
    """Time per output token, requests weighted alike; the zeros observed for single tokens are taken out."""
    told = latency(MEANING.tpot, windows)
    if (
        not isinstance(told.n, Measured)
        or not isinstance(told.sum_s, Measured)
        or not isinstance(told.mean_s, Measured)
    ):
        return told
    single = total(windows, _LENGTHS + "_bucket", {"le": "1.0"}).reading
    if not isinstance(single, Measured):
        note = f"answers of one token are in it as 0 ({single.why})"
        return replace(told, note=note)
    n = told.n.value - single.value
    if n <= 0:
        why = Unmeasured(why=f"all {told.n.value:g} answers were of one token, each observed as 0")
        return replace(told, n=Measured(0), mean_s=why)
    note = f"{single.value:g} answers of one token, observed as 0, are taken out" if single.value else ""
    shrunk = tuple((edge, max(cumulative - single.value, 0.0)) for edge, cumulative in told.buckets)
    return replace(told, n=Measured(n), mean_s=Measured(told.sum_s.value / n), buckets=shrunk, note=note)


def _by_reason(windows: Sequence[Window], reasons: Sequence[str]) -> Delta:
    parts = [total(windows, ENDED, {"finished_reason": reason}) for reason in reasons]
    there = [part for part in parts if not isinstance(part.reading, Absent)]
    if not there:
        return total(windows, ENDED)
    bad = next((part for part in there if not isinstance(part.reading, Measured)), None)
    return bad or Delta(reading=Measured(sum(known(part) or 0.0 for part in there)))


def _per_target_step(windows: Sequence[Window]) -> PerStep:
    """Decode tokens over all decode steps: the step histogram counts undrafted ones too."""
    steps, first = (latency(where, windows).n for where in (MEANING.inter_token, MEANING.ttft))
    tokens = growth(MEANING.generated, windows).reading
    for reading in (tokens, first, steps):
        if not isinstance(reading, Measured):
            return not_per_step(reading)
    numbers = [reading.value for reading in (tokens, first, steps) if isinstance(reading, Measured)]
    return per_step(numbers[0] - numbers[1], numbers[2])


def _with(found: Acceptance, steps: PerStep) -> Acceptance:
    return replace(
        found, tokens_per_target_step=steps.ratio, n_decode_tokens=steps.decode_tokens, n_target_steps=steps.steps
    )


def _process(exposition: Exposition) -> str | None:
    """The process's start to 10 ms, and the creation of its counters to the microsecond."""
    started = [f"{s.value!r}" for s in exposition.find("process_start_time_seconds")]
    stamps = sorted(s.value for s in exposition.created if s.name.startswith("vllm:generation_tokens"))
    told = [*started, *(f"{stamp!r}" for stamp in stamps)]
    return f"started {', '.join(told)}" if told else None
