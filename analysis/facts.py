"""What a verdict is derived from: the facts of one run, gathered elsewhere, judged in ``analysis.verdict``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from analysis.lateness import Late
from analysis.pass_facts import Differing
from analysis.unread_answers import Unread
from infra.engines.readings import State

Scope = Literal["run", "latency", "rate", "acceptance", "outputs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something the window between two scrapes shows that no number of its scope survives."""

    code: Literal[
        "restart",
        "foreign_traffic",
        "several_servers",
        "counts_differ",
        "window_not_closed",
        "check_failed",
        "records_differ_from_raw",
    ]
    scope: Scope
    seen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The client's own floor for one metric, from a cited calibration, and the metric's median in this run."""

    metric: str
    scope: Scope
    floor_s: float
    median_s: float | None  # the smallest of a level
    level: str | None = None  # whose median it is


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Something that identifies what was measured and is not on record."""

    what: Literal["container_digest", "launch", "model_revision", "version"]
    seen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelFacts:
    """What limits one level of a load run. Times in seconds; None: not known, or no such thing in its kind."""

    label: str
    no_record: bool = False  # levels.jsonl has no line of it
    stopped: bool = False
    undrained: bool = False
    n_left: int = 0  # planned and not started, without leave
    steady_missing: str | None = None  # why it has no steady window
    steady_s: float | None = None
    steady_asked_s: float | None = None
    e2e_median_s: float | None = None
    achieved_ratio: float | None = None  # of the scheduled rate; open loop only
    open_loop: bool = False  # requests come by a schedule, and there are no users
    lag_p99_s: float | None = None  # by nearest rank, however few the arrivals
    lag_max_s: float | None = None
    n_lags: int = 0
    ttft_median_s: float | None = None
    n_cap_hits: int | None = None
    schedule_differs: str | None = None  # a send lag on record that is not the one from the schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The facts of one run. Counts over all phases carry no prefix; ``measured_*`` leave warm-up out.

    Outcomes are those of ``evidence.records.Outcome``; "cancelled" is one of the failed ones here.
    """

    sealed: bool
    recovered: bool = False
    hash_problems: Sequence[str] = ()  # a file differs from its hash, is missing, or was added
    schema_problems: Sequence[str] = ()
    lines_elsewhere: Sequence[str] = ()  # workers whose lines are sealed by digest and not here, with their place
    torn_bytes: Mapping[str, int] = field(default_factory=dict)  # half-written ends, by file
    planned: int
    started: int
    ended: int
    unread: Unread | None = None  # what those left that have not ended; None: it was not looked at, or each has
    count_problems: Sequence[str] = ()  # lines that occur twice, or that the seal counts otherwise
    measured_started: int
    measured_completed: int
    measured_failed: Mapping[str, int] = field(default_factory=dict)
    warmup_failed: Mapping[str, int] = field(default_factory=dict)
    error_said: Mapping[str, str] = field(default_factory=dict)  # by outcome, the error most often on record
    stopped: str | None = None  # by which signal, and where the run was
    completed_without_count: int = 0
    first_chunk_unknown: int = 0
    outputs_missing: Sequence[str] = ()  # prompt ids whose text is not on record, or differs from its hash
    profiled: str | None = None  # the profiler window the run asked for, in words
    profiler_fault: tuple[str, str] | None = None  # its name and what was seen, where no trace can be read
    cold_asked: bool = False
    cold_proven: bool = False
    cold_seen: str = ""
    speculative: bool = False  # the arm says that the engine speculates
    speculation_refuted: str | None = None  # what shows that it does not
    arm_contradicted: str | None = None  # what the server says of itself that its arm excludes
    model_differs: str | None = None  # models that the answers name, against the one asked and each other
    synthetic_acceptance: str | None = None  # the setting that forces acceptance
    acceptance_state: State = "absent"
    acceptance_why: str | None = None
    findings: Sequence[Finding] = ()
    metrics_missing: str | None = None  # why there is no usable metrics endpoint
    own_server: bool = True  # launched by this project, not run by someone else
    floors: Sequence[Floor] = ()
    unknown: Sequence[Unknown] = ()
    late_for_latency: Late | None = None  # the client's own lateness where it may have moved stamps
    late_for_rate: Late | None = None
    n_sent_again: int = 0  # measured requests sent a second time, their kept connection having broken unread
    levels: Sequence[LevelFacts] = ()
    gpu_shared: str | None = None  # memory on the server's GPU that is not its own
    passes_differ: Differing | None = None  # prompts sent again met what their first sending had left
    cached_shares_differ: str | None = None  # levels whose prompts came from a cache to unlike parts
    clock_steps: Sequence[float] = ()  # change of (wall - monotonic) over each measured request, seconds
