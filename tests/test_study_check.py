"""``python -m study check``: what it prints, its exit codes, and its one JSON object."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.stock import plan_from_file
from study.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
SMOKE = ROOT / "scenarios" / "smoke.toml"


def checked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["check", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_good_file_is_shown_as_a_short_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(capsys, str(SMOKE))
    plan = plan_from_file(SMOKE)
    assert (code, err) == (0, "")
    assert "6 measured after 2 warm-up" in out
    assert f"shuffled, seed {plan.scenario.seed}: {', '.join(r.prompt_id for r in plan.measured)}\n" in out
    assert plan.digest in out
    assert "about 19 s" in out  # 8 requests x 48 tokens / 20 tok/s = 19.2 s
    assert "--assume-tok-per-s" in out
    assert max(map(len, out.splitlines())) <= 110


def test_json_is_one_object_with_units_in_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(capsys, str(SMOKE), "--json", "--assume-tok-per-s", "48")
    report: dict[str, Any] = json.loads(out)
    plan = plan_from_file(SMOKE)
    assert (code, err, report["ok"]) == (0, "", True)
    assert (report["n_requests"], report["n_warmup"], report["n_measured"]) == (8, 2, 6)
    assert report["estimate_s"] == 8.0
    assert report["plan_sha256"] == plan.digest
    assert report["measured_prompt_ids"] == [request.prompt_id for request in plan.measured]
    assert [row["n_requests"] for row in report["domains"]] == [2, 2, 2]
    assert set(report["prompts_sha256"]) == {f"prompts/{n}.jsonl" for n in ("code", "prose", "json", "warmup")}


SCENARIOS = ROOT / "scenarios"
LEVELS = [
    # file, labels, requests of each, seconds of each at 20 tok/s
    ("smoke-concurrency.toml", ["users=1", "users=2"], [3, 3], [1.2, 0.6]),
    ("smoke-context.toml", ["tokens=192", "tokens=256"], [2, 2], [0.8, 0.8]),
    ("smoke-arrivals.toml", ["rate=2", "rate=4"], [4, 4], [1.468, 0.914]),
]


@pytest.mark.parametrize(("name", "labels", "n_requests", "estimates_s"), LEVELS)
def test_levels_are_told_with_their_size_and_an_estimate(
    name: str, labels: list[str], n_requests: list[int], estimates_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = checked(capsys, str(SCENARIOS / name), "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, "")
    assert [row["label"] for row in report["levels"]] == labels
    assert [row["n_requests"] for row in report["levels"]] == n_requests
    assert [row["estimate_s"] for row in report["levels"]] == pytest.approx(estimates_s, abs=1e-3)
    assert report["estimate_s"] == pytest.approx(sum(estimates_s) + 8 / 20, abs=1e-2)
    assert (report["plan_sha256"] is None) == (report["why_no_plan_sha256"] is not None) == ("context" in name)
    table = checked(capsys, str(SCENARIOS / name))[1]
    assert all(label in table for label in labels)
    assert ("not made yet" in table) == ("context" in name)


def test_a_list_that_does_not_increase_is_good_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "down.toml"
    path.write_text((SCENARIOS / "smoke-concurrency.toml").read_text().replace("[1, 2]", "[2, 1]"))
    code, out, _ = checked(capsys, str(path))
    assert code == 0
    assert "note: levels.users = [2, 1] does not increase" in out
    assert max(map(len, out.splitlines())) <= 110
    notices = json.loads(checked(capsys, str(path), "--json")[1])["notices"]
    assert [notice.split(" does")[0] for notice in notices] == ["levels.users = [2, 1]"]


def test_a_level_ended_by_time_is_estimated_by_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "timed.toml"
    text = (SCENARIOS / "smoke-concurrency.toml").read_text()
    path.write_text(text.replace("requests = 3", "steady_s = 30.0\nat_most_requests = 7"))
    rows = json.loads(checked(capsys, str(path), "--json")[1])["levels"]
    assert [(row["steady_s"], row["n_requests"]) for row in rows] == [(30.0, 7), (30.0, 7)]
    assert [row["estimate_s"] for row in rows] == pytest.approx([30.4, 30.4])


def test_a_refused_file_exits_2_and_says_why_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMOKE.read_text().replace("code = 2,", "code = 0,"))
    code, out, err = checked(capsys, str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: mix.domains.code = 0: ")


@pytest.mark.parametrize(
    ("old", "new", "value"), [("120.0", "inf", "inf"), ("120.0", "1979-05-27", "1979-05-27"), ("120.0", '"a"', "a")]
)
def test_a_refused_file_with_json_is_still_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, value: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMOKE.read_text().replace(old, new))
    code, out, err = checked(capsys, str(path), "--json")
    report = json.loads(out, parse_constant=pytest.fail)
    assert (code, report["ok"]) == (2, False)
    assert report["error"]["problems"][0]["key"] == "limits.timeout_s"
    assert report["error"]["problems"][0]["value"] == value
    assert str(path) in err


def test_a_file_that_is_not_there_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = checked(capsys, str(tmp_path / "none.toml"))
    assert code == 2
    assert "none.toml: cannot be read" in err


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast"])
def test_a_rate_that_is_none_is_a_usage_error(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", str(SMOKE), f"--assume-tok-per-s={rate}"])
    assert caught.value.code == 2
    assert "is not a rate above 0" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["check"], ["chekc", "x.toml"]])
def test_bad_usage_exits_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2


def test_the_plan_is_the_same_in_processes_with_other_hash_seeds_locales_and_folders(tmp_path: Path) -> None:
    digests = set()
    for hash_seed, folder, locale in (("1", ROOT, "C"), ("2", tmp_path, "C.UTF-8")):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": locale, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "study", "check", str(SMOKE), "--json"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True)
        digests.add(json.loads(done.stdout)["plan_sha256"])
    assert digests == {plan_from_file(SMOKE).digest}


def test_a_search_is_told_and_how_few_of_its_levels_it_visits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SCENARIOS / "smoke-concurrency.toml").read_text(encoding="utf-8")
    file = tmp_path / "search.toml"
    searching = text.replace("[levels]", "[levels]\nsearch = true").replace("users = [1, 2]", "users = [1, 2, 4, 8]")
    file.write_text(searching.replace("[limits]", "[limits]\nttft_slo_s = 0.5"), encoding="utf-8")
    code, out, _ = checked(capsys, str(file))
    assert code == 0 and "search    visits at most 3 of these 4 levels" in out
    assert "at most 12 measured" in out and "duration  at most" in out
    _, out, _ = checked(capsys, str(SCENARIOS / "smoke-concurrency.toml"))
    assert "at most" not in out
