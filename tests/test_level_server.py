"""Levels of whole runs: what summary says of each from the server's side, in print too, and what makes them unlike."""

import json

import pytest

from analysis.__main__ import main
from analysis.level_facts import shares_between, shares_prefix
from analysis.level_server import level_server
from analysis.loading import load_run
from analysis.server import judge_server
from analysis.summary import summarise
from infra.engines.load import LOADS, Gauge, load_of
from tests.engine_bodies import text
from tests.level_factory import Played, make_level_run, played_run
from tests.run_factory import llamacpp_scrape, make_run, request

SLOW = Played(slots=2, blocks=64)
SGLANG = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{tp_rank="0",pid="1"} RUN
sglang:num_running_reqs{tp_rank="1",pid="2"} RUN
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{tp_rank="0",pid="1"} 3.0
# TYPE sglang:num_retracted_reqs gauge
sglang:num_retracted_reqs{tp_rank="0",pid="1"} BACK
# TYPE sglang:kv_used_tokens gauge
sglang:kv_used_tokens{tp_rank="0",pid="1"} 500.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{tp_rank="0",pid="1"} 2000.0
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return make_level_run(tmp_path_factory.mktemp("levels"), "concurrency", [1, 2, 6], SLOW)


def level(summary, label):
    (found,) = [one for one in summary["levels"] if one["label"] == label]
    return found


def test_each_level_has_the_servers_own_numbers_from_its_own_window(swept):
    summary = summarise(load_run(swept))
    assert [one["label"] for one in summary["levels"]] == ["users=1", "users=2", "users=6"]
    busy = level(summary, "users=6")
    rows = [row.request for row in load_run(swept).measured if row.request.level == "users=6"]
    ttft_s = sum(0.9 * row.first_token_after_s for row in rows) / len(rows)
    server = busy["server"]
    assert server["ttft_s"]["mean"] == pytest.approx(ttft_s)
    assert server["ttft_s"]["coverage"] == "24 observations in the window of 24 completed requests"
    assert server["inter_token_s"]["unit_of_observation"] == "step"
    assert server["queue_s"]["mean"] == pytest.approx(0.5 * 4 * 30 * 0.010 / 2)
    assert (server["preemptions"]["value"], level(summary, "users=1")["server"]["preemptions"]["value"]) == (2, 0)
    assert (server["running"]["max"], server["waiting"]["max"], server["running"]["n"]) == (2, 4, 2)
    kv = server["kv_tokens_used"]
    assert kv["capacity"] == 64 * 16
    assert (kv["ratio_max"], kv["max"]) == (pytest.approx(2 * 84 / 1024), pytest.approx(2 * 84))
    assert server["retractions"] == {
        "value": None,
        "series": None,
        "why": "not observable: the engine preempts, and retracts nothing",
        "note": None,
    }


def test_levels_scraped_apart_are_at_rest_between_one_another_and_the_whole_run_balances(swept):
    run = load_run(swept)
    assert [check.name for check in run.server.checks if check.state == "fail"] == []
    assert [one for one in run.reasons if one.severity == "INVALID"] == []
    assert {check.name: check.state for check in run.server.checks}["at rest before the window"] == "pass"


def test_traffic_between_two_levels_is_foreign_though_each_window_is_whole():
    made = played_run("concurrency", [1, 2], SLOW)
    scrapes, after = made["run"]["scrapes"], False
    for place, one in enumerate(scrapes):
        after = after or one.role == "after"
        if after and one.level == "users=2":
            grown = one.body.replace('finished_reason="stop"} 24.0', 'finished_reason="stop"} 25.0')
            grown = grown.replace('finished_reason="stop"} 48.0', 'finished_reason="stop"} 49.0')
            scrapes[place] = one.model_copy(update={"body": grown})
    side = judge_server(
        requests=made["requests"], scrapes=[s for s in scrapes if s.role != "idle-check" or s.level == "users=1"],
        plan={}, adapter="vllm", speculative=False,
    )  # fmt: skip
    assert {check.name: check.state for check in side.checks}["at rest before the window"] == "fail"
    assert "foreign_traffic" in [finding.code for finding in side.findings]


