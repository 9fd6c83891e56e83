"""The case study's saved files: its tables rebuilt, its shifted columns recovered, and what they cannot show."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import audit
from analysis.audit_logs import read
from analysis.errors import AnalysisError
from evidence.errors import EvidenceError
from tests.case_study_files import (
    CONFIGS,
    HEADER,
    OBSERVATIONS,
    console_log,
    observations_text,
    saved_rows,
    shifted_csv,
)

# The study's printed medians: all, code, prose, json in tokens a second, and TTFT in milliseconds.
PRINTED = {
    "baseline_tp2": (55.60, 55.65, 55.55, 55.80, 34.9),
    "spec_ngram_k5": (71.37, 71.72, 64.09, 79.87, 37.6),
    "baseline_fp8kv": (54.77, 54.77, 54.73, 54.98, 35.5),
}
ROUNDING = 1e-9


def audited(*files: Path, **options: Any) -> dict[str, Any]:
    fields = {"file": list(files), "baseline": None, "plots": None} | options
    code, report, lines = audit.command(argparse.Namespace(**fields))
    assert code == 0
    assert lines
    json.dumps(report, allow_nan=False)
    return report


def logs(folder: Path) -> list[Path]:
    paths = []
    for name in CONFIGS:
        path = folder / f"bench_{name}.out"
        path.write_text(console_log(name), encoding="utf-8")
        paths.append(path)
    return paths


def shifted(folder: Path) -> list[Path]:
    path = folder / "benchmark_runs.csv"
    path.write_text(shifted_csv(saved_rows()), encoding="utf-8")
    return [path]


def observations(folder: Path) -> list[Path]:
    return [OBSERVATIONS]


@pytest.mark.parametrize("files", [observations, logs, shifted])
def test_each_kind_of_file_gives_the_study_s_medians_to_half_a_unit(
    files: Callable[[Path], list[Path]], tmp_path: Path
) -> None:
    configs = audited(*files(tmp_path))["configs"]
    assert list(configs) == list(PRINTED)
    for name, (everything, code, prose, json_rate, ttft_ms) in PRINTED.items():
        one = configs[name]
        assert one["n"] == 90
        assert abs(one["median_decode_tok_per_s"] - everything) <= 0.005 + ROUNDING
        for domain, said in (("code", code), ("prose", prose), ("json", json_rate)):
            assert abs(one["by_domain"][domain] - said) <= 0.005 + ROUNDING
        assert abs(one["median_ttft_ms"] - ttft_ms) <= 0.05 + ROUNDING


def test_the_comparison_keeps_to_prompts_and_names_each_ratio() -> None:
    report = audited(OBSERVATIONS)
    assert report["scope"] == "prompts only, one launch"
    ngram = report["comparisons"]["spec_ngram_k5"]
    assert (ngram["scope"], ngram["interval"], ngram["verdict"]) == ("prompts only", None, "not resolved")
    assert ngram["ratio"] == pytest.approx(1.313, abs=0.0005)
    others = ngram["other_ratios"]
    assert others["ratio_of_medians"] == pytest.approx(1.284, abs=0.0005)
    assert others["median_of_ratios"] == pytest.approx(1.280, abs=0.0005)
    assert others["total_token_ratio"] == pytest.approx(1.269, abs=0.0005)
    assert others["ratio_of_means"] == pytest.approx(1.34, abs=0.005)
    assert report["comparisons"]["baseline_fp8kv"]["ratio"] == pytest.approx(0.985, abs=0.0005)


def test_lengths_that_differ_are_counted_and_end_to_end_is_then_not_compared() -> None:
    comparisons = audited(OBSERVATIONS)["comparisons"]
    assert {name: one["n_lengths_differ"] for name, one in comparisons.items()} == {
        "spec_ngram_k5": 13,
        "baseline_fp8kv": 24,
    }
    assert comparisons["spec_ngram_k5"]["e2e_ratio"] is None
    assert "differ in length" in comparisons["spec_ngram_k5"]["why"]["e2e_ratio"]


def test_answers_cut_by_max_tokens_are_counted() -> None:
    assert [one["n_at_max_tokens"] for one in audited(OBSERVATIONS)["configs"].values()] == [61, 62, 60]


def test_the_baseline_s_code_block_drifts_with_order() -> None:
    drift = audited(OBSERVATIONS)["configs"]["baseline_tp2"]["order_drift"]
    assert drift["spearman"]["0 code"] < -0.95
    assert drift["seen"]
    assert drift["per_request"] < 0


def test_the_prompts_repeated_from_warm_up_are_the_fastest_and_are_named() -> None:
    report = audited(OBSERVATIONS)
    repeated = report["configs"]["spec_ngram_k5"]["warm_up_prompts"]
    assert [repeated[name]["rank"] for name in ("code_02", "code_01")] == [1, 2]
    assert repeated["code_02"]["rate_ratio"] > 3
    ngram = report["comparisons"]["spec_ngram_k5"]
    assert ngram["without_warm_up_prompts"]["n_pairs"] == 88
    assert ngram["sd_log_ratio"] == pytest.approx(0.178, abs=0.0005)
    assert ngram["without_warm_up_prompts"]["sd_log_ratio"] == pytest.approx(0.130, abs=0.0005)


def test_the_memory_fraction_is_named_as_a_confounder() -> None:
    for one in audited(OBSERVATIONS)["comparisons"].values():
        assert one["confounders"] == [{"setting": "--mem-fraction-static", "baseline": "0.82", "arm": "0.85"}]


def test_the_first_token_s_bias_explains_the_json_block_of_the_baseline() -> None:
    bias = audited(OBSERVATIONS)["configs"]["baseline_tp2"]["first_token_bias"]["json"]
    assert bias["sd_tok_per_s"] == pytest.approx(0.193, abs=0.0005)
    assert bias["sd_corrected_tok_per_s"] == pytest.approx(0.041, abs=0.0005)


def test_a_step_of_unrecorded_acceptance_is_bounded() -> None:
    low_s, high_s = audited(OBSERVATIONS)["configs"]["spec_ngram_k5"]["cycle_bounds_s"]
    assert (round(low_s * 1e3, 1), round(high_s * 1e3, 1)) == (17.2, 26.6)


def test_what_cannot_be_shown_is_listed() -> None:
    report = audited(OBSERVATIONS)
    said = " ".join(report["cannot_show"])
    for words in ("acceptance", "output equality", "JSON validity", "two failed arms", "mem-fraction-static"):
        assert words in said
    assert all(one["cannot_show"] for one in report["configs"].values())
    assert {one["arm"] for one in report["not_measured"]} == {"spec_standalone_1.5b", "spec_eagle3"}
    assert {one["evidence_grade"] for one in report["not_measured"]} == {"reported only"}
    assert any("AWQ" in one for one in report["contradicted_labels"])


def test_inputs_carry_their_hashes() -> None:
    (one,) = audited(OBSERVATIONS)["inputs"]
    assert one["sha256"] == "ba4785f1a1cbb896edb978273ba77e9bcedcb1a9c0dd638e6f1b722623a77fb5"
    assert one["n_rows"] == 270


def test_the_shifted_columns_are_read_under_their_right_names(tmp_path: Path) -> None:
    (path,) = shifted(tmp_path)
    source = read(path)
    assert source.kind == "shifted csv"
    assert "270 of 270 rows hold 10 values under 14 names" in source.notes[0]
    first, saved = source.rows[0], saved_rows()[0]
    assert first.completion_tokens == int(saved["completion_tokens"])
    assert float(first.rate) == float(saved["client_decode_tok_s"])
    assert float(first.ttft_ms) == float(saved["ttft_ms"])
    assert first.config is None
    assert first.prompt_id is None


def test_the_shifted_rows_get_their_configuration_from_the_rows_they_repeat(tmp_path: Path) -> None:
    report = audited(*shifted(tmp_path))
    for name in CONFIGS:
        assert any("repeat the saved rows" in said for said in report["configs"][name]["notes"])


def test_shifted_rows_that_repeat_nothing_known_stay_unnamed(tmp_path: Path) -> None:
    rows = [row | {"client_decode_tok_s": f"{float(row['client_decode_tok_s']) * 2:.2f}"} for row in saved_rows()]
    path = tmp_path / "other.csv"
    path.write_text(shifted_csv(rows), encoding="utf-8")
    report = audited(path)
    assert list(report["configs"]) == ["unnamed_1", "unnamed_2", "unnamed_3"]
    assert abs(report["configs"]["unnamed_2"]["by_domain"]["json"] - 2 * 79.87) < 0.02
    assert "fixed order" in report["configs"]["unnamed_1"]["notes"][0]


def test_shifted_rows_of_another_number_have_no_domains(tmp_path: Path) -> None:
    rows = [row | {"completion_tokens": str(int(row["completion_tokens"]) + 1)} for row in saved_rows()[:7]]
    path = tmp_path / "cut.csv"
    path.write_text(shifted_csv(rows), encoding="utf-8")
    one = audited(path)["configs"]["unnamed_1"]
    assert one["by_domain"] == {}
    assert any("domains" in said for said in one["cannot_show"])


def test_whole_rows_of_the_harness_s_csv_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "whole.csv"
    row = "2026-08-01T10:00:00Z,mine,M,code_01,code,40,100,0.1,2.0,2.1,50.00,47.62,,"
    path.write_text(f"{HEADER}\n{row}\n", encoding="utf-8")
    (found,) = read(path).rows
    assert (found.config, found.prompt_id, found.category) == ("mine", "code_01", "code")
    assert read(path).notes == ()


def test_columns_shifted_otherwise_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(f"{HEADER}\n2026-08-01T10:00:00Z,100,40,0.1,2.0,2.1,50.00,47.62,,\n", encoding="utf-8")
    with pytest.raises(AnalysisError, match=r"line 2: decode_tok_per_sec is 50\.00 where"):
        read(path)


def test_a_log_s_own_summary_is_checked_against_its_rows(tmp_path: Path) -> None:
    paths = logs(tmp_path)
    assert {one["printed_agrees"] for one in audited(*paths)["configs"].values()} == {True}
    text = console_log("spec_ngram_k5").replace("Median:       71.37", "Median:       72.37")
    paths[1].write_text(text, encoding="utf-8")
    assert audited(*paths)["configs"]["spec_ngram_k5"]["printed_agrees"] is False


def test_the_study_s_own_printed_standard_deviation_agrees_within_the_rounding_of_rows(tmp_path: Path) -> None:
    """The study printed 19.18 from unrounded rates; the rounded rows give 19.186."""
    path = tmp_path / "ngram.out"
    text = console_log("spec_ngram_k5").replace("StdDev:       19.19", "StdDev:       19.18")
    assert "19.18" in text
    path.write_text(text, encoding="utf-8")
    assert audited(path)["configs"]["spec_ngram_k5"]["printed_agrees"] is True


def test_a_log_cut_short_keeps_its_requests_and_says_how_many_there_should_be(tmp_path: Path) -> None:
    path = tmp_path / "cut.out"
    path.write_text(console_log("baseline_tp2", summary=False)[:3000], encoding="utf-8")
    report = audited(path)
    n = report["configs"]["baseline_tp2"]["n"]
    assert 0 < n < 90
    assert any(f"{n} of 90 requests" in said for said in report["notes"])
    assert any("no summary block" in said for said in report["notes"])
    assert any("none that the harness prints" in said for said in report["notes"])


def test_a_printed_accept_rate_is_the_server_s_gauge_and_no_acceptance(tmp_path: Path) -> None:
    path = tmp_path / "ngram.out"
    path.write_text(console_log("spec_ngram_k5", accept_rate="62.00%"), encoding="utf-8")
    said = " ".join(audited(path)["configs"]["spec_ngram_k5"]["cannot_show"])
    assert "90 lines print the server's gauge" in said


def test_a_foreign_line_in_a_log_is_shown_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "noisy.out"
    path.write_text(console_log("baseline_tp2").replace("\n[5/90]", "\nTraceback: boom\n[5/90]"), encoding="utf-8")
    report = audited(path)
    assert report["configs"]["baseline_tp2"]["n"] == 90
    assert any("Traceback: boom" in said for said in report["notes"])


def test_logs_with_windows_line_ends_and_a_mark_at_the_start_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dos.out"
    path.write_bytes(b"\xef\xbb\xbf" + console_log("baseline_tp2").replace("\n", "\r\n").encode())
    assert audited(path)["configs"]["baseline_tp2"]["n"] == 90


def test_two_files_of_one_configuration_must_tell_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "base.out"
    path.write_text(console_log("baseline_tp2"), encoding="utf-8")
    report = audited(OBSERVATIONS, path)
    assert any("tells the same 90 rows" in said for said in report["configs"]["baseline_tp2"]["notes"])
    path.write_text(console_log("baseline_tp2").replace("Decode: 56.37", "Decode: 57.37"), encoding="utf-8")
    with pytest.raises(AnalysisError, match="baseline_tp2, request 2 differs"):
        audited(OBSERVATIONS, path)


def test_the_baseline_can_be_named_and_must_be_there(tmp_path: Path) -> None:
    report = audited(OBSERVATIONS, baseline="baseline_fp8kv")
    assert report["comparisons"]["baseline_tp2"]["ratio"] == pytest.approx(1 / 0.9847, abs=0.0002)
    with pytest.raises(AnalysisError, match="'nobody'; name one of baseline_tp2"):
        audited(OBSERVATIONS, baseline="nobody")


def test_a_prompt_missing_in_one_configuration_is_left_out_of_the_ratio_and_named(tmp_path: Path) -> None:
    rows = [row for row in saved_rows() if (row["config"], row["prompt_id"]) != ("spec_ngram_k5", "json_07")]
    path = tmp_path / "fewer.csv"
    path.write_text(observations_text(rows), encoding="utf-8")
    coverage = audited(path)["comparisons"]["spec_ngram_k5"]["coverage"]
    assert (coverage["n_prompts"], coverage["n_prompts_seen"]) == (89, 90)
    assert "json_07" in coverage["left_out_prompts"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"client_decode_tok_s": "NaN"}, "line 2: client_decode_tok_s = 'NaN' is no positive number"),
        ({"client_decode_tok_s": "0"}, "is no positive number"),
        ({"ttft_ms": ""}, "ttft_ms = '' is no positive number"),
        ({"completion_tokens": "3.5"}, "is no whole number"),
        ({"prompt_id": ""}, "prompt_id is empty"),
        ({"prompt_id": "code_02"}, "has code_02 twice"),
    ],
)
def test_bad_values_are_refused_by_line(change: dict[str, str], said: str, tmp_path: Path) -> None:
    rows = saved_rows()
    rows[0] = rows[0] | change
    path = tmp_path / "bad.csv"
    path.write_text(observations_text(rows), encoding="utf-8")
    with pytest.raises(AnalysisError, match=said):
        read(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "none of the case study's forms"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b"hello\nworld\n", "none of the case study's forms"),
        (OBSERVATIONS.read_bytes()[:79], "holds no request"),
        (OBSERVATIONS.read_bytes()[:140], "line 3: a row of 3 values where 7 are expected"),
        (b"=====\nStarting Benchmark: x\n", "holds no request"),
    ],
)
def test_files_that_are_none_of_the_forms_are_refused(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(AnalysisError, match=said) as caught:
        read(path)
    assert caught.value.exit_code == 2


def test_a_last_line_without_an_end_may_be_cut_and_is_named(tmp_path: Path) -> None:
    path, data = tmp_path / "cut.csv", OBSERVATIONS.read_bytes()
    path.write_bytes(OBSERVATIONS.read_bytes()[: data.index(b"56.31") + 4])  # 56.31 became 56.3
    assert any("no line end" in said for said in audited(path)["notes"])


def test_a_missing_file_and_a_folder_are_usage_errors(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "nowhere", "cannot be read")):
        with pytest.raises(EvidenceError, match=said) as refused:
            read(path)
        assert refused.value.exit_code == 2


def test_the_printed_audit_rounds_as_a_reader_does_and_names_what_confounds() -> None:
    options = argparse.Namespace(file=[OBSERVATIONS], baseline=None, plots=None)
    text = "\n".join(audit.command(options)[2])
    for words in ("64.09", "79.87", "prompts only, one launch", "confounded: --mem-fraction-static was 0.82"):
        assert words in text
    for banned in ("speed-up of", "because of"):
        assert banned not in text.replace("a speed-up of the system: one launch", "")


def test_three_plots_are_written_with_a_point_for_each_request(tmp_path: Path) -> None:
    report = audited(OBSERVATIONS, plots=tmp_path / "plots")
    assert len(report["plots"]) == 3
    for path in map(Path, report["plots"]):
        text = path.read_text(encoding="utf-8")
        assert text.count("tokens</title>") == 270
        assert all(name in text for name in CONFIGS)
        assert "<script" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_plots_of_the_example_are_those_the_command_draws(tmp_path: Path) -> None:
    for path in map(Path, audited(OBSERVATIONS, plots=tmp_path)["plots"]):
        assert (OBSERVATIONS.parent / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


def test_plots_that_cannot_be_written_are_no_usage_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(AnalysisError, match="cannot be written") as caught:
        audited(OBSERVATIONS, plots=blocked)
    assert caught.value.exit_code == 3
