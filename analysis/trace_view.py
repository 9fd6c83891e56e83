"""A trace report in lines for people."""

from collections.abc import Sequence
from typing import Any

from analysis.tables import Notes, ms, number, one_line, table, wrapped
from analysis.trace_classes import CLASSES

NAME_COLUMNS = 44
MOST_MARKS = 30
CUT = "the trace was not read whole"


def lines(report: dict[str, Any]) -> list[str]:
    """The whole report: failures first, then each rank, the ranks together, requests, what the numbers are not."""
    notes = Notes()
    told: list[str] = []
    for failure in report["failures"]:
        told += [
            f"{failure['file']}: {failure['code']}",
            *wrapped(f"{failure['seen']}; {failure['remedy']}", lead="  "),
        ]
    if report["failures"]:
        told += [
            f"{file['path']}: {file['n_events']} events could be read, {file['n_text_bytes']} bytes of text"
            for file in report["files"]
            if file["failure"] is not None
        ]
    for rank in report["ranks"]:
        told += ["", *_rank(rank, notes)]
    if report["across_ranks"]["why"] is None:
        told += ["", *_across(report["across_ranks"])]
    if report["requests"] is not None:
        told += ["", *_requests(report["requests"], notes)]
    reasons = notes.lines()
    told += ["", *reasons] if reasons else []
    for said in report["notes"]:
        told += ["", *wrapped(said)]
    return told[1:] if told and told[0] == "" else told


def _rank(rank: dict[str, Any], notes: Notes) -> list[str]:
    window, passes = rank["window"], rank["passes"]
    who = "rank unknown" if rank["rank"] is None else f"rank {one_line(rank['rank'])}"
    of = f" of {rank['world_size']}" if rank["world_size"] is not None else ""
    head = f"{rank['file']}: {who}{of}, device {one_line(rank['device'])} {one_line(rank['gpu'] or 'of unknown name')}"
    per_pass = passes["gpu_busy_s_per_pass"]
    each = f"{ms(per_pass)} ms" if per_pass is not None else notes.dash(passes["why"])
    told = [
        *wrapped(head),
        f"{rank['n_kernels']} kernels, {rank['n_copies']} copies, {rank['n_sets']} sets in {ms(window['span_s'])} ms; "
        f"GPU busy {ms(rank['busy_s'])} ms; {passes['n']} {passes['what']}, GPU busy {each} each",
        "",
    ]
    rows = []
    for name in (*CLASSES, "idle"):
        one = rank["classes"][name]
        share = one["share"]
        rows.append(
            [
                "set, memset" if name == "set" else name,
                str(one.get("n", "")),
                notes.dash(CUT) if one["time_s"] is None else ms(one["time_s"]),
                notes.dash(CUT) if share is None else f"{100 * share:.1f} %",
                "" if one.get("share_of_busy") is None else f"{100 * one['share_of_busy']:.1f} %",
                ms(one["alone_or_not_s"]) if "alone_or_not_s" in one else "",
                one_line(rank["top"][name][0]["name"])[:NAME_COLUMNS] if rank["top"].get(name) else "",
            ]
        )
    told += table(["class", "n", "time ms", "share", "of busy", "ran at all ms", "most time in"], rows, left=(0, 6))
    told += ["", *_collective(rank["collective"], notes)]
    streams = [
        [one["stream"], str(one["n"]), ms(one["busy_s"]), *[_class_ms(one, name) for name in CLASSES]]
        for one in rank["streams"]
    ]
    told += ["", *table(["stream", "n", "busy ms", *[f"{name} ms" for name in CLASSES]], streams)]
    if rank["cycle"]["n"]:
        told += ["", *_cycle(rank["cycle"], notes)]
    if rank["marks"]:
        told += ["", *_marks(rank["marks"], notes)]
    return told


def _class_ms(stream: dict[str, Any], name: str) -> str:
    found = stream["by_class_s"].get(name)
    return "" if found is None else ms(found)


def _collective(found: dict[str, Any], notes: Notes) -> list[str]:
    if found["share"] is None:
        return [f"collectives: {notes.dash(found['why'] or 'the window has no length')}"]
    said = (
        f"collectives: {found['n']}, {ms(found['time_s'])} ms, of which {ms(found['added_s'])} ms with nothing beside"
    )
    if found["n_per_pass"] is not None:
        said += f"; a target pass: {number(found['n_per_pass'])} of them, {ms(found['s_per_pass'])} ms"
    return [said]


def _cycle(found: dict[str, Any], notes: Notes) -> list[str]:
    parts = [
        f"{name} {notes.dash(found['why']) if found[key] is None else ms(found[key]) + ' ms'}"
        for name, key in (("verify", "verify_s"), ("draft", "draft_s"), ("the rest", "rest_s"))
    ]
    return [f"GPU time of a speculative cycle ({found['n']} in the window): {', '.join(parts)}"]


def _marks(marks: Sequence[dict[str, Any]], notes: Notes) -> list[str]:
    def shown(value: float | None) -> str:
        return (
            notes.dash("the trace was not read whole, or has no range of this mark there")
            if value is None
            else ms(value)
        )

    rows = [
        [
            one_line(one["name"])[:NAME_COLUMNS],
            one["role"] + (" (of the draft)" if one["inside_draft"] else ""),
            str(one["n"]),
            shown(one["cpu_median_s"]),
            shown(one["gpu_span_median_s"]),
            shown(one["gpu_busy_median_s"]),
        ]
        for one in marks[:MOST_MARKS]
    ]
    if len(marks) > MOST_MARKS:
        rows.append([f"... {len(marks) - MOST_MARKS} more kinds, see --json", "", "", "", "", ""])
    return table(["mark", "role", "n", "CPU ms", "GPU range ms", "GPU busy ms"], rows, left=(0, 1))


def _across(found: dict[str, Any]) -> list[str]:
    said = f"{found['n_ranks']} ranks: GPU busy {ms(found['busy_min_s'])} to {ms(found['busy_max_s'])} ms"
    if found["collective_min_s"] is not None:
        said += f"; collectives {ms(found['collective_min_s'])} to {ms(found['collective_max_s'])} ms"
    return [said]


def _requests(found: dict[str, Any], notes: Notes) -> list[str]:
    told = [f"requests of {found['run_id']} in the windows"]
    rows = []
    for window in found["windows"]:
        who = f"rank {window['rank']}" if window["rank"] is not None else window["file"]
        if window["requests"] is None:
            told.append(f"{who}: {notes.dash(window['why'])}")
            continue
        told.append(
            f"{who}: {window['n_requests']} under way, {window['n_passes']} passes, {window['n_passes_of_several']} of "
            f"several requests at once, {window['n_passes_of_none']} of none"
        )
        rows += [
            [
                who,
                one["plan_id"],
                one["prompt_id"],
                one["phase"],
                f"{ms(one['from_after_s'])} to {ms(one['to_after_s'])}",
                str(one["n_passes_alone"]),
                notes.dash(CUT) if one["gpu_busy_s"] is None else ms(one["gpu_busy_s"]),
            ]
            for one in window["requests"]
        ]
    titles = ["rank", "plan id", "prompt", "phase", "ms after it was sent", "passes of its own", "GPU busy ms"]
    return [*told, *(table(titles, rows, left=(0, 1, 2, 3)) if rows else [])]
