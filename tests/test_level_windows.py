"""Steady windows, throughput, goodput and the open loop of a level, each recomputed by hand or by a plain loop."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.facts import LevelFacts
from analysis.in_flight import TURN_S, spans_of, steady_window, steps
from analysis.lateness import _Lags
from analysis.level_facts import level_facts
from analysis.level_limits import INVALIDATE, level_limits
from analysis.levels import Limits, level_goodput, levels_of
from analysis.measures import Row, measure
from analysis.open_loop import Schedule, open_loop
from analysis.run_clock import OWN, run_clock
from analysis.throughput import throughput, tokens_within
from analysis.unsent import unsent_by_design, without_these
from evidence.errors import Problem
from evidence.level_records import Level
from evidence.records import Health, Started
from evidence.worker_records import WorkerClock
from tests.run_factory import request

SPAN = st.tuples(st.integers(0, 60), st.integers(0, 30))


def sent(at_s, took_s, **changes):
    """A request sent at this instant that took so long; four tokens, evenly after its first tenth."""
    chunks = changes.pop("chunks", [(took_s * (1 + 3 * n) / 10, n, n + 1, 4) for n in range(4)])
    return request(chunks=chunks, sent_at_monotonic_s=at_s, sent_at_unix_s=at_s, **changes).model_copy(
        update={"end_after_s": took_s}
    )


def row(one):
    return Row(request=one, measures=measure(one, max_draft_tokens=0))


def spans(*pairs):
    found = spans_of([sent(begin, end - begin) for begin, end in pairs], OWN)
    assert found is not None
    return found


def level(label="users=2", **changes):
    fields = {
        "run_id": "run-test",
        "index": 0,
        "label": label,
        "kind": "concurrency",
        "users": 2,
        "rate_per_s": None,
        "target_tokens": None,
        "steady_s": None,
        "began_at_unix_s": 0.0,
        "began_at_monotonic_s": 0.0,
        "full_after_s": 0.0,
        "drain_after_s": 1.0,
        "drained_after_s": 2.0,
        "n_planned": 4,
        "n_started": 4,
        "n_completed": 4,
        "n_failed": 0,
        "n_cancelled": 0,
        "ended_by": "requests",
    }
    return Level(**(fields | changes))


def view(
    rows, *, kind="concurrency", records=(), unsent=None, label="users=2", unfinished=(), clocks=(), starts=(), due=None
):
    plan = {one.request.plan_id: {"phase": "measured", "level": one.request.level} for one in rows}
    lost = [one.plan_id for one in unfinished]
    plan |= {plan_id: {"phase": "measured", "level": label} for plan_id in (*(unsent or {}), *lost)}
    for plan_id, after_s in (due or {}).items():
        plan[plan_id]["scheduled_after_s"] = after_s
    (found,) = levels_of(
        plan=plan,
        records=records,
        rows=rows,
        unfinished=unfinished,
        unsent=unsent or {},
        scenario={"kind": kind},
        clock=run_clock([one.request for one in rows], clocks, starts),
    )
    return found


@given(st.lists(SPAN, min_size=1, max_size=8), st.integers(1, 5))
def test_the_steady_window_is_the_longest_interval_that_a_plain_search_finds(pairs, users):
    found = steady_window(spans(*[(float(begin), float(begin + length)) for begin, length in pairs]), users)
    least = -(-9 * users // 10)
    held = [sum(begin <= at < begin + length for begin, length in pairs) >= least for at in range(100)]
    longest = run = 0
    for full in held:
        run = run + 1 if full else 0
        longest = max(longest, run)
    assert (found.window_s or 0.0) == pytest.approx(longest)
    assert (found.why is None) == (longest > 0)


def test_a_users_turn_to_its_next_request_does_not_end_the_window_and_a_pause_does():
    turn, pause = TURN_S / 2, TURN_S * 2
    steady = steady_window(spans((0, 10), (0, 4), (4 + turn, 10)), 2)
    assert (steady.begin_s, steady.end_s, steady.why) == (0, 10, None)
    paused = steady_window(spans((0, 10), (0, 4), (4 + pause, 10)), 2)
    assert (paused.begin_s, paused.end_s) == (pytest.approx(4 + pause), 10)


def test_one_user_alone_has_a_window_of_all_its_requests():
    found = steady_window(spans(*[(n * 1.01, n * 1.01 + 1) for n in range(20)]), 1)
    assert (found.begin_s, found.end_s) == (0, pytest.approx(19 * 1.01 + 1))


def test_a_level_that_never_filled_says_how_many_were_under_way():
    found = steady_window(spans((0, 5), (1, 5)), 8)
    assert found.window_s is None and found.why == "8 of 8 users were never under way at once, at most 2 were"
    assert steady_window(None, 8).why == "no request of the level was sent"


@given(st.lists(SPAN, min_size=1, max_size=8))
def test_the_mean_under_way_is_the_integral_over_the_steps(pairs):
    found = spans(*[(float(begin), float(begin + length)) for begin, length in pairs])
    at, under_way = steps(found)
    end = found.last_s + 1
    whole = sum(n * (later - now) for n, now, later in zip(under_way, at, [*at[1:], end], strict=True))
    assert found.mean_within(found.first_s - 1, end) == pytest.approx(whole / (end - found.first_s + 1))


def test_tokens_count_in_the_window_in_which_they_arrived():
    one = sent(0.0, 10.0)  # tokens at 1, 4, 7 and 10 s
    assert tokens_within(one, 0.0, 10.0) == (4, 4)
    assert tokens_within(one, 3.0, 8.0) == (2, 2)
    assert tokens_within(one, 4.0, 4.0) == (1, 1)
    assert tokens_within(one, 11.0, 12.0) == (0, 0)
    merged = request(chunks=[(1.0, 0, 3, 9), (2.0, 1, 8, 9)], n_completion_tokens=9)
    assert tokens_within(merged, 1.5, 9.0) == (6, 6)  # usage counts one token more than the last chunk


def test_without_counts_in_its_chunks_an_answer_at_an_edge_gives_two_numbers():
    rows = [
        row(sent(0.0, 10.0, chunks=[(1.0, 0, None, 4), (10.0, 1, None, 4)], n_completion_tokens=40)),
        row(sent(2.0, 2.0, chunks=[(0.1, 0, None, 4), (1.0, 1, None, 4)], n_completion_tokens=10)),
    ]
    both = spans_of([one.request for one in rows], OWN)
    whole = throughput(rows, both, 0.0, 10.0, OWN)
    assert (whole.n_output_tokens, whole.output_tok_per_s, whole.bounds_tok_per_s) == (50, 5.0, None)
    part = throughput(rows, both, 0.5, 5.5, OWN)
    assert part.output_tok_per_s is None and part.bounds_tok_per_s == (10 / 5, 50 / 5)
    assert part.why == "an edge of the window cuts answers whose chunks carry no counts"


def test_a_window_that_ends_with_its_last_answers_holds_all_their_tokens_however_its_sums_round():
    n, each = 53, 20
    rows = []
    for place in range(n):
        took = 0.1 + place / 7
        chunks = [(took * (k + 1) / each, k, k + 1, 4) for k in range(each)]
        one = sent(18522.803140770 + place / 3, took, chunks=chunks, n_completion_tokens=each)
        rows.append(row(one))
    for last in rows:
        end = last.request.sent_at_monotonic_s + last.request.end_after_s
        assert tokens_within(last.request, -1.0, end - last.request.sent_at_monotonic_s) == (each, each)
    whole = spans_of([one.request for one in rows], OWN)
    assert throughput(rows, whole, whole.first_s, whole.last_s, OWN).n_output_tokens == n * each


def test_failed_requests_deliver_the_tokens_that_came_and_no_completed_request():
    rows = [
        row(sent(0.0, 10.0)),
        row(sent(0.0, 10.0, outcome="truncated", n_completion_tokens=None)),
        row(sent(0.0, 5.0, outcome="http_error", chunks=[], n_completion_tokens=None)),
    ]
    found = throughput(rows, spans_of([one.request for one in rows], OWN), 0.0, 10.0, OWN)
    assert (found.n_completed, found.n_failed, found.n_output_tokens) == (1, 2, 8)
    assert (found.requests_per_s, found.mean_in_flight) == (0.1, pytest.approx(2.5))


def test_a_completed_answer_without_any_count_leaves_no_throughput():
    rows = [row(sent(0.0, 1.0, chunks=[(0.5, 0, None, 1)], n_completion_tokens=None))]
    found = throughput(rows, spans_of([rows[0].request], OWN), 0.0, 1.0, OWN)
    assert (found.output_tok_per_s, found.bounds_tok_per_s) == (None, None)
    assert found.why == "1 completed requests carry no server's count"


def test_goodput_counts_failures_as_not_met_and_the_steady_part_by_when_requests_were_sent():
    rows = [
        row(sent(at, took, level="users=2", plan_id=f"m{n}", outcome=outcome))
        for n, (at, took, outcome) in enumerate(
            [(0.0, 10.0, "completed"), (5.0, 5.0, "completed"), (5.0, 4.0, "truncated"), (10.0, 10.0, "completed")]
        )
    ]
    found = view(rows)
    assert (found.steady.begin_s, found.steady.end_s, found.users) == (5.0, 10.0, 2)
    limits = Limits(ttft_slo_s=0.8, tpot_slo_s=None)  # TTFT is a tenth of the time taken
    whole, part = (level_goodput(found, limits, steady=steady) for steady in (False, True))
    assert (whole.n_sent, whole.n_good, whole.n_bad, whole.n_failed) == (4, 1, 2, 1)
    assert whole.per_s == (1 / 20, 1 / 20) and whole.share == (0.25, 0.25)
    assert (part.n_sent, part.n_good, part.n_bad, part.n_failed) == (3, 1, 1, 1)
    assert part.per_s == (1 / 5, 1 / 5)


def test_lines_that_a_timed_level_or_a_search_left_are_no_fault_and_all_others_are():
    plan = [
        {"plan_id": "a", "level": "users=1"},
        {"plan_id": "b", "level": "users=2"},
        {"plan_id": "c", "level": "users=4"},
        {"plan_id": "d", "level": None},
    ]
    records = [level("users=1", ended_by="time", steady_s=5.0), level("users=2")]
    search = {"kind": "concurrency", "levels": {"search": True}}
    ended = ["search: users=2: it holds", "search: users=2 holds them; visited users=1, users=2"]
    found = unsent_by_design(plan, frozenset(), records, search, noticed=ended)
    assert found == {"a": "the level was ended by its time", "c": "the search did not visit the level"}
    assert set(unsent_by_design(plan, frozenset(), records, {"kind": "concurrency"}, noticed=ended)) == {"a"}
    assert unsent_by_design(plan, frozenset("a"), records, {}, noticed=()) == {}
    assert unsent_by_design(plan, frozenset(), [], search, noticed=ended) == {}


def test_what_a_search_left_that_was_stopped_before_its_end_is_missing():
    plan = [{"plan_id": "b", "level": "users=2"}, {"plan_id": "c", "level": "users=4"}]
    search = {"kind": "concurrency", "levels": {"search": True}}
    assert unsent_by_design(plan, frozenset("b"), [level("users=2")], search, noticed=["search: users=2: holds"]) == {}


def test_the_rate_achieved_is_set_against_the_schedule_and_not_the_nominal_rate():
    lags = [0.0, 0.0, 0.0, 1.0]
    rows = [
        row(sent(due + lag, 1.0, level="rate=1", send_lag_s=lag))
        for due, lag in zip([0.0, 0.5, 2.0, 4.0], lags, strict=True)
    ]
    rows = [row(one.request.model_copy(update={"plan_id": f"m{n}"})) for n, one in enumerate(rows)]
    due = dict(zip(("m0", "m1", "m2", "m3"), (0.0, 0.5, 2.0, 4.0), strict=True))
    record = level("rate=1", kind="arrivals", users=None, n_cap_hits=3)
    found = open_loop(rows, record, OWN, Schedule(after_s=due, max_in_flight=None))
    assert (found.scheduled_rate_per_s, found.achieved_rate_per_s) == (3 / 4, 3 / 5)
    assert found.achieved_ratio == pytest.approx(0.8)
    assert (found.lag_median_s, found.lag_p99_s, found.lag_max_s, found.n_cap_hits) == (0.0, 1.0, 1.0, 3)
    silent = open_loop([row(sent(0.0, 1.0))], None, OWN, Schedule(after_s={}, max_in_flight=None))
    assert silent.achieved_ratio is None and "when the level began" in silent.why["achieved_rate_per_s"]
    silent = open_loop([row(sent(0.0, 1.0))], record, OWN, Schedule(after_s={}, max_in_flight=None))
    assert silent.achieved_ratio is None and "scheduled instant" in silent.why["achieved_rate_per_s"]


def arrived(n, at_s, took_s, **changes):
    return row(sent(at_s, took_s, level="rate=10", plan_id=f"m{n}", **changes))


def never_sent(n, **changes):
    one = sent(0.0, 0.0, plan_id=f"m{n}", sequence=n, chunks=[], outcome="connect_refused", **changes)
    return row(one.model_copy(update={"sent_at_monotonic_s": None, "sent_at_unix_s": None, "end_after_s": None}))


def started(n, at_s):
    return Started(
        run_id="run-test",
        worker=0,
        sequence=n,
        plan_id=f"m{n}",
        started_at_unix_s=at_s,
        started_at_monotonic_s=at_s,
    )


TENTHS = Schedule(after_s={f"m{n}": n / 10 for n in range(80)}, max_in_flight=2)
OPEN = level("rate=10", kind="arrivals", users=None, rate_per_s=10.0, n_cap_hits=0)


def test_a_request_that_could_not_be_sent_is_due_all_the_same_and_not_held():
    rows = [arrived(n, n / 10, 0.05, send_lag_s=0.0) if n < 57 else never_sent(n) for n in range(80)]
    found = open_loop(rows, OPEN, OWN, TENTHS)
    assert found.scheduled_rate_per_s == pytest.approx(10.0)
    assert found.achieved_ratio == pytest.approx(56 / 79)
    assert found.differs is None and found.n_cap_hits == 0


def test_a_send_lag_that_is_not_the_schedules_names_its_request_and_the_schedules_counts():
    rows = [arrived(n, 0.2 * n, 0.2, send_lag_s=1e-5) for n in range(80)]  # two at once need 0.1 s each
    found = open_loop(rows, OPEN, OWN, TENTHS)
    assert found.differs == "m1 has a send lag of 0.000010 s and was sent 0.100000 s after it was due (and 78 more)"
    assert found.lag_max_s == pytest.approx(7.9) and found.achieved_ratio == pytest.approx(0.5)
    (told,) = level_facts([view(rows, kind="arrivals", records=[OPEN], due=TENTHS.after_s)])
    assert [one.code for one in level_limits([told]) if one.code in INVALIDATE] == ["schedule_differs"]
    near = [arrived(n, n / 10 + 0.0015, 0.01, send_lag_s=0.001) for n in range(80)]
    assert open_loop(near, OPEN, OWN, TENTHS).differs is None


def test_how_often_the_cap_was_hit_is_at_least_what_the_requests_show():
    rows = [
        arrived(0, 0.0, 0.5, send_lag_s=0.0),
        arrived(1, 0.1, 0.4, send_lag_s=0.0),
        arrived(2, 0.5, 0.1, send_lag_s=0.3),  # due at 0.2, two under way
        arrived(3, 0.55, 0.1, send_lag_s=0.25),
        arrived(6, 0.66, 0.1, send_lag_s=0.06),  # late by itself: one was under way when it was due
    ]
    assert open_loop(rows, OPEN, OWN, TENTHS).n_cap_hits == 2
    assert open_loop(rows, OPEN.model_copy(update={"n_cap_hits": 5}), OWN, TENTHS).n_cap_hits == 5
    assert open_loop(rows, OPEN, OWN, Schedule(after_s=TENTHS.after_s, max_in_flight=3)).n_cap_hits == 0


def test_the_lag_of_a_worker_is_judged_by_its_own_clock_to_what_that_was_measured():
    rows = [
        row(of_worker(1, 0.0, 0.1, ahead_s=500.0).request.model_copy(update={"plan_id": "m0", "send_lag_s": 0.0})),
        row(of_worker(2, 0.1, 0.1, ahead_s=-70.0).request.model_copy(update={"plan_id": "m1", "send_lag_s": 0.0})),
    ]
    near = [measured(1, -1.0, 500.0), measured(2, -1.0, -70.0025)]
    clock = run_clock([one.request for one in rows], near)
    assert open_loop(rows, OPEN, clock, TENTHS).differs is None
    clock = run_clock([one.request for one in rows], [near[0], measured(2, -1.0, -70.02)])
    assert "m1 has a send lag" in open_loop(rows, OPEN, clock, TENTHS).differs
    clock = run_clock([one.request for one in rows], [])  # nobody measured them
    assert open_loop(rows, OPEN, clock, TENTHS).differs is None


def test_requests_never_sent_or_never_ended_are_in_the_windows_and_not_met():
    rows = [row(sent(float(n), 1.0, level="users=2", plan_id=f"m{n}", sequence=n)) for n in range(4)]
    rows += [never_sent(4, level="users=2"), never_sent(5, level="users=2")]
    starts = [*(started(n, float(n)) for n in range(4)), started(4, 6.0), started(5, 8.0), started(6, 2.5)]
    found = view(rows, unfinished=starts[6:], starts=starts)
    assert found.full is not None
    assert (found.full.n_started, found.full.n_completed, found.full.n_failed) == (7, 4, 2)
    assert (found.full.window_s, found.full.output_tok_per_s) == (8.0, 2.0)
    whole = level_goodput(found, Limits(ttft_slo_s=1.0, tpot_slo_s=None), steady=False)
    assert (whole.n_sent, whole.n_good, whole.n_failed, whole.n_unfinished) == (7, 4, 2, 1)
    assert whole.share == (4 / 7, 4 / 7) and whole.per_s == (0.5, 0.5)
    assert [one.request.plan_id for one in found.sent_within(5.0, 7.0)] == ["m4"]


def test_an_open_loop_is_steady_from_its_first_request_to_its_last():
    found = view([row(sent(at, 3.0, level="rate=1", plan_id=f"m{at}")) for at in (1.0, 2.0, 7.0)], kind="arrivals")
    assert (found.steady.begin_s, found.steady.end_s, found.rate_per_s, found.users) == (1.0, 7.0, 1.0, None)
    assert found.open_loop is not None


@pytest.mark.parametrize(
    ("facts", "code", "scope", "words"),
    [
        ({"no_record": True}, "level_not_recorded", "run", "levels.jsonl has no line of: users=2"),
        ({"n_left": 3}, "level_incomplete", "run", "users=2 (3 requests not sent)"),
        ({"undrained": True}, "drain_incomplete", "latency", "users=2"),
        ({"steady_missing": "never full"}, "no_steady_window", "rate", "users=2 (never full)"),
        ({"steady_s": 8.9, "steady_asked_s": 10.0}, "steady_window_short", "rate", "8.9 s of 10 s asked for"),
        ({"steady_s": 1.9, "e2e_median_s": 1.0}, "steady_window_short", "rate", "1.9 s, and an answer takes 1 s"),
        ({"achieved_ratio": 0.949}, "rate_not_achieved", "latency", "94.9% of the scheduled rate"),
        ({"lag_p99_s": 0.011, "ttft_median_s": 0.1}, "send_lag", "latency", "p99 0.0110 s"),
        ({"n_cap_hits": 2}, "cap_hit", "latency", "2 requests"),
    ],
)
def test_each_limit_of_a_level_is_named_with_its_scope(facts, code, scope, words):
    (found,) = level_limits([LevelFacts(label="users=2", **facts), LevelFacts(label="users=4")])
    assert (found.code, found.scope) == (code, scope) and words in found.seen


def test_a_level_within_every_limit_has_none_and_many_levels_are_one_reason():
    at_edges = LevelFacts(
        label="users=2",
        steady_s=9.0,
        steady_asked_s=10.0,
        achieved_ratio=0.95,
        lag_p99_s=0.01,
        ttft_median_s=0.1,
        n_cap_hits=0,
    )
    assert list(level_limits([at_edges])) == []
    (found,) = level_limits([LevelFacts(label=f"users={n}", undrained=True) for n in range(5)])
    assert found.seen.endswith("users=0; users=1; users=2 and 2 more")


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=8),
    st.integers(0, 50),
    st.integers(0, 9),
)
def test_the_sentinels_largest_delay_of_a_span_is_that_of_a_plain_search(lines, begin, length):
    health = [
        Health(
            at_monotonic_s=float(at),
            interval_s=float(interval),
            lag_p50_s=None,
            lag_max_s=None if lag is None else float(lag),
            cpu_ratio=None,
            gc_pauses=0,
            gc_pause_max_s=0.0,
            in_flight=0,
        )
        for at, interval, lag in lines
    ]
    inside = [lag for at, interval, lag in lines if lag is not None and at >= begin and at - interval <= begin + length]
    assert _Lags(health).largest(float(begin), float(begin + length)) == max(inside, default=None)


def measured(worker, at_s, offset_s, *, unix_s=0.0, bound_s=0.001):
    """A worker's clocks against the master's, measured at this instant of the master's monotonic clock."""
    return WorkerClock(
        run_id="run-test",
        worker=worker,
        at_unix_s=at_s,
        at_monotonic_s=at_s,
        n_pings=8,
        offset_monotonic_s=offset_s,
        offset_unix_s=unix_s,
        bound_s=bound_s,
    )


