"""The sections that show the numbers of ``summary --json``: groups, tails, acceptance, levels, energy.

Nothing is computed here but energy. Each number carries its exact value and its place in the command's JSON; a quantile
by nearest rank is the value of one request, so it links to that request.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.report_energy import Energy, energy
from analysis.report_gather import Entry, RunView
from analysis.report_html import Child, Markup, Whys, join, number, slug, table, tag
from analysis.summary import ALL, SINGLES
from analysis.summary_view import FORMULAS, group_name
from analysis.tables import ms
from analysis.tables import number as plain

COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("ttft_s", "TTFT ms", ms),
    ("ttfv_s", "TTFV ms", ms),
    ("tpot_s", "TPOT ms", ms),
    ("decode_tok_per_s", "decode tok/s", plain),
    ("study_rate_tok_per_s", "study tok/s", plain),
    ("e2e_s", "E2E ms", ms),
)
TAILS = ("p90", "p95", "p99")
Fields = Mapping[str, Any]


def medians(run: RunView, root: str = "summary") -> Markup:
    """The groups with their medians; each median leads to the request whose value it is."""
    whys = Whys(slug("numbers", run.index))
    rows = []
    for place, group in enumerate(run.summary["groups"]):
        path = f"{root}.groups.{place}"
        failed = group["n_failed"] + group["n_cancelled"] + group["n_unfinished"]
        rows.append(
            [
                _group_link(run, group),
                _of(group, path),
                failed,
                *[_quantile(run, group, name, "median", shown, path, whys) for name, _, shown in COLUMNS],
                number(group["completion_tokens"], str(group["completion_tokens"]), f"{path}.completion_tokens")
                if group["completion_tokens"] is not None
                else whys.dash(group["why"].get("completion_tokens")),
                group["n_cut_by_max_tokens"],
            ]
        )
    titles = ["group", "n", "not completed", *[title for _, title, _ in COLUMNS], "tokens", "cut by limit"]
    shown = table(titles, rows, caption=f"Medians, {run.name}")
    return join([shown, tag("p", FORMULAS, class_="note"), _tails(run, root), whys.list()])


def _of(group: Fields, path: str) -> Markup:
    n, of = group["n_completed"], group["n_planned"]
    return join([number(n, str(n), f"{path}.n_completed"), f" of {of}"])


def _group_link(run: RunView, group: Fields) -> Markup:
    if group["domain"] == ALL:
        return tag("a", group_name(group), href=f"#{slug('requests', run.index)}")
    return tag("a", group_name(group), href=f"#{slug('requests', run.index, group['domain'])}")


def _quantile(
    run: RunView, group: Fields, name: str, of: str, shown: Callable[[float], str], path: str, whys: Whys
) -> Markup:
    stats = group[name]
    value = stats[of]
    if value is None:
        bounds = stats.get("bounds") if of == "median" else None
        if bounds is not None:
            ends = [number(end, shown(end), f"{path}.{name}.bounds.{place}") for place, end in enumerate(bounds)]
            return join([ends[0], "..", ends[1]])
        return whys.dash(stats["why"].get(of))
    said = number(value, shown(value), f"{path}.{name}.{of}")
    entry = with_value(run, group, name, value)
    return said if entry is None else tag("a", said, href=f"#{entry.anchor}", title=entry.request.plan_id)


def with_value(run: RunView, group: Fields, name: str, value: float) -> Entry | None:
    """The request of a group whose measure is this very value."""
    for entry in run.measured:
        domain, level = entry.request.domain, entry.request.level
        if (
            level == group["level"]
            and group["domain"] in (ALL, domain)
            and SINGLES[name](entry.row.measures)[0] == value
        ):
            return entry
    return None


def _tails(run: RunView, root: str) -> Markup:
    whys = Whys(slug("tails", run.index))
    rows = []
    for place, group in enumerate(run.summary["groups"]):
        path = f"{root}.groups.{place}"
        for name, title, shown in COLUMNS:
            if group[name]["p90"] is not None:
                quantiles = [_quantile(run, group, name, of, shown, path, whys) for of in TAILS]
                rows.append([_group_link(run, group), title, group[name]["n"], *quantiles])
    floor = "p90 needs 64 values, p95 130, p99 662"
    if not rows:
        largest = max((group["e2e_s"]["n"] for group in run.summary["groups"]), default=0)
        return tag("p", f"No tail is printed: {floor}; the largest group has {largest}.", class_="note")
    shown_rows = table(["group", "metric", "n", *TAILS], rows, left=(0, 1), caption=f"Tails, {run.name} ({floor})")
    return join([shown_rows, whys.list()])


def acceptance(run: RunView, root: str = "summary") -> Markup:
    """The server's own counts of drafted and accepted tokens, in their four states."""
    whys = Whys(slug("acceptance", run.index))
    rows = []
    for place, group in enumerate(run.summary["groups"]):
        found, path = group["acceptance"], f"{root}.groups.{place}.acceptance"

        def cell(name: str, digits: int, found: Fields = found, path: str = path) -> Markup:
            value = found[name]
            if value is None:
                return whys.dash(found["reasons"].get(name) or found["why"])
            return number(value, plain(value, digits), f"{path}.{name}")

        rows.append(
            [
                _group_link(run, group),
                found["state"],
                found["source"] or whys.dash(found["why"]),
                *[cell(name, 0) for name in ("n_drafted", "n_accepted", "n_verify_steps")],
                *[cell(name, 3) for name in ("rate", "length", "tokens_per_target_step")],
            ]
        )
    titles = ["group", "state", "source", "drafted", "accepted", "verify steps", "rate", "length", "tokens/target step"]
    return join([table(titles, rows, left=(0, 1, 2), caption=f"Acceptance, {run.name}"), whys.list()])


