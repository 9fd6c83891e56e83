"""The cache policy of a run: what is reset, when, what the server replied, and how many requests ago.

``cold`` per cell resets once, after warm-up; per request before each measured request, or by a field of each request
where the engine has no reset. Where only a restart clears something, nothing is called and the reply on record says so.
"""

import json
from typing import Any

from infra.cache_control import ResetReply, reset, reset_plan
from infra.engines.identify import EngineFacts
from locustfiles._options import UsageError
from scenarios.schema import Cache


class CacheState:
    """One run's. Raises UsageError where ``cold`` is asked of an engine that is not known."""

    def __init__(self, cache: Cache, facts: EngineFacts, url: str, headers: dict[str, str]) -> None:
        self._cache = cache
        self._facts = facts
        self._url = url
        self._headers = headers
        self.replies: list[ResetReply] = []
        self.n_since_reset: int | None = None  # requests sent since the last reset; None before the first
        self._plan = reset_plan(facts.engine, None, facts.speculative_mode)
        if cache.policy == "cold" and self._plan.path is None and not self._plan.request_extra:
            raise UsageError(
                f'cache.policy = "cold" cannot be proven on this server ({self._plan.needs_restart}): '
                'set policy = "as-is" in the scenario'
            )

    @property
    def by_request_field(self) -> bool:
        """Whether each request carries what keeps it cold: the engine has no reset to call."""
        return self._cache.policy == "cold" and self._plan.path is None

    def before_window(self) -> None:
        """The reset of a cell, once warm-up has drained."""
        if self._cache.policy == "cold" and (self._cache.per == "cell" or self.by_request_field):
            self._reset()

    def before_request(self) -> None:
        """The reset of a single measured request, outside of its timing."""
        if self._cache.policy == "cold" and self._cache.per == "request" and not self.by_request_field:
            self._reset()

    def sent(self) -> None:
        """A request was sent."""
        if self.n_since_reset is not None:
            self.n_since_reset += 1

    def record(self) -> bytes | None:
        """Every reply as JSON for the run's ``server/`` folder; None where nothing was asked."""
        if self._cache.policy != "cold":
            return None
        found: dict[str, Any] = {
            "policy": self._cache.policy,
            "per": self._cache.per,
            "clears": list(self._plan.clears),
            "leaves": list(self._plan.leaves),
            "needs_restart": self._plan.needs_restart,
            "replies": [reply.record() for reply in self.replies],
        }
        return json.dumps(found, indent=1).encode() + b"\n"

    def _reset(self) -> None:
        reply = reset(
            self._facts.engine,
            self._url,
            self._cache.policy,
            mode=self._facts.speculative_mode,
            headers=list(self._headers.items()),
        )
        self.replies.append(reply)
        if reply.state == "reset":
            self.n_since_reset = 0