def of_worker(worker, at_s, took_s, *, ahead_s, unix_s=0.0):
    """Sent at ``at_s`` of the master's clocks by a worker whose own are so far ahead."""
    one = sent(at_s + ahead_s, took_s, prompt_id=f"p{worker}-{at_s}", level="users=2")
    return row(one.model_copy(update={"worker": worker, "sent_at_unix_s": at_s + unix_s}))


def test_levels_of_several_workers_are_joined_by_their_measured_clocks():
    rows = [
        *(of_worker(1, at, 1.0, ahead_s=500.0, unix_s=3.0) for at in range(10)),
        *(of_worker(2, at, 1.0, ahead_s=-70.0, unix_s=-4.0) for at in range(10)),
    ]
    clocks = [
        *(measured(1, at, 500.0, unix_s=3.0) for at in (-1.0, 4.0)),
        measured(2, -1.0, -70.0, unix_s=-4.0, bound_s=0.004),
    ]
    found = view(rows, clocks=clocks)
    assert (found.steady.begin_s, found.steady.end_s) == pytest.approx((0.0, 10.0))
    assert (found.clock.kind, found.clock.bound_s) == ("master", 0.004)
    assert "to within 4 ms" in found.clock.words
    apart = view(rows)  # by wall clocks that are 7 s apart
    assert apart.steady.window_s == pytest.approx(3.0)
    assert (apart.clock.kind, apart.clock.bound_s) == ("wall", None)
    assert "workers 1, 2" in apart.clock.words


