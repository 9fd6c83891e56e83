"""What one request's record says: every number derived from raw facts, each with the reason where there is none.

    ttft_s                first token of any kind - t0
    ttfv_s                first non-empty visible content - t0
    e2e_s                 end of the stream - t0
    tpot_s                (t_last - t_first) / (N - n_first)
    decode_tok_per_s      (N - n_first) / (t_last - t_first), the inverse of tpot_s
    tpot_common_s         (E2E - TTFT) / (N - 1), as in vLLM's benchmark; biased by what arrives with the first token
    study_rate_tok_per_s  N / (end of stream - first visible content), the case study's own: it counts the tokens of
                          the first chunk, which took no decode time, and the closing of the stream, which decodes none
    chunk_gaps_s          time between received chunks; never an inter-token latency

N is the server's count of completion tokens. n_first counts the tokens that had arrived at t_first: the cumulative
count of the last chunk that came in the same received segment as the first token. Where it is unknown, a chunk of a
speculative engine with at most g draft tokens a step holds 1 to g + 1 tokens, and tpot_s becomes an interval.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.columns import arrivals_s, packed, run_of
from evidence.records import ChunkMark, Request
from infra.wire.decode_time import SHORTEST_WINDOW_S


class Derived(NamedTuple):
    """A number, or None and why there is none; exactly one of the two is set."""

    value: float | None
    why: str | None


class Interval(NamedTuple):
    """Two numbers between which the value lies, or None and why there are none."""

    bounds: tuple[float, float] | None
    why: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """All derived numbers of one request."""

    n_first_tokens: Derived
    ttft_s: Derived
    ttfv_s: Derived
    e2e_s: Derived
    tpot_s: Derived
    tpot_bounds_s: Interval  # equal to (tpot_s, tpot_s) where n_first is known
    decode_tok_per_s: Derived
    decode_bounds_tok_per_s: Interval
    tpot_common_s: Derived
    study_rate_tok_per_s: Derived
    n_gaps: int
    gap_median_s: Derived
    gap_max_s: Derived


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One ended request: its record, and what follows from it."""

    request: Request
    measures: Measures


