"""Cached prompt tokens as a share, by the answers' own usage: groups that differ in it are not alike.

An engine may leave the count out of an answer that took nothing from its cache (SGLang does), which looks like an
engine that does not tell. Its own counter decides: where it grew by just what the other answers report, nothing is left
for the silent ones, and they took none.
"""

from collections.abc import Iterable, Sequence

from evidence.records import Request
from infra.engines.fields import cached_by_usage
from infra.engines.readings import Measured
from infra.engines.window import Delta

TOLERANCE = 0.05  # of the prompt tokens


def silent_is_zero(told: Sequence[float | None], n_lost: int, server: Delta) -> bool:
    """Whether answers without a count took nothing: ``told`` has every completed request of the server's window.

    ``n_lost`` requests may have taken tokens that no answer tells; with one of them nothing is proven.
    """
    exact = isinstance(server.reading, Measured) and not server.uncertainty and not n_lost
    return exact and isinstance(server.reading, Measured) and sum(n or 0 for n in told) == server.reading.value


def cached_share(requests: Iterable[Request], *, silent_zero: bool = False) -> float | None:
    """Cached over all prompt tokens of completed requests; None where an answer does not say, or there is none.

    ``silent_zero``: an answer that does not say took none (``silent_is_zero``).
    """
    n_cached = n_prompt = 0
    for request in requests:
        if request.outcome != "completed":
            continue
        cached = cached_by_usage(request.usage)
        if cached is None and silent_zero:
            cached = 0
        if cached is None or request.n_prompt_tokens is None:
            return None
        n_cached += cached
        n_prompt += request.n_prompt_tokens
    return n_cached / n_prompt if n_prompt else None


def shares_apart(
    base: Sequence[Request], arm: Sequence[Request], *, silent_zero: tuple[bool, bool] = (False, False)
) -> list[str]:
    """Domains, and all together, whose cached share differs by more than the tolerance, in words.

    ``silent_zero`` of the baseline's answers and of the arm's.
    """
    found = []
    for domain in (None, *sorted({request.domain for request in base})):
        ours, theirs = (
            cached_share((request for request in side if domain in (None, request.domain)), silent_zero=zero)
            for side, zero in ((arm, silent_zero[1]), (base, silent_zero[0]))
        )
        if ours is not None and theirs is not None and abs(ours - theirs) > TOLERANCE:
            found.append(f"cached share of {domain or 'all'}: {ours:.0%} against the baseline's {theirs:.0%}")
    return found
