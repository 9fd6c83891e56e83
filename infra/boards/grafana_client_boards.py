"""Dashboards of arms side by side, of the client's own condition, and of the server's host."""

from infra.boards.grafana_model import Dashboard, Panel
from infra.boards.grafana_queries import (
    ACCEPTED,
    CLIENT,
    DRAFTED,
    MEASURED,
    SERVER,
    STEP,
    VARIABLES,
    client_run_mean,
    client_total,
    first_of,
    grown,
    line,
    rate,
    whole,
)

ARMS = Dashboard(
    uid="llm-arms",
    title="Arms side by side",
    description="Each arm's runs in the time range, warm-up left out, as plain means: no interval, so no claim. "
    "`python -m analysis compare` pairs launches and gives one.",
    variables=VARIABLES,
    panels=(
        Panel(
            title="Time to first token, mean by domain",
            description="Client side, over each run whole.",
            unit="s",
            kind="bargauge",
            queries=(whole(client_run_mean("llm_client_ttft_seconds"), "{{arm}} {{domain}}"),),
        ),
        Panel(
            title="Time per output token, mean by domain",
            description="Client side, request-weighted.",
            unit="s",
            kind="bargauge",
            queries=(whole(client_run_mean("llm_client_tpot_seconds"), "{{arm}} {{domain}}"),),
        ),
        Panel(
            title="End to end, mean by domain",
            description="Client side. Answers of unequal length are not comparable by this.",
            unit="s",
            kind="bargauge",
            queries=(whole(client_run_mean("llm_client_e2e_seconds"), "{{arm}} {{domain}}"),),
        ),
        Panel(
            title="Output tokens a completed request",
            description="By the server's count. Arms whose outputs are equal have equal bars.",
            unit="short",
            kind="bargauge",
            queries=(
                whole(
                    f"({client_total('llm_client_output_tokens_total', 'arm, domain')})"
                    f" / ({client_total('llm_client_e2e_seconds_count', 'arm, domain')})",
                    "{{arm}} {{domain}}",
                ),
            ),
        ),
        Panel(
            title="Requests by outcome",
            description="Arms with unequal counts were not given the same work.",
            unit="short",
            kind="bargauge",
            queries=(whole(client_total("llm_client_requests_total", "arm, outcome"), "{{arm}} {{outcome}}"),),
        ),
        Panel(
            title="Acceptance rate",
            description="Accepted over drafted tokens, from counters. No bar: not speculating, nothing drafted, or not "
            "published (SGLang).",
            unit="percentunit",
            kind="bargauge",
            queries=(whole(f"({grown(ACCEPTED)}) / ({grown(DRAFTED)} > 0)", "{{arm}}"),),
        ),
        Panel(
            title="Output tokens per second over time",
            description="The same axis for all arms: runs of one study stand one after another.",
            unit="short",
            width=24,
            queries=(
                line(rate(["llm_client_output_tokens_total"], "arm, run_id", labels=MEASURED), "{{arm}} {{run_id}}"),
            ),
        ),
    ),
)

