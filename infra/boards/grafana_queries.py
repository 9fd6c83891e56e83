"""PromQL for the dashboards: how client and server series are chosen, and how engines are read as one.

The load generator's own series always carry ``run_id`` and ``arm``. A live engine's carry ``arm`` where its target
file gives it one, and never ``run_id``; a backfilled run's carry both. So a server series is chosen by the same two
variables or by not having the label at all. Of tensor-parallel ranks, which repeat each other, the first one counts.

Rates over a short interval show how a run went. Means over the whole range are taken without ``rate()`` or
``increase()``, which extrapolate: a client's counters begin at zero with its run, so their last values are the run's
own sums; of a server's, the difference of the largest and the smallest in the range is taken. That holds where no
restart lies in the range. Numbers for a comparison come from ``python -m analysis``, never from a panel.
"""

from collections.abc import Sequence

from infra.boards.grafana_model import Query, Variable

CLIENT = 'run_id=~"$run_id",arm=~"$arm"'
SERVER = 'run_id=~"$run_id|",arm=~"$arm|",tp_rank=~"0|"'
MEASURED = CLIENT + ',domain!="warmup"'
STEP = "[$__rate_interval]"
WHOLE = "[$__range]"

VARIABLES = (
    Variable(name="run_id", label="Run", query="label_values(llm_client_info, run_id)"),
    Variable(name="arm", label="Arm", query='label_values(llm_client_info{run_id=~"$run_id"}, arm)'),
)

GENERATED = (
    "llamacpp:tokens_predicted_total",
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "trtllm_generation_tokens_total",
)
RUNNING = (
    "llamacpp:requests_processing",
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "trtllm_num_requests_running",
)
QUEUED = (
    "llamacpp:requests_deferred",
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "trtllm_num_requests_waiting",
)
KV_USE = ("vllm:kv_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization")
TTFT = (
    "vllm:time_to_first_token_seconds",
    "sglang:time_to_first_token_seconds",
    "trtllm_time_to_first_token_seconds",
)
TPOT = (
    "vllm:request_time_per_output_token_seconds",
    "sglang:request_time_per_output_token_seconds",
    "trtllm_time_per_output_token_seconds",
)
DRAFTED = (
    "llamacpp:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "trtllm_spec_decode_num_draft_tokens_total",
)
ACCEPTED = (
    "llamacpp:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "trtllm_spec_decode_num_accepted_tokens_total",
)
DRAFTS = ("llamacpp:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts_total")
BY_POSITION = (
    "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
)


def first_of(names: Sequence[str], pattern: str) -> str:
    """The same expression for each engine's series (``%s``), joined by ``or``: engines do not share series."""
    return " or ".join(pattern.replace("%s", name) for name in names)


def rate(names: Sequence[str], by: str = "arm", *, labels: str = SERVER) -> str:
    """Per second, over a short interval."""
    return f"sum by ({by}) ({first_of(names, f'rate(%s{{{labels}}}{STEP})')})"


def grown(names: Sequence[str], by: str = "arm", *, labels: str = SERVER) -> str:
    """A server's counters: the difference over the whole range, nothing extrapolated."""
    largest, smallest = f"max_over_time(%s{{{labels}}}{WHOLE})", f"min_over_time(%s{{{labels}}}{WHOLE})"
    return f"sum by ({by}) ({first_of(names, f'({largest} - {smallest})')})"


def now(names: Sequence[str], by: str = "arm", *, over: str = "sum") -> str:
    """Gauges as they stand, added or the largest."""
    return f"{over} by ({by}) ({first_of(names, f'%s{{{SERVER}}}')})"


def server_mean(families: Sequence[str]) -> str:
    """Histograms of a server: sum over count, over a short interval."""
    sums, counts = ([f"{name}{end}" for name in families] for end in ("_sum", "_count"))
    return f"({rate(sums)}) / ({rate(counts)})"


def client_mean(family: str, by: str = "arm") -> str:
    """A histogram of the load generator: sum over count, over a short interval."""
    return f"({rate([family + '_sum'], by, labels=MEASURED)}) / ({rate([family + '_count'], by, labels=MEASURED)})"


def client_total(name: str, by: str, labels: str = MEASURED) -> str:
    """A counter of the load generator over its run: it began at zero with it."""
    return f"sum by ({by}) (max_over_time({name}{{{labels}}}{WHOLE}))"


def client_run_mean(family: str, by: str = "arm, domain") -> str:
    """A histogram's mean over its run, exact."""
    return f"({client_total(family + '_sum', by)}) / ({client_total(family + '_count', by)})"


def line(expr: str, legend: str) -> Query:
    """A query over the time axis."""
    return Query(expr=expr, legend=legend)


def whole(expr: str, legend: str) -> Query:
    """A query over the whole range, asked once."""
    return Query(expr=expr, legend=legend, instant=True)
