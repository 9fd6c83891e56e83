"""Runs and studies with levels: a played server whose steps take longer the more it has to do, written as runs are.

The played server is a formula, so that a test knows where an arm must break even: a step of the baseline takes
``step_s`` seconds, more with every other request under way; a step of a speculating arm takes ``cost`` times as long
and commits ``accepted`` tokens more. Clients, counters, scrapes, GPU samples and level records follow from it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.gpu_records import GpuReading, GpuSample
from evidence.level_records import Level
from evidence.records import Request, Scrape
from tests.run_factory import UNIX_S, make_run, request
from tests.study_factory import DRAFT_TYPES, At, make_study

N_TOKENS = 31
STEPS_DRAFTED = 4
GIB = 2**30
LIMITS = {"timeout_s": 600.0, "ttft_slo_s": 0.5, "tpot_slo_s": 0.05}
CONFIG = {
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "hidden_size": 576,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Played:
    """A server. ``cost`` gives, for so many requests at once, a speculative step's time over a plain one's."""

    step_s: float = 0.010
    crowd: float = 0.05  # by how much each further request lengthens a step
    prefill_s: float = 0.0002  # a prompt token
    accepted: int = 0  # drafts accepted a step
    cost: Callable[[float], float] = lambda _: 1.0
    slots: int = 8  # requests at once; more wait
    blocks: int = 512  # of 16 tokens
    memory_bytes: int = 60 * GIB
    client_rate_per_s: float | None = None  # the client sends no faster, however many arrivals are due
    fails_at: float | None = None  # from this setting on every fifth request is refused


@dataclass
class Book:
    """What the server would have counted, and the records of a run as they come about."""

    requests: list[Request] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    clock_s: float = 0.0

    def add(self, **grown: float) -> None:
        for name, value in grown.items():
            self.counters[name] = self.counters.get(name, 0.0) + value


def played_run(
    kind: str, settings: Sequence[float], server: Played, *, n: int = 24, prompt_tokens: int = 64,
    limits: Mapping[str, float] | None = None, process: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """What ``make_run`` takes for one run: requests at each level, scrapes around them, samples and the scenario."""
    book = Book(counters={"speculates": float(server.accepted > 0), "blocks": float(server.blocks)})
    book.counters["started"] = 1.7e9 + process
    for index, setting in enumerate(settings):
        _level(book, kind, index, setting, server, process, n, prompt_tokens)
    section = {
        "concurrency": ("levels", {"users": [int(one) for one in settings], "requests": n}),
        "context": ("context", {"target_tokens": [int(one) for one in settings], "requests": n}),
        "arrivals": ("arrivals", {"process": "constant", "rate_per_s": list(settings), "requests": n}),
    }[kind]
    scenario = {
        "name": kind, "kind": kind, "cache": {"policy": "as-is", "per": "cell"},
        "limits": dict(LIMITS if limits is None else limits), section[0]: section[1],
    }  # fmt: skip
    return {
        "requests": book.requests,
        "run": {
            "timed": True, "scrapes": book.scrapes, "levels": book.levels, "gpu": _gpu(server, book.clock_s),
            "scenario": scenario, "adapter": "vllm",
            "server": {"engine": "vllm", "version": "0.33.0", "url": "http://127.0.0.1:1",
                       "speculative": server.accepted > 0},
            "model": {"asked": "tiny", "served": "tiny", "file_sha256": "ab" * 32, "quantisation": "BF16",
                      "config": CONFIG},
        },
    }  # fmt: skip


def make_level_run(
    root: Path,
    kind: str,
    settings: Sequence[float],
    server: Played | None = None,
    *,
    arm_name: str = "served",
    **how: Any,
) -> Path:
    """The folder of one run with levels."""
    server = server or Played()
    made = played_run(kind, settings, server, **how)
    kinds = DRAFT_TYPES if server.accepted else ["none"]
    args = {"speculative.types": kinds, "speculative.draft.n_max": STEPS_DRAFTED}
    return make_run(root, made["requests"], arm={"name": arm_name, "engine": "vllm", "args": args}, **made["run"])


def make_sweep_study(
    root: Path,
    kind: str,
    settings: Sequence[float],
    servers: Mapping[str, Played],
    *,
    n: int = 24,
    limits: Mapping[str, float] | None = None,
    **study: Any,
) -> Path:
    """A study whose cells are runs with levels; ``servers`` by arm, the baseline first."""

    def made(at: At) -> dict[str, Any]:
        process = 1000 * at.pair + sum(map(ord, at.arm + at.role))  # each cell starts a server of its own
        return played_run(kind, settings, servers[at.arm], n=n, process=process, limits=limits)

    return make_study(
        root,
        arms=tuple(servers),
        speculative=[arm for arm, server in servers.items() if server.accepted],
        requests=lambda at: made(at)["requests"],
        run=lambda at: made(at)["run"],
        **study,
    )


def _level(
    book: Book, kind: str, index: int, setting: float, server: Played, process: int, n: int, prompt_tokens: int
) -> None:
    name = {"concurrency": "users", "context": "tokens", "arrivals": "rate"}[kind]
    label = f"{name}={setting:g}"
    tokens = int(setting) if kind == "context" else prompt_tokens
    began = book.clock_s + 1.0
    for place in range(3):
        book.scrapes.append(_scrape(book, "idle-check", began - 0.6 + place / 10, label))
    book.scrapes.append(_scrape(book, "before", began - 0.1, label))
    at_once = {"concurrency": setting, "context": 1.0, "arrivals": max(1.0, setting * 0.4)}[kind]
    free = [began + 0.01 * user for user in range(int(at_once) if kind != "arrivals" else n)]
    ended, last, done = began, began - 1.0, []
    for place in range(n):
        user = place % len(free)
        scheduled = None if kind != "arrivals" else began + place / setting
        sent = free[user] if scheduled is None else scheduled + 0.0005
        if scheduled is not None and server.client_rate_per_s is not None:
            sent = max(sent, last + 1 / server.client_rate_per_s)
        last = sent
        one = _request(label, index, place, sent, tokens, at_once, setting, server, process)
        if scheduled is not None:
            one = one.model_copy(update={"send_lag_s": sent - scheduled})
        done.append(one)
        free[user] = sent + (one.end_after_s or 0.0) + 0.001
        ended = max(ended, free[user])
    good = [one for one in done if one.outcome == "completed"]
    busy = min(at_once, server.slots)
    waiting = max(0.0, at_once - server.slots)
    for share in (0.3, 0.6):
        gauges = {"running": busy, "waiting": waiting, "kv": min(1.0, busy * (tokens + 20) / (16 * server.blocks))}
        book.scrapes.append(_scrape(book, "during", began + share * (ended - began), label, **gauges))
    _count(book, good, at_once, server)
    book.scrapes.append(_scrape(book, "after", ended + 0.2, label))
    last_sent = max((one.sent_at_monotonic_s or 0.0) for one in done) - 50.0
    book.levels.append(
        Level(
            run_id="run-test", index=index, label=label, kind=kind,  # type: ignore[arg-type]  # one of LevelKind
            users=int(setting) if kind == "concurrency" else 1 if kind == "context" else None,
            rate_per_s=setting if kind == "arrivals" else None,
            target_tokens=int(setting) if kind == "context" else None,
            steady_s=None, began_at_unix_s=UNIX_S + began, began_at_monotonic_s=50.0 + began,
            full_after_s=None if kind == "arrivals" else 0.01 * at_once, drain_after_s=last_sent - began,
            drained_after_s=ended - began, n_planned=n, n_started=n, n_completed=len(good), n_failed=n - len(good),
            n_cancelled=0, n_cap_hits=0 if kind == "arrivals" else None, ended_by="requests",
        )
    )  # fmt: skip
    book.requests += done
    book.clock_s = ended + 0.5


def _request(
    label: str,
    index: int,
    place: int,
    sent: float,
    tokens: int,
    at_once: float,
    setting: float,
    server: Played,
    process: int,
) -> Request:
    """One answer of 31 tokens, a chunk a step; the prompt differs from request to request by a per mille or two."""
    speculates = server.accepted > 0
    busy = min(at_once, server.slots)
    step = server.step_s * (1 + server.crowd * (busy - 1)) * (1 + 0.002 * (place % 5))
    step *= server.cost(busy) if speculates else 1.0
    step *= 1 + 0.001 * ((place * 3 + process) % 7) + 0.002 * (process % 5)
    step *= 1 + tokens / 50_000
    queued = _queued(at_once, server) * (place % max(1, int(at_once))) / max(1.0, at_once)
    first = 0.02 + server.prefill_s * tokens * (1 + 0.1 * (busy - 1)) + queued
    n_steps = (N_TOKENS - 1) // (1 + server.accepted)
    marks = [(first, 0, 1, 2)]
    marks += [
        (first + (k + 1) * step, k + 1, 1 + (k + 1) * (1 + server.accepted), 2 * (1 + server.accepted))
        for k in range(n_steps)
    ]
    usage = {"prompt_tokens": tokens, "completion_tokens": N_TOKENS, "prompt_tokens_details": {"cached_tokens": 0}}
    told = {
        "num_spec_steps": n_steps, "num_draft_tokens": STEPS_DRAFTED * n_steps,
        "num_accepted_draft_tokens": server.accepted * n_steps,
    }  # fmt: skip
    prompt = f"{('code', 'json', 'prose')[place % 3]}_{index:02d}{place:03d}"
    common: dict[str, Any] = {
        "prompt_id": prompt, "domain": prompt.partition("_")[0], "level": label,
        "sent_at_monotonic_s": 50.0 + sent, "sent_at_unix_s": UNIX_S + sent, "n_prompt_tokens": tokens,
    }  # fmt: skip
    if server.fails_at is not None and setting >= server.fails_at and place % 5 == 4:
        return request(
            **common, chunks=(), outcome="http_error", http_status=503, end_after_s=0.02, n_completion_tokens=None,
            finish_reason=None, token_source=None, output_text="",
        )  # fmt: skip
    return request(
        **common, chunks=marks, usage=usage, n_completion_tokens=N_TOKENS, output_text=f"{prompt} " * 8,
        chunk_semantics="verify_step" if speculates else "token",
        server_fields={"metrics": {"speculative_decoding": told}} if speculates else {},
    )  # fmt: skip


def _queued(at_once: float, server: Played) -> float:
    """Seconds that a request waits at most where more come than there are slots."""
    return max(0.0, at_once - server.slots) * 30 * server.step_s / server.slots


def _count(book: Book, good: Sequence[Request], at_once: float, server: Played) -> None:
    n_steps = (N_TOKENS - 1) // (1 + server.accepted)
    book.add(
        generated=sum(one.n_completion_tokens or 0 for one in good),
        prompt=sum(one.n_prompt_tokens or 0 for one in good),
        requests=len(good),
        ttft_s=sum(0.9 * (one.first_token_after_s or 0.0) for one in good),
        steps=n_steps * len(good),
        steps_s=sum((one.last_token_after_s or 0.0) - (one.first_token_after_s or 0.0) for one in good),
        queue_s=0.5 * _queued(at_once, server) * len(good),
        preempted=max(0.0, at_once - 2 * server.slots),
    )
    if server.accepted:
        book.add(drafts=n_steps * len(good), drafted=STEPS_DRAFTED * n_steps * len(good))
        book.add(accepted=server.accepted * n_steps * len(good))


def _scrape(book: Book, role: Any, at_s: float, label: str, **gauges: float) -> Scrape:
    """vLLM's series as they stood; what a level adds is counted when it is over."""
    seen = book.counters
    rows: list[tuple[str, str, float]] = [
        ("generation_tokens_total", "counter", seen.get("generated", 0.0)),
        ("prompt_tokens_total", "counter", seen.get("prompt", 0.0)),
        ("prompt_tokens_cached_total", "counter", 0.0),
        ('request_success_total{finished_reason="stop"}', "counter", seen.get("requests", 0.0)),
        ("num_preemptions_total", "counter", seen.get("preempted", 0.0)),
    ]
    for name, n, total in (
        ("time_to_first_token_seconds", "requests", "ttft_s"),
        ("inter_token_latency_seconds", "steps", "steps_s"),
        ("request_queue_time_seconds", "requests", "queue_s"),
    ):
        rows += [
            (f'{name}_bucket{{le="+Inf"}}', f"histogram {name}", seen.get(n, 0.0)),
            (f"{name}_sum", "", seen.get(total, 0.0)),
            (f"{name}_count", "", seen.get(n, 0.0)),
        ]
    if seen.get("speculates"):
        for name, count in (("drafts", "drafts"), ("draft_tokens", "drafted"), ("accepted_tokens", "accepted")):
            rows.append((f"spec_decode_num_{name}_total", "counter", seen.get(count, 0.0)))
    rows += [
        ("num_requests_running", "gauge", gauges.get("running", 0.0)),
        ("num_requests_waiting", "gauge", gauges.get("waiting", 0.0)),
        ("kv_cache_usage_perc", "gauge", gauges.get("kv", 0.0)),
    ]
    blocks = int(book.counters.get("blocks", 512))
    lines = ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {book.counters['started']!r}"]
    for name, kind, value in rows:
        if kind:
            family = kind.partition(" ")[2] or name.partition("{")[0]
            lines.append(f"# TYPE vllm:{family} {kind.partition(' ')[0]}")
        lines.append(f"vllm:{name} {value!r}")
    lines += ["# TYPE vllm:cache_config_info gauge"]
    lines += [f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",num_gpu_blocks="{blocks}"}} 1.0', ""]
    body = "\n".join(lines)
    return Scrape(
        run_id="run-test", url="http://127.0.0.1:1/metrics", role=role, level=label, send_unix_s=UNIX_S + at_s,
        receive_unix_s=UNIX_S + at_s + 0.01, send_monotonic_s=50.0 + at_s, receive_monotonic_s=50.0 + at_s + 0.01,
        http_status=200, body=body, complete=True, error=None,
        headers={"Content-Type": "text/plain; version=0.0.4", "Content-Length": str(len(body))},
    )  # fmt: skip


def _gpu(server: Played, until_s: float) -> list[GpuSample]:
    return [
        GpuSample(
            run_id="run-test", source="nvml", host="gpu-host", at_unix_s=UNIX_S + at / 4, at_monotonic_s=None,
            took_s=0.001, interval_s=0.25, missing=None,
            gpus=(
                GpuReading(index=0, memory_total_bytes=80 * GIB, memory_used_bytes=server.memory_bytes, power_w=300.0),
            ),
        )
        for at in range(int(until_s * 4) + 1)
    ]  # fmt: skip