def test_a_worker_without_a_measurement_leaves_wall_clocks_with_the_others_offset_taken_off():
    rows = [of_worker(1, 0, 10.0, ahead_s=500.0, unix_s=3.0), of_worker(2, 0, 10.0, ahead_s=-70.0)]
    found = view(rows, clocks=[measured(1, -1.0, 500.0, unix_s=3.0)])
    assert found.steady.window_s == pytest.approx(10.0)
    assert (found.clock.kind, found.clock.bound_s) == ("wall", None)
    assert found.clock.words.endswith("those of workers 2 are off")


def test_an_instant_is_carried_over_by_the_measurement_next_before_it():
    one = of_worker(1, 5.0, 1.0, ahead_s=100.2).request
    clock = run_clock(
        [one, of_worker(2, 0.0, 1.0, ahead_s=0.0).request],
        [measured(1, 6.0, 100.3), measured(1, 0.0, 100.0), measured(1, 4.0, 100.2), measured(2, 0.0, 0.0)],
    )
    assert clock.sent_s(one) == pytest.approx(5.0)
    early = one.model_copy(update={"sent_at_monotonic_s": 99.0})
    assert clock.sent_s(early) == pytest.approx(-1.0)  # before any: by the first
    assert clock.sent_s(one.model_copy(update={"sent_at_monotonic_s": None, "sent_at_unix_s": None})) is None


