"""A run's summary: every published number recomputed by hand from the records it was made of."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from analysis import side_by_side, summary_view
from analysis.loading import LoadedRun, load_run
from analysis.summary import summarise
from analysis.tables import Notes, table, width
from evidence.records import Request
from tests import studies
from tests.run_factory import llamacpp_scrape, make_run, request

CONTRACT_KEYS = {"verdict", "reasons", "scope", "groups", "server", "acceptance", "client_floor_s"}
METRICS = ("ttft_s", "ttfv_s", "tpot_s", "decode_tok_per_s", "e2e_s")


def stream(first_s: float, step_s: float, n: int, **changes: Any) -> Request:
    """n chunks of one token each, the first after ``first_s``, then one every ``step_s``."""
    chunks = [(first_s + step_s * at, at, 1 + at, 4) for at in range(n)]
    timings = {"prompt_ms": first_s * 900, "predicted_n": n, "predicted_ms": step_s * 1000 * (n - 1), "cache_n": 0}
    return request(chunks=chunks, server_fields={"timings": timings}, **changes)


def six(**changes: Any) -> list[Request]:
    rows = []
    for at, (domain, number) in enumerate(
        [("code", 1), ("code", 2), ("prose", 1), ("prose", 2), ("json", 1), ("json", 2)]
    ):
        one = stream(0.1 + 0.01 * at, 0.02 + 0.001 * at, 10 + at, domain=domain, prompt_id=f"{domain}_0{number}")
        rows.append(one.model_copy(update=changes))
    return rows


def scrapes(n_prompt: int, n_generated: int) -> list[Any]:
    return [
        llamacpp_scrape("before", -1.0),
        llamacpp_scrape("after", 900.0, prompt=n_prompt, generated=n_generated, decoded=n_generated),
    ]


def loaded(tmp_path: Path, requests: list[Request], **changes: Any) -> LoadedRun:
    warmup = stream(0.3, 0.02, 4, phase="warmup", domain="warmup", prompt_id="warmup_01")
    measured = [one for one in requests if one.outcome == "completed"]
    seen = scrapes(
        sum(one.n_prompt_tokens or 0 for one in measured), sum(one.n_completion_tokens or 0 for one in measured)
    )
    return load_run(make_run(tmp_path, [warmup, *requests], scrapes=seen, **changes))


def group(summary: dict[str, Any], domain: str) -> dict[str, Any]:
    (found,) = [one for one in summary["groups"] if one["domain"] == domain]
    return dict(found)


def test_the_keys_of_the_contract_are_there(tmp_path: Path) -> None:
    summary = summarise(loaded(tmp_path, six()))
    assert set(summary) >= CONTRACT_KEYS
    for one in summary["groups"]:
        assert set(one) >= {"domain", "level", "n_completed", "n_failed", *METRICS}
        for metric in METRICS:
            assert set(one[metric]) >= {"n", "median", "p90", "p95", "p99"}
    assert [one["domain"] for one in summary["groups"]] == ["code", "prose", "json", "all"]
    assert {one["level"] for one in summary["groups"]} == {None}
    assert set(summary["acceptance"]) >= {
        "state", "source", "n_drafted", "n_accepted", "n_verify_steps", "rate", "length",
    }  # fmt: skip
    json.dumps(summary, allow_nan=False)


def test_every_median_is_recomputed_by_hand(tmp_path: Path) -> None:
    requests = six()
    summary = summarise(loaded(tmp_path, requests))
    by_hand: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for at in range(6):
        first_s, step_s, n = 0.1 + 0.01 * at, 0.02 + 0.001 * at, 10 + at
        by_hand["ttft_s"].append(first_s)
        by_hand["ttfv_s"].append(first_s)
        by_hand["tpot_s"].append(step_s)
        by_hand["decode_tok_per_s"].append(1 / step_s)
        by_hand["e2e_s"].append(first_s + step_s * (n - 1) + 0.05)
    for metric, values in by_hand.items():
        found = group(summary, "all")[metric]
        assert found["n"] == 6
        assert found["median"] == pytest.approx(statistics.median_low(values)), metric
        code = group(summary, "code")[metric]
        assert code["median"] == pytest.approx(min(values[:2])), metric
    everything = group(summary, "all")
    assert everything["completion_tokens"] == 10 + 11 + 12 + 13 + 14 + 15
    assert everything["prompt_tokens"] == 6 * 20 == summary["scope"]["prompt_tokens"]
    assert summary["server"]["prompt_s"]["median"] == pytest.approx(0.12 * 0.9)
    assert summary["server"]["ttft_s"]["median"] is None
    assert summary["server"]["ttft_s"]["why"]["median"]
    assert summary["server"]["tpot_s"]["median"] == pytest.approx(0.022)


def test_the_studys_own_rate_stands_beside_and_differs(tmp_path: Path) -> None:
    code = group(summarise(loaded(tmp_path, six())), "code")
    by_hand = [10 / (0.02 * 9 + 0.05), 11 / (0.021 * 10 + 0.05)]
    assert code["study_rate_tok_per_s"]["median"] == pytest.approx(min(by_hand))
    assert code["study_rate_tok_per_s"]["median"] != pytest.approx(code["decode_tok_per_s"]["median"])


def test_a_tail_below_its_floor_is_null_with_the_reason(tmp_path: Path) -> None:
    found = group(summarise(loaded(tmp_path, six())), "all")["ttft_s"]
    assert (found["p90"], found["p95"], found["p99"]) == (None, None, None)
    assert found["why"]["p90"] == "p90 needs 64 values, there are 6"


def test_ninety_requests_have_a_p90_and_no_p95(tmp_path: Path) -> None:
    rows = [stream(0.1 + 0.001 * at, 0.01, 3, prompt_id=f"code_{at:02}") for at in range(90)]
    found = group(summarise(loaded(tmp_path, rows)), "code")["ttft_s"]
    assert found["p90"] == pytest.approx(0.1 + 0.001 * 80)  # rank ceil(0.9 * 90) = 81, counted from one
    assert found["p95"] is None


def test_failed_requests_are_counted_and_enter_no_median(tmp_path: Path) -> None:
    rows = six()
    rows[0] = rows[0].model_copy(update={"outcome": "truncated", "finish_reason": None, "first_token_after_s": 99.0})
    summary = summarise(loaded(tmp_path, rows))
    code = group(summary, "code")
    assert (code["n_planned"], code["n_completed"], code["n_failed"]) == (2, 1, 1)
    assert code["ttft_s"]["n"] == 1
    assert code["ttft_s"]["median"] == pytest.approx(0.11)
    assert ("requests_failed", "DEGRADED", "rate") in {
        (r["code"], r["severity"], r["scope"]) for r in summary["reasons"]
    }


def test_without_usage_the_latencies_stand_and_rates_are_null_with_a_reason(tmp_path: Path) -> None:
    rows = six(outcome="no_usage", n_completion_tokens=None, token_source=None)
    summary = summarise(loaded(tmp_path, rows))
    everything = group(summary, "all")
    assert (everything["n_completed"], everything["ttft_s"]["n"]) == (0, 6)
    assert everything["ttft_s"]["median"] == pytest.approx(0.12)
    assert everything["decode_tok_per_s"]["median"] is None
    assert everything["completion_tokens"] is None
    assert (summary["verdicts"]["latency"], summary["verdicts"]["rate"]) != ("INVALID", "VALID")
    assert summary["verdicts"]["rate"] == "INVALID"


def test_an_unknown_first_chunk_gives_bounds_that_enclose_the_median(tmp_path: Path) -> None:
    rows = [
        one.model_copy(update={"chunks": tuple((at, seg, None, n) for at, seg, _, n in one.chunks)}) for one in six()
    ]
    summary = summarise(loaded(tmp_path, rows))
    found = group(summary, "code")["decode_tok_per_s"]
    assert (found["n"], found["median"]) == (0, None)
    assert found["bounds"] == pytest.approx([1 / 0.021, 1 / 0.021])  # no speculation: one token a chunk
    assert {"first_chunk_tokens_unknown"} <= {reason["code"] for reason in summary["reasons"]}


def test_the_print_out_shows_no_zero_for_the_unknown_and_fits_a_terminal(tmp_path: Path) -> None:
    rows = six(n_completion_tokens=None, token_source=None)
    lines = summary_view.one_run(summarise(loaded(tmp_path, rows)))
    assert max(width(line) for line in lines if str(tmp_path) not in line) <= 100
    (code,) = [line for line in lines if line.startswith("code ") and " of " in line]
    cells = code.split()
    assert [cell for cell in cells if cell.strip("0.") == ""] == ["0"]  # none failed: the one true zero
    assert sum(cell.startswith("-[") for cell in cells) == 4  # TPOT, both rates, tokens
    assert any("no authoritative token count" in line for line in lines)


def test_the_scope_is_stated_in_words(tmp_path: Path) -> None:
    text = " ".join(summary_view.one_run(summarise(loaded(tmp_path, six()))))
    for said in (
        "1 launch",
        "1 pass",
        "6 prompts",
        "120 prompt tokens (server's count)",
        "concurrency 1",
        "Test CPU",
        "llama.cpp",
    ):
        assert said in text


def test_acceptance_of_all_comes_from_the_counters_and_a_domains_from_its_requests(tmp_path: Path) -> None:
    rows = []
    for one, (drafted, accepted) in zip(six(), [(8, 6), (4, 0), (8, 8), (0, 0), (4, 1), (4, 3)], strict=True):
        timings = dict(one.server_fields["timings"])
        if drafted:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        rows.append(one.model_copy(update={"server_fields": {"timings": timings}}))
    tokens = sum(one.n_completion_tokens or 0 for one in rows)
    before = llamacpp_scrape("before", -1.0, generated=100, prompt=50, drafted=40, accepted=10, steps=9)
    after = llamacpp_scrape(
        "after", 900.0, generated=100 + tokens, prompt=50 + 120, drafted=40 + 28, accepted=10 + 18, steps=9 + 10
    )
    arm = {"name": "spec", "engine": "llama.cpp", "args": {"speculative.types": ["draft-simple"]}}
    server = {"engine": "llama.cpp", "version": "b1", "speculative": True}
    run = load_run(make_run(tmp_path, rows, scrapes=[before, after], arm=arm, server=server))
    summary = summarise(run)
    everything, code, prose = (group(summary, name)["acceptance"] for name in ("all", "code", "prose"))
    assert summary["acceptance"] == everything
    assert (everything["state"], everything["source"]) == ("value", "counters")
    assert (everything["n_drafted"], everything["n_accepted"], everything["n_verify_steps"]) == (28, 18, 10)
    assert everything["rate"] == pytest.approx(18 / 28)
    assert everything["length"] == pytest.approx(1 + 18 / 10)
    assert (code["n_drafted"], code["n_accepted"], code["rate"]) == (12, 6, pytest.approx(0.5))
    assert (code["n_verify_steps"], code["length"]) == (None, None)
    assert code["reasons"]["length"]
    assert (prose["n_drafted"], prose["rate"]) == (8, 1.0)
    assert summary["verdict"] == "VALID", summary["reasons"]


def two(tmp_path: Path, **changes: Any) -> list[dict[str, Any]]:
    slower = [
        stream(0.2 + 0.02 * at, 0.04 + 0.002 * at, 10 + at, domain=one.domain, prompt_id=one.prompt_id)
        for at, one in enumerate(six())
    ]
    first = summarise(loaded(tmp_path, six(), run_id="run-a"))
    second = summarise(loaded(tmp_path, slower, run_id="run-b", arm={"name": "slow", "engine": "llama.cpp"}, **changes))
    return [first, second]


def test_ratios_are_to_the_first_run_and_say_what_they_are_not(tmp_path: Path) -> None:
    summaries = two(tmp_path)
    (everything,) = [one for one in side_by_side.ratios(summaries) if one["domain"] == "all"]
    assert everything["decode_tok_per_s"] == pytest.approx(0.5)
    assert everything["ttft_s"] == pytest.approx(2.0)
    text = " ".join(" ".join(side_by_side.lines(summaries)).split())
    assert "ratio of medians, one launch each, no interval: not a claim about the system" in text
    assert max(map(width, side_by_side.lines(summaries))) <= 100


def test_an_invalid_run_enters_no_ratio(tmp_path: Path) -> None:
    summaries = two(tmp_path, seal=False)
    (everything,) = [one for one in side_by_side.ratios(summaries) if one["domain"] == "all"]
    assert everything["decode_tok_per_s"] is None
    assert "INVALID" in everything["why"]["decode_tok_per_s"]


def test_runs_of_different_plans_enter_no_ratio(tmp_path: Path) -> None:
    summaries = two(tmp_path, texts={"code_01": "Another text."})
    assert {one["ttft_s"] for one in side_by_side.ratios(summaries)} == {None}


def test_columns_align_beyond_wide_characters_and_combining_marks() -> None:
    lines = table(["name", "n"], [["中文", "1"], ["e\u0301", "22"], ["plain", "333"]])
    assert [width(line) for line in lines if "-" not in line] == [width(lines[1])] * 4


def test_control_characters_of_a_record_cannot_move_the_cursor() -> None:
    (line,) = table(["name"], [["a\x1b[2Jb\nc"]])[2:]
    assert line == "a\\x1b[2Jb\\nc"


def test_a_dash_points_to_its_reason_and_equal_reasons_share_a_number() -> None:
    notes = Notes()
    assert [notes.dash("off"), notes.dash("few"), notes.dash("off")] == ["-[1]", "-[2]", "-[1]"]
    assert notes.lines() == ["[1] off", "[2] few"]


def test_runs_whose_bodies_were_added_to_differently_enter_no_ratio_and_the_field_is_named(tmp_path: Path) -> None:
    summaries = two(tmp_path, request_extra={"top_k": 1, "timings_per_token": True})
    ratios = side_by_side.ratios(summaries)
    assert {one["ttft_s"] for one in ratios} == {None}
    assert "top_k (--extra-body)" in ratios[0]["why"]["ttft_s"]
    assert "timings_per_token" not in ratios[0]["why"]["ttft_s"]


def test_the_model_printed_is_the_one_the_answers_name(tmp_path: Path) -> None:
    model = {"asked": "big", "served": None, "file_sha256": "ab" * 32}
    summary = summarise(loaded(tmp_path, six(), model=model))
    assert summary["scope"]["model"].startswith("tiny, ")
    assert "model_differs" in [reason["code"] for reason in summary["reasons"]]


def test_counts_that_cannot_be_are_read_as_unknown_and_crash_nothing(tmp_path: Path) -> None:
    huge = 10**400
    first, *others = six()
    odd = first.model_copy(
        update={
            "n_completion_tokens": huge,
            "n_prompt_tokens": huge,
            "chunks": tuple((at, segment, huge, n) for at, segment, _, n in first.chunks),
            "usage": {"prompt_tokens": huge, "prompt_tokens_details": {"cached_tokens": huge}},
            "server_fields": {"timings": {"predicted_n": huge, "predicted_ms": huge, "draft_n": [huge]}},
        }
    )
    made = scrapes(120, sum(one.n_completion_tokens or 0 for one in six()))
    summary = summarise(load_run(make_run(tmp_path, [odd, *others], scrapes=made)))
    assert "no_token_counts" in [reason["code"] for reason in summary["reasons"]]


def test_a_launch_that_was_changed_or_is_another_one_is_not_believed(tmp_path: Path) -> None:
    path = studies.launch(tmp_path / "launches", studies.SERVED, b"log")
    cited = {"launch_dir": str(path)}
    assert loaded(tmp_path / "a", six(), launch_id=studies.SERVED, **cited).launch is not None
    other = loaded(tmp_path / "b", six(), launch_id="another", **cited)
    assert other.launch is None
    assert "another" in (other.launch_missing or "")
    assert "launch_unknown" in [reason.code for reason in other.reasons]
    (path / "launch.json").write_bytes((path / "launch.json").read_bytes().replace(b"cpu-f32", b"gpu-f16"))
    changed = loaded(tmp_path / "c", six(), launch_id=studies.SERVED, **cited)
    assert changed.launch is None
    assert "SHA-256" in (changed.launch_missing or "")
