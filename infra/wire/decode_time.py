"""Time per output token of one answer, from its chunk marks: the arithmetic a live view and a search have in common.

    tpot_s = (t_last - t_first) / (N - n_first)

N is the server's count of completion tokens; n_first counts those that had arrived at t_first: the cumulative count of
the last chunk in the received segment that brought the first token. ``analysis/measures.py`` works by the same rule on
whole columns, and gives the reason wherever there is no number.
"""

from collections.abc import Iterable

# A decode window below this is not resolved: ten times the chunk-gap error this client is held to (0.05 ms).
SHORTEST_WINDOW_S = 0.0005
# A chunk mark as recorded: after_s, segment, cumulative tokens or None, characters.
Mark = tuple[float, int, int | None, int]


def first_tokens(marks: Iterable[Mark], first_s: float) -> int | None:
    """n_first. None where no mark lies at or after ``first_s``, and where the server sent no count with it, or 0."""
    segment: int | None = None
    count: int | None = None
    for after_s, at_segment, n_tokens, _ in marks:
        if segment is None and after_s >= first_s:
            segment = at_segment
        if segment is None:
            continue
        if at_segment != segment:
            break
        count = n_tokens
    return count or None


def tpot_bounds_s(
    *, first_s: float | None, last_s: float | None, n_first: int | None, n_tokens: int | None
) -> tuple[float, float] | None:
    """The least and the most that TPOT can be; equal where n_first is known, else without an upper end (infinity).

    None where one of the others is not known, no token came after the first ones, or the time is not resolved.
    """
    if first_s is None or last_s is None or n_tokens is None or last_s - first_s < SHORTEST_WINDOW_S:
        return None
    if n_first is None:
        return ((last_s - first_s) / (n_tokens - 1), float("inf")) if n_tokens > 1 else None
    return ((last_s - first_s) / (n_tokens - n_first),) * 2 if n_tokens > n_first else None
