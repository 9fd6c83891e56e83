"""What each request's record must satisfy by itself, and the rows of a run together.

A check passes, fails, or is not observable, and then says why: a check that cannot be made is never left out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from analysis.columns import column, packed, rising
from analysis.facts import Finding, Scope
from analysis.measures import first_tokens
from evidence.records import Request
from infra.engines.fields import cached_by_usage, count_of

State = Literal["pass", "fail", "not observable"]
SHOWN = 3

# Below this share of the arrivals that the engine's steps imply, the stream was held back somewhere on its way.
BUFFERED_SHARE = 0.5
FEWEST_STEPS = 8  # a shorter answer says nothing about buffering


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """``seen`` is what was compared; ``why`` stands where it could not be. ``finding``: what a failure means."""

    name: str
    state: State
    seen: str
    why: str | None = None
    finding: Finding | None = None


def not_observable(name: str, why: str) -> Check:
    return Check(name=name, state="not observable", seen="", why=why)


def failed(name: str, seen: str, scope: Scope) -> Check:
    finding = Finding(code="check_failed", scope=scope, seen=f"{name}: {seen}")
    return Check(name=name, state="fail", seen=seen, finding=finding)


def each(
    name: str, requests: Sequence[Request], problem: Callable[[Request], str | None], scope: Scope, nothing: str
) -> Check:
    """One judgement over many requests; ``nothing`` says why, when there is none to judge."""
    if not requests:
        return not_observable(name, nothing)
    bad = [(request.plan_id, found) for request in requests if (found := problem(request)) is not None]
    if not bad:
        return Check(name=name, state="pass", seen=f"{len(requests)} requests")
    shown = "; ".join(f"{plan_id}: {found}" for plan_id, found in bad[:SHOWN])
    return failed(name, f"{len(bad)} of {len(requests)} requests: {shown}", scope)


def request_checks(requests: Sequence[Request], plan: Mapping[str, Mapping[str, Any]]) -> tuple[Check, ...]:
    """All checks on measured requests alone. ``plan`` is by plan id."""
    completed = [r for r in requests if r.outcome == "completed"]
    with_timings = [r for r in completed if count_of(r.server_fields.get("timings"), "predicted_n") is not None]
    planned = [r for r in completed if r.n_completion_tokens is not None and _max_tokens(r, plan) is not None]
    return (
        each(
            "per-request counts",
            with_timings,
            _timings_problem,
            "acceptance",
            "no completed request carries the engine's own timings",
        ),
        each(
            "max_tokens",
            planned,
            lambda r: _limit_problem(r, _max_tokens(r, plan) or 0),
            "rate",
            "no completed request with a token count",
        ),
        not_observable("temperature and seed as asked", "no engine known here repeats them in its stream"),
        each("order of instants", [r for r in requests if r.chunks], _order_problem, "latency", "no token arrived"),
        each(
            "chunks within the tokens",
            [r for r in completed if _chunks_count(r)],
            _chunks_problem,
            "rate",
            "no completed answer of visible text alone has both chunks and a token count",
        ),
        _buffered(completed),
        not_observable("tokens of the text", "no tokenizer here: the text is not tokenised again"),
        _rows(requests, plan),
    )


def _max_tokens(request: Request, plan: Mapping[str, Mapping[str, Any]]) -> int | None:
    return count_of(plan.get(request.plan_id, {}), "max_tokens")


def _timings_problem(request: Request) -> str | None:
    """accepted <= drafted; the engine's counts are usage's; cached and worked out make up the prompt."""
    timings = request.server_fields["timings"]
    drafted, accepted = count_of(timings, "draft_n") or 0, count_of(timings, "draft_n_accepted") or 0
    if accepted > drafted:
        return f"{accepted} accepted of {drafted} drafted"
    generated = count_of(timings, "predicted_n")
    if request.n_completion_tokens is not None and generated != request.n_completion_tokens:
        return f"usage says {request.n_completion_tokens} tokens and timings say {generated}"
    cached, worked_out = count_of(timings, "cache_n"), count_of(timings, "prompt_n")
    by_usage = cached_by_usage(request.usage)
    if cached is not None and by_usage is not None and cached != by_usage:
        return f"usage says {by_usage} cached tokens and timings say {cached}"
    prompt = request.n_prompt_tokens
    if None not in (prompt, cached, worked_out) and (cached or 0) + (worked_out or 0) != prompt:
        return f"{cached} cached and {worked_out} worked out are not {prompt} prompt tokens"
    return None


def _limit_problem(request: Request, max_tokens: int) -> str | None:
    """ "length" only at the limit. The other way round a stop may fall on the very last token that was allowed."""
    tokens = request.n_completion_tokens or 0
    if tokens > max_tokens:
        return f"{tokens} tokens where at most {max_tokens} were asked for"
    if request.finish_reason == "length" and tokens != max_tokens:
        return f'finish reason "length" at {tokens} of {max_tokens} tokens'
    return None


def _order_problem(request: Request) -> str | None:
    instants = (
        ("headers", request.headers_after_s),
        ("first event", request.first_event_after_s),
        ("first token", request.first_token_after_s),
        ("first visible", request.first_visible_after_s),
        ("end", request.end_after_s),
    )
    known = [(name, at) for name, at in instants if at is not None]
    for (earlier, before), (later, after) in pairwise(known):
        if after < before:
            return f"{later} at {after:.6f} s, before {earlier} at {before:.6f} s"
    last, end = request.last_token_after_s, request.end_after_s
    if last is not None and end is not None and last > end:
        return f"last token at {last:.6f} s, after the end at {end:.6f} s"
    if request.first_token_after_s is not None and last is not None and last < request.first_token_after_s:
        return f"last token at {last:.6f} s, before the first at {request.first_token_after_s:.6f} s"
    return _marks_problem(request)


def _marks_problem(request: Request) -> str | None:
    marks = packed(request.chunks)
    if marks.tokens is not None and all(map(rising, (marks.after_s, marks.segments, marks.tokens))):
        return None
    for earlier_mark, later_mark in pairwise(request.chunks):
        if later_mark[0] < earlier_mark[0] or later_mark[1] < earlier_mark[1]:
            return f"a chunk at {later_mark[0]:.6f} s after one at {earlier_mark[0]:.6f} s"
        counts = earlier_mark[2], later_mark[2]
        if counts[0] is not None and counts[1] is not None and counts[1] < counts[0]:
            return f"tokens so far fall from {counts[0]} to {counts[1]}"
    return None


def _chunks_count(request: Request) -> bool:
    """Whether a chunk stands for one token at least: parsed reasoning and tool calls may part one token's text."""
    parsed = request.reasoning_text or request.tool_calls_text
    known = request.n_completion_tokens is not None and request.chunk_semantics != "unknown"
    return known and not parsed and any(packed(request.chunks).characters)