CLIENT_HEALTH = Dashboard(
    uid="llm-client-health",
    title="Client health",
    description="A client that is late reports its own lateness as the server's: look here before believing a latency.",
    variables=VARIABLES,
    panels=(
        Panel(
            title="Lag of the client's loop",
            description="How late a sentinel woke: the largest and the median of each interval.",
            unit="s",
            queries=(
                line(f"max by (arm, worker, stat) (llm_client_lag_seconds{{{CLIENT}}})", "{{stat}} {{arm}} {{worker}}"),
            ),
        ),
        Panel(
            title="From the kernel's stamp to our reading it",
            description="Largest delay of each worker's last request; latencies are taken from the kernel's stamps.",
            unit="s",
            queries=(line(f"max by (arm, worker) (llm_client_read_delay_seconds{{{CLIENT}}})", "{{arm}} {{worker}}"),),
        ),
        Panel(
            title="CPU of the client",
            description="Of one core; near 1 the client is the bottleneck.",
            unit="percentunit",
            queries=(line(f"max by (arm, worker) (llm_client_cpu_ratio{{{CLIENT}}})", "{{arm}} {{worker}}"),),
        ),
        Panel(
            title="Pauses for garbage collection",
            description="The longest of each interval.",
            unit="s",
            queries=(line(f"max by (arm, worker) (llm_client_gc_pause_seconds{{{CLIENT}}})", "{{arm}} {{worker}}"),),
        ),
        Panel(
            title="Coalesced share of chunks",
            description="Events that came in one received segment with an earlier one: no gap is known between them.",
            unit="percentunit",
            queries=(
                line(
                    f"({rate(['llm_client_coalesced_events_total'], labels=CLIENT)})"
                    f" / ({rate(['llm_client_chunks_total'], labels=CLIENT)} > 0)",
                    "{{arm}}",
                ),
            ),
        ),
        Panel(
            title="Did the scrapes of the engine answer",
            description="1 or 0. A gap in the server's series is explained here.",
            unit="short",
            queries=(line(f'min by (arm, instance) (up{{job="engine",{SERVER}}})', "{{arm}} {{instance}}"),),
        ),
    ),
)

_HOST = 'arm=~"$arm|"'
_THROTTLE = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")


def _gpu(title: str, unit: str, description: str, *queries: tuple[str, str]) -> Panel:
    found = tuple(line(expr, f"{legend}GPU {{{{gpu}}}} {{{{arm}}}}") for expr, legend in queries)
    return Panel(title=title, description=description, unit=unit, queries=found, width=8)


HOST = Dashboard(
    uid="llm-host",
    title="GPUs and host of the server",
    description="From the DCGM exporter and the node exporter on the server's host. Without them every panel is empty.",
    variables=VARIABLES,
    panels=(
        _gpu("GPU utilisation", "percent", "Share of time any kernel ran.", (f"DCGM_FI_DEV_GPU_UTIL{{{_HOST}}}", "")),
        _gpu("GPU memory in use", "bytes", "As the driver says.", (f"DCGM_FI_DEV_FB_USED{{{_HOST}}} * 1048576", "")),
        _gpu("GPU power", "watt", "A cap shows as a flat top.", (f"DCGM_FI_DEV_POWER_USAGE{{{_HOST}}}", "")),
        _gpu(
            "SM clock", "hertz", "A falling clock slows every arm.", (f"DCGM_FI_DEV_SM_CLOCK{{{_HOST}}} * 1000000", "")
        ),
        _gpu("GPU temperature", "celsius", "Near its limit the clock falls.", (f"DCGM_FI_DEV_GPU_TEMP{{{_HOST}}}", "")),
        _gpu(
            "Throttle reasons",
            "short",
            "A bit mask, as the driver gives it; 0 or 1 (idle) is nothing.",
            (first_of(_THROTTLE, f"%s{{{_HOST}}}"), ""),
        ),
        _gpu(
            "PCIe traffic",
            "Bps",
            "Needs the exporter's profiling fields (dcp-metrics-included.csv).",
            (f"rate(DCGM_FI_PROF_PCIE_TX_BYTES{{{_HOST}}}{STEP})", "sent "),
            (f"rate(DCGM_FI_PROF_PCIE_RX_BYTES{{{_HOST}}}{STEP})", "received "),
        ),
        Panel(
            title="CPU of the host",
            description="Share of all cores that was not idle.",
            unit="percentunit",
            width=8,
            queries=(
                line(
                    f'1 - avg by (arm, instance) (rate(node_cpu_seconds_total{{mode="idle",{_HOST}}}[30s]))',
                    "{{arm}} {{instance}}",
                ),
            ),
        ),
        Panel(
            title="Memory of the host",
            description="Available without swapping.",
            unit="bytes",
            width=8,
            queries=(line(f"node_memory_MemAvailable_bytes{{{_HOST}}}", "{{arm}} {{instance}}"),),
        ),
    ),
)
