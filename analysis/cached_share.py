"""Cached prompt tokens as a share, by the answers' own usage: groups that differ in it are not alike."""

from collections.abc import Iterable, Sequence

from evidence.records import Request
from infra.engines.fields import cached_by_usage

TOLERANCE = 0.05  # of the prompt tokens


def cached_share(requests: Iterable[Request]) -> float | None:
    """Cached over all prompt tokens of completed requests; None where an answer does not say, or there is none."""
    n_cached = n_prompt = 0
    for request in requests:
        if request.outcome != "completed":
            continue
        cached = cached_by_usage(request.usage)
        if cached is None or request.n_prompt_tokens is None:
            return None
        n_cached += cached
        n_prompt += request.n_prompt_tokens
    return n_cached / n_prompt if n_prompt else None


def shares_apart(base: Sequence[Request], arm: Sequence[Request]) -> list[str]:
    """Domains, and all together, whose cached share differs by more than the tolerance, in words."""
    found = []
    for domain in (None, *sorted({request.domain for request in base})):
        ours, theirs = (
            cached_share(request for request in side if domain in (None, request.domain)) for side in (arm, base)
        )
        if ours is not None and theirs is not None and abs(ours - theirs) > TOLERANCE:
            found.append(f"cached share of {domain or 'all'}: {ours:.0%} against the baseline's {theirs:.0%}")
    return found
