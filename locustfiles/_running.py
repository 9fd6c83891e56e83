"""One level while it runs: the instants it has passed, and the record made of them."""

import time

from evidence.level_records import Level, LevelEnd, LevelKind
from locustfiles._crew import Order, Tally
from scenarios.plan import PlanLevel

POLL_S = 0.25


class RunningLevel:
    """Instants are monotonic, of the process that records."""

    def __init__(self, level: PlanLevel, kind: LevelKind, n_planned: int) -> None:
        self.level = level
        self.kind = kind
        self.n_planned = n_planned
        self.users = 1 if level.users is None else level.users
        self.spawn_rate_per_s: float | None = None
        self.drained_at_s: float | None = None
        self.drain_at_s: float | None = None
        self._began_at_s = time.monotonic()
        self._full_at_s: float | None = None
        self._ended_by: LevelEnd = "stopped"

    def began(self, order: Order, tally: Tally) -> None:
        """The order was given; ``tally`` is the first after it."""
        at_s = order.begin_at_monotonic_s if tally.began_at_monotonic_s is None else tally.began_at_monotonic_s
        self._began_at_s = time.monotonic() if at_s is None else at_s
        self.spawn_rate_per_s = order.spawn_rate_per_s

    def look(self, tally: Tally, now_s: float) -> None:
        """Takes note of what has come about."""
        if self.kind != "arrivals" and self._full_at_s is None and tally.n_let_go >= self.users:
            self._full_at_s = now_s
        if self.drain_at_s is None and tally.n_left == 0:
            sent_all: LevelEnd = "requests" if self.level.steady_s is None else "plan exhausted"
            self.drain(now_s, "worker lost" if tally.n_lost else sent_all)

    def time_is_up(self, now_s: float) -> bool:
        return self._steady_left_s(now_s) == 0

    def drain(self, now_s: float, ended_by: LevelEnd) -> None:
        """No request is taken from now on."""
        self.drain_at_s = now_s
        self._ended_by = ended_by

    def wait_s(self, now_s: float) -> float:
        """How long nothing can happen that nobody tells."""
        left_s = None if self.drain_at_s is not None else self._steady_left_s(now_s)
        return POLL_S if left_s is None else min(POLL_S, left_s)

    def record(self, run_id: str, tally: Tally) -> Level:
        """What there is of it; a level that was not drained was stopped."""
        now = time.time() - time.monotonic()
        closed = self.kind != "arrivals"
        return Level(
            run_id=run_id,
            index=self.level.index,
            label=self.level.label,
            kind=self.kind,
            users=self.users if closed else None,
            rate_per_s=self.level.rate_per_s,
            target_tokens=self.level.target_tokens,
            steady_s=self.level.steady_s,
            spawn_rate_per_s=self.spawn_rate_per_s,
            began_at_unix_s=self._began_at_s + now,
            began_at_monotonic_s=self._began_at_s,
            full_after_s=self._after_s(self._full_at_s),
            drain_after_s=self._after_s(self.drain_at_s),
            drained_after_s=self._after_s(self.drained_at_s),
            n_planned=self.n_planned,
            n_started=tally.n_started,
            n_completed=tally.n_completed,
            n_failed=tally.n_failed,
            n_cancelled=tally.n_cancelled,
            n_cap_hits=None if closed else tally.n_cap_hits,
            ended_by="stopped" if self.drained_at_s is None else self._ended_by,
        )

    def _steady_left_s(self, now_s: float) -> float | None:
        """None: its time does not run, or it does not go by time."""
        if self.level.steady_s is None or self._full_at_s is None:
            return None
        return max(0.0, self._full_at_s + self.level.steady_s - now_s)

    def _after_s(self, at_s: float | None) -> float | None:
        return None if at_s is None else max(0.0, at_s - self._began_at_s)
