"""A run as it happens, for a page that is open beside it: levels, latencies, acceptance and the client's condition.

    python -m infra.telemetry.live_view RUN [--port 0]

Served by a process of its own, which reads the run's folder as the recorder writes it (``evidence.follow``): the
measuring process does nothing for it but pass the answer on. Medians are of completed requests and exact; they are a
view of what is on file, the verdict and every published number come from ``analysis``.
"""

import argparse
import json
import math
import sys
import threading
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evidence.errors import EvidenceError
from evidence.follow import Follower
from evidence.records import Health, Request
from infra.engines.adapter import adapter_for
from infra.telemetry.child_server import Child, serve_until_closed, start_child
from infra.wire.client_records import ended
from infra.wire.client_series import Ended

SHOWN_POINTS = 600  # of a chart: enough for its pixels


@dataclass(slots=True)
class LevelTally:
    """What has ended at one level so far; ``label`` is "" for a run without levels.

    A page asks every second, beside the run: each request is looked at once, and what all of them are needed for is
    worked out anew only when there are more of them.
    """

    label: str
    n_planned: int = 0
    n_started: int = 0
    n_ended: int = 0
    n_completed: int = 0
    n_failed: int = 0
    n_cancelled: int = 0
    n_tokens: int | None = None  # of completed requests that told them; None: none did
    ttft_s: list[float] = field(default_factory=list)  # of completed requests, in order of size, and so are these:
    tpot_s: list[float] = field(default_factory=list)
    tok_per_s: list[float] = field(default_factory=list)
    answers: list[tuple[dict[str, Any], Any]] = field(default_factory=list)
    pooled: tuple[int, dict[str, Any]] | None = None  # acceptance, and of how many answers
    first_unix_s: float | None = None
    last_unix_s: float | None = None
    lag_max_s: float | None = None

    def row(self, adapter: Any, speculative: bool | None) -> dict[str, Any]:
        """One row of the table; null where nothing has been measured yet."""
        took_s = None
        if self.first_unix_s is not None and self.last_unix_s is not None:
            took_s = self.last_unix_s - self.first_unix_s
        return {
            "level": self.label,
            "n_planned": self.n_planned,
            "n_started": self.n_started,
            "n_ended": self.n_ended,
            "n_completed": self.n_completed,
            "n_failed": self.n_failed,
            "n_cancelled": self.n_cancelled,
            "ttft_median_s": _middle(self.ttft_s),
            "tpot_median_s": _middle(self.tpot_s),
            "decode_median_tok_per_s": _middle(self.tok_per_s),
            "output_tok_per_s": self.n_tokens / took_s if took_s and self.n_tokens is not None else None,
            "acceptance": self._acceptance(adapter, speculative),
            "lag_max_s": self.lag_max_s,
        }

    def add(self, told: Ended) -> None:
        """One more request has ended."""
        self.n_ended += 1
        self.n_cancelled += told.outcome == "cancelled"
        self.n_failed += told.outcome not in ("completed", "cancelled")
        if told.outcome != "completed":
            return
        self.n_completed += 1
        if told.n_output_tokens is not None:
            self.n_tokens = (self.n_tokens or 0) + told.n_output_tokens
        if told.ttft_s is not None:
            insort(self.ttft_s, told.ttft_s)
        if told.tpot_s is not None:
            insort(self.tpot_s, told.tpot_s)
            if told.tpot_s > 0:
                insort(self.tok_per_s, 1 / told.tpot_s)

    def _acceptance(self, adapter: Any, speculative: bool | None) -> dict[str, Any]:
        if adapter is None or not self.answers:
            why = "no answer has ended yet" if adapter is not None else "the engine is not known"
            return {"state": "unmeasured", "rate": None, "length": None, "why": why}
        if self.pooled is None or self.pooled[0] != len(self.answers):
            found = adapter.pooled_acceptance(self.answers, speculative=speculative).as_json()
            self.pooled = len(self.answers), {name: found[name] for name in ("state", "rate", "length", "why")}
        return self.pooled[1]


