"""The rows of ``benchmarks.processes`` as a table: medians over repeats, the median and the worst of the processes."""

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
TOTALS = ("chunks_per_s", "times_one", "cpu_us_per_chunk", "offered_chunks_per_s")  # one value for all processes
OF_EACH = (  # a list: one value for each process, None where that one has none
    *("coalesced_ratio", "gap_error_p50_us", "gap_error_p99_us", "server_late_p99_us"),
    *("kernel_to_user_p50_s", "kernel_to_user_p99_s", "cpu_ratio"),
)
BY_REPEAT = ("verdict", "reasons", "all_ended")
HEADS = (
    ("chunks_per_s", "chunks/s", "{:.0f}"),
    ("of_offered", "of offered", "{:.1%}"),
    ("times_one", "times one", "{:.2f}"),
    ("coalesced_ratio", "coalesced", "{:.3%}"),
    ("coalesced_ratio_worst", "worst", "{:.3%}"),
    ("gap_error_p50_us", "gap error p50", "{:.1f} us"),
    ("gap_error_p99_us", "p99", "{:.0f} us"),
    ("server_late_p99_us", "server late p99", "{:.0f} us"),
    ("cpu_us_per_chunk", "CPU a chunk", "{:.1f} us"),
    ("kernel_to_user_p99_s", "in kernel p99", "{:.4f} s"),
    ("cpu_ratio", "core of worker", "{:.0%}"),
)


def with_multiples(rows: Sequence[Row]) -> list[Row]:
    """Each row with its chunks/s as a multiple of one process's in the same repeat; None where that was not had."""
    one = {(row["part"], row["load"], row["repeat"]): row["chunks_per_s"] for row in rows if row["n_processes"] == 1}
    done = []
    for row in rows:
        alone, ours = one.get((row["part"], row["load"], row["repeat"])), row["chunks_per_s"]
        done.append(row | {"times_one": ours / alone if alone and ours is not None else None})
    return done


def table(rows: Sequence[Row]) -> list[Row]:
    """A line for each part, load and number of processes; ``_worst`` is the largest of any process and repeat."""
    found: list[Row] = []
    for key in dict.fromkeys((row["part"], row["load"], row["n_processes"]) for row in rows):
        same = [row for row in rows if (row["part"], row["load"], row["n_processes"]) == key]
        line: Row = {"part": key[0], "load": key[1], "n_processes": key[2], "n_repeats": len(same)}
        line |= {name: _median([row.get(name) for row in same]) for name in TOTALS}
        for name in OF_EACH:
            values = [value for row in same for value in row.get(name, []) if value is not None]
            line |= {name: _median(values), f"{name}_worst": max(values, default=None)}
        got, offered = line["chunks_per_s"], line["offered_chunks_per_s"]
        line["of_offered"] = None if got is None or not offered else got / offered
        line |= {name: [row[name] for row in same if name in row] for name in BY_REPEAT}
        found.append(line)
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def print_table(lines: Sequence[Row]) -> None:
    _print_line("part", "load of each", "processes", *(head for _, head, _ in HEADS), "verdict")
    for line in lines:
        numbers = ["-" if line[name] is None else form.format(line[name]) for name, _, form in HEADS]
        said = ", ".join(dict.fromkeys(line["verdict"])) or "-"
        missing = "" if all(line["all_ended"]) else ", not all ended"
        _print_line(line["part"], line["load"].removesuffix(" each"), line["n_processes"], *numbers, said + missing)


def _print_line(*cells: object) -> None:
    print("".join(str(cell).rjust(16) for cell in cells))
