"""The case study's files in the formats its harness wrote, made from the saved observations."""

import csv
import io
import statistics
from pathlib import Path

OBSERVATIONS = Path(__file__).resolve().parent.parent / "examples" / "case-study" / "observations.csv"
CONFIGS = ("baseline_tp2", "spec_ngram_k5", "baseline_fp8kv")
HEADER = (
    "timestamp,config_name,model,prompt_id,category,prompt_tokens,completion_tokens,ttft_s,decode_time_s,total_time_s,"
    "decode_tok_per_sec,e2e_tok_per_sec,spec_accept_rate,spec_accept_length"
)
Row = dict[str, str]


def saved_rows(config: str | None = None) -> list[Row]:
    """The saved observations, of one configuration or all."""
    with OBSERVATIONS.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if config in (None, row["config"])]


def observations_text(rows: list[Row]) -> str:
    """Rows as a CSV of observations."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def console_log(config: str, *, accept_rate: str | None = None, summary: bool = True) -> str:
    """What the harness printed for one configuration."""
    rows, bar = saved_rows(config), "=" * 50
    rates, ttfts = ([float(row[name]) for row in rows] for name in ("client_decode_tok_s", "ttft_ms"))
    lines = [
        bar,
        f"Starting Benchmark: {config}",
        "Endpoint: http://localhost:30000 | Model: Qwen/Qwen2.5-32B-Instruct-AWQ",
        f"Dataset: dataset/combined_benchmark_dataset.jsonl ({len(rows)} items, limit=0, warmup=2)",
        bar,
        "Running 2 warmup requests...",
        "Warmup complete.",
    ]
    for row in rows:
        said = (
            f"[{row['order']}/{len(rows)}] {row['prompt_id']} ({row['category']}): "
            f"Tokens: {row['completion_tokens']} | TTFT: {row['ttft_ms']}ms | "
            f"Decode: {row['client_decode_tok_s']} tok/s"
        )
        lines.append(said + (f" | Accept Rate: {accept_rate}" if accept_rate else ""))
    if summary:
        lines += [
            "",
            bar,
            f"SUMMARY FOR {config} (n={len(rows)})",
            bar,
            "Decode Throughput (tok/s):",
            f"  Best (Max):   {max(rates):.2f} tok/s",
            f"  Median:       {statistics.median(rates):.2f} tok/s",
            f"  Mean:         {statistics.mean(rates):.2f} tok/s",
            f"  Min:          {min(rates):.2f} tok/s",
            f"  StdDev:       {statistics.stdev(rates):.2f} tok/s",
            "Time-To-First-Token (TTFT):",
            f"  Median:       {statistics.median(ttfts):.1f} ms",
            f"  Mean:         {statistics.mean(ttfts):.1f} ms",
            "Results saved to: results/benchmark_runs.csv",
            bar,
        ]
    return "\n".join(lines) + "\n"


def shifted_csv(rows: list[Row]) -> str:
    """The harness's CSV: 14 names above rows of 10 values, the four names of a row left out."""
    lines = [HEADER]
    for place, row in enumerate(rows):
        tokens, rate, ttft_s = (
            int(row["completion_tokens"]),
            float(row["client_decode_tok_s"]),
            float(row["ttft_ms"]) / 1e3,
        )
        decode_s = tokens / rate
        total_s = ttft_s + decode_s
        values = [
            f"2026-08-01T10:{place // 60 % 60:02d}:{place % 60:02d}Z",
            str(40 + place % 90 % 17),
            str(tokens),
            f"{ttft_s:.4f}",
            f"{decode_s:.4f}",
            f"{total_s:.4f}",
            row["client_decode_tok_s"],
            f"{tokens / total_s:.2f}",
            "",
            "",
        ]
        lines.append(",".join(values))
    return "\n".join(lines) + "\n"
