"""Dashboards of the server beside the client: what each panel does and does not show."""

from infra.boards.grafana_model import Dashboard, Panel
from infra.boards.grafana_queries import (
    ACCEPTED,
    BY_POSITION,
    CLIENT,
    DRAFTED,
    DRAFTS,
    GENERATED,
    KV_USE,
    MEASURED,
    QUEUED,
    RUNNING,
    SERVER,
    STEP,
    TPOT,
    TTFT,
    VARIABLES,
    client_mean,
    grown,
    line,
    now,
    rate,
    server_mean,
    whole,
)

LLAMACPP_PROMPT, LLAMACPP_CACHED = ["llamacpp:prompt_tokens_total"], ["llamacpp:prompt_tokens_cached_total"]
SGLANG_PER_STEP = (
    f"(sum by (arm) (rate(sglang:generation_tokens_total{{{SERVER}}}{STEP}))"
    f" - sum by (arm) (rate(sglang:num_requests_total{{{SERVER}}}{STEP})))"
    f" / (sum by (arm) (rate(sglang:spec_verify_calls_total{{{SERVER}}}{STEP})))"
)
AT_RELEASE = "llama.cpp and SGLang count a request's tokens when it ends: their rates come in peaks."

SERVER_AND_CLIENT = Dashboard(
    uid="llm-server-and-client",
    title="Server and client",
    description="What the client saw and what the server says of itself, on one time axis.",
    variables=VARIABLES,
    panels=(
        Panel(
            title="Time to first token",
            description="Means over a short interval. The client's is the longer one, by network and client; llama.cpp "
            "publishes none.",
            unit="s",
            queries=(
                line(client_mean("llm_client_ttft_seconds"), "client {{arm}}"),
                line(server_mean(TTFT), "server {{arm}}"),
            ),
        ),
        Panel(
            title="Time per output token",
            description="The client's leaves the first segment's tokens out. vLLM's counts 0 for an answer of one "
            "token; llama.cpp's is decode seconds over all tokens made.",
            unit="s",
            queries=(
                line(client_mean("llm_client_tpot_seconds"), "client {{arm}}"),
                line(server_mean(TPOT), "server {{arm}}"),
                line(
                    f"({rate(['llamacpp:tokens_predicted_seconds_total'])}) / ({rate(GENERATED[:1])})",
                    "llama.cpp {{arm}}",
                ),
            ),
        ),
        Panel(
            title="Output tokens per second",
            description=f"The client counts a request's tokens when it ends. {AT_RELEASE}",
            unit="short",
            queries=(
                line(rate(["llm_client_output_tokens_total"], labels=CLIENT), "client {{arm}}"),
                line(rate(GENERATED), "server {{arm}}"),
            ),
        ),
        Panel(
            title="Requests in flight, running and queued",
            description="In flight at the client, running and queued at the server: a gap is a queue in between.",
            unit="short",
            queries=(
                line(f"sum by (arm) (llm_client_in_flight{{{CLIENT}}})", "in flight {{arm}}"),
                line(now(RUNNING), "running {{arm}}"),
                line(now(QUEUED), "queued {{arm}}"),
            ),
        ),
        Panel(
            title="End to end, median and 90th percentile",
            description="From histogram buckets and no finer than they are: a live view, not a report's quantiles.",
            unit="s",
            queries=tuple(
                line(
                    f"histogram_quantile({q}, {rate(['llm_client_e2e_seconds_bucket'], 'le, arm', labels=MEASURED)})",
                    f"{words} {{{{arm}}}}",
                )
                for q, words in ((0.5, "median"), (0.9, "p90"))
            ),
        ),
        Panel(
            title="Requests ended per second, by outcome",
            description="Everything but completed is a failure of some kind; the run's records say which.",
            unit="reqps",
            queries=(line(rate(["llm_client_requests_total"], "arm, outcome", labels=CLIENT), "{{outcome}} {{arm}}"),),
        ),
        Panel(
            title="Each request, end to end",
            description="One point a request, at its end. Only for runs that were exported and backfilled.",
            unit="s",
            draw="points",
            width=24,
            queries=(
                line(
                    f"last_over_time(llm_request_e2e_seconds{{{CLIENT}}}[$__interval])",
                    "{{domain}} {{plan_id}} {{arm}}",
                ),
            ),
        ),
    ),
)

