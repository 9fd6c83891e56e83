"""The cache policy of a run: what is reset, when, what the server replied, and how many requests ago.

``cold`` per cell resets once, after warm-up; per request before each measured request, or by a field of each request
where the engine has no reset. Where only a restart clears something, a launch that is shown to be fresh is the reset of
its first cell, and the warm-up after it is recorded as priming; else the reply on record says that it was not done.
"""

import json
from dataclasses import asdict
from typing import Any

from evidence.records import Launch
from infra.cache_control import ResetReply, reset, reset_plan
from infra.fresh_launch import Fresh, drafting_mode, fresh_launch, generated_so_far
from infra.probe import ProbeReport
from locustfiles._options import UsageError
from locustfiles._sender import ResetAge
from scenarios.schema import Cache


class CacheState:
    """One run's. Raises UsageError where ``cold`` is asked of an engine that is not known."""

    def __init__(
        self, cache: Cache, probed: ProbeReport, url: str, headers: dict[str, str], age: ResetAge, launch: Launch | None
    ) -> None:
        self._cache = cache
        self._facts = facts = probed.facts
        self._mode = drafting_mode(facts.speculative_mode, launch)
        self._settings = launch.resolved if launch else {}
        self._url = url
        self._headers = headers
        self.replies: list[ResetReply] = []
        self._age = age
        self._plan = reset_plan(facts.engine, self._settings, self._mode)
        self._fresh: Fresh | None = None
        if cache.policy == "cold" and self._plan.needs_restart is not None:
            n_generated = generated_so_far(facts.adapter, facts.version, probed.fetched.get("metrics"))
            self._fresh = fresh_launch(launch, n_generated)
            if self._fresh.proven:
                age.reset()  # what follows, warm-up too, is what the engine has seen since its start
        self._restart: str | None = None if self._fresh is None or not self._fresh.proven else self._fresh.why
        if cache.policy == "cold" and self._plan.path is None and not self._plan.request_extra:
            raise UsageError(
                f'cache.policy = "cold" cannot be proven on this server ({self._plan.needs_restart}): '
                'set policy = "as-is" in the scenario'
            )

    @property
    def by_request_field(self) -> bool:
        """Whether each request carries what keeps it cold: the engine has no reset to call."""
        return self._cache.policy == "cold" and self._plan.path is None

    @property
    def by_call_per_request(self) -> bool:
        """Whether the server is asked to reset before each measured request."""
        return self._cache.policy == "cold" and self._cache.per == "request" and not self.by_request_field

    def before_window(self) -> None:
        """The reset of a cell, once warm-up has drained."""
        if self._cache.policy == "cold" and (self._cache.per == "cell" or self.by_request_field):
            self._reset()

    def before_request(self) -> None:
        """The reset of a single measured request, outside of its timing."""
        if self.by_call_per_request:
            self._reset()

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
            "fresh_launch": None if self._fresh is None else asdict(self._fresh),
            "warmup_is_priming": self._fresh is not None,
            "replies": [reply.record() for reply in self.replies],
        }
        return json.dumps(found, indent=1).encode() + b"\n"

    def _reset(self) -> None:
        reply = reset(
            self._facts.engine,
            self._url,
            self._cache.policy,
            settings=self._settings,
            mode=self._mode,
            headers=list(self._headers.items()),
            fresh=self._restart if self._cache.per == "cell" else None,
        )
        self._restart = None  # a launch is fresh once: what follows its first cell is not cold
        self.replies.append(reply)
        if reply.state == "reset":
            self._age.reset()
