"""One cell of ``benchmarks.client_load`` in a process of its own: so many streams from a server that stands, judged.

    python -m benchmarks.load_cell '{"url": ..., "way": "wire", "n_streams": 64, ...}'

Prints one JSON object: the errors against the server's own stamps, chunks a second, the coalesced share, and the CPU of
this process while it received. Reading the answers comes after that and is not in it.
With ``"together": true`` it says "ready" once it could begin, and begins when a line comes on its standard input.
"""

import gevent.monkey

gevent.monkey.patch_all()

# ruff: noqa: E402  the process is patched before anything else is imported, as under Locust
import json
import os
import sys
from typing import Any

from benchmarks import stream_transports as transports
from benchmarks.stream_client import measure, pool
from infra.fake.schedule import answer_s


def settle(core: int | None, realtime: bool) -> bool:
    """Pins this process; whether it runs with real-time priority."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    if realtime:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
        except OSError:
            return False
    return realtime


def run(asked: dict[str, Any]) -> dict[str, Any]:
    way, url = asked["way"], asked["url"]
    if way == "wire":
        receive = transports.wire_on_gevent
    else:
        from benchmarks.openai_transports import OpenAiTransports

        client = OpenAiTransports(url)
        receive = {"openai-bytes": client.iter_bytes, "openai-chunks": client.chunks}[way]
    gap_s = 1 / asked["chunks_per_s"]
    fake = {"ttft_s": asked["ttft_s"], "gap_s": gap_s, "cadence": True}

    def load(n_requests: int, n_tokens: int, spread_s: float) -> transports.Load:
        return transports.Load(
            base_url=url,
            n_streams=asked["n_streams"],
            n_requests=n_requests,
            n_tokens=n_tokens,
            spread_s=spread_s,
            fake=fake,
        )

    receive(load(1, 2, 0.0))  # primes imports, connections and caches
    realtime = settle(asked["core"], asked["realtime"])
    if asked.get("together"):
        print("ready", flush=True)
        if not sys.stdin.readline():
            raise SystemExit("nobody waits for this cell any more")
    n_tokens = asked["n_tokens"]
    spread_s = min(1.0, answer_s(n_tokens, ttft_s=asked["ttft_s"], gap_s=gap_s))
    cell = measure(receive, load(asked["n_requests"], n_tokens, spread_s))
    row = pool([cell])
    return {"realtime": realtime, "load_1m": os.getloadavg()[0]} | {k: v for k, v in row.items() if "repeat" not in k}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
