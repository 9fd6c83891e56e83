"""benchmarks/peers.py with stand-ins for the tools: programs that write a report where they are told."""

import json
import sys

import psutil
import pytest

from benchmarks import peers

REPORT = {
    "time_to_first_token": {"p50": 55.0},
    "inter_token_latency": {"p50": 10.5},
    "inter_chunk_latency": {"p99": 20.0},
    "request_throughput": {"avg": 1.4},
}


def stand_in(path, does):
    path.write_text(f"#!{sys.executable}\nimport json, os, pathlib, sys, time\n{does}\n", encoding="utf-8")
    path.chmod(0o755)
    return f"aiperf={path}"


@pytest.fixture
def benchmark(tmp_path, monkeypatch, capsys):
    """Runs the command: its exit code, what it printed, the rows of its file."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def run(*options):
        command = ["--only", "aiperf", "--streams", "1", "--repeats", "1", "--tokenizer", ".", *options]
        try:
            code = peers.main([*command, "--json", str(tmp_path / "found")])
        except SystemExit as stopped:  # argparse
            code = stopped.code
        found = tmp_path / "found"
        return code, capsys.readouterr().out, json.loads(found.read_text())["rows"] if found.exists() else None

    return run


def test_what_a_tool_reports_becomes_ratios_to_the_truth_and_what_it_leaves_running_is_ended_and_counted(
    tmp_path, benchmark
):
    does = (
        "folder = pathlib.Path(sys.argv[sys.argv.index('--artifact-dir') + 1])\n"
        f"left = pathlib.Path({str(tmp_path / 'left')!r})\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while time.process_time() < 0.3: pass\n"
        "    left.write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "while not (left.exists() and left.read_text()): time.sleep(0.01)\n"
        f"(folder / 'profile_export_aiperf.json').write_text({json.dumps(json.dumps(REPORT))})\nsys.exit(3)"
    )
    code, _, [row] = benchmark("--tool", stand_in(tmp_path / "tool", does))
    assert code == 0
    assert [row["ttft_ratio"], row["token_ratio"], row["gap_p99_ratio"]] == pytest.approx([1.1, 1.05, 2.0])
    assert row["requests_ratio"] == pytest.approx(1.4 * 0.68)
    assert row["exit_code"] == 3
    assert row["cpu_s"] > 0.3, "its child, in a session of its own, took as much by itself"
    assert not psutil.pid_exists(int((tmp_path / "left").read_text()))


def test_a_tool_without_a_report_is_a_fault_with_its_own_words(tmp_path, benchmark):
    code, _, [row] = benchmark("--tool", stand_in(tmp_path / "tool", "sys.exit('no tokenizer here')"))
    assert code == 1
    assert "no tokenizer here" in row["fault"]
    assert "ttft_ratio" not in row


def test_a_tool_that_is_not_there_is_named_and_left_out(benchmark):
    code, said, found = benchmark()
    assert "aiperf: not found, left out; --tool aiperf=PATH names it" in said
    assert (code, found) == (0, [])


def test_a_program_that_does_not_exist_is_refused(benchmark):
    code, _, found = benchmark("--tool", "aiperf=/nowhere")
    assert (code, found) == (2, None)