def test_levels_of_one_pair_of_scrapes_are_not_told_apart_and_say_so(tmp_path):
    rows = [request(level=label, prompt_id=f"code_{n}") for n, label in enumerate(["users=1", "users=1", "users=2"])]
    scrapes = [llamacpp_scrape("before", -1.0), llamacpp_scrape("after", 900.0, prompt=60, generated=6, decoded=6)]
    run = load_run(make_run(tmp_path, rows, scrapes=scrapes, scenario={"kind": "concurrency"}))
    found = level(summarise(run), "users=1")
    assert found["server"]["coverage"] == "not observable: the levels were not scraped apart"
    assert found["server"]["queue_s"]["why"] == "not observable: the levels were not scraped apart"
    assert found["ended_by"] is None and "levels.jsonl" in found["why"]["ended_by"]
    assert "level_not_recorded" in [reason.code for reason in run.reasons]


def sglang(role, at_s, run=0.0, back=0.0, body=None):
    counters = text("sglang_v0.5.23_2")
    shown = SGLANG.replace("RUN", str(run)).replace("BACK", str(back))
    kept = "\n".join(
        line
        for line in counters.splitlines()
        if not any(name in line for name in ("num_running", "num_queue_reqs", "retracted", "kv_used", "max_total_num"))
    )
    one = llamacpp_scrape(role, at_s, headers={})
    return one.model_copy(update={"level": "users=2", "body": body or f"{kept}\n{shown}"})


def test_sglang_ranks_are_not_added_and_retractions_are_a_lower_bound():
    scrapes = [sglang("before", 0.0), sglang("during", 1.0, 2.0), sglang("during", 2.0, 4.0, 1.0), sglang("after", 3.0)]
    side = judge_server(
        requests=[request(level="users=2")], scrapes=scrapes, plan={}, adapter="sglang", speculative=True
    )
    found = level_server(side, "users=2", n_completed=1)
    assert (found["running"]["mean"], found["running"]["max"]) == (3.0, 4.0)
    assert found["waiting"]["max"] == 3.0 and "30 s" in found["waiting"]["note"]
    assert found["retractions"]["value"] == 1.0 and "lower bound" in found["retractions"]["note"]
    assert found["preemptions"]["why"] == "not observable: the engine retracts, and preempts nothing"
    assert found["kv_tokens_used"]["ratio_max"] == 0.25 and found["kv_tokens_used"]["capacity"] == 2000


def test_every_engine_answers_each_question_by_a_series_or_by_why_not():
    for engine, load in LOADS.items():
        for name in ("running", "waiting", "retractions", "kv_used", "kv_share", "kv_capacity"):
            where = getattr(load, name)
            assert where.names if isinstance(where, Gauge) else len(where.why) > 10, (engine, name)
    assert "no reader" in load_of("another").queue.why


