"""The records a run leaves behind: frozen, keyword-only, versioned, checked when they are made and when they are read.

Schema history
    1  first version: manifest, started, request, scrape, health, seal, launch, notice, writer.
       added since, nothing else changed: window (``windows.jsonl``, window_records.py), GPU sample (``gpu.jsonl``,
       gpu_records.py), level (``levels.jsonl``, level_records.py), and of requests ``send_lag_s``; of levels
       ``ended_by`` "worker lost".

An unknown version or field is refused by name. Unknown values are None and the reason stands beside
them; 0, "" and -1 are values. Durations are seconds on one monotonic clock, counted from t0 (the instant just before
the first byte of the request is sent); ``*_unix_s`` instants are wall-clock labels for joining, never subtracted.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evidence.marks import ChunkMark as ChunkMark
from evidence.marks import Packed

SCHEMA_VERSION: Literal[1] = 1

Json = Any  # a value that came as JSON and is kept as it came
Phase = Literal["warmup", "measured"]
StampSource = Literal["kernel", "user"]
TokenSource = Literal["usage", "token_ids", "timings"]
ChunkSemantics = Literal["token", "verify_step", "merged", "unknown"]
ScrapeRole = Literal["idle-check", "before", "during", "after"]
Version = Literal[1]

# What became of a request. Only "completed" is a success: HTTP 200, no error object, a finish reason that is no error
# or abort, usage, and a complete body. Whatever was received is kept under every outcome.
Outcome = Literal[
    "completed",
    "connect_refused",  # nobody listens
    "connect_failed",  # name resolution, unreachable, connect timed out
    "tls_failed",
    "http_error",  # a status other than 200
    "not_a_stream",  # 200, but HTML or plain JSON in place of an event stream
    "error_in_stream",  # an error object inside HTTP 200, first or later
    "timeout_headers",  # nothing, or no complete headers, within the time limit
    "timeout_stalled",  # headers came, then the stream did not end within the time limit
    "truncated",  # the body ended early, with or without chunked coding
    "malformed",  # HTTP framing or an event that cannot be read
    "no_finish_reason",
    "finish_error",  # finish reason "error", "abort", "content_filter", "repetition"
    "no_usage",
    "usage_inconsistent",  # usage that shrinks, or two sources that disagree
    "cancelled",  # the run was stopped while it was under way
    "client_error",  # our own fault; the error says which
]

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """A frozen record: unknown fields, wrong types and NaN are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class Started(Record):
    """One line of ``workers/<n>/started.jsonl``: written and flushed just before a request is sent."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    sequence: Count  # counts from 0 on this worker, without gaps
    plan_id: str
    started_at_unix_s: float
    started_at_monotonic_s: float


class ConnectionFacts(Record):
    """How the request's connection came to be. Connecting is never part of a latency: t0 comes after it."""

    reused: bool
    resolve_s: Seconds | None  # None when reused
    connect_s: Seconds | None  # None when reused
    tls_s: Seconds | None  # None when reused or plain
    tls_version: str | None  # None when plain
    sent_before_s: Seconds | None = None  # sent once before, on a kept connection that broke unread: how long before t0


class WireRef(Record):
    """Where the raw segments of a request lie: ``workers/<n>/wire/<file>``, bytes [offset, offset + n_bytes)."""

    file: str
    offset: Count
    n_bytes: Count
    n_segments: Count


class ErrorFacts(Record):
    """What went wrong, verbatim where the server said it."""

    kind: str  # short class, e.g. the server's error type or our exception's name
    message: str
    http_status: int | None = None
    body: str | None = None  # at most 64 KiB of what came in place of a stream


