"""One thing a preflight looked at: what was seen, what it means, what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# "unknown": not checked, and the reason is what was seen. "info": told, judged elsewhere. Only "refuse" keeps an arm
# from being launched.
Verdict = Literal["pass", "info", "caution", "unknown", "refuse"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """``facts`` are the numbers behind ``seen``, for ``--json``."""

    check: str
    verdict: Verdict
    seen: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "verdict": self.verdict,
            "seen": self.seen,
            "remedy": self.remedy,
            "facts": dict(self.facts),
        }


def refused(findings: Iterable[Finding]) -> bool:
    return any(finding.verdict == "refuse" for finding in findings)
