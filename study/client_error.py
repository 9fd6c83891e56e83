"""How far a run against the fake engine is from what that engine says it wrote, request by request.

The engine puts into each chunk when it had read the request and when it wrote the chunk, on the clock that this host's
processes share. Both sides' numbers are durations from a beginning of their own (t0; the request read), so the sending
of the request is in the client's error of a time from t0, as it is with any client.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from evidence.calibration_records import Error
from evidence.quantiles import FLOORS, nearest_rank
from evidence.reading import Run, read_segments
from evidence.records import Request
from infra.wire.stream import events

FLOOR_METRICS = ("ttft_s", "chunk_gap_s", "tpot_s", "e2e_s")  # in seconds


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What the engine wrote, in nanoseconds of the monotonic clock."""

    received_ns: int
    written_ns: tuple[int, ...]  # each token-bearing chunk
    end_ns: int  # the last event


@dataclass(kw_only=True)
class Differences:
    """Client minus engine, by metric, over all requests compared; seconds, and tokens a second for the rate."""

    by_metric: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (*FLOOR_METRICS, "decode_tok_per_s")}
    )
    n_requests: int = 0
    n_left_out: int = 0

    def error(self, metric: str) -> Error | None:
        """None where there is no value."""
        signed = sorted(self.by_metric[metric])
        if not signed:
            return None
        sizes = sorted(map(abs, signed))
        return Error(
            n=len(sizes),
            p50=nearest_rank(sizes, 50),
            p99=nearest_rank(sizes, 99) if len(sizes) >= FLOORS[99] else None,
            largest=sizes[-1],
            bias=nearest_rank(signed, 50),
        )

    def floor(self, metric: str) -> tuple[float, str] | None:
        """The highest quantile of the error's size that its number of values bears, and its name."""
        sizes = sorted(map(abs, self.by_metric[metric]))
        if not sizes:
            return None
        for percent in (99, 95, 90):
            if len(sizes) >= FLOORS[percent]:
                return nearest_rank(sizes, percent), f"p{percent}"
        return sizes[-1], "largest"


def differences(run: Run) -> Differences:
    """Of every completed measured request whose raw segments were kept."""
    found = Differences()
    for request in run.requests:
        if request.phase != "measured" or request.outcome != "completed":
            continue
        truth = None if request.wire is None else truth_of(run, request)
        if truth is None or not _add(found, request, truth):
            found.n_left_out += 1
        else:
            found.n_requests += 1
    return found


def truth_of(run: Run, request: Request) -> Truth | None:
    """None where the engine's stamps are not in the answer."""
    if request.wire is None:
        return None
    received_ns = end_ns = None
    written_ns: list[int] = []
    for payload in _payloads(run, request):
        if "written_ns" not in payload:
            return None
        received_ns, end_ns = payload["received_ns"], payload["written_ns"]
        choices = payload.get("choices") or [{}]
        if (choices[0].get("delta") or {}).get("content") or choices[0].get("text"):
            written_ns.append(end_ns)
    if received_ns is None or end_ns is None or len(written_ns) < 2:
        return None
    return Truth(received_ns=received_ns, written_ns=tuple(written_ns), end_ns=end_ns)


def _payloads(run: Run, request: Request) -> Iterator[dict[str, Any]]:
    assert request.wire is not None
    for _, data in events(read_segments(run, request.wire), framing="http" if request.transport == "wire" else "body"):
        yield json.loads(data)


def _add(found: Differences, request: Request, truth: Truth) -> bool:
    after_s = [mark[0] for mark in request.chunks]
    if len(after_s) != len(truth.written_ns) or request.end_after_s is None:
        return False
    true_s = [(written_ns - truth.received_ns) / 1e9 for written_ns in truth.written_ns]
    found.by_metric["ttft_s"].append(after_s[0] - true_s[0])
    found.by_metric["e2e_s"].append(request.end_after_s - (truth.end_ns - truth.received_ns) / 1e9)
    ours, theirs = pairwise(after_s), pairwise(true_s)
    found.by_metric["chunk_gap_s"] += [(b - a) - (d - c) for (a, b), (c, d) in zip(ours, theirs, strict=True)]
    tpot_s, true_tpot_s = _tpot_s(after_s), _tpot_s(true_s)
    found.by_metric["tpot_s"].append(tpot_s - true_tpot_s)
    if tpot_s > 0 and true_tpot_s > 0:
        found.by_metric["decode_tok_per_s"].append(1 / tpot_s - 1 / true_tpot_s)
    return True


def _tpot_s(instants_s: Sequence[float]) -> float:
    """The engine sends one token a chunk."""
    return (instants_s[-1] - instants_s[0]) / (len(instants_s) - 1)