class LiveView:
    """Follows one run folder; ``as_json`` reads what is new and tells where the run stands."""

    def __init__(self, run: Path) -> None:
        """Raises EvidenceError where the folder has no readable manifest."""
        self._follower = Follower(run)
        manifest = self._follower.manifest
        self._adapter = adapter_for(manifest.adapter, manifest.server.get("version"))
        speculative = manifest.server.get("speculative")
        self._speculative = None if speculative is None else speculative not in (False, "none", "off", "")
        self._levels: dict[str, LevelTally] = {}
        self._level_of: dict[str, str] = {}
        for plan_id, phase, level in self._follower.plan:
            self._level_of[plan_id] = "warm-up" if phase == "warmup" else (level or "measured")
            self._tally(self._level_of[plan_id]).n_planned += 1
        self._points: list[list[float | None]] = []
        self._health: dict[int, Health] = {}
        self._begun: dict[int, list[tuple[float, LevelTally]]] = {}  # by worker: when each of its requests began
        self._health_points: list[list[float | None]] = []
        self._n_started = self._n_ended = 0

    def as_json(self) -> dict[str, Any]:
        """``levels`` (rows), ``requests`` and ``health`` (points for charts), and how far the run is."""
        more, sealed = True, False
        while more:
            news = self._follower.look()
            more, sealed = news.more, news.sealed
            for started in news.started:
                tally = self._tally(self._level_of.get(started.plan_id, "measured"))
                tally.n_started += 1
                self._begun.setdefault(started.worker, []).append((started.started_at_monotonic_s, tally))
            for request in news.requests:
                self._add(request)
            for worker, health in news.health:
                self._note_lag(worker, health)
                self._health[worker] = health
                self._health_points.append(
                    [worker, health.at_monotonic_s, health.lag_max_s, health.cpu_ratio, health.in_flight]
                )
            self._n_started += len(news.started)
            self._n_ended += len(news.requests)
        manifest = self._follower.manifest
        return {
            "run": str(self._follower.path),
            "run_id": manifest.run_id,
            "arm": (manifest.arm or {}).get("name") if isinstance(manifest.arm, dict) else manifest.label,
            "engine": manifest.server.get("engine"),
            "sealed": sealed,
            "n_planned": manifest.n_planned,
            "n_started": self._n_started,
            "n_ended": self._n_ended,
            "in_flight": max(0, self._n_started - self._n_ended),
            "levels": [tally.row(self._adapter, self._speculative) for tally in self._levels.values()],
            "requests": _thinned(self._points),
            "health": _thinned(self._health_points),
            "workers": {
                str(worker): {
                    "lag_p50_s": health.lag_p50_s,
                    "lag_max_s": health.lag_max_s,
                    "cpu_ratio": health.cpu_ratio,
                    "gc_pause_max_s": health.gc_pause_max_s,
                    "in_flight": health.in_flight,
                }
                for worker, health in sorted(self._health.items())
            },
        }

    def _note_lag(self, worker: int, health: Health) -> None:
        """An interval belongs to the levels that began a request in it, else to the one that is still under way."""
        begun = self._begun.get(worker, [])
        before = self._health.get(worker)
        since_s = -math.inf if before is None else before.at_monotonic_s
        first, end = (bisect_right(begun, at_s, key=lambda one: one[0]) for at_s in (since_s, health.at_monotonic_s))
        own = begun[first:end] or (begun[end - 1 : end] if end and health.in_flight else [])
        for _, tally in own:
            if health.lag_max_s is not None:
                tally.lag_max_s = max(tally.lag_max_s or 0.0, health.lag_max_s)

    def _tally(self, label: str) -> LevelTally:
        return self._levels.setdefault(label, LevelTally(label))

    def _add(self, request: Request) -> None:
        label = self._level_of.get(request.plan_id, "measured")
        tally, told = self._tally(label), ended(request)
        tally.add(told)
        if request.outcome == "completed":
            tally.answers.append((request.server_fields, request.usage))
        if request.sent_at_unix_s is None:
            return
        first = tally.first_unix_s
        tally.first_unix_s = request.sent_at_unix_s if first is None else min(first, request.sent_at_unix_s)
        if request.end_after_s is None:
            return
        over_unix_s = request.sent_at_unix_s + request.end_after_s
        tally.last_unix_s = max(over_unix_s, tally.last_unix_s or over_unix_s)
        self._points.append([over_unix_s, told.ttft_s, told.tpot_s, float(request.outcome == "completed")])


def _middle(in_order: Sequence[float]) -> float | None:
    """The median of values in order of size, the lower one of two; None without any."""
    return in_order[(len(in_order) - 1) // 2] if in_order else None


def _thinned(points: list[list[float | None]]) -> list[list[float | None]]:
    """At most SHOWN_POINTS of them, evenly, the last one always."""
    step = max(1, -(-len(points) // SHOWN_POINTS))
    return points[::-1][::step][::-1]


class _Answer(BaseHTTPRequestHandler):
    view: LiveView
    lock: threading.Lock

    def do_GET(self) -> None:
        """The run as JSON, whatever the path."""
        try:
            with self.lock:
                body = json.dumps(self.view.as_json(), allow_nan=False).encode()
            status = 200
        except EvidenceError as error:
            body, status = json.dumps({"error": str(error)}).encode(), 500
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: the page asks every second."""


def start(run: Path) -> Child:
    """The view of a run that has its manifest, as a child at low priority on loopback. Raises ChildError."""
    return start_child("infra.telemetry.live_view", [str(run.resolve())])


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C, or (``--with-parent``) until standard input is closed."""
    parser = argparse.ArgumentParser(prog="python -m infra.telemetry.live_view", description="A run as it happens.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder that has been begun")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (%(default)s)")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    options = parser.parse_args(argv)
    try:
        handler = type("Answer", (_Answer,), {"view": LiveView(options.run), "lock": threading.Lock()})
        server = ThreadingHTTPServer(("127.0.0.1", options.port), handler)
    except (EvidenceError, OSError, OverflowError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 2
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serve_until_closed(f"http://127.0.0.1:{server.server_address[1]}/", with_parent=options.with_parent)
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
