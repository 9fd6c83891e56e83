"""A window's answers as readings: the server's own latencies, acceptance, requests, KV use, GPU."""

from collections.abc import Mapping

from infra.engines.prometheus_growth import Answer, Bounds, Growth, gauge, growth, mean_of_means
from infra.engines.prometheus_series import (
    GPU_CLOCK_MHZ,
    GPU_MEMORY_MIB,
    GPU_POWER_W,
    GPU_SERIES,
    GPU_TEMPERATURE_C,
    GPU_UTILISATION,
    UP,
    EngineSeries,
    engine_series,
)
from infra.engines.readings import Absent, Measured, Reading, Unmeasured

_GPU: Mapping[str, tuple[str, float]] = {
    "gpu_utilisation_ratio": (GPU_UTILISATION, 0.01),
    "gpu_power_w": (GPU_POWER_W, 1.0),
    "gpu_clock_mhz": (GPU_CLOCK_MHZ, 1.0),
    "gpu_temperature_c": (GPU_TEMPERATURE_C, 1.0),
}


def grown(answers: Mapping[str, Answer], name: str, bounds: Bounds, known: EngineSeries) -> Growth:
    """A counter's growth in the window; the answer about ``up`` tells whether the server was scraped before it."""
    answer = answers.get(name)
    if answer is None:
        return Growth(reading=Unmeasured(why=f"{name} was not asked for"))
    up = answers.get(UP)
    scraped = up is not None and any(t <= bounds.start_s and v == 1 for one in up.series for t, v in one.points)
    return growth(answer, bounds, once=known.once, scraped_before=scraped)


def readings(
    answers: Mapping[str, Answer], bounds: Bounds, adapter: str | None, *, n_requests: int | None = None
) -> dict[str, Reading]:
    """Every reading of one window, by name. ``answers`` by series name; ``n_requests`` is the client's own count.

    Seconds, tokens, ratios and bytes as their names say. ``server_tpot_s`` is request-weighted where it comes from a
    histogram of requests, and token-weighted, first tokens left out, where llama.cpp's decode seconds are all there is.
    """
    return {**_engine(answers, bounds, adapter, n_requests), **_host(answers, bounds)}


def _engine(
    answers: Mapping[str, Answer], bounds: Bounds, adapter: str | None, n_requests: int | None
) -> dict[str, Reading]:
    known = engine_series(adapter)
    if known is None:
        return {}

    def counted(name: str | None, what: str) -> Reading:
        if name is None:
            return Absent(why=known.lacks.get(what, f"no series for {what}"))
        return grown(answers, name, bounds, known).reading

    def gauged(name: str | None, what: str, over: str) -> Reading:
        if name is None:
            return Absent(why=known.lacks.get(what, f"no series for {what}"))
        answer = answers.get(name)
        if answer is None:
            return Unmeasured(why=f"{name} was not asked for")
        return gauge(answer, bounds, once=known.once, over=over)

    def mean_of(family: str | None, what: str) -> Reading:
        if family is None:
            return Absent(why=known.lacks.get(what, f"no series for {what}"))
        return quotient(counted(f"{family}_sum", what), counted(f"{family}_count", what), f"no request in {family}")

    generated, requests = counted(known.generated_tokens, "generated_tokens"), counted(known.requests, "requests")
    drafted, accepted = counted(known.drafted, "drafted"), counted(known.accepted, "accepted")
    steps = counted(known.verify_steps, "verify_steps")
    tpot = mean_of(known.tpot, "tpot")
    if known.tpot is None and known.generation_s is not None:
        tpot = _per_token(counted(known.generation_s, "tpot"), generated, n_requests)
    return {
        "generated_tokens": generated,
        "prompt_tokens": counted(known.prompt_tokens, "prompt_tokens"),
        "requests": requests,
        "server_ttft_s": mean_of(known.ttft, "ttft"),
        "server_tpot_s": tpot,
        "n_drafted": drafted,
        "n_accepted": accepted,
        "n_verify_steps": steps,
        "acceptance_rate": quotient(accepted, drafted, "nothing was drafted in the window"),
        "acceptance_length": _length(accepted, steps),
        "tokens_per_verify_step": _per_step(known, generated, requests, steps),
        "running_requests_mean": gauged(known.running, "running", "mean"),
        "running_requests_max": gauged(known.running, "running", "max"),
        "queued_requests_mean": gauged(known.queued, "queued", "mean"),
        "queued_requests_max": gauged(known.queued, "queued", "max"),
        "kv_use_max_ratio": gauged(known.kv_use, "kv_use", "max"),
    }


def quotient(over: Reading, under: Reading, nothing: str) -> Reading:
    """A ratio of two measured numbers; ``nothing`` says what it means that the lower one is zero."""
    for part in (under, over):
        if not isinstance(part, Measured):
            return part
    assert isinstance(over, Measured) and isinstance(under, Measured)
    return Measured(over.value / under.value) if under.value > 0 else Unmeasured(why=nothing)


def _length(accepted: Reading, steps: Reading) -> Reading:
    mean = quotient(accepted, steps, "no verify step in the window")
    return Measured(1 + mean.value) if isinstance(mean, Measured) else mean


def _per_step(known: EngineSeries, generated: Reading, requests: Reading, steps: Reading) -> Reading:
    """SGLang's counters give no accepted drafts, but tokens a verify step: each request's first token is of no step."""
    if known.drafted is not None:
        return Absent(why="drafts are counted: see acceptance_rate and acceptance_length")
    for part in (generated, requests):
        if not isinstance(part, Measured):
            return part
    assert isinstance(generated, Measured) and isinstance(requests, Measured)
    return quotient(Measured(generated.value - requests.value), steps, "no verify step in the window")


def _per_token(seconds: Reading, generated: Reading, n_requests: int | None) -> Reading:
    if n_requests is None:
        return Unmeasured(why="how many requests ran is not known: their first tokens cannot be left out")
    if not isinstance(generated, Measured):
        return generated
    return quotient(seconds, Measured(generated.value - n_requests), "no token after the first ones")


def _host(answers: Mapping[str, Answer], bounds: Bounds) -> dict[str, Reading]:
    asked = [answers[name] for name in GPU_SERIES if name in answers]
    hosts = {one.labels.get("Hostname") or one.labels.get("instance") for answer in asked for one in answer.series}
    if len(hosts) > 1:
        named = ", ".join(sorted(str(host) for host in hosts))
        several = Unmeasured(why=f"GPUs of {len(hosts)} hosts answer ({named}): name one of them by its labels")
        return dict.fromkeys((*_GPU, "gpu_memory_used_max_bytes"), several)
    found: dict[str, Reading] = {}
    for name, (series, factor) in _GPU.items():
        if series in answers:
            mean = mean_of_means(answers[series], bounds)
            found[name] = Measured(mean.value * factor) if isinstance(mean, Measured) else mean
    if GPU_MEMORY_MIB in answers:
        most = gauge(answers[GPU_MEMORY_MIB], bounds, over="max")
        found["gpu_memory_used_max_bytes"] = Measured(most.value * 1024**2) if isinstance(most, Measured) else most
    return found
