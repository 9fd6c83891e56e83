"""TensorRT-LLM (trtllm-serve): what its series mean.

Read from the sources of the main branch at 050f80d; no release of it was run here.

- The exposition is at ``/prometheus/metrics``. ``/metrics`` is a JSON list of iteration statistics that a read empties.
- Request series need ``return_perf_metrics: true``, iteration series ``enable_iter_perf_stats: true``.
- The speculation counters were gauges of the last iteration before they became counters: the TYPE line decides, and a
  gauge gives no count. Accepted is incremented only above zero: absent beside drafted tokens is a measured zero.
- Verify steps are not counted, so there is no acceptance length; ``*_acceptance_length`` is a gauge of one iteration.
- Accepted counts no bonus token. Latencies of 0 are dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from infra.engines.acceptance import Acceptance, counted, nowhere, undrafted
from infra.engines.fields import ColdProof, cached_by_usage, cold_by
from infra.engines.histogram import Latency, latency
from infra.engines.labels import LabelRule
from infra.engines.meaning import Counted, Meaning, Nowhere, Observed, growth, known
from infra.engines.per_step import PerStep, not_per_step, steps_by_accepted
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.window import Delta, Snapshot, Window, open_window
from infra.wire.exposition import Exposition

ENGINE = "tensorrt-llm"
PREFIX = "trtllm_"

GENERATED_TOKENS = "trtllm_generation_tokens_total"
PROMPT_TOKENS = "trtllm_prompt_tokens_total"
ENDED = "trtllm_request_success_total"
DRAFTED = "trtllm_spec_decode_num_draft_tokens_total"
ACCEPTED = "trtllm_spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "trtllm_spec_decode_accepted_tokens_total"
TTFT = "trtllm_time_to_first_token_seconds"
TPOT = "trtllm_time_per_output_token_seconds"

RULE = LabelRule(adds=frozenset({"engine_type", "model_name", "token_position", "finished_reason"}))
_NO_STEPS = Absent(why="TensorRT-LLM counts no verify steps; its acceptance length is a gauge of the last iteration")
_NOT_SENT = "TensorRT-LLM sends no acceptance of a single request"

MEANING = Meaning(
    generated=Counted(names=(GENERATED_TOKENS,), late=True),
    prompt=Counted(names=(PROMPT_TOKENS,), late=True),
    cached=Nowhere(why="TensorRT-LLM publishes no cached prompt tokens"),
    requests=Counted(names=(ENDED,), late=True),
    drafted=Counted(names=(DRAFTED,), late=True),
    accepted=Counted(names=(ACCEPTED,), late=True, zero_beside=DRAFTED),
    verify_steps=Nowhere(why=_NO_STEPS.why),
    per_position=Counted(names=(ACCEPTED_PER_POSITION,), late=True),
    ttft=Observed(names=(TTFT,), observes="request"),
    tpot=Observed(names=(TPOT,), observes="request", note="latencies of 0 are not observed"),
    inter_token=Nowhere(why="TensorRT-LLM publishes no inter-token latency"),
    in_flight=("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
    bonus="accepted counts no bonus token",
    kinds={
        "trtllm_spec_decode_acceptance_length": "window gauge",
        "trtllm_spec_decode_draft_overhead": "window gauge",
        "trtllm_num_requests_running": "gauge",
        "trtllm_num_requests_waiting": "gauge",
        "trtllm_kv_cache_utilization": "gauge",
        "trtllm_speculative_config_info": "configuration",
    },
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRTLLM:
    """The adapter; ``infra.engines.adapter`` says what each part is for."""

    version: str | None = None
    engine: ClassVar[str] = ENGINE
    prefix: ClassVar[str] = PREFIX
    rule: ClassVar[LabelRule] = RULE
    meaning: ClassVar[Meaning] = MEANING
    counters: ClassVar[tuple[str, ...]] = (
        *(GENERATED_TOKENS, PROMPT_TOKENS, ENDED, DRAFTED, ACCEPTED, ACCEPTED_PER_POSITION),
        *(name + "_count" for name in (TTFT, TPOT)),
    )

    def identity(self, exposition: Exposition, headers: Mapping[str, str]) -> str | None:
        started = [f"{s.value!r}" for s in exposition.find("process_start_time_seconds")]
        return f"started {', '.join(started)}" if started else None

    def window(self, before: Snapshot, after: Snapshot, during: Sequence[Snapshot] = ()) -> Window:
        """A series that this build types as a gauge may fall, and gives no difference."""
        gauges = {n for n in self.counters for s in (before, after) if s.exposition.type_of(n) == "gauge"}
        counters = tuple(name for name in self.counters if name not in gauges)
        return open_window(before, after, counters=counters, late=frozenset(self.counters), during=during, rule=RULE)

    def draft_limit(self, windows: Sequence[Window]) -> Reading:
        return Absent(why="TensorRT-LLM publishes no limit of the draft")

    def finished(self, windows: Sequence[Window]) -> Delta:
        return growth(MEANING.requests, windows)

    def inter_token(self, windows: Sequence[Window]) -> Latency:
        return latency(MEANING.inter_token, windows)

    def tpot(self, windows: Sequence[Window]) -> Latency:
        return latency(MEANING.tpot, windows)

    def acceptance(
        self, windows: Sequence[Window], *, speculative: bool | None, n_requests: int | None = None
    ) -> Acceptance:
        """Rate only: there are no steps to divide by."""
        drafted, accepted = (growth(where, windows) for where in (MEANING.drafted, MEANING.accepted))
        if isinstance(drafted.reading, Absent):
            if speculative is None or speculative:
                why = f"{drafted.reading.why}: it appears with the first drafted token"
                return nowhere(Unmeasured(why=why) if speculative else Absent(why=why))
            return nowhere(Absent(why="speculation is off by the server's resolved configuration"))
        n_drafted, n_accepted = known(drafted), known(accepted)
        if n_drafted is None or n_accepted is None:
            bad = drafted.reading if n_drafted is None else accepted.reading
            return nowhere(bad if not isinstance(bad, Measured) else Unmeasured(why="no number"))
        per_target = _per_target_step(windows, n_accepted, n_requests)
        if n_drafted <= 0:
            why = "nothing was drafted in the window"
            return undrafted(source="counters", why=why, n_verify_steps=_NO_STEPS, tokens_per_target_step=per_target)
        return counted(
            source="counters",
            n_drafted=n_drafted,
            n_accepted=n_accepted,
            n_verify_steps=_NO_STEPS,
            tokens_per_target_step=per_target,
        )

    def request_extras(self, *, cold_per_request: bool) -> dict[str, Any]:
        return {"stream_options": {"include_usage": True}}

    def request_acceptance(self, fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
        return nowhere(Absent(why=_NOT_SENT))

    def pooled_acceptance(
        self, answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None
    ) -> Acceptance:
        return nowhere(Absent(why=_NOT_SENT))

    def cold_proof(self, fields: Mapping[str, Any], usage: Any) -> ColdProof:
        return cold_by({"usage's cached_tokens": cached_by_usage(usage)}, "usage says nothing of cached tokens")


def _per_target_step(windows: Sequence[Window], n_accepted: float, n_requests: int | None) -> PerStep:
    tokens = growth(MEANING.generated, windows).reading
    if n_requests is None or not isinstance(tokens, Measured):
        why = "how many requests ran in the window is not known" if n_requests is None else "no generated tokens"
        return not_per_step(Unmeasured(why=why))
    return steps_by_accepted(tokens.value, n_requests, n_accepted)