def measure(request: Request, *, max_draft_tokens: int | None) -> Measures:
    """Derive everything from one record. ``max_draft_tokens`` is g: 0 without speculation, None when not known."""
    tokens = request.n_completion_tokens
    n_first = first_tokens(request)
    window = _decode_window(request)
    tpot = _tpot(tokens, n_first, window)
    interval = _tpot_interval(request, n_first, window, tpot, max_draft_tokens)
    arrivals = arrivals_s(request.chunks)
    gaps = arrivals[1:] - arrivals[:-1]
    gaps.sort()
    no_gap = None if len(gaps) else "fewer than two segments carried chunks"
    return Measures(
        n_first_tokens=n_first,
        ttft_s=_instant(request.first_token_after_s, "no token arrived"),
        ttfv_s=_instant(request.first_visible_after_s, "no visible content arrived"),
        e2e_s=_instant(request.end_after_s, "the stream's end was not seen"),
        tpot_s=tpot,
        tpot_bounds_s=interval,
        decode_tok_per_s=_inverse(tpot),
        decode_bounds_tok_per_s=_inverse_interval(interval),
        tpot_common_s=_tpot_common(request, tokens),
        study_rate_tok_per_s=_study_rate(request, tokens),
        n_gaps=len(gaps),
        gap_median_s=Derived(float(gaps[(len(gaps) - 1) // 2]) if len(gaps) else None, no_gap),
        gap_max_s=Derived(float(gaps[-1]) if len(gaps) else None, no_gap),
    )


def first_chunk_unknown(row: Row) -> bool:
    """An answer of two tokens or more whose first chunk's tokens are not known; a shorter one has no rate anyway."""
    tokens = row.request.n_completion_tokens
    return tokens is not None and tokens > 1 and row.measures.n_first_tokens.value is None


def first_tokens(request: Request) -> Derived:
    """n_first: how many tokens had arrived at the first token's instant, or why that is not known."""
    if request.first_token_after_s is None:
        return Derived(None, "no token arrived")
    marks = _first_segment(request)
    if not marks:
        return Derived(None, "no chunk mark at or after the first token")
    count = marks[-1][2]
    if count is None:
        return Derived(None, "the server sent no token count with the first chunk")
    if count == 0:
        return Derived(None, "the server's count was still 0 when the first text arrived")
    return Derived(count, None)


def chunk_gaps_s(request: Request) -> list[float]:
    """Times between received chunks; chunks that came in one segment share one instant and have no gap."""
    gaps: list[float] = np.diff(arrivals_s(request.chunks)).tolist()
    return gaps


def _first_segment(request: Request) -> list[ChunkMark]:
    """The marks of the segment that brought the first token; empty where there is none."""
    started_at, marks = request.first_token_after_s, packed(request.chunks)
    first = next((n for n, at in enumerate(marks.after_s) if started_at is not None and at >= started_at), None)
    if first is None:
        return []
    return [marks[place] for place in run_of(marks, first)]


def _instant(after_s: float | None, why: str) -> Derived:
    return Derived(after_s, None if after_s is not None else why)


def _decode_window(request: Request) -> Derived:
    """t_last - t_first, or why there is no usable window."""
    first, last = request.first_token_after_s, request.last_token_after_s
    if first is None or last is None:
        return Derived(None, "no token arrived")
    if last < first:
        return Derived(None, f"the last token ({last:.6f} s) is stamped before the first ({first:.6f} s)")
    if last == first:
        return Derived(None, "all tokens arrived in one segment: no time passed between them")
    if last - first < SHORTEST_WINDOW_S:
        return Derived(
            None, f"the window of {last - first:.6f} s is below the {SHORTEST_WINDOW_S} s that can be resolved"
        )
    return Derived(last - first, None)


def _too_short(span_s: float) -> str:
    return f"the window of {span_s:.6f} s is below the {SHORTEST_WINDOW_S} s that can be resolved"


def _tpot(tokens: int | None, n_first: Derived, window: Derived) -> Derived:
    if tokens is None:
        return Derived(None, "no authoritative token count")
    if tokens <= 1:
        return Derived(None, f"{tokens} completion token{'' if tokens == 1 else 's'}: there is no time between tokens")
    if window.value is None:
        return window
    if n_first.value is None:
        return Derived(None, f"tokens of the first chunk unknown: {n_first.why}")
    if tokens < n_first.value:
        return Derived(None, f"the first chunk's count ({n_first.value:.0f}) exceeds the answer's ({tokens})")
    if tokens == n_first.value:
        return Derived(None, f"all {tokens} tokens came with the first segment")
    return Derived(window.value / (tokens - n_first.value), None)


def _tpot_interval(
    request: Request, n_first: Derived, window: Derived, tpot: Derived, max_draft_tokens: int | None
) -> Interval:
    tokens = request.n_completion_tokens
    if tpot.value is not None:
        return Interval((tpot.value, tpot.value), None)
    if tokens is None or tokens <= 1 or window.value is None or n_first.value is not None:
        return Interval(None, tpot.why)
    if max_draft_tokens is None:
        return Interval(None, "how many tokens the first chunk may hold is not known (no draft limit on record)")
    n_chunks = max(1, sum(1 for mark in _first_segment(request) if mark[3] > 0))
    fewest_after = tokens - n_chunks * (max_draft_tokens + 1)
    if fewest_after <= 0:
        return Interval(None, f"the first segment may have held all {tokens} tokens (draft limit {max_draft_tokens})")
    return Interval((window.value / (tokens - n_chunks), window.value / fewest_after), None)


def _inverse(tpot: Derived) -> Derived:
    return Derived(None, tpot.why) if tpot.value is None else Derived(1 / tpot.value, None)


def _inverse_interval(interval: Interval) -> Interval:
    if interval.bounds is None:
        return interval
    low, high = interval.bounds
    return Interval((1 / high, 1 / low), None)


def _tpot_common(request: Request, tokens: int | None) -> Derived:
    if tokens is None:
        return Derived(None, "no authoritative token count")
    if tokens <= 1:
        return Derived(None, f"{tokens} completion token{'' if tokens == 1 else 's'}: there is no time between tokens")
    if request.end_after_s is None or request.first_token_after_s is None:
        return Derived(None, "first token or end of stream not seen")
    span_s = request.end_after_s - request.first_token_after_s
    if span_s < SHORTEST_WINDOW_S:
        return Derived(None, _too_short(span_s))
    return Derived(span_s / (tokens - 1), None)


def _study_rate(request: Request, tokens: int | None) -> Derived:
    if tokens is None:
        return Derived(None, "no authoritative token count")
    if tokens == 0:
        return Derived(None, "0 completion tokens")
    if request.end_after_s is None or request.first_visible_after_s is None:
        return Derived(None, "visible content or end of stream not seen")
    span_s = request.end_after_s - request.first_visible_after_s
    if span_s < SHORTEST_WINDOW_S:
        return Derived(None, _too_short(span_s))
    return Derived(tokens / span_s, None)
