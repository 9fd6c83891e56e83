"""The levels of a load run as tables: what each delivered whole and steady, what the server told, how the rate held."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.tables import Notes, ms, number, table, wrapped
from analysis.unsent import visited

Fields = Mapping[str, Any]
WORDS = (
    "whole: from the level's first request to the end of its last; steady: {rule}. Tokens count where they arrived, "
    "whatever became of their request; req/s are completed ones; good/s met the objectives, failed requests did not."
)


def level_lines(every: Sequence[Fields], noticed: Sequence[str], notes: Notes) -> list[str]:
    """Every table of the levels; nothing for a run without any.

    Of a search: its answer, as the recorder noticed it, and the levels it visited; the others are named.
    """
    levels = [level for level in every if visited(level)]
    if not levels:
        return []
    lines = ["Levels", *_delivered(levels, notes)]
    for said in noticed:
        lines += wrapped(said) if said.startswith("search: ") else []
    if len(levels) < len(every):
        left = [level["label"] for level in every if not visited(level)]
        lines += wrapped(f"Not visited by the search: {', '.join(left)}.")
    rules = dict.fromkeys(level["steady"]["rule"] for level in levels)
    lines += wrapped(WORDS.format(rule=", or ".join(rules)))
    if levels[0]["clock"]["kind"] != "worker":
        lines += wrapped(f"Workers are joined by {levels[0]['clock']['words']}.")
    lines.append("")
    if any(level["send_lag_s"] is not None for level in levels):
        lines += ["Open loop: the rate and what held it up", *_open_loop(levels, notes), ""]
    return [*lines, "Levels, the server's side", *_server(levels, notes), ""]


def _delivered(levels: Sequence[Fields], notes: Notes) -> list[str]:
    titles = ["level", "n", "failed", "part", "seconds", "tok/s", "req/s", "in flight", "good/s", "good"]
    rows = []
    for level in levels:
        lost = level["n_failed"] + level["n_cancelled"] + level["n_unfinished"]
        for part, word in (("full", "whole"), ("steady", "steady")):
            found = level[part]
            head = [level["label"], f"{level['n_completed']} of {level['n_planned']}", str(lost)]
            rows.append(
                [
                    *(head if part == "full" else ["", "", ""]),
                    word,
                    _number(found, "window_s", notes, 1),
                    _tokens(found, notes),
                    _number(found, "requests_per_s", notes),
                    _number(found, "mean_in_flight", notes, 1),
                    *_good(found["goodput"], notes),
                ]
            )
    return table(titles, rows, left=(0, 3))


def _number(found: Fields, name: str, notes: Notes, digits: int = 2) -> str:
    return notes.dash(found["why"]) if found[name] is None else number(found[name], digits)


def _tokens(found: Fields, notes: Notes) -> str:
    bounds = found["bounds_tok_per_s"]
    if found["output_tok_per_s"] is None and bounds is not None:
        return f"{bounds[0]:.0f}..{bounds[1]:.0f}{notes.mark(found['why'])}"
    return _number(found, "output_tok_per_s", notes, 1)


def _good(good: Fields, notes: Notes) -> list[str]:
    """Goodput a second and as a share of the requests sent; two numbers where single requests are undecided."""
    if good["share"] is None:
        dash = notes.dash(good["why"])
        return [dash, dash]
    per_s = notes.dash("the window has no length") if good["per_s"] is None else _ends(good["per_s"], 2)
    return [per_s, _ends([100 * share for share in good["share"]], 0) + "%"]


def _ends(ends: Sequence[float], digits: int) -> str:
    low, high = ends
    return number(low, digits) if low == high else f"{number(low, digits)}..{number(high, digits)}"


def _open_loop(levels: Sequence[Fields], notes: Notes) -> list[str]:
    titles = [
        "level",
        "asked/s",
        "scheduled/s",
        "achieved/s",
        "achieved",
        "lag_p50_ms",
        "lag_p99_ms",
        "lag_max_ms",
        "at cap",
    ]
    rows = []
    for level in levels:
        lag, why = level["send_lag_s"] or {}, level["why"]

        def shown(value: float | None, form: Any, reason: str | None) -> str:
            return notes.dash(reason) if value is None else str(form(value))

        rows.append(
            [
                level["label"],
                shown(level["rate_per_s"], number, "a trace has no rate of its own"),
                *[
                    shown(level[name], number, why.get("achieved_rate_per_s"))
                    for name in ("scheduled_rate_per_s", "achieved_rate_per_s")
                ],
                shown(level["achieved_ratio"], lambda ratio: f"{ratio:.1%}", why.get("achieved_rate_per_s")),
                *[shown(lag.get(name), ms, why.get("send_lag_s")) for name in ("median", "p99", "max")],
                shown(level["n_cap_hits"], str, "no line of the level says"),
            ]
        )
    return table(titles, rows)


def _server(levels: Sequence[Fields], notes: Notes) -> list[str]:
    titles = [
        "level",
        "TTFT_ms",
        "TPOT_ms",
        "queue_ms",
        "accepted",
        "put back",
        "running",
        "waiting",
        "KV tokens",
        "KV",
        "cached",
    ]
    rows = []
    for level in levels:
        server = level["server"]
        kv, share = server["kv_tokens_used"], level["cached_share"]
        back = next(
            (server[name] for name in ("preemptions", "retractions") if server[name]["value"] is not None), None
        )
        rate, accepted = server["acceptance"]["rate"], server["acceptance"]
        rows.append(
            [
                level["label"],
                *[_mean(server[name], notes) for name in ("ttft_s", "tpot_s", "queue_s")],
                notes.dash(accepted["reasons"].get("rate") or accepted["why"]) if rate is None else number(rate, 3),
                notes.dash(server["preemptions"]["why"]) if back is None else f"{back['value']:g}",
                *[_most(server[name], notes) for name in ("running", "waiting", "kv_tokens_used")],
                notes.dash(kv["why"] or kv["why_no_capacity"])
                if kv.get("ratio_max") is None
                else f"{kv['ratio_max']:.0%}",
                notes.dash(level["why"].get("cached_share")) if share is None else f"{share:.0%}",
            ]
        )
    said = (
        "TTFT, TPOT, queue: means of the server's histograms over the level's own window. running, waiting, KV: the"
        " most that any scrape showed. put back: preempted requests, or retracted ones as far as scrapes showed them."
    )
    return [*table(titles, rows), *wrapped(said)]


def _mean(found: Fields, notes: Notes) -> str:
    return notes.dash(found["why"]) if found["mean"] is None else ms(found["mean"])


def _most(found: Fields, notes: Notes) -> str:
    return notes.dash(found["why"]) if found["max"] is None else f"{found['max']:g}"