@pytest.mark.parametrize("kind", ["concurrency", "context", "arrivals"])
def test_the_print_out_of_levels_fits_a_terminal_and_has_no_zero_for_the_unknown(tmp_path, capsys, kind):
    settings = {"concurrency": [1, 4], "context": [64, 256], "arrivals": [1.0, 2.0]}[kind]
    folder = make_level_run(tmp_path, kind, settings, SLOW)
    assert main(["summary", str(folder)]) == 0
    printed = capsys.readouterr().out
    part = printed[printed.index("Levels\n") : printed.index("Acceptance (")]
    assert max(map(len, part.splitlines())) <= 116
    assert ("Open loop" in part) == (kind == "arrivals")
    assert main(["summary", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["levels"]
    assert len(found) == 2
    assert all(one["full"]["goodput"]["share"] == [1.0, 1.0] for one in found)


def test_an_open_loop_that_falls_behind_is_degraded_and_counts_latency_from_the_schedule(tmp_path):
    run = load_run(make_level_run(tmp_path, "arrivals", [4.0], Played(client_rate_per_s=2.0)))
    reasons = {one.code: one for one in run.reasons}
    assert (reasons["rate_not_achieved"].severity, reasons["rate_not_achieved"].scope) == ("DEGRADED", "latency")
    assert "send_lag" in reasons
    summary = summarise(run)
    (group,) = [one for one in summary["groups"] if one["domain"] == "all"]
    waited = sorted(r.request.first_token_after_s + r.request.send_lag_s for r in run.measured)
    assert group["ttft_from_schedule_s"]["median"] == waited[(len(waited) - 1) // 2]
    assert group["ttft_from_schedule_s"]["median"] > 5 * group["ttft_s"]["median"]
    assert level(summary, "rate=4")["achieved_ratio"] == pytest.approx(0.5, rel=0.05)


def test_in_closed_loop_nothing_is_counted_from_a_schedule(swept):
    summary = summarise(load_run(swept))
    assert not [name for group in summary["groups"] for name in group if "from_schedule" in name]
    assert level(summary, "users=1")["send_lag_s"] is None


def test_levels_that_share_prompts_are_caught_by_their_cached_share_unless_a_prefix_was_asked_for(tmp_path):
    def answer(label, n, n_cached):
        usage = {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": n_cached}}
        return request(level=label, prompt_id=f"code_{n}", usage=usage, domain="code")

    rows = [answer("users=1", 1, 0), answer("users=1", 2, 1), answer("users=2", 1, 15), answer("users=2", 2, 15)]
    for name, context, limited in (("a", None, True), ("b", {"shared_prefix_tokens": 10}, False)):
        scenario = {"kind": "concurrency"} | ({} if context is None else {"context": context})
        run = load_run(make_run(tmp_path / name, rows, scenario=scenario))
        assert ("cached_shares_differ" in [one.code for one in run.reasons]) == limited
    said = shares_between(run.levels)
    assert said == "75% of the prompt tokens of users=2 came from a cache, 2% of users=1"
    assert shares_prefix({"context": {"shared_prefix_tokens": 0}}) is False


def test_a_level_ended_by_time_leaves_lines_without_fault_and_counts_what_was_sent(tmp_path):
    made = played_run("concurrency", [2], SLOW, n=24)
    record = made["run"]["levels"][0].model_copy(
        update={"ended_by": "time", "steady_s": 2.0, "n_started": 20, "n_completed": 20}
    )
    made["run"] |= {"levels": [record], "scrapes": []}
    run = load_run(make_run(tmp_path, made["requests"], never_started=4, **made["run"]))
    assert not {"plan_incomplete", "level_incomplete"} & {one.code for one in run.reasons}
    found = level(summarise(run), "users=2")
    assert (found["n_planned"], found["n_started"], found["n_not_sent"]) == (20, 20, 4)
    whole = load_run(
        make_run(tmp_path / "b", made["requests"], never_started=4, **(made["run"] | {"levels": [
            record.model_copy(update={"ended_by": "stopped"})]}))
    )  # fmt: skip
    assert {"plan_incomplete", "level_incomplete"} <= {one.code for one in whole.reasons}


def test_goodput_of_a_run_without_levels_is_over_the_whole_run(tmp_path):
    rows = [request(prompt_id=f"code_{n}") for n in range(3)]
    scenario = {"kind": "sequential", "limits": {"ttft_slo_s": 0.2}}
    (group, _) = summarise(load_run(make_run(tmp_path, rows, scenario=scenario)))["groups"]
    assert group["goodput"]["share"] == (1.0, 1.0)
    assert group["goodput"]["per_s"][0] == pytest.approx(3 / 10.35) and "throughput" not in group