def server_side(run: RunView, root: str = "summary") -> Markup:
    """What the server says of its own latencies, with its series."""
    rows: list[list[Child]] = []
    for name, title in (("ttft_s", "TTFT"), ("prompt_s", "prompt processing"), ("tpot_s", "TPOT")):
        found = run.summary["server"].get(name)
        if not isinstance(found, Mapping):
            continue
        mean = run.summary["server"].get("histograms", {}).get(name, {})
        if found.get("median") is None and mean.get("mean") is not None:
            said = number(mean["mean"], f"mean {ms(mean['mean'])}", f"{root}.server.histograms.{name}.mean")
            rows.append([title, said, mean["series"], f"{mean['coverage']}, {mean['weighting']}"])
        elif found.get("median") is None:
            why = found.get("why")
            rows.append([title, "-", "", str(why.get("median") if isinstance(why, Mapping) else why)])
        else:
            said = number(found["median"], ms(found["median"]), f"{root}.server.{name}.median")
            rows.append([title, said, found["series"], f"{found['coverage']}, {found['weighting']}"])
    return table(
        ["server's own", "median, else mean, ms", "series", "coverage"], rows, left=(0, 2, 3), caption="Server side"
    )


def levels(run: RunView, root: str = "summary") -> Markup | None:
    """Level by level, all domains together; None where the run has no levels."""
    if all(group["level"] is None for group in run.summary["groups"]):
        return None
    whys = Whys(slug("levels", run.index))
    rows = []
    for place, group in enumerate(run.summary["groups"]):
        if group["domain"] == ALL and group["level"] is not None:
            path = f"{root}.groups.{place}"
            cells = [_quantile(run, group, name, "median", shown, path, whys) for name, _, shown in COLUMNS]
            rows.append([group["level"], _of(group, path), *cells])
    titles = ["level", "n", *[title for _, title, _ in COLUMNS]]
    return join([table(titles, rows, caption=f"Medians by level, {run.name}"), whys.list()])


def level_points(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """The medians by level for the chart: one series for each run and domain."""
    found = []
    for run in runs:
        for domain in dict.fromkeys(group["domain"] for group in run.summary["groups"]):
            own = [g for g in run.summary["groups"] if g["domain"] == domain and g["level"] is not None]
            if own:
                found.append(
                    {
                        "run": run.index,
                        "domain": domain,
                        "levels": [group["level"] for group in own],
                        "values": {name: [group[name]["median"] for group in own] for name, _, _ in COLUMNS},
                        "anchor": slug("requests", run.index, *([] if domain == ALL else [domain])),
                    }
                )
    return found


def energies(runs: Sequence[RunView]) -> Markup | None:
    """Energy a token of each run; None where no GPU was sampled at all."""
    if not any(one.record.gpus for run in runs for one in run.contents.gpu):
        return None
    rows: list[list[Child]] = []
    for run in runs:
        found = energy(run.loaded.gpu, [entry.request for entry in run.measured])
        name = tag("a", run.name, href=f"#{slug('run', run.index)}")
        if isinstance(found, Energy):
            rows.append(
                [
                    name,
                    number(found.joules_per_token, f"{found.joules_per_token:.3f}"),
                    number(found.mean_power_w, f"{found.mean_power_w:.1f}"),
                    f"{found.window_s:.1f}",
                    found.n_tokens,
                    found.n_gpus,
                    "energy counter" if found.by_counter else "power readings",
                    found.coverage,
                ]
            )
        else:
            rows.append([name, "-", "-", "-", "-", "-", "-", found])
    titles = ["run", "J/token", "mean W", "window s", "completion tokens", "GPUs", "by", "coverage"]
    note = (
        "Power of the server's GPUs (all sampled ones, unless CUDA_VISIBLE_DEVICES names them) over the measured"
        " window, prompt processing and idle power included, host and cooling left out, divided by the completion"
        " tokens. One number a launch: no interval, no claim."
    )
    return join([table(titles, rows, left=(0, 6, 7), caption="Energy a token"), tag("p", note, class_="note")])
