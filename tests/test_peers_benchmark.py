"""benchmarks/peers.py with stand-ins for the tools: programs that write a report where they are told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORT = {
    "time_to_first_token": {"p50": 55.0},
    "inter_token_latency": {"p50": 10.5},
    "inter_chunk_latency": {"p99": 20.0},
    "request_throughput": {"avg": 1.4},
}


def stand_in(path, does):
    path.write_text(f"#!{sys.executable}\nimport json, pathlib, sys\n{does}\n", encoding="utf-8")
    path.chmod(0o755)
    return f"aiperf={path}"


def benchmark(tmp_path, *options):
    command = ["-m", "benchmarks.peers", "--only", "aiperf", "--streams", "1", "--repeats", "1", "--tokenizer", "."]
    done = subprocess.run(
        [sys.executable, *command, "--json", str(tmp_path / "found"), *options],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done, json.loads((tmp_path / "found").read_text())["rows"] if (tmp_path / "found").exists() else None


def test_what_a_tool_reports_becomes_ratios_to_the_truth(tmp_path):
    does = (
        "folder = pathlib.Path(sys.argv[sys.argv.index('--artifact-dir') + 1])\n"
        f"(folder / 'profile_export_aiperf.json').write_text({json.dumps(json.dumps(REPORT))})\nsys.exit(3)"
    )
    done, [row] = benchmark(tmp_path, "--tool", stand_in(tmp_path / "tool", does))
    assert done.returncode == 0
    assert [row["ttft_ratio"], row["token_ratio"], row["gap_p99_ratio"]] == pytest.approx([1.1, 1.05, 2.0])
    assert row["requests_ratio"] == pytest.approx(1.4 * 0.68)
    assert row["exit_code"] == 3
    assert row["cpu_s"] > 0


def test_a_tool_without_a_report_is_a_fault_with_its_own_words(tmp_path):
    done, [row] = benchmark(tmp_path, "--tool", stand_in(tmp_path / "tool", "sys.exit('no tokenizer here')"))
    assert done.returncode == 1
    assert "no tokenizer here" in row["fault"]
    assert "ttft_ratio" not in row


def test_a_tool_that_is_not_there_is_named_and_left_out(tmp_path):
    done, found = benchmark(tmp_path)
    assert "aiperf: not found, left out; --tool aiperf=PATH names it" in done.stdout
    assert (done.returncode, found) == (0, [])


def test_a_program_that_does_not_exist_is_refused(tmp_path):
    done, found = benchmark(tmp_path, "--tool", "aiperf=/nowhere")
    assert (done.returncode, found) == (2, None)
