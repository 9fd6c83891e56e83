"""``sweep``: levels of a run and of a study's arms, from the folders' own records, and what it refuses to say."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from analysis import sweep
from analysis.__main__ import main
from analysis.loading import load_run
from analysis.summary import summarise
from analysis.sweep_gather import level_numbers
from evidence.quantiles import distribution
from tests.level_factory import Played, make_level_run, make_sweep_study
from tests.study_factory import make_study

USERS = (1, 4, 16)


def dear(n: float) -> float:
    """A speculative step over a plain one: 1.85 times at one request, 3.6 times at eight."""
    return 1.6 + 0.25 * n


FAST = Played(accepted=2, cost=dear, blocks=300)


def swept(path: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    parser = argparse.ArgumentParser()
    sweep.add_arguments(parser)
    code, report, lines = sweep.command(parser.parse_args([str(path), *more]))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert all(len(line) <= 100 for line in lines)
    return code, report, " ".join(" ".join(lines).split())


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Path, int, dict[str, Any], str]:
    root = tmp_path_factory.mktemp("study")
    servers = {"base": Played(), "fast": FAST}
    path = make_sweep_study(root, "concurrency", USERS, servers, launches=3, control=1)
    return path, *swept(path)


def levels(report, arm, role=None):
    return [one for one in report["levels"] if one["arm"] == arm and one["role"] == (role or one["role"])]


def test_a_run_shows_each_level_with_the_servers_side_joined_to_it(tmp_path):
    code, report, text = swept(make_level_run(tmp_path, "concurrency", USERS, FAST))
    assert code == 0 and report["kind"] == "concurrency" and report["unit"] == "users"
    assert [one["setting"] for one in report["levels"]] == [1, 4, 16]
    last = report["levels"][-1]["launches"][0]
    assert last["server"]["waiting"]["max"] == 8 and last["server"]["queue_s"]["mean"] == pytest.approx(0.15)
    assert last["acceptance"]["state"] == "value" and last["acceptance"]["rate"] == 0.5
    assert last["server"]["kv_tokens_used"]["capacity"] == 4800 and last["driver_bytes"] == 60 * 2**30
    assert last["energy"]["mean_power_w"] == 300 and last["cached_share"] == 0
    assert "users=16" in text and "60.0" in text and "objectives: TTFT at most 500.0 ms, TPOT at most 50.0 ms" in text


def test_the_numbers_of_a_level_are_those_of_its_own_requests(tmp_path):
    path = make_level_run(tmp_path, "concurrency", USERS)
    _, report, _ = swept(path)
    rows = [row for row in load_run(path).measured if row.request.level == "users=4"]
    found = report["levels"][1]
    values = [row.measures.ttft_s.value for row in rows]
    assert found["ttft_s"]["median"] == distribution(v for v in values if v is not None).median
    assert found["ttft_s"]["n"] == found["n_completed"] == len(rows) == 24
    begin = min(row.request.sent_at_monotonic_s or 0 for row in rows)
    end = max((row.request.sent_at_monotonic_s or 0) + (row.request.end_after_s or 0) for row in rows)
    n_tokens = sum(row.request.n_completion_tokens or 0 for row in rows)
    assert found["full_output_tok_per_s"] == pytest.approx(n_tokens / (end - begin))


def test_no_tail_is_printed_below_its_floor(tmp_path):
    _, report, text = swept(make_level_run(tmp_path, "concurrency", (1,), n=70))
    stats = report["levels"][0]["ttft_s"]
    assert stats["p90"] is not None and stats["p95"] is None and stats["p99"] is None
    assert "p95 needs 130 values, there are 70" in text


def test_a_sequential_run_is_refused_with_what_to_use_instead(tmp_path, capsys):
    study_path = make_study(tmp_path, launches=1, control=0)
    assert main(["sweep", str(study_path), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert "nothing here has levels (sequential)" in said["error"] and "use summary or compare" in said["error"]


def test_arms_stand_beside_each_other_at_the_same_level_over_their_launches(study):
    _, code, report, text = study
    assert code == 0
    assert [(one["level"], one["arm"], one["role"]) for one in report["levels"][:3]] == [
        ("users=1", "base", "baseline"),
        ("users=1", "fast", "arm"),
        ("users=1", "base", "control"),
    ]
    base = levels(report, "base", "baseline")[0]
    assert base["n_launches"] == 3 and base["n_completed"] == 72 and base["ttft_s"]["n"] == 72
    logs = [one["full"]["output_tok_per_s"] for one in base["launches"]]
    assert base["full_output_tok_per_s"] == pytest.approx((logs[0] * logs[1] * logs[2]) ** (1 / 3))
    assert "control" in text


def test_ratios_are_paired_by_launch_and_each_has_its_interval(study):
    _, _, report, _ = study
    (fast,) = [one for one in report["arms"] if one["role"] == "arm"]
    first = fast["levels"][0]
    mine, other = levels(report, "base", "baseline")[0], levels(report, "fast")[0]
    expected = other[f"{first['window']}_output_tok_per_s"] / mine[f"{first['window']}_output_tok_per_s"]
    assert first["throughput"]["ratio"] == pytest.approx(expected)
    assert first["throughput"]["n_launches"] == 3 and first["throughput"]["verdict"] == "higher"
    low, high = first["throughput"]["interval"]
    assert low < expected < high
    assert first["decode"]["ratio"] == pytest.approx(3 / dear(1), rel=0.02) and first["decode"]["verdict"] == "faster"
    assert fast["levels"][-1]["decode"]["verdict"] == "slower"


def test_the_cost_of_a_step_is_measured_at_each_level_and_grows_with_the_load(study):
    _, _, report, _ = study
    costs = [one["cycle_cost"] for one in report["arms"][0]["levels"]]
    assert [round(one["tokens_per_step"], 6) for one in costs] == [3, 3, 3]
    assert [one["break_even_tokens_per_step"] for one in costs] == pytest.approx([dear(1), dear(4), dear(8)], rel=0.02)
    assert [one["pays"] for one in costs] == [True, True, False]


def test_speculation_breaks_even_between_the_levels_where_it_was_ahead_and_behind(study):
    _, _, report, text = study
    found = report["arms"][0]["break_even"]
    for what in ("throughput", "decode"):
        assert found[what]["state"] == "crossing" and found[what]["pays"] == "below"
        assert found[what]["between"] == [4, 16]
        low, high = found[what]["interval"]
        assert 4 < low <= found[what]["at"] <= high < 16
    assert "fast, throughput: ahead below" in text and "measured ahead at 4 and behind at 16" in text


def test_the_control_is_compared_like_an_arm_and_breaks_even_nowhere(study):
    _, _, report, text = study
    (control,) = [one for one in report["arms"] if one["role"] == "control"]
    assert all(one["throughput"]["ratio"] == pytest.approx(1, abs=0.02) for one in control["levels"])
    assert "control, throughput" not in text


def test_one_launch_speaks_of_its_prompts_only(tmp_path):
    path = make_sweep_study(
        tmp_path, "context", (256, 4096), {"base": Played(), "fast": FAST}, n=12, launches=1, control=0
    )
    _, report, text = swept(path)
    (fast,) = report["arms"]
    assert fast["levels"][0]["throughput"]["scope"] == "prompts only"
    assert fast["levels"][0]["throughput"]["interval"] is None and fast["levels"][0]["decode"]["interval"] is None
    assert fast["break_even"]["throughput"]["state"] == "not resolved"
    assert fast["break_even"]["decode"]["said"].startswith("prompts only: ahead at every level measured, 256 to 4096")
    assert "prompts only: one launch of an arm says nothing about how launches differ" in text


def test_capacity_is_shown_for_each_launch_from_its_three_sources(study):
    _, _, report, text = study
    found = {(one["arm"], one["pair"]): one for one in report["capacity"] if one["role"] != "control"}
    assert found["base", 0]["tokens"] == 512 * 16 and found["fast", 0]["tokens"] == 300 * 16
    assert found["base", 0]["logical_bytes"] == 23040 * 512 * 16
    assert found["base", 0]["driver_most_bytes"] == found["fast", 0]["driver_most_bytes"] == 60 * 2**30
    assert "is not the cost of an" in text and "30 layers x 3 KV heads" in text


def test_objectives_give_goodput_and_the_highest_level_that_holds_them(tmp_path):
    slow = Played(step_s=0.03, crowd=0.15)  # 31 ms a token alone, 62 ms with seven others
    path = make_level_run(tmp_path, "concurrency", (1, 2, 8), slow)
    _, report, text = swept(path)
    assert [one["good_share"] for one in report["levels"]] == [[1, 1], [1, 1], [0, 0]]
    assert report["highest_level"]["served"]["level"] == "users=2"
    assert "users=2 holds 90%; users=8 does not (0.0% met them)" in text
    assert swept(path, "--attainment", "1.0")[1]["highest_level"]["served"]["attainment"] == 1.0


def test_levels_that_only_one_of_two_runs_visited_are_named_in_the_scope_of_their_comparison(tmp_path, capsys):
    """Two searches bisect differently: no pair stands on a level that one of them left out."""
    one = make_level_run(tmp_path / "one", "concurrency", [2, 4])
    other = make_level_run(tmp_path / "other", "concurrency", [4, 8], arm_name="other")
    main(["compare", "--base", str(one), "--against", str(other), "--json"])
    assert json.loads(capsys.readouterr().out)["scope"]["levels_of_some"] == ["users=2", "users=8"]
    main(["compare", "--base", str(one), "--against", str(other)])
    assert "not every run visited users=2, users=8: no pair stands" in " ".join(capsys.readouterr().out.split())


def test_without_objectives_there_is_no_goodput_and_the_reason_is_given(tmp_path):
    path = make_level_run(tmp_path, "concurrency", (1,), limits={"timeout_s": 600.0})
    _, report, text = swept(path)
    assert report["levels"][0]["good_share"] is None and "no objective is set" in text
    assert report["highest_level"]["served"]["level"] is None


def test_failed_requests_are_counted_and_named_and_are_not_good(tmp_path):
    code, report, text = swept(make_level_run(tmp_path, "concurrency", (1, 4), Played(fails_at=4), n=25))
    found = report["levels"][1]
    assert found["n_lost"] == 5 and found["failed"] == {"http_error": 5} and found["good_share"] == [0.8, 0.8]
    assert "http_error 5" in text and code == 1  # more than 1 % failed: INVALID for rates


def test_an_open_loop_shows_both_clocks_and_whether_its_rate_was_held(tmp_path):
    late = Played(client_rate_per_s=5.0)
    _, report, text = swept(make_level_run(tmp_path, "arrivals", (2.0, 8.0), late))
    held, missed = (one["launches"][0] for one in report["levels"])
    assert held["achieved_rate_per_s"] == pytest.approx(2.0) and held["rate_missed"] is None
    assert missed["achieved_rate_per_s"] == pytest.approx(5.0, rel=0.01)
    assert "of the 8 requests a second that were scheduled" in missed["rate_missed"]
    level = report["levels"][1]
    assert level["ttft_from_schedule_s"]["median"] > 10 * level["ttft_s"]["median"]
    assert level["ttft_from_schedule_s"]["n"] == level["ttft_s"]["n"] == 24
    assert report["highest_level"]["served"]["level"] == "rate=2"
    assert "TTFT*" in text


def test_whether_a_rate_was_held_is_decided_against_the_schedules_own_and_not_the_nominal_one(tmp_path):
    path = make_level_run(tmp_path, "arrivals", (2.0,))
    run = load_run(path)
    summary = summarise(run)
    level = summary["levels"][0] | {"rate_per_s": 2.4, "scheduled_rate_per_s": 2.0, "achieved_rate_per_s": 2.0}
    for ratio, said in ((1.0, None), (0.951, None), (0.949, "the client sent 2 of the 2 requests a second")):
        told = level_numbers(run, {**summary, "levels": [level | {"achieved_ratio": ratio}]}, [])["rate=2"].rate_missed
        assert (told is None) if said is None else (said in (told or ""))


def test_an_arm_that_did_not_run_is_named_and_one_that_is_not_comparable_is_refused(tmp_path):
    def other_model(at):
        return {"model": {"asked": "x", "served": "x", "file_sha256": "cd" * 32}} if at.arm == "fast" else {}

    path = make_sweep_study(
        tmp_path, "concurrency", (1, 4), {"base": Played(), "fast": FAST, "bad": Played()}, n=8,
        launches=2, control=0, manifest=other_model, failed={("bad", n): ("draft", "no such file") for n in (0, 1)},
    )  # fmt: skip
    code, report, text = swept(path)
    assert code == 1
    (fast,) = report["arms"]
    assert fast["refused"] is not None and "not comparable with the baseline" in fast["refused"]
    assert {(one["arm"], one["stage"]) for one in report["not_measured"]} == {("bad", "draft")}
    assert "bad, pair 0: not measured: draft: no such file" in text


def test_numbers_that_the_server_does_not_tell_say_why(tmp_path):
    path = make_level_run(tmp_path, "concurrency", (1, 2), n=6)
    (path / "scrapes.jsonl").unlink()
    code, report, text = swept(path)
    assert code == 1  # a file of the seal is missing: INVALID
    server = report["levels"][0]["launches"][0]["server"]
    assert server["queue_s"]["mean"] is None and "not observable" in server["queue_s"]["why"]
    assert "not observable" in text


def test_a_run_whose_latencies_do_not_stand_holds_no_objective(tmp_path):
    def late(at):
        return {"calibration": {"client_floor_s": {"ttft_s": 0.03}}}  # above half of every TTFT

    path = make_sweep_study(
        tmp_path, "concurrency", (1, 2), {"base": Played(), "fast": FAST}, n=6, launches=1, control=0, manifest=late
    )
    code, report, text = swept(path)
    assert code == 1 and report["highest_level"]["base"]["level"] is None
    assert "is INVALID for latency: client_floor" in report["highest_level"]["base"]["said"]
    assert report["client_floor_s"]["run-000"] == {"ttft_s": 0.03} and "client floor: ttft_s 30.0 ms" in text
    assert report["arms"][0]["levels"][0]["ttft"]["ratio"] is None
