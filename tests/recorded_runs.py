"""Sealed runs whose scrapes are captured bodies of llama.cpp, vLLM and SGLang, a second apart."""

from collections.abc import Sequence
from pathlib import Path

import run_factory as factory

from evidence.folder import RunWriter
from evidence.records import Health, Scrape, Started

FIXTURES = Path(__file__).parent / "fixtures" / "exposition"
BODIES = {
    "llama.cpp": (
        "llamacpp_b11434_0_startup",
        "llamacpp_b11434_2_spec_one_request",
        "llamacpp_b11434_4_zero_acceptance",
    ),
    "vllm": ("vllm_v0.33.0_1_spec_startup_zero", "vllm_v0.33.0_2_one_request", "vllm_v0.33.0_3_zero_acceptance"),
    "sglang": (
        "sglang_v0.5.23_1_after_first_prefill",
        "sglang_v0.5.23_2_ngram_one_request",
        "sglang_v0.5.23_4_zero_acceptance",
    ),
}
AT_S = factory.UNIX_S


def body(name: str) -> str:
    return (FIXTURES / f"{name}.prom").read_text()


def scrape(text: str | None, at_s: float, *, run_id: str, url: str, role: str = "during", **changes) -> Scrape:
    fields = {
        "run_id": run_id, "url": url, "role": role, "send_unix_s": AT_S + at_s, "receive_unix_s": AT_S + at_s + 0.01,
        "send_monotonic_s": 50.0 + at_s, "receive_monotonic_s": 50.01 + at_s, "http_status": 200, "body": text,
        "headers": {"Content-Type": "text/plain; version=0.0.4"}, "complete": True, "error": None,
    }  # fmt: skip
    return Scrape(**(fields | changes))


def scrapes(run_id: str, bodies: Sequence[str], *, url: str, each: int = 3) -> list[Scrape]:
    """Every body ``each`` times, a second apart; the first is "before", the last "after"."""
    texts = [text for text in bodies for _ in range(each)]
    roles = ["before", *["during"] * (len(texts) - 2), "after"]
    return [
        scrape(text, float(place), run_id=run_id, url=url, role=role)
        for place, (text, role) in enumerate(zip(texts, roles, strict=True))
    ]


def recorded_run(
    runs: Path, engine: str, *, run_id: str | None = None, found: Sequence[Scrape] | None = None, seal: bool = True
) -> Path:
    """A sealed run of three requests, one of them failed, with health lines and the engine's captured scrapes."""
    run_id = run_id or f"run-{engine.replace('.', '')}"
    wanted = [
        factory.request(domain="warmup", phase="warmup", prompt_id="warmup_01"),
        factory.request(domain="code"),
        factory.request(domain="prose", outcome="truncated", finish_reason=None),
    ]
    requests = [
        one.model_copy(update={"run_id": run_id, "sent_at_unix_s": AT_S + 2 * n, "sent_at_monotonic_s": 50.0 + 2 * n})
        for n, one in enumerate(factory.numbered(wanted))
    ]
    plan = [factory.planned(one, n, text=f"Answer {one.prompt_id}.") for n, one in enumerate(requests)]
    manifest = factory.manifest(
        plan,
        run_id=run_id,
        adapter=engine,
        arm={"name": f"{engine}-arm"},
        server={"engine": engine, "version": "1", "url": "http://127.0.0.1:1", "speculative": True},
        clock={"monotonic_s": 50.0, "unix_s": AT_S},
    )
    writer = RunWriter.create(runs, run_id, manifest, plan)
    worker = writer.worker(0)
    if found is None:
        url = f"http://{engine.replace('.', '')}:8000/metrics"
        found = scrapes(run_id, [body(name) for name in BODIES[engine]], url=url)
    for one in found:
        writer.scrape(one)
    for one in requests:
        worker.started(
            Started(
                run_id=run_id,
                worker=0,
                sequence=one.sequence,
                plan_id=one.plan_id,
                started_at_unix_s=one.sent_at_unix_s,
                started_at_monotonic_s=one.sent_at_monotonic_s,
            )
        )
        worker.ended(one)
    for n in range(6):
        worker.health(
            Health(
                at_monotonic_s=51.0 + n,
                interval_s=1.0,
                lag_p50_s=0.0002,
                lag_max_s=0.003,
                cpu_ratio=0.01,
                gc_pauses=0,
                gc_pause_max_s=0.0,
                in_flight=1,
            )
        )
    if seal:
        writer.seal()
    else:
        writer.close()
    return writer.path
