"""What a report cannot tell, derived from what it rests on: each sentence stands only where it holds."""

from collections.abc import Sequence

from analysis.measures import first_chunk_unknown
from analysis.report_energy import Energy, energy
from analysis.report_gather import RunView
from analysis.summary import ALL
from evidence.quantiles import FLOORS


def of_runs(runs: Sequence[RunView], held_back: Sequence[str], *, study: bool) -> list[str]:
    """The limits of these runs; ``held_back`` says what of the records is not in the page."""
    found = list(_scope(runs, study))
    found += _measures(runs)
    found += _server(runs)
    found += _energy(runs)
    found += held_back
    found.append("No cause is named anywhere here that has no evidence of its own.")
    return found


def _scope(runs: Sequence[RunView], study: bool) -> list[str]:
    found = []
    if not study:
        found.append(
            "This is one launch. How much another launch of the same system would differ was not seen, so nothing here"
            " is a claim about the system, and no two single runs make a comparison."
        )
    kinds = {str((run.loaded.manifest.scenario or {}).get("kind")) for run in runs}
    if kinds == {"sequential"}:
        found.append(
            "Requests came one at a time. Under load a verify step works on more tokens at once: no number here carries"
            " over to a higher concurrency."
        )
    if kinds & {"concurrency", "context", "arrivals"}:
        found.append(
            "Levels ran one after another in one server: what one left behind (caches, clocks, heat) the next one"
            " found, and nothing is said between or beyond the levels that were run."
        )
    prompts = {entry.request.prompt_id for run in runs for entry in run.measured}
    found.append(f"The {len(prompts)} prompts are a sample of what people ask; another mix gives other totals.")
    return found


def _measures(runs: Sequence[RunView]) -> list[str]:
    found = []
    largest = max((g["e2e_s"]["n"] for run in runs for g in run.summary["groups"] if g["domain"] == ALL), default=0)
    short = [f"p{percent}" for percent, floor in FLOORS.items() if floor > largest]
    if short:
        found.append(f"{', '.join(short)}: a group holds at most {largest} values, below the floors of these.")
    found.append("TTFT holds the network and this client as well as the server; connecting is never part of it.")
    found.append(
        "A chunk gap is the time between received chunks, no inter-token latency: a chunk may hold more tokens."
    )
    unknown = sum(
        row.request.outcome == "completed" and first_chunk_unknown(row) for run in runs for row in run.loaded.measured
    )
    if unknown:
        found.append(f"The tokens of the first chunk are not known of {unknown} answers: their rates are intervals.")
    if any(run.summary["client_floor_s"] is None for run in runs):
        found.append("The client's own floor was not measured: how much of each latency it adds is not known.")
    cut = sum(row.request.finish_reason == "length" for run in runs for row in run.loaded.measured)
    if cut:
        found.append(f"{cut} answers were cut by their token limit: they can be neither right nor wrong.")
    return found


def _server(runs: Sequence[RunView]) -> list[str]:
    found = []
    whys = dict.fromkeys(
        str(run.summary["acceptance"]["why"]) for run in runs if run.summary["acceptance"]["rate"] is None
    )
    found += [f"Acceptance has no number in some runs: {why}." for why in whys if why != "None"]
    unseen = dict.fromkeys(
        check.name for run in runs for check in run.loaded.server.checks if check.state == "not observable"
    )
    if unseen:
        found.append(f"Not observable on this server, so neither passed nor failed: {', '.join(unseen)}.")
    return found


def _energy(runs: Sequence[RunView]) -> list[str]:
    found = dict.fromkeys(
        said
        for run in runs
        if not isinstance(said := energy(run.loaded.gpu, [e.request for e in run.measured]), Energy)
    )
    return [f"Energy a token is not shown: {why}." for why in found]
