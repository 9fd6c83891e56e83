"""Records against their own raw segments: a record that says anything else than the bytes that were received is found.

The kept segments of a request are read again by the code that made its record, and what comes out is compared with
what is on file: instants, chunk marks, counts, text, usage, outcome. So a rewritten ``requests.jsonl`` is found even
where its seal was rewritten with it. How the reading of the stream ended is not on file: a record agrees where any way
of ending gives it. Up to a number of bytes every request is read again, beyond it a sample drawn by the run's own id.
When a request was sent is held against its started line as well, in every one (``sent_check``).
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from analysis.facts import Finding
from analysis.request_checks import SHOWN, Check, not_observable
from analysis.sent_check import TOLERANCE_S, SentCheck, against_stamps
from evidence.errors import EvidenceError
from evidence.frames import SegmentTuple
from evidence.reading import Run, read_segments
from evidence.records import Request
from evidence.redact import REDACTED
from infra.wire.record_fields import INSTANTS, stream_fields
from infra.wire.stamps import Ended
from infra.wire.stream import read_stream

NAME = "records against raw segments"
LIMIT_BYTES = 16_000_000
_ENDINGS: tuple[Ended, ...] = get_args(Ended)
# What decided the outcome in place of the stream: our own fault, or a connection that never was.
_NOT_BY_STREAM = frozenset({"client_error", "connect_refused", "connect_failed", "tls_failed"})
# The text's digest is checked against the text; a transport that hands over bodies says the head's part itself.
_NOT_COMPARED = frozenset({"output_sha256"})
_OF_THE_HEAD = frozenset({"http_status", "headers_after_s"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RawCheck:
    """``differing`` are (plan id, what differs); ``n_kept`` requests have segments on file, of ``n_ended``."""

    n_ended: int
    n_kept: int
    n_read: int
    n_bytes: int
    n_bytes_kept: int
    differing: tuple[tuple[str, str], ...]

    def as_check(self) -> Check:
        """As one of the run's checks; a difference leaves no number of the run."""
        if not self.n_kept and not self.differing:
            return not_observable(NAME, "no raw segments are on file")
        seen = f"{self.n_read} of {self.n_kept} requests with raw segments read again ({self.n_bytes / 1e6:.1f} MB)"
        if self.n_read < self.n_kept:
            seen += f", a sample drawn by the run's id of {self.n_bytes_kept / 1e6:.0f} MB; --all reads every one"
        if self.n_kept < self.n_ended:
            seen += f"; {self.n_ended - self.n_kept} requests have none on file"
        if not self.differing:
            return Check(name=NAME, state="pass", seen=seen)
        shown = "; ".join(f"{plan_id}: {what}" for plan_id, what in self.differing[:SHOWN])
        seen = f"{len(self.differing)} records say other than their raw segments or started lines ({shown}); {seen}"
        finding = Finding(code="records_differ_from_raw", scope="run", seen=seen)
        return Check(name=NAME, state="fail", seen=seen, finding=finding)


def raw_check(run: Run, *, limit_bytes: int | None = LIMIT_BYTES) -> RawCheck:
    """Read again and compare. ``limit_bytes`` of segments at most, None for all that are kept."""
    kept = [request for request in run.requests if request.wire is not None]
    chosen = _chosen(kept, limit_bytes)
    differing: list[tuple[str, str]] = []
    sent = SentCheck(run)
    unlike = {(one.worker, one.sequence): found for one in run.requests if (found := sent.difference(one)) is not None}
    for request in chosen:
        try:
            segments = read_segments(run, request.wire) if request.wire is not None else []
        except EvidenceError:
            continue  # a reference that points nowhere is a problem of the folder, and said there
        found = difference(request, segments) or against_stamps(request, segments)
        if found is not None and (request.worker, request.sequence) not in unlike:
            differing.append((request.plan_id, found))
    named = [(one.plan_id, unlike[key]) for one in run.requests if (key := (one.worker, one.sequence)) in unlike]
    return RawCheck(
        n_ended=len(run.requests),
        n_kept=len(kept),
        n_read=len(chosen),
        n_bytes=sum(_size(request) for request in chosen),
        n_bytes_kept=sum(_size(request) for request in kept),
        differing=(*named, *differing),
    )