def test_a_limit_of_arrivals_is_mended_by_no_number_of_users():
    short = {"steady_s": 1.9, "e2e_median_s": 1.0}
    (of_users,) = level_limits([LevelFacts(label="users=2", **short)])
    (of_arrivals,) = level_limits([LevelFacts(label="rate=2", open_loop=True, **short)])
    assert "each user" in of_users.remedy
    assert "user" not in of_arrivals.remedy and "more arrivals" in of_arrivals.remedy


def test_a_level_that_a_signal_cut_short_is_mended_by_no_time_limit():
    cut = [LevelFacts(label="users=2", stopped=True, undrained=True)]
    assert [one.remedy for one in level_limits(cut) if one.code == "drain_incomplete"] != [
        one.remedy for one in level_limits(cut, was_stopped=True) if one.code == "drain_incomplete"
    ]
    assert not [one for one in level_limits(cut, was_stopped=True) if "time limit" in one.remedy]


def test_no_p99_is_named_of_fewer_send_lags_than_a_p99_needs():
    late = LevelFacts(label="rate=1", open_loop=True, lag_p99_s=0.02, lag_max_s=0.02, n_lags=4, ttft_median_s=0.1)
    (few,) = level_limits([late])
    assert "up to 0.0200 s in 4 arrivals" in few.seen and "p99" not in few.seen
    (many,) = level_limits([replace(late, n_lags=662, lag_max_s=0.5)])
    assert "p99 0.0200 s" in many.seen
    rows = [row(sent(at, 0.5, level="rate=1", plan_id=f"m{at}", send_lag_s=0.0)) for at in (0.0, 1.0)]
    schedule = Schedule(after_s={"m0.0": 0.0, "m1.0": 1.0}, max_in_flight=None)
    found = open_loop(rows, level("rate=1"), OWN, schedule)
    assert found.as_json()["send_lag_s"] == {"median": 0.0, "p99": None, "max": 0.0}
    assert found.why["send_lag_s"] == "p99 needs 662 values, there are 2"


def test_of_lines_left_by_design_no_problem_is_told_and_of_others_it_is():
    plan = [{"plan_id": one} for one in "abcd"]
    told = (Problem("planned_not_started", "3 planned requests were never started: b, c, d", "plan.jsonl"),)
    left = dict.fromkeys("bcd", "the search did not visit the level")
    assert without_these(told, left, frozenset("a"), plan) == ()
    (found,) = without_these(told, {"c": left["c"]}, frozenset("a"), plan)
    assert found.detail == "2 planned requests were never started: b, d"