class Request(Record):
    """One line of ``workers/<n>/requests.jsonl``: written when a request has ended, whatever its outcome."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    worker: Count
    sequence: Count  # equals the sequence of its started line
    plan_id: str
    prompt_id: str
    domain: str
    phase: Phase
    level: str | None
    pass_index: Count
    repeat: Count

    transport: Literal["wire", "openai"]
    connection: ConnectionFacts | None  # None when no connection was made, or (openai) it is not known
    sent_at_unix_s: float | None  # t0 on the wall clock; None when nothing was sent
    sent_at_monotonic_s: float | None  # t0 on the worker's monotonic clock
    http_status: int | None
    headers_after_s: Seconds | None
    first_event_after_s: Seconds | None
    first_token_after_s: Seconds | None  # first token of any kind: content, reasoning or tool call
    first_visible_after_s: Seconds | None  # first non-empty visible content
    last_token_after_s: Seconds | None
    end_after_s: Seconds | None  # end of the body, or the instant the request was given up
    stamp_source: StampSource | None  # None when nothing was received
    clock_step_s: float | None  # change of (wall - monotonic) over the request; kernel stamps are wall-clock
    kernel_to_user_max_s: float | None  # largest delay between kernel stamp and our reading it
    coalesced_events: Count | None  # events beyond the first in their segment; None when nothing was received

    chunks: Annotated[Sequence[ChunkMark], Packed]  # [after_s, segment, cumulative tokens or null, characters] each
    chunk_semantics: ChunkSemantics
    usage: Json | None  # as sent, the last non-null one
    token_source: TokenSource | None
    n_completion_tokens: Count | None  # from usage, token ids or the engine's own counter; never from words or chunks
    n_prompt_tokens: Count | None
    finish_reason: str | None
    outcome: Outcome
    error: ErrorFacts | None
    output_text: str
    output_sha256: Sha256
    reasoning_text: str | None
    tool_calls_text: str | None
    model_served: str | None
    server_fields: dict[str, Json]  # per-request evidence as sent, e.g. {"timings": {...}}
    wire: WireRef | None
    wire_missing: str | None  # why the raw segments were not kept
    requests_since_reset: Count | None = (
        None  # the age of cache and draft state; None: nothing was reset, or several processes sent the level
    )
    send_lag_s: Seconds | None = None  # t0 minus the instant it was scheduled for; None in closed loop, or not sent
    stream_problems: tuple[str, ...] = ()  # what was odd and did not decide the outcome, e.g. "[DONE] is missing"

    @model_validator(mode="after")
    def _ends_where_it_was_sent(self) -> Self:
        if self.end_after_s is None and (self.sent_at_unix_s is not None or self.sent_at_monotonic_s is not None):
            raise ValueError("a request that was sent has an end_after_s: the end of its body, or when it was given up")
        return self

    @property
    def took_s(self) -> float:
        """``end_after_s`` of a request that was sent. Raises ValueError for one that never was."""
        if self.end_after_s is None:
            raise ValueError(f"request {self.plan_id} was never sent, so it took no time")
        return self.end_after_s


class Scrape(Record):
    """One line of ``scrapes.jsonl``: a whole ``/metrics`` body; a scrape is an interval, not an instant."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    url: str
    role: ScrapeRole
    level: str | None = None
    send_unix_s: float
    receive_unix_s: float
    send_monotonic_s: float
    receive_monotonic_s: float
    http_status: int | None
    headers: dict[str, str]
    body: str | None
    complete: bool  # whole by Content-Length or chunked coding
    error: str | None


class Health(Record):
    """One line of ``workers/<n>/health.jsonl``: the client's own condition over one interval."""

    schema_version: Version = SCHEMA_VERSION
    at_monotonic_s: float
    interval_s: Seconds
    lag_p50_s: Seconds | None  # how late a sentinel woke
    lag_max_s: Seconds | None
    cpu_ratio: Annotated[float, Field(ge=0)] | None  # of one core
    gc_pauses: Count
    gc_pause_max_s: Seconds
    in_flight: Count
    kernel_to_user_max_s: Seconds | None = (
        None  # of the requests that ended in the interval; None: none with kernel stamps
    )
    coalesced_chunks: Count | None = None  # token-bearing chunks beyond the first in their segment, of those requests
    lag_p99_s: Seconds | None = None
    kernel_to_user_p50_s: Seconds | None = None  # of a sample of the reads in the interval; None: no kernel stamps
    kernel_to_user_p99_s: Seconds | None = None
    n_chunks: Count | None = None  # token-bearing, of the requests that ended in the interval; None: not recorded
    n_connected: Count | None = None  # of those requests, on a connection made for them
    n_reused: Count | None = None  # of those requests, on a connection that had carried another
    n_unread: Count | None = None  # requests that had ended and whose answer was still to be read, at its end
    load_1m: Annotated[float, Field(ge=0)] | None = None  # this host's load average


