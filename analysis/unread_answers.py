"""What the raw segments say of requests whose line was never written, the process having been killed before.

Their bytes are read by the same code as any answer. They enter no number of the run: when they were sent stood in the
line that is missing, so they have no latency, and a rate over those that were read alone would choose by chance.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.errors import EvidenceError
from evidence.reading import Run, read_segments
from evidence.records import Started
from evidence.unread import unread
from infra.wire.stream import read_stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """Of ``n_unfinished`` requests ``n_kept`` left segments; ``n_read`` were read again, ``n_unreadable`` cannot be."""

    n_unfinished: int
    n_kept: int
    n_read: int
    n_unreadable: int  # segments that this program cannot read: no word on the server
    outcomes: Mapping[str, int]  # what came of those read, by outcome
    n_tokens: int | None  # completion tokens of those that came whole, by the server's count; None: none has one
    n_uncounted: int  # of these, answers without a count

    def as_json(self) -> dict[str, Any]:
        return {
            "n_unfinished": self.n_unfinished,
            "n_kept": self.n_kept,
            "n_read": self.n_read,
            "n_unreadable": self.n_unreadable,
            "outcomes": dict(self.outcomes),
            "n_completion_tokens": self.n_tokens,
            "n_without_count": self.n_uncounted,
        }

    def __str__(self) -> str:
        if not self.n_kept:
            return "of none of them raw segments are on file"
        n_whole = self.outcomes.get("completed", 0)
        others = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()) if outcome != "completed")
        parts = [f"{self.n_tokens} tokens"] if self.n_tokens is not None else []
        parts += [f"{self.n_uncounted} uncounted"] if self.n_uncounted else []
        whole = f"{n_whole} whole" + (f" ({', '.join(parts)})" if parts else "")
        rest = [others] if others else []
        rest += [f"{self.n_unreadable} whose segments cannot be read"] if self.n_unreadable else []
        n_tried = self.n_read + self.n_unreadable
        sample = "" if n_tried == self.n_kept else f" (of {n_tried} of these that were read)"
        return (
            f"{self.n_kept} of them left raw segments that nobody had read: "
            f"{', '.join([whole, *rest])}{sample}; when they were sent is lost, so no number has them"
        )


def unread_answers(run: Run, unended: Sequence[Started], *, limit_bytes: int | None) -> Unread | None:
    """Read what unfinished requests left, about ``limit_bytes`` of it (None: all). None where each one has ended."""
    if not unended:
        return None
    kept = unread(run.path, unended)
    body = run.manifest.options.get("transport") == "openai"
    outcomes: Counter[str] = Counter()
    counts: list[int | None] = []
    n_unreadable = n_bytes = 0
    for ref in kept.values():
        if limit_bytes is not None and n_bytes > limit_bytes:
            break
        n_bytes += ref.n_bytes
        try:
            segments = read_segments(run, ref)
        except EvidenceError:
            n_unreadable += 1
            continue
        facts = read_stream(segments, ended="complete" if body else "eof", framing="body" if body else "http")
        outcomes[facts.outcome] += 1
        if facts.outcome == "completed":
            counts.append(facts.n_completion_tokens)
    known = [count for count in counts if count is not None]
    return Unread(
        n_unfinished=len(unended),
        n_kept=len(kept),
        n_read=sum(outcomes.values()),
        n_unreadable=n_unreadable,
        outcomes=dict(outcomes),
        n_tokens=sum(known) if known else None,
        n_uncounted=len(counts) - len(known),
    )
