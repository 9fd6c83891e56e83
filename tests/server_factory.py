"""Scrapes, and the request they go with, made from captured bodies of a llama.cpp server."""

import re
from pathlib import Path

from run_factory import request

from analysis.server import judge_server
from evidence.records import Scrape

FIXTURES = Path(__file__).parent / "fixtures" / "exposition"
URL = "http://127.0.0.1:8080/metrics"
LLAMACPP = "llama.cpp"


def body(number: int, **changes: object) -> str:
    (path,) = FIXTURES.glob(f"llamacpp_b11434_{number}_*.prom")
    text = path.read_text()
    for name, value in changes.items():
        text, n = re.subn(rf"^(llamacpp:{name}) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert n == 1, name
    return text


def scrape(role: str, text: str | None, *, start: str = "77", url: str = URL, **changes) -> Scrape:
    fields = {
        "run_id": "run-test", "url": url, "role": role, "send_unix_s": 1.0, "receive_unix_s": 1.1,
        "send_monotonic_s": 1.0, "receive_monotonic_s": 1.1, "http_status": 200, "body": text, "complete": True,
        "headers": {"Content-Type": "text/plain; version=0.0.4", "Process-Start-Time-Unix": start}, "error": None,
    }  # fmt: skip
    return Scrape(**(fields | changes))


def scrapes(*bodies: str) -> list[Scrape]:
    before, *during, after = bodies
    idle = [scrape("idle-check", before) for _ in range(3)]
    return [*idle, scrape("before", before), *[scrape("during", b) for b in during], scrape("after", after)]


def served(**changes):
    """The request of the captured body: 43 prompt tokens, 137 made in 40 verify steps, 96 of 120 drafts accepted."""
    timings = {"cache_n": 0, "prompt_n": 43, "predicted_n": 137, "predicted_ms": 1915.0, "draft_n": 120}
    fields = {
        "n_completion_tokens": 137, "n_prompt_tokens": 43, "first_token_after_s": 0.2, "first_visible_after_s": 0.2,
        "headers_after_s": 0.2, "first_event_after_s": 0.2, "last_token_after_s": 2.1, "end_after_s": 2.2,
        "chunks": tuple((0.2 + i / 100, i, i + 1, 3) for i in range(137)), "server_fields": {"timings": timings},
    }  # fmt: skip
    accepted = changes.pop("accepted", 96)
    if accepted is not None:
        timings["draft_n_accepted"] = accepted
    return request(**(fields | {"last_token_after_s": 1.56} | changes))


PLAN = {"m0000": {"plan_id": "m0000", "phase": "measured", "max_tokens": 512}}


def judged(found_scrapes, requests=None, *, adapter=LLAMACPP, speculative=True, plan=PLAN, **options):
    requests = [served()] if requests is None else requests
    return judge_server(
        requests=requests, scrapes=found_scrapes, plan=plan, adapter=adapter, speculative=speculative, **options
    )


def engine_scrape(role: str, text: str | None, *, url: str = URL, **changes) -> Scrape:
    """A scrape of an engine that sends no start stamp in its headers."""
    return scrape(role, text, url=url, **({"headers": {"Content-Type": "text/plain; version=0.0.4"}} | changes))


def engine_scrapes(before: str, after: str, *during: str, url: str = URL) -> list[Scrape]:
    idle = [engine_scrape("idle-check", before, url=url) for _ in range(3)]
    between = [engine_scrape("during", one, url=url) for one in during]
    return [*idle, engine_scrape("before", before, url=url), *between, engine_scrape("after", after, url=url)]