def difference(request: Request, segments: Sequence[SegmentTuple]) -> str | None:
    """The first field in which a record differs from its segments, in words; None where they agree."""
    offsets = _offsets_s(request, segments)
    if isinstance(offsets, str):
        return offsets
    body = request.transport == "openai"
    skipped = _OF_THE_HEAD if body else frozenset[str]()
    if body and request.outcome == "malformed" and request.error is not None and request.error.kind != "event":
        skipped |= {"outcome"}  # HTTP was broken, which its body alone does not show
    first: str | None = None
    for ended in sorted(_ENDINGS, key=lambda one: not _likely(one, request.outcome)):
        facts = read_stream(
            segments,
            ended=ended,
            framing="body" if body else "http",
            http_status=request.http_status if body else None,
        )
        found = _difference(request, stream_fields(facts, offsets), skipped=skipped)
        if found is None:
            return None
        first = first or found
        if facts.outcome == request.outcome:
            return found
    return first


def _difference(request: Request, told: dict[str, Any], *, skipped: frozenset[str]) -> str | None:
    for name, value in told.items():
        there = getattr(request, name)
        if name in _NOT_COMPARED | skipped or (name == "outcome" and request.outcome in _NOT_BY_STREAM):
            continue
        if name in INSTANTS:
            # Where no segment ended the body, the reader's own clock said when it gave up.
            same = (value is None and name == "end_after_s") or _near(there, value)
        elif name == "chunks":
            same = len(there) == len(value) and all(
                _near(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(there, value, strict=True)
            )
            if not same:
                return _chunks_differ(there, value)
        else:
            same = there == value or _alike(there, value)
        if not same:
            return f"{name} is {_short(there)}, the segments give {_short(value)}"
    return None


def _chunks_differ(there: Sequence[Any], told: Sequence[Any]) -> str:
    if len(there) != len(told):
        return f"{len(there)} chunk marks, the segments give {len(told)}"
    place = next(
        n for n, (a, b) in enumerate(zip(there, told, strict=True)) if not (_near(a[0], b[0]) and a[1:] == b[1:])
    )
    return f"chunk mark {place} is {tuple(there[place])}, the segments give {told[place]}"


def _offsets_s(request: Request, segments: Sequence[SegmentTuple]) -> tuple[float, ...] | str:
    """Seconds from t0 by the stamps the record names, or why they cannot be those."""
    t0_wall_s, t0_s = request.sent_at_unix_s, request.sent_at_monotonic_s
    if t0_wall_s is None or t0_s is None or request.stamp_source is None:
        return "segments are on file of a request that was never sent" if segments else ()
    if request.stamp_source == "user":
        t0_ns = round(t0_s * 1e9)
        return tuple((user_ns - t0_ns) / 1e9 for _, user_ns, _ in segments)
    t0_ns = round(t0_wall_s * 1e9)
    stamps = [kernel_ns for kernel_ns, _, _ in segments if kernel_ns is not None]
    if len(stamps) < len(segments):
        return "stamp_source is 'kernel', and segments are without a kernel stamp"
    return tuple(max(0.0, (kernel_ns - t0_ns) / 1e9) for kernel_ns in stamps)


def _likely(ended: Ended, outcome: str) -> bool:
    """Whether this way of ending is the first to try for an outcome."""
    return ended == outcome if outcome in _ENDINGS else ended == ("eof" if outcome == "truncated" else "complete")


def _near(there: float | None, told: float | None) -> bool:
    return there is told if there is None or told is None else abs(there - told) <= TOLERANCE_S


def _alike(there: Any, told: Any) -> bool:
    """Equal but for what the recorder replaced before writing: secrets, and halves of UTF-16 characters."""
    ours, theirs = _text(there), _text(told)
    if REDACTED not in ours:
        return ours == theirs
    pattern = ".*".join(re.escape(part) for part in ours.split(REDACTED))
    return re.fullmatch(pattern, theirs, re.DOTALL) is not None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _chosen(kept: Sequence[Request], limit_bytes: int | None) -> list[Request]:
    """All, or as many as the limit holds in an order that only the run's id decides."""
    if limit_bytes is None or sum(_size(request) for request in kept) <= limit_bytes:
        return list(kept)

    def drawn(request: Request) -> bytes:
        return hashlib.sha256(f"{request.run_id}:{request.worker}:{request.sequence}".encode()).digest()

    found, n_bytes = [], 0
    for request in sorted(kept, key=drawn):
        n_bytes += _size(request)
        if n_bytes > limit_bytes:
            break
        found.append(request)
    return found or [min(kept, key=_size)]


def _size(request: Request) -> int:
    return 0 if request.wire is None else request.wire.n_bytes