ACCEPTANCE = Dashboard(
    uid="llm-acceptance",
    title="Acceptance",
    description="Three numbers: accepted over drafted; 1 + accepted over drafted steps; tokens a verify step.",
    variables=VARIABLES,
    panels=(
        Panel(
            title="Acceptance rate",
            description=f"Accepted over drafted tokens, from counters. {AT_RELEASE}",
            unit="percentunit",
            queries=(line(f"({rate(ACCEPTED)}) / ({rate(DRAFTED)} > 0)", "{{arm}}"),),
        ),
        Panel(
            title="Acceptance length",
            description="1 + accepted over steps that carried a draft; steps without one are not among them.",
            unit="short",
            queries=(line(f"1 + ({rate(ACCEPTED[:2])}) / ({rate(DRAFTS)} > 0)", "{{arm}}"),),
        ),
        Panel(
            title="Accepted by position in the draft",
            description="Share of drafts whose token at this position was accepted, over the whole range.",
            unit="percentunit",
            kind="bargauge",
            queries=(
                whole(
                    f"({grown(BY_POSITION, 'arm, position')}) / on (arm) group_left () ({grown(DRAFTS)} > 0)",
                    "{{arm}} position {{position}}",
                ),
            ),
        ),
        Panel(
            title="Tokens a verify step (SGLang)",
            description="Generated tokens less one a request, over verify calls: SGLang counts no accepted drafts.",
            unit="short",
            queries=(line(SGLANG_PER_STEP, "{{arm}}"),),
        ),
        Panel(
            title="Drafted and accepted tokens per second",
            description=AT_RELEASE,
            unit="short",
            queries=(line(rate(DRAFTED), "drafted {{arm}}"), line(rate(ACCEPTED), "accepted {{arm}}")),
        ),
        Panel(
            title="SGLang's own gauge: last decode batches only",
            description="A mean over its last decode batches that stays on after traffic. Never a value for a run.",
            unit="short",
            queries=(line(f"max by (arm) (sglang:spec_accept_length{{{SERVER}}})", "{{arm}}"),),
        ),
    ),
)

KV_AND_QUEUE = Dashboard(
    uid="llm-kv-and-queue",
    title="KV cache and queue",
    description="What limits a server under load, and what was in its prefix cache. llama.cpp publishes no KV use.",
    variables=VARIABLES,
    panels=(
        Panel(
            title="KV cache in use",
            description="Largest over ranks; as the engine last wrote it.",
            unit="percentunit",
            queries=(line(now(KV_USE, over="max"), "{{arm}}"),),
        ),
        Panel(
            title="Running and queued requests",
            description="Added over data-parallel ranks.",
            unit="short",
            queries=(line(now(RUNNING), "running {{arm}}"), line(now(QUEUED), "queued {{arm}}")),
        ),
        Panel(
            title="Cached share of prompt tokens",
            description="Unequal shares make arms not comparable. llama.cpp counts cached tokens apart.",
            unit="percentunit",
            queries=(
                line(
                    f"({rate(LLAMACPP_CACHED)}) / (({rate(LLAMACPP_PROMPT)} + {rate(LLAMACPP_CACHED)}) > 0)",
                    "llama.cpp {{arm}}",
                ),
                line(
                    f"({rate(['vllm:prompt_tokens_cached_total'])}) / ({rate(['vllm:prompt_tokens_total'])} > 0)",
                    "vLLM {{arm}}",
                ),
                line(
                    f"({rate(['sglang:cached_tokens_total'])}) / ({rate(['sglang:prompt_tokens_total'])} > 0)",
                    "SGLang {{arm}}",
                ),
            ),
        ),
        Panel(
            title="Why requests wait",
            description="vLLM's waiting requests by reason; SGLang's retracted ones, thrown out for want of KV memory.",
            unit="short",
            queries=(
                line(f"sum by (arm, reason) (vllm:num_requests_waiting_by_reason{{{SERVER}}})", "{{reason}} {{arm}}"),
                line(f"sum by (arm) (sglang:num_retracted_reqs{{{SERVER}}})", "retracted {{arm}}"),
            ),
        ),
    ),
)
