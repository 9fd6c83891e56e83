"""The audit as text. Reads what ``analysis.audit`` made, computes nothing."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from analysis.tables import Notes, table, wrapped

Fields = Mapping[str, Any]


def lines(report: Fields) -> list[str]:
    """The whole audit."""
    notes = Notes()
    found = ["Case study, saved numbers re-read", *wrapped(f"Source: {report['source']}", lead="  ")]
    found += wrapped(f"Scope: {report['scope']}; reported hardware: {report['hardware_reported']}", lead="  ")
    for one in report["inputs"]:
        found += wrapped(f"{one['path']}: {one['kind']}, {one['n_rows']} rows, sha256 {one['sha256']}", lead="  ")
    configs = report["configs"]
    domains = list(dict.fromkeys(name for one in configs.values() for name in one["by_domain"]))
    found += ["", "Medians (midpoint of the two middle values, as the study's own; rate = all tokens / (end - first))"]
    found += _medians(configs, domains, notes)
    found += ["", f"Against {report['baseline']}: {report['scope']}. No interval over launches exists."]
    found += _ratios(report["comparisons"], domains, notes)
    found += _beside(report["comparisons"])
    found += ["", "Rate against order (Spearman within a domain; slope within domains, part of the rate a request)"]
    found += _order(configs, domains, notes)
    found += _warm_up(configs)
    found += _bias(configs)
    found += ["", "Not measured (reported by the study without a log)"]
    for one in report["not_measured"]:
        found += wrapped(f"{one['arm']}: not measured: {one['stage']}, {one['symptom']} (reported only)", lead="  ")
    found += ["", "What these files cannot show"]
    for said in report["cannot_show"]:
        found += wrapped(said, lead="  - ")
    found += ["", "Labels that contradict the checkpoint or each other"]
    for said in report["contradicted_labels"]:
        found += wrapped(said, lead="  - ")
    remarks = [*report["notes"], *[f"{name}: {said}" for name, one in configs.items() for said in one["notes"]]]
    if remarks:
        found += ["", "Noticed while reading"]
        for said in remarks:
            found += wrapped(said, lead="  - ")
    drawn = [f"Plot: {path}" for path in report["plots"]]
    found += ["", *(drawn or ["Plots: none written (--plots DIR writes three)"])]
    reasons = notes.lines()
    return found + (["", "Why there is a dash", *reasons] if reasons else [])


def _medians(configs: Fields, domains: Sequence[str], notes: Notes) -> list[str]:
    rows = []
    for name, one in configs.items():
        agrees = one["printed_agrees"]
        shown = notes.dash("no console log of it was given") if agrees is None else "agrees" if agrees else "DIFFERS"
        rows.append(
            [
                name,
                str(one["n"]),
                _rounded(one["median_decode_tok_per_s"], 2),
                *[_of(one["by_domain"].get(domain), notes, 2, "no row of this domain") for domain in domains],
                _rounded(one["median_ttft_ms"], 2),
                _of(one["sd_decode_tok_per_s"], notes, 2, "one row"),
                _of(one["n_at_max_tokens"], notes, 0, "the limit of these prompts is not known"),
                shown,
            ]
        )
    titles = ["config", "n", "tok/s", *domains, "TTFT_ms", "sd", "at max_tokens", "log's summary"]
    return table(titles, rows)


def _ratios(comparisons: Fields, domains: Sequence[str], notes: Notes) -> list[str]:
    rows = []
    for name, one in comparisons.items():
        other = one["other_ratios"] or {}
        why = one["why"].get("ratio")
        sampled = one["prompt_sampling_interval"]
        rows.append(
            [
                name,
                str(one["n_pairs"]),
                _of(one["ratio"], notes, 4, why),
                notes.dash(why or "one prompt") if sampled is None else f"{sampled[0]:.4f}..{sampled[1]:.4f}",
                *[_of((one["by_domain"].get(domain) or {}).get("ratio"), notes, 3, why) for domain in domains],
                *[
                    _of(other.get(key), notes, 3, why)
                    for key in ("ratio_of_medians", "median_of_ratios", "total_token_ratio", "ratio_of_means")
                ],
                str(one["n_lengths_differ"]),
                str(one["verdict"]),
            ]
        )
    titles = ["config", "pairs", "geo. mean", "prompts resampled", *domains]
    titles += ["of medians", "median of", "total tokens", "of means", "lengths differ", "verdict"]
    return table(titles, rows) if rows else ["  one configuration only: nothing to compare"]


def _beside(comparisons: Fields) -> list[str]:
    found = []
    for name, one in comparisons.items():
        said = f"{name}: {one['because']}"
        without = one["without_warm_up_prompts"]
        if without["ratio"] is not None and without["n_pairs"] < one["n_pairs"]:
            said += (
                f"; geometric mean without the {one['n_pairs'] - without['n_pairs']} prompts repeated from warm-up "
                f"{without['ratio']:.4f} (sd of log ratios {one['sd_log_ratio']:.3f}, without them "
                f"{without['sd_log_ratio']:.3f})"
            )
        found += wrapped(said, lead="  ")
        for other in one["confounders"]:
            words = (
                f"confounded: {other['setting']} was {other['baseline']} in the baseline and {other['arm']} in {name}; "
                "nothing here separates it from the setting under study"
            )
            found += wrapped(words, lead="  ")
    return found


def _order(configs: Fields, domains: Sequence[str], notes: Notes) -> list[str]:
    rows = []
    for name, one in configs.items():
        drift = one["order_drift"]
        slope, bounds = drift["per_request"], drift["interval"]
        rows.append(
            [
                name,
                *[
                    _of(drift["spearman"].get(f"0 {domain}"), notes, 2, "too few values, or all equal")
                    for domain in domains
                ],
                notes.dash(drift["why"]) if slope is None else f"{slope:+.2e}",
                notes.dash(drift["why"]) if bounds is None else f"{bounds[0]:+.2e}..{bounds[1]:+.2e}",
                "yes" if drift["seen"] else "no",
            ]
        )
    shown = table(["config", *domains, "slope", "95 % (requests as independent)", "drift seen"], rows)
    words = "All configurations used one fixed order: place and prompt cannot be told apart."
    return [*shown, *wrapped(words)]


def _warm_up(configs: Fields) -> list[str]:
    found = ["", "Prompts sent as warm-up and measured again (against the other code prompts)"]
    for name, one in configs.items():
        for prompt_id, said in (one["warm_up_prompts"] or {}).items():
            words = (
                f"{name} {prompt_id}: {said['decode_tok_per_s']:.2f} tok/s, {said['rate_ratio']:.2f} times the median "
                f"of the others, rank {said['rank']} of {said['of']}, TTFT {said['ttft_ms']:.1f} ms"
            )
            found += wrapped(words, lead="  ")
    return found if len(found) > 2 else []


def _bias(configs: Fields) -> list[str]:
    found = []
    for name, one in configs.items():
        for domain, said in (one["first_token_bias"] or {}).items():
            found += wrapped(
                f"{name} {domain}: sd {said['sd_tok_per_s']:.3f} as printed, {said['sd_corrected_tok_per_s']:.3f} with "
                f"(T - 1) / T, median then {said['median_corrected_tok_per_s']:.2f}",
                lead="  ",
            )
        if one["cycle_bounds_s"] is not None:
            low, high = one["cycle_bounds_s"]
            found += wrapped(
                f"{name}: one step took {low * 1000:.1f} to {high * 1000:.1f} ms, if it took the same time throughout "
                "(1 to g + 1 tokens a step)",
                lead="  ",
            )
    return ["", "The first token's bias, and what bounds a step", *found] if found else []


def _of(value: float | None, notes: Notes, digits: int, why: str | None) -> str:
    return notes.dash(why) if value is None else _rounded(value, digits)


def _rounded(value: float, digits: int) -> str:
    """Half up on the decimal digits, as a reader rounds: 64.085 is printed 64.09."""
    return str(Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))
