"""Levels without a server: a conductor and a crew of real greenlets, whose requests take a played time."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import pytest

from evidence.level_records import Level
from evidence.records import Request
from locustfiles._conductor import Conductor
from locustfiles._crew import Crew, Order, RunOver, Tally
from locustfiles._dispatch import Dispatcher
from locustfiles._progress import Progress
from locustfiles._recording import Recording
from locustfiles._running import RunningLevel
from scenarios.plan import Plan, PlannedRequest, expand
from scenarios.schema import Scenario
from scenarios.stock import load_stock_for
from tests.evidence_samples import ended as a_request


def plan_of(kind: str, warmup: int = 0, **sections: object) -> Plan:
    asked = {
        "name": "played",
        "kind": kind,
        "mix": {"domains": {"code": 4, "prose": 4}},
        "request": {"max_tokens": {"code": 8, "prose": 8}},
        "warmup": {"requests": warmup},
        **sections,
    }
    scenario = Scenario.model_validate_json(json.dumps(asked))
    return expand(scenario, load_stock_for(scenario, Path()))


class Sending:
    """In place of a sender: counts, and plays how long a request takes and what becomes of it."""

    def __init__(self) -> None:
        self.n_started = 0
        self.in_flight = self.peak = 0
        self.n_settled = self.n_unread = 0

    def settle(self) -> None:
        self.n_settled += 1


@dataclass
class Keeping:
    """In place of a recorder: what the conductor did, in order."""

    plan: Plan
    run_id: str = "run-played"
    done: list[str] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    rest: Callable[[], bool] = lambda: True
    over: bool = False

    def reset_cache(self) -> None:
        self.done.append("reset")

    def open_window(self, level: str) -> None:
        assert self.rest()
        self.done.append(f"open {level}")

    def close_window(self) -> None:
        assert self.rest()
        self.done.append("close")

    def level(self, record: Level) -> None:
        self.levels.append(record)
        self.done.append(f"level {record.label}")

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Played:
    """A whole run: users that come and go as the conductor wants them."""

    def __init__(self, plan: Plan, takes_s: Callable[[PlannedRequest], float], **changes: object) -> None:
        self.sending, self.keeping = Sending(), Keeping(plan)
        self.crew = Crew(self.sending, plan)  # type: ignore[arg-type]  # of a sender it uses what Sending has
        self.keeping.rest = lambda: self.sending.in_flight == 0
        self.conductor = Conductor(self.keeping, self.crew, Progress("played", 0, lambda: self.sending.in_flight))
        self.sent: list[tuple[str | None, str, int]] = []  # label, plan id, in flight with it
        self.instants_s: dict[str, float] = {}
        self._takes_s, self._changes = takes_s, changes
        self._users: list[tuple[int, gevent.Greenlet]] = []

    def run(self, until: Callable[[], bool] = lambda: False, limit_s: float = 20.0) -> None:
        conducting = gevent.spawn(self.conductor.run)
        conducting.link(lambda _: self.conductor.finish())
        shape = gevent.spawn(self._follow)
        deadline = time.monotonic() + limit_s
        while not (shape.ready() or until()):
            gevent.sleep(0.002)
            assert time.monotonic() < deadline, "the run does not end"
        self.crew.close()
        for _, user in self._users:
            user.kill()
        conducting.kill()
        shape.kill()
        self.conductor.cut()
        if conducting.exception is not None:
            raise conducting.exception

    def send(self, planned: PlannedRequest, *_: object) -> None:
        sending = self.sending
        sending.n_started += 1
        sending.in_flight += 1
        self.sent.append((planned.level, planned.plan_id, sending.in_flight))
        self.instants_s[planned.plan_id] = time.monotonic()
        outcome = "cancelled"
        try:
            gevent.sleep(self._takes_s(planned))
            outcome = "completed"
        finally:
            sending.in_flight -= 1
            record = self._record(planned, outcome)
            self.crew.ended(record)
            self.conductor.ended(record)

    def _record(self, planned: PlannedRequest, outcome: str) -> Request:
        took = {"plan_id": planned.plan_id, "level": planned.level, "end_after_s": self._takes_s(planned)}
        changes = {**took, "outcome": outcome, **self._changes}
        return a_request(0).model_copy(update=changes)

    def _follow(self) -> None:
        while (wanted := self.conductor.users_wanted()) is not None:
            while len(self._users) < wanted[0]:
                seat = self.crew.enlist()
                self._users.append((seat, gevent.spawn(self._user, seat)))
            while len(self._users) > wanted[0]:
                seat, user = self._users.pop(0)  # the eldest: seats then have gaps
                user.kill()
                self.crew.leave(seat)

    def _user(self, seat: int) -> None:
        try:
            while True:
                with self.crew.taken(seat) as planned:
                    self.send(planned)
        except RunOver:
            return


def test_levels_run_in_the_order_written_each_reset_opened_drained_recorded_and_closed():
    played = Played(plan_of("concurrency", levels={"users": [2, 4, 1], "requests": 12}), lambda _: 0.02)
    played.run()
    labels = ["users=2", "users=4", "users=1"]
    assert played.keeping.done == [w for one in labels for w in ("reset", f"open {one}", f"level {one}", "close")]
    assert played.sending.n_settled == 3
    for label, users in zip(labels, (2, 4, 1), strict=True):
        own = [in_flight for level, _, in_flight in played.sent if level == label]
        assert len(own) == 12
        assert max(own) == users


def test_a_level_takes_its_requests_in_plan_order_each_once():
    plan = plan_of("concurrency", warmup=3, levels={"users": [3], "requests": 20})
    played = Played(plan, lambda _: 0.002)
    played.run()
    assert [plan_id for _, plan_id, _ in played.sent] == [one.plan_id for one in plan.requests]
    assert [in_flight for level, _, in_flight in played.sent if level is None] == [1, 1, 1]


def test_users_are_let_go_over_the_time_one_request_takes():
    plan = plan_of("concurrency", warmup=2, levels={"users": [4], "requests": 12})
    played = Played(plan, lambda _: 0.08)
    played.run()
    (level,) = played.keeping.levels
    assert level.spawn_rate_per_s == pytest.approx(4 / 0.08)
    assert level.full_after_s is not None
    assert level.full_after_s >= 3 / level.spawn_rate_per_s


def test_a_timed_level_counts_from_when_all_users_are_up_and_leaves_the_rest_of_its_plan():
    plan = plan_of("concurrency", levels={"users": [3], "steady_s": 0.15, "at_most_requests": 500})
    played = Played(plan, lambda _: 0.01)
    played.run()
    (level,) = played.keeping.levels
    assert level.ended_by == "time"
    assert level.drain_after_s is not None
    assert level.full_after_s is not None
    assert level.drain_after_s >= level.full_after_s + 0.15
    assert level.n_started == level.n_completed == len(played.sent) < level.n_planned == 500


def test_a_timed_level_whose_plan_runs_out_says_so():
    plan = plan_of("concurrency", levels={"users": [2], "steady_s": 30.0, "at_most_requests": 6})
    played = Played(plan, lambda _: 0.005)
    played.run()
    assert played.keeping.levels[0].ended_by == "plan exhausted"


def test_a_level_whose_last_requests_went_with_a_lost_worker_says_so():
    plan = plan_of("concurrency", levels={"users": [2], "requests": 6})
    running = RunningLevel(plan.levels[0], "concurrency", 6)
    running.look(Tally(n_let_go=2, n_left=1, n_lost=2), now_s=1.0)
    assert running.drain_at_s is None
    running.look(Tally(n_let_go=2, n_left=0, n_lost=2), now_s=2.0)
    running.drained_at_s = 2.0
    assert running.record("run-test", Tally(n_started=4, n_completed=4)).ended_by == "worker lost"


def test_a_stop_in_the_middle_of_a_level_records_it_with_what_was_cut():
    plan = plan_of("concurrency", levels={"users": [3, 5], "requests": 9})
    played = Played(plan, lambda planned: 30.0 if planned.level == "users=5" else 0.002)
    played.run(until=lambda: played.sending.in_flight == 5)
    level = played.keeping.levels[-1]
    assert (level.label, level.ended_by, level.drained_after_s) == ("users=5", "stopped", None)
    assert (level.n_started, level.n_cancelled, level.n_completed) == (5, 5, 0)


class Stopped(Recording):
    """A session with a played recorder and no level under way."""

    conductor = None

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    def _n_under_way(self) -> int:
        return 0


def test_a_signal_is_noticed_once_and_never_once_the_folder_is_being_closed():
    keeping = Keeping(plan_of("concurrency", levels={"users": [1], "requests": 1}))
    run = Stopped(keeping)
    for name in ("SIGINT", "SIGTERM"):  # the one is passed on as the other
        run.signalled(name)
    assert keeping.notices == ["stopped by SIGINT"]
    keeping.over = True
    Stopped(keeping).signalled("SIGTERM")
    assert keeping.notices == ["stopped by SIGINT"]


def test_a_search_bisects_and_names_what_it_did_not_visit():
    plan = plan_of(
        "concurrency",
        levels={"users": [1, 2, 3, 4, 5, 6, 7], "requests": 2, "search": True},
        limits={"timeout_s": 5.0, "ttft_slo_s": 10.0},
    )
    played = Played(plan, lambda _: 0.001)
    played.keeping.plan = plan
    played._record = lambda planned, _: a_request(0).model_copy(  # type: ignore[method-assign]  # holds up to 5 users
        update={"level": planned.level, "outcome": "completed" if planned.level <= "users=5" else "http_error"}
    )
    played.run()
    assert [level.label for level in played.keeping.levels] == ["users=4", "users=6", "users=5"]
    assert any(text.startswith("search: users=5 holds them") for text in played.keeping.notices)
    assert "not sent: the search did not visit users=1, users=2, users=3, users=7" in played.keeping.notices


class Connection:
    """In place of a transport."""

    def prepare(self) -> None: ...
    def close(self) -> None: ...


def dispatched(plan: Plan, takes_s: float) -> Played:
    """An open loop: the one user of each level is a dispatcher."""
    played = Played(plan, lambda _: takes_s)

    def send(planned: PlannedRequest, _: object, due_ns: int) -> None:
        gevent.sleep(max(0.0, due_ns / 1e9 - time.monotonic()))
        played.send(planned)

    def user(_seat: int) -> None:
        dispatcher = Dispatcher(played.crew, Connection, send, lambda _: None)  # type: ignore[arg-type]  # plays a transport
        try:
            while True:
                played.crew.awaited()
                dispatcher.run_level()
        except RunOver:
            dispatcher.stop()

    played._user = user  # type: ignore[method-assign]  # another kind of user
    return played


def test_open_loop_sends_at_the_planned_instants_answered_or_not():
    plan = plan_of("arrivals", arrivals={"process": "poisson", "rate_per_s": [100.0], "requests": 30})
    played = dispatched(plan, takes_s=0.3)
    played.run()
    (level,) = played.keeping.levels
    assert max(in_flight for _, _, in_flight in played.sent) > 15
    assert (level.n_completed, level.n_cap_hits, level.ended_by, level.users) == (30, 0, "requests", None)
    for planned in plan.measured:
        after_s = played.instants_s[planned.plan_id] - level.began_at_monotonic_s
        assert after_s >= planned.scheduled_after_s - 1e-6


def test_open_loop_past_its_cap_waits_in_order_and_counts_it():
    arrivals = {"process": "constant", "rate_per_s": [200.0], "requests": 20, "max_in_flight": 3}
    played = dispatched(plan_of("arrivals", arrivals=arrivals), takes_s=0.05)
    played.run()
    (level,) = played.keeping.levels
    assert max(in_flight for _, _, in_flight in played.sent) == 3
    assert level.n_completed == 20
    assert level.n_cap_hits is not None
    assert level.n_cap_hits > 5
    assert [plan_id for _, plan_id, _ in played.sent] == [one.plan_id for one in played.keeping.plan.measured]


def test_a_share_of_a_level_takes_its_own_lines_users_and_cap():
    crew = Crew(Sending())  # type: ignore[arg-type]  # of a sender it uses what Sending has
    lines = plan_of("concurrency", levels={"users": [5], "requests": 9}).measured[:2]
    seats = [crew.enlist() for _ in range(3)]
    order = Order(label="users=5", kind="concurrency", users=5, spawn_rate_per_s=100.0, max_in_flight=7)
    crew.begin(order, lines, place=1, n_places=2)  # places 1 and 3 of 5 users
    took: list[int] = []

    def user(seat: int) -> None:
        with crew.taken(seat):
            took.append(seat)
            gevent.sleep(0.2)

    users = [gevent.spawn(user, seat) for seat in reversed(seats)]
    gevent.joinall(users, timeout=0.1)
    assert took == seats[:2]
    assert crew.max_in_flight == 3
    assert time.monotonic_ns() - crew.began_ns >= 30_000_000
    gevent.killall(users)


def test_tallies_of_processes_add_up():
    one = Tally(n_seats=2, n_left=1, n_started=3, n_completed=2, began_at_monotonic_s=7.5)
    both = one + Tally(n_seats=1, n_failed=1)
    assert both == Tally(n_seats=3, n_left=1, n_started=3, n_completed=2, n_failed=1, began_at_monotonic_s=7.5)