class Missing(Record):
    """Something the manifest should carry and does not, with the reason."""

    what: str
    why: str


class Manifest(Record):
    """``manifest.json``: written before the first request; what was asked, of whom, with what."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    created_at_unix_s: float
    label: str | None
    note: str | None
    scenario: Json  # the scenario as resolved
    scenario_sha256: Sha256
    prompts_sha256: dict[str, Sha256]  # by prompt file name
    plan_sha256: Sha256
    n_planned: Count
    arm: Json | None  # recipe with resolved launch arguments; None for a server without a recipe
    launch_dir: str | None  # the launch folder it cites, relative to the run's root where it can be
    launch_id: str | None
    server: dict[str, Json]  # engine, version, url, speculative mode and what else it said
    model: dict[str, Json]  # asked, served, architecture, revision, quantisation, file_sha256
    versions: dict[str, str]  # this client's: python, locust, gevent, openai, project, kernel
    hardware: dict[str, Json]  # cpu model, cores, memory, gpu or why none
    adapter: str | None  # metric adapter, e.g. "llama.cpp"
    metric_types: dict[str, str]  # the TYPE lines seen before the run
    git_commit: str | None
    clock: dict[str, float]  # paired monotonic and wall readings at start
    calibration: Json | None  # cited client calibration
    environment: dict[str, str]  # redacted
    options: dict[str, Json]  # command-line options, redacted
    request_extra: dict[str, Json]  # body fields added to every request (engine and user)
    wire_limit_bytes: Count
    n_workers: Count
    missing: tuple[Missing, ...]


class Seal(Record):
    """``seal.json``: written last. Counts balance: started = completed + failed + cancelled + unfinished."""

    schema_version: Version = SCHEMA_VERSION
    id: str  # run_id or launch_id
    sealed_at_unix_s: float
    recovered: bool  # closed afterwards by ``analysis recover``: the recorder did not live to seal it
    planned: Count
    started: Count
    completed: Count
    failed: dict[str, Count]  # by outcome, "cancelled" excluded
    cancelled: Count
    unfinished: Count  # started, and no line says how it ended
    files: dict[str, Sha256]  # every file but this one, path relative to the folder
    torn: dict[str, Count]  # bytes of a half-written last line or frame, by file: kept, not read
    noticed: tuple[str, ...]  # what the recorder itself noticed


LaunchStage = Literal[
    "command", "process", "weights", "draft", "memory_pool", "graph_capture", "listening", "first_answer", "ready"
]


class Launch(Record):
    """``launch.json`` of a launch folder: rewritten whole at each stage, sealed when the engine has ended."""

    schema_version: Version = SCHEMA_VERSION
    launch_id: str
    arm: Json  # the recipe as resolved
    command: tuple[str, ...]
    reproduce: str  # one shell command that does the same
    resolved: dict[str, Json]  # resolved engine arguments
    versions: dict[str, str]
    model: dict[str, Json]  # path name, sha256, architecture, quantisation
    draft: dict[str, Json] | None
    pid: int | None
    url: str | None
    started_at_unix_s: float
    ready_at_unix_s: float | None
    ended_at_unix_s: float | None
    stage: LaunchStage  # the last one reached
    speculation: Literal["not asked", "proven", "not proven"]
    speculation_proof: Json | None
    outcome: Literal["starting", "ready", "stopped", "failed", "died"]
    symptom: str | None  # verbatim, for a failed launch
    evidence_grade: Literal["trace held", "reported only"] | None
    memory: dict[str, Json] | None  # total, in use, requested, where memory was the symptom
    diagnostics: tuple[Json, ...]
    exit_code: int | None


class Notice(Record):
    """One line of ``noticed.jsonl``: what the recorder itself noticed, on file at once so that a kill loses none."""

    schema_version: Version = SCHEMA_VERSION
    at_unix_s: float
    text: str


class Writer(Record):
    """``writer.json``: the process that writes a folder, so that no one closes a folder that is still being written."""

    schema_version: Version = SCHEMA_VERSION
    pid: Count
    host: str
    started_at_unix_s: float
    locked: bool  # the folder itself carries the process's lock, and the lock alone decides whether it lives
    lock_missing: str | None  # why the file system gave no lock; then the pid on the same host decides
