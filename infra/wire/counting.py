"""How many tokens had come with each event, by the server's own counts only.

Three running counts exist: ``usage.completion_tokens`` on content events (``continuous_usage_stats``), the lengths
of ``choices[].token_ids``, and llama.cpp's ``timings.predicted_n``. Neither events nor words nor characters stand
for tokens. An event bears tokens when it carries text or when the running count rises with it, text or not.

Strategy: one line of facts an event while the stream is read; which running count is the one to trust is known only at
the end, so chunk marks are made by ``marks``.
"""

from collections import Counter
from itertools import chain
from typing import Any, Literal, NamedTuple

CountSource = Literal["token_ids", "usage", "timings"]
MAX_COUNT = 2**53  # beyond it a reader that takes numbers for doubles loses units, and no answer is that long
_SOURCES: tuple[CountSource, ...] = ("token_ids", "usage", "timings")  # best first, where several count alike


class Chunk(NamedTuple):
    """A token-bearing event: the segment that completed it, all tokens so far (None: not counted), its characters."""

    segment: int
    cum_tokens: int | None
    n_chars: int


_Line = tuple[int, int, bool, dict[CountSource, int]]  # segment, characters, whether it finishes, running counts


class Counts:
    """Call ``counts_of`` for each event, ``line`` for each event with a choice, and ask at the end."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._n_ids = 0
        self._has_ids = False
        self._shrunk: str | None = None
        self._timings: int | None = None  # the last predicted_n
        self._timings_final = False  # it came with or after the finish reason: it counts every token
        self.usage: dict[str, Any] | None = None  # the last one that was not null, as sent

    def counts_of(self, usage: Any, timings: Any) -> dict[CountSource, int]:
        """The running counts in one event's ``usage`` and ``timings``."""
        counts: dict[CountSource, int] = {}
        if isinstance(usage, dict):
            n_usage = self._read_usage(usage)
            if n_usage is not None:
                counts["usage"] = n_usage
        n_timings = whole(timings.get("predicted_n")) if isinstance(timings, dict) else None
        if n_timings is not None:
            self._timings, self._timings_final = n_timings, False
            counts["timings"] = n_timings
        return counts

    def without_choices(self, counts: dict[CountSource, int]) -> None:
        """An event about the whole answer: what it counts is final."""
        self._timings_final = self._timings_final or "timings" in counts

    def line(self, segment: int, *, n_chars: int, finish: bool, token_ids: Any, counts: dict[CountSource, int]) -> None:
        """An event with a choice, whether or not it carries text."""
        if isinstance(token_ids, list):
            self._has_ids = True
            self._n_ids += len(token_ids)
        if self._has_ids:
            counts["token_ids"] = self._n_ids
        if finish:
            self._timings_final = self._timings_final or "timings" in counts
        self._lines.append((segment, n_chars, finish, counts))

    def total(self) -> tuple[int | None, CountSource | None]:
        """Tokens of the whole answer and who says so; (None, None) where nobody does."""
        n_usage = self._n_usage()
        if n_usage is not None:
            return n_usage, "usage"
        if self._has_ids:
            return self._n_ids, "token_ids"
        if self._timings is not None and self._timings_final:
            return self._timings, "timings"
        return None, None

    def inconsistent(self) -> str | None:
        """Counts that shrank or disagree, with both numbers; None where all agree."""
        if self._shrunk is not None:
            return self._shrunk
        n_usage = self._n_usage()
        if n_usage is None:
            return None
        if self._has_ids and self._n_ids != n_usage:
            return f"{self._n_ids} token_ids came, but usage.completion_tokens is {n_usage}"
        n_timings = self._timings
        if n_timings is not None and (n_timings > n_usage or (self._timings_final and n_timings != n_usage)):
            return f"timings.predicted_n is {n_timings}, but usage.completion_tokens is {n_usage}"
        return None

    def marks(self) -> tuple[CountSource | None, tuple[Chunk, ...]]:
        """The running count used, or None where there is none, and the token-bearing events."""
        counted = Counter[CountSource](chain.from_iterable(counts for _, _, _, counts in self._lines))
        best = "token_ids" if self._has_ids else max(_SOURCES, key=lambda name: counted[name])
        source = best if counted[best] else None
        chunks: list[Chunk] = []
        before: int | None = None
        finish_segment: int | None = None  # of a finish event after the last chunk
        for segment, n_chars, finish, counts in self._lines:
            count = counts.get(source) if source is not None else None
            # A first count on the finish event may sum up all that came before: it says nothing of this event.
            own = source == "token_ids" or before is not None or not finish
            if n_chars or (own and count is not None and count > (before or 0)):
                chunks.append(Chunk(segment, count, n_chars))
                finish_segment = None
            elif finish:
                finish_segment = segment
            before = count if count is not None else before
        last = chunks[-1].cum_tokens if chunks else None
        n_total, _ = self.total()
        if finish_segment is not None and last is not None and n_total is not None and n_total > last:
            # Tokens that show no text (an end mark, half a character) had come when the answer was called finished.
            chunks.append(Chunk(finish_segment, n_total, 0))
        return source, tuple(chunks)

    def _n_usage(self) -> int | None:
        return None if self.usage is None else whole(self.usage.get("completion_tokens"))

    def _read_usage(self, usage: dict[str, Any]) -> int | None:
        count = whole(usage.get("completion_tokens"))
        if count is None and self._n_usage() is not None:
            return None  # one that counts nothing does not displace one that does
        for key in ("completion_tokens", "prompt_tokens"):
            old, new = whole((self.usage or {}).get(key)), whole(usage.get(key))
            if old is not None and new is not None and new < old and self._shrunk is None:
                self._shrunk = f"usage.{key} shrank from {old} to {new}"
        self.usage = usage
        return count


def whole(value: Any) -> int | None:
    """A whole number from 0 to MAX_COUNT, else None (True is no number)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None
