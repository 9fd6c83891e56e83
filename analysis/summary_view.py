"""The summary of one run as text. Reads what ``analysis.summary`` made, computes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.levels_view import level_lines
from analysis.tables import Notes, fine_ms, ms, number, table, wrapped
from evidence.quantiles import FLOORS

FORMULAS = (
    "Medians by nearest rank, each request counts once. TTFT: to the first token of any kind; TTFV: to the first"
    " visible content; TPOT: (t_last - t_first) / (N - n_first), decode_tok/s its inverse; study_tok/s: N / (end -"
    " first visible content), the case study's own rate, shown for comparison. Of an even number of values nearest rank"
    " takes the lower middle one, so a median rate need not be the inverse of the median TPOT."
)
Fields = Mapping[str, Any]


def one_run(summary: Fields) -> list[str]:
    """The whole summary of one run."""
    notes = Notes()
    lines = [title(summary, str(summary["scope"]["arm"] or "no label")), *scope_lines(summary["scope"]), ""]
    lines += _medians(summary["groups"], notes) + wrapped(FORMULAS) + [""]
    lines += [*_tails(summary["groups"]), ""]
    lines += level_lines(summary["levels"], summary["noticed"], notes)
    lines += ["Acceptance (server's own counts)", *_acceptance(summary["groups"], notes), ""]
    lines += ["Server side", *_server(summary["server"], notes), ""]
    lines += _floor(summary, notes)
    lines += ["", *verdict_lines(summary)]
    reasons = notes.lines()
    return lines + (["", "Why there is a dash", *reasons] if reasons else [])


def verdict_lines(summary: Fields) -> list[str]:
    """The verdict and its reasons, one line each."""
    lines = [f"Verdict: {summary['verdict']}"]
    for scopes, reason in merged(summary["reasons"]):
        lines += wrapped(f"{reason['severity']}, {scopes}, {reason['code']}: {reason['seen']}", lead="  ")
    if summary["reasons"]:
        lines.append("  Remedies: python -m analysis check " + str(summary["path"]))
    return lines


def merged(reasons: Sequence[Fields]) -> list[tuple[str, Fields]]:
    """The reasons with the scopes they hold in, one entry where the same was seen in several scopes."""
    scopes: dict[tuple[str, str, str], list[str]] = {}
    for reason in reasons:
        scopes.setdefault((reason["code"], reason["severity"], reason["seen"]), []).append(reason["scope"])
    firsts = {(reason["code"], reason["severity"], reason["seen"]): reason for reason in reversed(reasons)}
    return [(", ".join(found), firsts[key]) for key, found in scopes.items()]


def group_name(group: Fields) -> str:
    """Domain, and the level where there is one."""
    return str(group["domain"]) if group["level"] is None else f"{group['domain']} @{group['level']}"


def title(summary: Fields, name: str) -> str:
    return f"{name}  {summary['verdict']}  {summary['run_id']}"


def completed(group: Fields) -> str:
    return f"{group['n_completed']} of {group['n_planned']}"


def scope_lines(scope: Fields) -> list[str]:
    """What the numbers are about, in words."""

    def counted(count: int, one: str, many: str) -> str:
        return f"{count} {one if count == 1 else many}"

    tokens, at = scope["prompt_tokens"], scope["concurrency"]
    parts = [
        counted(scope["n_launches"], "launch", "launches"),
        counted(scope["n_passes"], "pass", "passes"),
        counted(scope["n_prompts"], "prompt", "prompts"),
        "prompt tokens unknown" if tokens is None else f"{tokens} prompt tokens (server's count)",
        "concurrency unknown" if at is None else f"concurrency {at}",
        f"hardware: {scope['hardware']}",
        f"engine: {scope['engine']}",
        f"model: {scope['model']}",
    ]
    return wrapped(", ".join(parts), lead="  ")


def _medians(groups: Sequence[Fields], notes: Notes) -> list[str]:
    titles = [
        "group",
        "n",
        "failed",
        "TTFT_ms",
        "TTFV_ms",
        "TPOT_ms",
        "decode_tok/s",
        "study_tok/s",
        "E2E_ms",
        "tokens",
    ]
    rows = []
    for group in groups:
        failed = group["n_failed"] + group["n_cancelled"] + group["n_unfinished"]
        tokens = group["completion_tokens"]
        rows.append(
            [
                group_name(group),
                completed(group),
                str(failed),
                median(group["ttft_s"], ms, notes),
                median(group["ttfv_s"], ms, notes),
                median(group["tpot_s"], ms, notes),
                median(group["decode_tok_per_s"], number, notes),
                median(group["study_rate_tok_per_s"], number, notes),
                median(group["e2e_s"], ms, notes),
                notes.dash(group["why"].get("completion_tokens")) if tokens is None else str(tokens),
            ]
        )
    return table(titles, rows)


def _tails(groups: Sequence[Fields]) -> list[str]:
    rows = []
    for group in groups:
        if group["level"] is not None and group["domain"] != "all":
            continue  # four lines for each domain of each level would be hundreds
        for metric, shown in (("ttft_s", ms), ("tpot_s", ms), ("e2e_s", ms), ("decode_tok_per_s", number)):
            stats = group[metric]
            if stats["p90"] is not None:
                tail = ["-" if stats[name] is None else shown(stats[name]) for name in ("p90", "p95", "p99")]
                title = metric.replace("_s", "_ms") if shown is ms else metric
                rows.append([group_name(group), title, str(stats["n"]), shown(stats["median"]), *tail])
    floors = ", ".join(f"p{percent} {floor}" for percent, floor in FLOORS.items() if percent != 50)
    largest = max((group["e2e_s"]["n"] for group in groups), default=0)
    said = f"Tails need {floors} values; the largest group has {largest}."
    if not rows:
        return wrapped(said + " None is printed.")
    return [*table(["group", "metric", "n", "median", "p90", "p95", "p99"], rows, left=(0, 1)), *wrapped(said)]


def _acceptance(groups: Sequence[Fields], notes: Notes) -> list[str]:
    titles = ["group", "state", "source", "drafted", "accepted", "verify_steps", "rate", "length"]
    rows = []
    for group in groups:
        found = group["acceptance"]

        def shown(name: str, digits: int, found: Fields = found) -> str:
            value = found[name]
            if value is None:
                return notes.dash(found["reasons"].get(name) or found["why"])
            return number(value, digits)

        rows.append(
            [
                group_name(group),
                found["state"],
                found["source"] or notes.dash(found["why"]),
                *[shown(name, 0) for name in ("n_drafted", "n_accepted", "n_verify_steps")],
                *[shown(name, 3) for name in ("rate", "length")],
            ]
        )
    return table(titles, rows, left=(0, 1, 2))


def _server(server: Fields, notes: Notes) -> list[str]:
    lines = []
    for name, title in (("ttft_s", "TTFT_ms"), ("prompt_s", "prompt_ms"), ("tpot_s", "TPOT_ms")):
        found = server[name]
        if found["median"] is None and (mean := server.get("histograms", {}).get(name, {})).get("mean") is not None:
            said = f"mean {ms(mean['mean'])} from {mean['series']}, {mean['coverage']}, {mean['weighting']}"
            lines += wrapped(said, lead=f"  {title}  ")
        elif found["median"] is None:
            lines.append(f"  {title}  {notes.dash(found['why']['median'])}")
        else:
            said = f"median {ms(found['median'])} from {found['series']}, {found['coverage']}, {found['weighting']}"
            lines += wrapped(said, lead=f"  {title}  ")
    return lines


def _floor(summary: Fields, notes: Notes) -> list[str]:
    floors = summary["client_floor_s"]
    if floors is None:
        return [f"Client floor: {notes.dash(summary['why'].get('client_floor_s'))}"]
    told = [f"{name.removesuffix('_s')} {fine_ms(value)}" for name, value in floors.items()]
    said = "Client floor (ms): " + ", ".join(told)
    cited = summary.get("calibration") or {}
    if cited.get("n_streams") is not None:
        said += f"; calibrated at {cited['n_streams']} streams of {cited['chunks_per_s']:g} chunks/s"
    lines = wrapped(said)
    for beyond in cited.get("beyond") or ():
        lines += wrapped(f"Beyond the calibration: {beyond}: the floor is a lower bound.")
    for differs in cited.get("differs") or ():
        lines += wrapped(f"The calibration differs: {differs}.")
    for doubt in cited.get("unverified") or ():
        lines += wrapped(f"The calibration: {doubt}.")
    return lines


def median(stats: Fields, shown: Any, notes: Notes) -> str:
    if stats["median"] is not None:
        return str(shown(stats["median"]))
    if stats.get("bounds") is not None:
        low, high = stats["bounds"]
        return f"{shown(low)}..{shown(high)}"
    return notes.dash(stats["why"].get("median"))
