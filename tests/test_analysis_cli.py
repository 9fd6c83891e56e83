"""``python -m analysis``: exit codes, one JSON object on standard output, and verdicts on folders that were harmed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis import identity
from analysis.__main__ import main
from evidence.records import Request
from infra.launching.recipes import load_arm
from tests.run_factory import llamacpp_scrape, make_run, manifest, request

ROOT = Path(__file__).resolve().parent.parent
JSON_CHECK = {"kind": "json_schema", "schema": {"type": "object", "required": ["name"]}}
TIMINGS = {"timings": {"predicted_n": 2, "predicted_ms": 200.0, "prompt_ms": 50.0, "cache_n": 0}}


def rows(**changes: Any) -> list[Request]:
    warm = request(phase="warmup", domain="warmup", prompt_id="warmup_01", server_fields=TIMINGS)
    return [
        warm,
        *(
            request(**({"prompt_id": f"{domain}_01", "domain": domain, "server_fields": TIMINGS} | changes))
            for domain in ("code", "prose", "json")
        ),
    ]


def scrapes(prompt: int = 60, generated: int = 6, **more: int) -> list[Any]:
    return [
        llamacpp_scrape("before", -1.0, prompt=20, generated=2),
        llamacpp_scrape("after", 90.0, prompt=20 + prompt, generated=2 + generated, **more),
    ]


def good(tmp_path: Path, **changes: Any) -> Path:
    return make_run(tmp_path, changes.pop("requests", rows()), **({"scrapes": scrapes()} | changes))


def ask(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*map(str, argv), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def codes(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(reason["code"], reason["severity"], reason["scope"]) for reason in report["reasons"]}


def test_a_whole_run_is_valid_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = ask(capsys, "check", good(tmp_path))
    assert report["reasons"] == []
    assert (code, report["verdict"], report["sealed"]) == (0, "VALID", True)
    assert {check["state"] for check in report["checks"]} == {"pass", "not observable"}
    assert all(check["why"] for check in report["checks"] if check["state"] == "not observable")


def test_the_command_runs_as_a_process_with_one_object_on_standard_output(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analysis", "check", str(good(tmp_path)), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["verdict"] == "VALID"


def test_a_flipped_byte_is_found_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    file = path / "workers" / "0" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n_prompt_tokens":20', b'"n_prompt_tokens":21', 1))
    code, report = ask(capsys, "check", path)
    assert code == 1
    assert ("hash_differs", "INVALID", "run") in codes(report)
    assert any("workers/0/requests.jsonl" in reason["seen"] for reason in report["reasons"])


def test_a_line_of_another_schema_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    file = path / "workers" / "0" / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"schema_version":1', b'"schema_version":9', 1))
    code, report = ask(capsys, "check", path)
    assert code == 1
    assert {("schema_violated", "INVALID", "run"), ("unfinished", "INVALID", "run")} <= codes(report)


def test_an_unsealed_folder_is_no_result_and_recover_closes_it_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = good(tmp_path, seal=False, never_started=1, never_ended=1)
    code, report = ask(capsys, "check", path)
    assert (code, report["sealed"]) == (1, False)
    assert {c for c, _, _ in codes(report)} >= {"not_sealed", "plan_incomplete", "unfinished"}
    code, found = ask(capsys, "recover", path)
    assert code == 0
    assert (found["recovered"], found["planned"], found["started"], found["completed"], found["unfinished"]) == (
        True, 4, 3, 2, 1,
    )  # fmt: skip
    code, report = ask(capsys, "check", path)
    assert code == 1
    assert {c for c, _, _ in codes(report)} >= {"recovered", "plan_incomplete", "unfinished"}
    assert "not_sealed" not in {c for c, _, _ in codes(report)}
    code, summary = ask(capsys, "summary", path)
    assert code == 0
    (everything,) = [one for one in summary["groups"] if one["domain"] == "all"]
    assert (everything["n_planned"], everything["n_completed"], everything["n_unfinished"]) == (3, 1, 1)


def test_foreign_traffic_in_the_window_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, report = ask(capsys, "check", good(tmp_path, scrapes=scrapes(generated=500)))
    assert ("foreign_traffic", "INVALID", "run") in codes(report)


def test_a_restart_in_the_window_is_invalid_and_measures_no_acceptance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restarted = [
        llamacpp_scrape("before", -1.0, prompt=2000, generated=1000),
        llamacpp_scrape("after", 90.0, prompt=60, generated=6, headers={"Process-Start-Time-Unix": "78"}),
    ]
    path = good(tmp_path, scrapes=restarted)
    _, report = ask(capsys, "check", path)
    assert ("restart", "INVALID", "run") in codes(report)
    _, summary = ask(capsys, "summary", path)
    assert summary["acceptance"]["n_accepted"] is None


def test_a_cold_cache_is_proven_by_every_request_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cold = {"name": "tiny", "kind": "sequential", "cache": {"policy": "cold", "per": "request"}}
    _, report = ask(capsys, "check", good(tmp_path, scenario=cold))
    assert report["verdict"] == "VALID"
    warm = {"timings": TIMINGS["timings"] | {"cache_n": 7}}
    _, report = ask(
        capsys, "check", good(tmp_path, run_id="run-warm", scenario=cold, requests=rows(server_fields=warm))
    )
    assert {("cold_not_proven", "INVALID", "latency"), ("cold_not_proven", "INVALID", "rate")} <= codes(report)


def test_a_server_run_by_someone_else_without_metrics_is_degraded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = llamacpp_scrape("before", -1.0).model_copy(
        update={"http_status": 501, "body": None, "error": "HTTP 501: metrics are off", "complete": False}
    )
    path = good(tmp_path, scrapes=[silent], arm=None, label="theirs", adapter=None)
    code, report = ask(capsys, "check", path)
    assert (code, report["verdict"]) == (0, "DEGRADED")
    assert codes(report) == {
        ("container_digest_unknown", "DEGRADED", "run"),
        ("no_metrics", "DEGRADED", "acceptance"),
    }
    assert any("HTTP 501" in reason["seen"] for reason in report["reasons"])


def test_an_engine_that_died_while_it_was_measured_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = llamacpp_scrape("after", 90.0).model_copy(
        update={"http_status": None, "body": None, "headers": {}, "complete": False, "error": "connection refused"}
    )
    code, report = ask(capsys, "check", good(tmp_path, scrapes=[llamacpp_scrape("before", -1.0), gone]))
    assert code == 1
    assert codes(report) == {("window_not_closed", "INVALID", "run")}
    assert "connection refused" in report["reasons"][0]["seen"]


@pytest.mark.parametrize(
    ("name", "asked", "limit"),
    [("cpu-f32", False, 0), ("cpu-f32-kvq8", False, 0), ("cpu-f32-ngram", True, 8), ("cpu-f32-draft", True, 4)],
)
def test_the_arms_say_whether_and_how_far_they_speculate(name: str, asked: bool, limit: int) -> None:
    of_arm = manifest([], arm=load_arm(name).model_dump(mode="json"))
    assert identity.speculative(of_arm, None) is asked
    assert identity.draft_limit(of_arm, None) == limit
    assert identity.synthetic_acceptance(of_arm, None) is None


SPECULATIVE = {"name": "spec", "engine": "llama.cpp embedded", "args": {"speculative.types": ["draft-simple"]}}


def test_a_speculative_arm_on_an_engine_that_says_no_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = ask(capsys, "check", good(tmp_path, arm=SPECULATIVE))  # the server said speculative: false
    assert ("does_not_speculate", "INVALID", "run") in codes(report)


def test_a_speculative_arm_that_drafted_nothing_is_degraded_and_not_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"engine": "llama.cpp", "version": "b1", "speculative": True}
    path = good(tmp_path, arm=SPECULATIVE, server=server)
    _, report = ask(capsys, "check", path)
    assert codes(report) == {("acceptance_unmeasured", "DEGRADED", "acceptance")}
    _, summary = ask(capsys, "summary", path)
    assert (summary["acceptance"]["state"], summary["acceptance"]["rate"]) == ("unmeasured", None)


def test_forced_acceptance_in_the_launch_arguments_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forced = SPECULATIVE | {"args": SPECULATIVE["args"] | {"speculative.synth_len": 3.0}}
    server = {"engine": "llama.cpp", "version": "b1", "speculative": True}
    _, report = ask(capsys, "check", good(tmp_path, arm=forced, server=server))
    assert ("synthetic_acceptance", "INVALID", "run") in codes(report)


def test_unknown_versions_and_revisions_degrade_with_the_manifests_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ({"what": "server.version", "why": "/props says b0-unknown"},)
    path = good(
        tmp_path, server={"engine": "llama.cpp", "speculative": False}, model={"asked": "tiny"}, missing=missing
    )
    _, report = ask(capsys, "check", path)
    assert codes(report) == {("version_unknown", "DEGRADED", "run"), ("model_revision_unknown", "DEGRADED", "run")}
    assert any("b0-unknown" in reason["seen"] for reason in report["reasons"])


def test_a_changed_text_is_not_faithful(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = rows()
    requests[1] = requests[1].model_copy(update={"output_text": ""})  # characters came, none are on file
    requests[1] = requests[1].model_copy(update={"output_sha256": hashlib.sha256(b"").hexdigest()})
    _, report = ask(capsys, "check", good(tmp_path, requests=requests))
    assert codes(report) == {("outputs_not_saved", "INVALID", "outputs")}


def test_a_cited_calibration_puts_its_floor_beside_the_medians(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = good(tmp_path, calibration={"client_floor_s": {"ttft_s": 0.02, "tpot_s": 0.001}})
    _, report = ask(capsys, "check", path)
    assert codes(report) == {("client_floor", "DEGRADED", "latency")}  # 0.02 of 0.1 s; 0.001 of 0.2 s
    _, summary = ask(capsys, "summary", path)
    assert summary["client_floor_s"] == {"ttft_s": 0.02, "tpot_s": 0.001}


@pytest.mark.parametrize("command", ["check", "summary", "outputs", "recover", "list"])
def test_a_path_that_is_not_there_is_a_plain_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code = main([command, str(tmp_path / "nowhere"), "--json"])
    shown = capsys.readouterr()
    assert code == 2
    assert json.loads(shown.out)["exit_code"] == 2
    assert str(tmp_path / "nowhere") in json.loads(shown.out)["error"]
    assert str(tmp_path / "nowhere") in shown.err


def test_a_manifest_that_is_no_json_is_a_plain_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    (path / "manifest.json").write_text("{")
    assert main(["check", str(path)]) == 2
    assert "manifest.json" in capsys.readouterr().err


def test_outputs_of_one_run_are_judged_and_of_two_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = good(tmp_path, run_id="run-a", checks={"json_01": JSON_CHECK})
    second = good(tmp_path, run_id="run-b", requests=rows(output_text="alpha gamma"), checks={"json_01": JSON_CHECK})
    _, judged = ask(capsys, "outputs", first)
    assert [one["ok"] for one in judged["answers"]] == [None, None, False]
    assert judged["domains"][-1] | {"n_answers": 3, "n_judged": 1, "n_valid": 0} == judged["domains"][-1]
    _, compared = ask(capsys, "outputs", first, second)
    assert (compared["outputs_compared"], compared["outputs_equal"]) == (3, 0)
    assert {one["first_divergence_char"] for one in compared["prompts"]} == {6}
    assert main(["outputs", str(first), str(second), str(first)]) == 2


def test_a_list_gives_each_run_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good(tmp_path, run_id="run-a")
    good(tmp_path, run_id="run-b", seal=False)
    (tmp_path / "run-c").mkdir()
    (tmp_path / "run-c" / "manifest.json").write_text("{")
    _, report = ask(capsys, "list", tmp_path)
    found = {one["id"]: one for one in report["folders"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "run-a": "VALID",
        "run-b": "INVALID",
        "run-c": None,
    }
    assert found["run-b"]["state"] == "not sealed"
    assert "manifest" in found["run-c"]["why"]


def test_nothing_but_recover_changes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for command in ("check", "summary", "outputs"):
        main([command, str(path)])
    main(["list", str(tmp_path)])
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_several_runs_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [good(tmp_path, run_id=f"run-{letter}") for letter in "ab"]
    _, report = ask(capsys, "summary", *paths)
    assert [one["run_id"] for one in report["runs"]] == ["run-a", "run-b"]
    assert {one["decode_tok_per_s"] for one in report["ratios"]} == {1.0}
    assert "not a claim about the system" in report["ratio"]
