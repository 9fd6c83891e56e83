"""SGLang: what its series mean.

Read from the sources of 0.5.19 and 0.5.23, and seen on a real 0.5.17.

- Token, request and verify counters move when a request finishes, so windows start and end at rest. A series appears
  with its first increment: absent beside requests that finished is a measured zero for cached tokens, and means "does
  not speculate" for ``spec_verify_calls_total``.
- Nothing counts accepted or drafted tokens. Each decode step of a speculating server is a verify step that commits its
  accepted drafts and one token of its own, so over a whole window
      tokens per verify step = (generated tokens - requests) / verify calls
      accepted               = generated tokens - requests - verify calls
  A stop inside a verified run trims what was accepted behind it: both are lower bounds by less than a step a request.
- The denominator of the rate is the window's slots, ``spec_num_draft_tokens`` - 1 a step, filled or not: n-gram misses
  are padded with zeros and trees hold more nodes than a path, so 1.0 is out of reach.
- The six ``spec_*`` gauges are averages over the last decode batches before a report (each 40 by default), are 0.0
  where nothing was measured or nothing speculates, and stand still when the server idles. They are never a value for a
  run. ``spec_num_draft_tokens`` and ``spec_num_steps`` are configuration.
- ``spec_accept_length`` and the per-request field of that name hold the bonus token (the latter the prefill token too);
  ``spec_accept_rate`` does not. Here both are worked out anew from counts.
- Tensor, pipeline and expert ranks repeat; data-parallel ranks, stream modes and cache sources add.
- The warm-up request at start is in every counter: only differences are used.
- The histogram of inter-token latency observes interval / n for each of n tokens. Under Ray's wrapper it observes the
  whole interval n times under the same name; then its mean is no time per token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from infra.engines import sglang_request
from infra.engines.acceptance import Acceptance
from infra.engines.fields import ColdProof
from infra.engines.histogram import Latency, latency, without
from infra.engines.labels import LabelRule, chosen
from infra.engines.meaning import Counted, Kind, Meaning, Nowhere, Observed, growth
from infra.engines.readings import Absent, Measured, Reading, Unmeasured
from infra.engines.sglang_acceptance import acceptance
from infra.engines.window import Delta, Snapshot, Window, open_window
from infra.wire.exposition import Exposition

ENGINE = "sglang"
PREFIX = "sglang:"

GENERATED_TOKENS = "sglang:generation_tokens_total"
PROMPT_TOKENS = "sglang:prompt_tokens_total"
CACHED_TOKENS = "sglang:cached_tokens_total"
REQUESTS = "sglang:num_requests_total"
VERIFY_CALLS = "sglang:spec_verify_calls_total"
DRAFT_WINDOW = "sglang:spec_num_draft_tokens"
# These two move while a request is under way, which the idle check needs.
_REALTIME = "sglang:realtime_tokens_total"
_PASSES = "sglang:cuda_graph_passes_total"
TTFT = "sglang:time_to_first_token_seconds"
TPOT = "sglang:request_time_per_output_token_seconds"
INTER_TOKEN = "sglang:inter_token_latency_seconds"
_STARTUP = "sglang:startup_time_seconds"
_RAY_LABELS = frozenset({"SessionName", "WorkerId", "NodeAddress", "ReplicaId"})

RULE = LabelRule(
    adds=frozenset({"dp_rank", "is_streaming", "cache_source", "engine_type", "model_name"}),
    repeats=frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "attn_tp_rank"}),
    parts=frozenset({"priority"}),
)
_NO_ACCEPTED = "SGLang counts no accepted tokens: they follow from generated tokens, requests and verify calls"
_KINDS: Mapping[str, Kind] = {
    "sglang:spec_accept_length": "window gauge",
    "sglang:spec_accept_rate": "window gauge",
    "sglang:spec_cap_length": "window gauge",
    "sglang:spec_block_accept_length": "window gauge",
    "sglang:gen_throughput": "window gauge",
    "sglang:cache_hit_rate": "window gauge",
    "sglang:spec_num_steps": "configuration",
    DRAFT_WINDOW: "configuration",
    "sglang:max_total_num_tokens": "configuration",
    "sglang:context_len": "configuration",
    "sglang:page_size": "configuration",
    "sglang:num_running_reqs": "gauge",
    "sglang:num_queue_reqs": "gauge",
    "sglang:token_usage": "gauge",
}

MEANING = Meaning(
    generated=Counted(names=(GENERATED_TOKENS,), late=True),
    prompt=Counted(names=(PROMPT_TOKENS,), late=True),
    cached=Counted(names=(CACHED_TOKENS,), late=True, zero_beside=PROMPT_TOKENS),
    requests=Counted(names=(REQUESTS,), late=True, note="aborted ones too"),
    drafted=Nowhere(why="SGLang counts no drafted tokens, only verify calls of a fixed window"),
    accepted=Nowhere(why=_NO_ACCEPTED),
    verify_steps=Counted(names=(VERIFY_CALLS,), late=True),
    per_position=Nowhere(why="SGLang publishes no acceptance by position"),
    ttft=Observed(names=(TTFT,), observes="request", note="from the request's creation in the tokenizer manager"),
    tpot=Observed(names=(TPOT,), observes="request", note="of requests with two tokens or more"),
    inter_token=Observed(names=(INTER_TOKEN,), observes="token", note="each token counts once"),
    why_no_in_flight="SGLang's gauges of running and queued requests hold their last value for up to 30 s",
    undrafted_counted=True,
    bonus="spec_accept_length holds the bonus token, spec_accept_rate does not",
    kinds=_KINDS,
)
_BY_RAY = Observed(
    names=(INTER_TOKEN,),
    observes="interval once a token",
    note="Ray's wrapper observes the whole interval once for each of its tokens: no time per token",
)

Deployment = Literal["plain", "ray"]


def deployment_of(exposition: Exposition) -> Deployment:
    """Ray's exporter labels every series with its session or worker."""
    return "ray" if any(_RAY_LABELS & s.labels.keys() for s in exposition.find(INTER_TOKEN + "_count")) else "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class SGLang:
    """The adapter; ``infra.engines.adapter`` says what each part is for."""

    version: str | None = None
    deployment: Deployment | None = None  # None: by the labels of the series
    engine: ClassVar[str] = ENGINE
    prefix: ClassVar[str] = PREFIX
    rule: ClassVar[LabelRule] = RULE
    meaning: ClassVar[Meaning] = MEANING
    counters: ClassVar[tuple[str, ...]] = (
        *(GENERATED_TOKENS, PROMPT_TOKENS, CACHED_TOKENS, REQUESTS, VERIFY_CALLS, _REALTIME, _PASSES),
        *(name + "_count" for name in (TTFT, TPOT, INTER_TOKEN)),
    )

    def identity(self, exposition: Exposition, headers: Mapping[str, str]) -> str | None:
        """The times its start took identify a process: no two starts take the same."""
        whole = [s for s in exposition.find(_STARTUP) if s.labels.get("phase", "").endswith("_e2e")]
        took = " and ".join(f"{s.value!r} s" for s in sorted(whole, key=lambda s: s.labels["phase"]))
        return f"start-up in {took}" if took else None

    def window(self, before: Snapshot, after: Snapshot, during: Sequence[Snapshot] = ()) -> Window:
        late = frozenset(self.counters)
        return open_window(before, after, counters=self.counters, late=late, during=during, rule=RULE)

    def draft_limit(self, windows: Sequence[Window]) -> Reading:
        """Drafted slots a verify step: the window less the token that is verified anyway."""
        seen = {
            sample.value
            for window in windows
            for shot in (window.before, *window.during, window.after)
            for sample in chosen(shot.exposition.find(DRAFT_WINDOW), RULE)
            if sample.value > 0
        }
        if not seen:
            return Unmeasured(why=f"{DRAFT_WINDOW} is absent or 0: not published yet, or no draft worker")
        if len(seen) > 1:
            shown = ", ".join(f"{value:g}" for value in sorted(seen))
            return Unmeasured(why=f"the draft window changed within the run ({shown}): slots cannot be counted")
        return Measured(seen.pop() - 1)

    def finished(self, windows: Sequence[Window]) -> Delta:
        """Requests that ended, aborted ones too: SGLang does not tell them apart."""
        return growth(MEANING.requests, windows)

    def inter_token(self, windows: Sequence[Window]) -> Latency:
        shot = windows[0].after.exposition if windows else None
        deployment = self.deployment or ("plain" if shot is None else deployment_of(shot))
        return latency(_BY_RAY if deployment == "ray" else MEANING.inter_token, windows)

    def tpot(self, windows: Sequence[Window]) -> Latency:
        """By request where the version has that histogram (after 0.5.19), else by token."""
        by_request = latency(MEANING.tpot, windows)
        if not isinstance(by_request.n, Absent):
            return by_request
        by_token = self.inter_token(windows)
        return by_token if by_token.observes != "interval once a token" else without(Unmeasured(why=by_token.note))

    def acceptance(
        self, windows: Sequence[Window], *, speculative: bool | None, n_requests: int | None = None
    ) -> Acceptance:
        """Of everything the server did in the window, by its own count of requests."""
        return acceptance(windows, MEANING, self.draft_limit(windows), speculative=speculative)

    def request_extras(self, *, cold_per_request: bool) -> dict[str, Any]:
        return sglang_request.request_extras(self.version)

    def request_acceptance(self, fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
        return sglang_request.request_acceptance(fields, usage, speculative=speculative)

    def pooled_acceptance(
        self, answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None
    ) -> Acceptance:
        return sglang_request.pooled_acceptance(answers, speculative=speculative)

    def cold_proof(self, fields: Mapping[str, Any], usage: Any) -> ColdProof:
        return sglang_request.cold_proof(fields, usage)