def _chunks_problem(request: Request) -> str | None:
    """A token's text comes in one chunk: there are no more chunks with text than tokens, in all and after the first."""
    n_tokens, marks = request.n_completion_tokens or 0, packed(request.chunks)
    n_text = len(marks) - marks.characters.count(0)
    if n_text > n_tokens:
        return f"{n_text} chunks with text and {n_tokens} tokens counted"
    n_first = first_tokens(request).value
    begun = request.first_token_after_s or 0.0
    first_at = next((marks.segments[n] for n, at in enumerate(marks.after_s) if at >= begun), None)
    if n_first is None or first_at is None:
        return None
    n_after = int(np.count_nonzero(column(marks.characters)[column(marks.segments) > first_at]))
    if n_after > n_tokens - n_first:
        return f"{n_after} chunks with text after the first segment's {n_first:g} tokens, of {n_tokens} counted"
    return None


def _buffered(completed: Sequence[Request]) -> Check:
    """Distinct arrivals against the steps the engine made: accepted drafts arrive with the token that verified them."""
    name = "chunks arrive one after another"
    arrivals = steps = 0
    for request in completed:
        accepted = count_of(request.server_fields.get("timings"), "draft_n_accepted") or 0
        # Without the engine's counts a chunk counts as a step: bursts of a verified run may then look held back.
        n_steps = (request.n_completion_tokens or len(request.chunks)) - accepted
        if request.chunk_semantics != "token":
            n_steps = min(n_steps, len(request.chunks))
        if n_steps >= FEWEST_STEPS:
            steps += n_steps
            arrivals += len(set(packed(request.chunks).segments))
    if not steps:
        return not_observable(name, f"no answer of {FEWEST_STEPS} steps or more")
    seen = f"{arrivals} distinct arrivals for {steps} steps"
    if arrivals < BUFFERED_SHARE * steps:
        return failed(name, f"{seen}: the stream was held back, by a proxy, the server or this client", "rate")
    return Check(name=name, state="pass", seen=seen)


def _rows(requests: Sequence[Request], plan: Mapping[str, Mapping[str, Any]]) -> Check:
    """Rows = unique plan ids = those the plan has. The folder's own verification blames the run for it."""
    name = "one row for each planned request"
    planned = {plan_id for plan_id, line in plan.items() if line.get("phase") == "measured"}
    seen_ids = Counter(request.plan_id for request in requests)
    twice = [plan_id for plan_id, n in seen_ids.items() if n > 1]
    seen = f"{len(requests)} rows, {len(seen_ids)} plan ids, {len(planned)} planned"
    if twice or set(seen_ids) != planned:
        return Check(name=name, state="fail", seen=seen)
    return Check(name=name, state="pass", seen=seen)
