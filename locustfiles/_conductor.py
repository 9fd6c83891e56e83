"""The order of a load run: warm-up, then each level from its reset to its drain, told to whoever sends.

A level: the users are there and idle; what was asked of the cache; at rest and scraped; the level begins, and its users
are let go one after the other; its requests are taken, or its time is up; drained; scraped at rest. The time of a level
counts from the instant all its users have begun.

Users are let go over about the time one request takes (the median of what has been completed so far), so that their
requests are spread over it as they are later on, and no more requests than users begin before all are up.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gevent.event import Event

from evidence.level_records import Level, LevelKind
from evidence.records import Request
from locustfiles._crew import Order, Tally
from locustfiles._objectives import Objectives
from locustfiles._progress import Progress
from locustfiles._running import POLL_S, RunningLevel
from locustfiles._search import Search
from scenarios.plan import Plan, PlanLevel

LONGEST_RAMP_S = 10.0
RAMP_A_USER_S = 0.01  # where no request has been completed yet
OPEN_LEAD_S = 0.3  # before the first arrival can be due: connections are made ready
MOST_SPAWNED_PER_S = 100.0  # idle users; Locust warns above


class Keeper(Protocol):
    """What of the recorder is needed here."""

    plan: Plan
    run_id: str

    def reset_cache(self) -> None: ...
    def open_window(self, level: str) -> None: ...
    def close_window(self) -> None: ...
    def level(self, record: Level) -> None: ...
    def notice(self, text: str) -> None: ...


class Crews(Protocol):
    """Those who send: the crew of this process, or those of all workers."""

    @property
    def n_processes(self) -> int: ...

    def ready(self) -> None: ...
    def begin(self, order: Order) -> None: ...
    def halt(self) -> None: ...
    def over(self) -> None: ...
    def close(self) -> None: ...
    def tally(self) -> Tally: ...
    def wait(self, timeout_s: float) -> None: ...


class Conductor:
    """Runs the levels of one plan. ``run`` is for a greenlet of its own; ``users_wanted`` is for a Locust shape.

    ``on_window`` is called once a level's first scrape stands.
    """

    def __init__(
        self, recorder: Keeper, crews: Crews, progress: Progress, on_window: Callable[[], None] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._crews = crews
        self._progress = progress
        self._on_window = on_window
        self._plan = recorder.plan
        self._wanted = 1
        self._changed = Event()
        self._done = False
        self._took_s: deque[float] = deque(maxlen=200)  # of requests completed lately
        self._level: RunningLevel | None = None
        self._objectives = Objectives(self._plan.scenario.limits)
        self._search: Search | None = None
        if self._plan.scenario.searches:
            self._search = Search(len(self._plan.levels))

    @property
    def under_way(self) -> str | None:
        """The label of the level under way; None between levels."""
        return None if self._level is None else self._level.level.label

    def users_wanted(self) -> tuple[int, float] | None:
        """Waits until the number of Locust users has to change: (users, spawned a second), None once all is done."""
        self._changed.wait()
        self._changed.clear()
        if self._done:
            return None
        change = abs(self._wanted - self._crews.tally().n_seats)
        return self._wanted, min(max(float(change), 1.0), MOST_SPAWNED_PER_S)

    def run(self) -> None:
        """Everything from the warm-up to the last level's drain."""
        if self._plan.warmup:
            self._warm_up()
        if self._search is None:
            for level in self._plan.levels:
                self._run_level(level)
        else:
            self._run_search(self._search)

    def finish(self) -> None:
        """No level comes any more: whoever waits in ``users_wanted`` is told."""
        self._done = True
        self._changed.set()

    def ended(self, record: Request) -> None:
        """A request's record was written, here or by a worker."""
        if record.outcome == "completed" and record.end_after_s is not None:
            self._took_s.append(record.end_after_s)
        if self._level is not None and record.level == self._level.level.label:
            self._objectives.take(record)

    def cut(self) -> None:
        """The run was stopped: the level under way, whose users are gone, is recorded as far as it came."""
        if self._level is not None:
            self._record(self._level)

    def _warm_up(self) -> None:
        self._have_users(1)
        self._progress.level("warm-up", 0, self._plan.most_levels, len(self._plan.warmup), None)
        self._crews.begin(Order(label=None, kind="warmup", users=1))
        while (tally := self._crews.tally()).n_left or tally.n_under_way or tally.n_unread:
            self._wait(POLL_S)
        self._crews.halt()

    def _run_search(self, search: Search) -> None:
        while (index := search.next()) is not None:
            level = self._plan.levels[index]
            ran = self._run_level(level)
            if ran.ended_by == "worker lost":
                self._recorder.notice(f"search: {level.label}: not known, for a worker was lost; the search ends here")
                break
            met = self._objectives.met(n_sent=ran.n_started, held_rate=not ran.n_cap_hits)
            search.judged(index, met.holds)
            self._recorder.notice(f"search: {level.label}: {met.said}")
        best = search.best
        found = "no candidate holds the objectives" if best is None else f"{self._plan.levels[best].label} holds them"
        self._recorder.notice(f"search: {found}; visited {', '.join(self._labels(search.visited))}")
        left = [index for index in range(len(self._plan.levels)) if index not in search.visited]
        if left:
            self._recorder.notice(f"not sent: the search did not visit {', '.join(self._labels(left))}")

    def _labels(self, indices: list[int]) -> list[str]:
        return [self._plan.levels[index].label for index in indices]

    def _run_level(self, level: PlanLevel) -> Level:
        planned = self._plan.of_level(level.label)
        running = RunningLevel(level, self._kind, len(planned))
        self._have_users(running.users)
        self._recorder.reset_cache()
        self._crews.ready()
        self._recorder.open_window(level.label)
        self._on_window()
        self._objectives.clear()
        place = level.index + 1 if self._search is None else len(self._search.visited) + 1
        self._progress.level(level.label, place, self._plan.most_levels, len(planned), level.steady_s)
        order = self._order(running)
        self._level = running
        self._crews.begin(order)
        running.began(order, self._crews.tally())
        self._until_drained(running)
        self._crews.over()
        ran = self._record(running)
        self._recorder.close_window()
        return ran

    def _order(self, running: RunningLevel) -> Order:
        if running.kind == "arrivals":
            cap = self._plan.scenario.arrivals.max_in_flight if self._plan.scenario.arrivals else None
            begin_s = time.monotonic() + OPEN_LEAD_S
            return Order(
                label=running.level.label, kind="arrivals", users=1, max_in_flight=cap, begin_at_monotonic_s=begin_s
            )
        ramp_s = statistics.median(self._took_s) if self._took_s else RAMP_A_USER_S * running.users
        spawn_rate_per_s = running.users / min(max(ramp_s, 1e-3), LONGEST_RAMP_S)
        return Order(
            label=running.level.label,
            kind=running.kind,
            users=running.users,
            spawn_rate_per_s=spawn_rate_per_s,
        )

    def _until_drained(self, running: RunningLevel) -> None:
        while True:
            tally, now_s = self._crews.tally(), time.monotonic()
            running.look(tally, now_s)
            if running.drain_at_s is None and running.time_is_up(now_s):
                self._crews.halt()
                running.drain(now_s, "time")
            if running.drain_at_s is not None and tally.n_under_way == 0:
                if running.drained_at_s is None:
                    running.drained_at_s = time.monotonic()
                if tally.n_unread == 0:
                    return
            self._wait(running.wait_s(now_s))

    def _record(self, running: RunningLevel) -> Level:
        tally = self._crews.tally()
        self._level = None
        record = running.record(self._recorder.run_id, tally)
        self._recorder.level(record)
        self._progress.skip(running.n_planned - tally.n_started)
        return record

    def _have_users(self, users: int) -> None:
        """So many users, of which every process has enough; those that go are idle."""
        per_process = -(-users // self._crews.n_processes)
        wanted = per_process * self._crews.n_processes
        if wanted != self._wanted or self._crews.tally().n_seats != wanted:
            self._wanted = wanted
            self._changed.set()
        while self._crews.tally().n_seats != wanted:
            self._wait(POLL_S)

    def _wait(self, timeout_s: float) -> None:
        self._crews.wait(timeout_s)
        self._progress.tick()

    @property
    def _kind(self) -> LevelKind:
        kind = self._plan.scenario.kind
        assert kind != "sequential", "a sequential plan has no levels"
        return kind
