"""One configuration of the case study in numbers, and what its rows cannot show.

Medians are midpoints of the two middle values for an even number, as the study's own (the rest of this project uses
nearest rank). The study's rate counts all tokens over a time that starts after the first chunk; with one token a chunk,
rate (T - 1) / T is the decode rate, and how much that narrows the spread is shown. Under speculation the first chunk
holds an unknown number of tokens, and no correction is made.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from analysis import audit_case
from analysis.audit_gather import Config
from analysis.audit_rows import SavedRow
from analysis.order_effects import drift, points
from analysis.pairing import Observation
from analysis.speculation import cycle_bounds

SUMMARIES: Mapping[str, Callable[[Sequence[Decimal]], Decimal]] = {
    "best": lambda values: max(values),
    "median": lambda values: statistics.median(values),
    "mean": lambda values: statistics.mean(values),
    "min": lambda values: min(values),
    "stddev": lambda values: statistics.stdev(values) if len(values) > 1 else Decimal(0),
}


def observe(config: Config) -> tuple[Observation, ...]:
    """The rows as observations of one launch; ``value`` is the study's own rate."""
    found = []
    for row in config.rows:
        rate, ttft_s = float(row.rate), float(row.ttft_ms) / 1000
        found.append(
            Observation(
                arm=config.name,
                launch=0,
                prompt_id=row.prompt_id or f"request_{row.order:02d}",
                domain=row.category or "unknown",
                value=rate,
                order=row.order - 1,
                n_tokens=row.completion_tokens,
                decode_tokens=row.completion_tokens,
                decode_s=row.completion_tokens / rate,
                ttft_s=ttft_s,
                e2e_s=ttft_s + row.completion_tokens / rate,
            )
        )
    return tuple(found)


def describe(config: Config, printed: Mapping[str, Decimal]) -> dict[str, Any]:
    """The contract's fields of ``configs`` and what else the rows tell."""
    rates = [row.rate for row in config.rows]
    domains = domains_of(config.rows)
    observed = observe(config)
    limits = audit_case.MAX_TOKENS
    cut = None
    if all(row.category in limits for row in config.rows):
        cut = sum(limits[row.category or ""] == row.completion_tokens for row in config.rows)
    return {
        "n": len(config.rows),
        "median_decode_tok_per_s": float(statistics.median(rates)),
        "median_ttft_ms": float(statistics.median(row.ttft_ms for row in config.rows)),
        "by_domain": {name: float(statistics.median(row.rate for row in rows)) for name, rows in domains.items()},
        "n_by_domain": {name: len(rows) for name, rows in domains.items()},
        "median_ttft_ms_by_domain": {
            name: float(statistics.median(row.ttft_ms for row in rows)) for name, rows in domains.items()
        },
        "mean_decode_tok_per_s": float(statistics.fmean(rates)),
        "sd_decode_tok_per_s": None if len(rates) < 2 else float(statistics.stdev(rates)),
        "min_decode_tok_per_s": float(min(rates)),
        "max_decode_tok_per_s": float(max(rates)),
        "n_at_max_tokens": cut,
        "order_drift": drift(points(observed)).as_json(),
        "warm_up_prompts": warmed_up(config.rows),
        "first_token_bias": first_token_bias(config),
        "cycle_bounds_s": _cycle_bounds(config),
        "printed_agrees": agrees(config.rows, printed) if printed else None,
        "files": list(config.files),
        "notes": list(config.notes),
        "cannot_show": cannot_show(config, cut),
    }


def domains_of(rows: Sequence[SavedRow]) -> dict[str, list[SavedRow]]:
    """The rows by domain in order of appearance; rows without one are left out."""
    found: dict[str, list[SavedRow]] = {}
    for row in rows:
        if row.category is not None:
            found.setdefault(row.category, []).append(row)
    return found


def warmed_up(rows: Sequence[SavedRow]) -> dict[str, Any] | None:
    """The prompts sent as warm-up and measured again, beside the others of their domain; None where they are not here.

    ``rank`` counts from the fastest; ``rate_ratio`` is to the median of the others. Two prompts are no test: they stand
    here because a draft table or a prefix cache that had seen them answers otherwise than one that had not.
    """
    repeated = [row for row in rows if row.prompt_id in audit_case.WARMED_UP]
    others = [
        row for row in rows if row.prompt_id not in audit_case.WARMED_UP and row.category == audit_case.DOMAINS[0]
    ]
    if not repeated or not others:
        return None
    middle = statistics.median(row.rate for row in others)
    return {
        str(row.prompt_id): {
            "decode_tok_per_s": float(row.rate),
            "rate_ratio": float(row.rate / middle),
            "rank": 1 + sum(other.rate > row.rate for other in (*others, *repeated)),
            "of": len(others) + len(repeated),
            "ttft_ms": float(row.ttft_ms),
        }
        for row in repeated
    }


def first_token_bias(config: Config) -> dict[str, Any] | None:
    """Standard deviation by domain as printed and with (T - 1) / T; None under speculation."""
    if config.name in audit_case.DRAFT_LIMIT or config.name not in audit_case.LAUNCHES:
        return None
    found = {}
    for name, rows in domains_of(config.rows).items():
        if len(rows) > 1:
            corrected = [row.rate * (row.completion_tokens - 1) / row.completion_tokens for row in rows]
            found[name] = {
                "sd_tok_per_s": float(statistics.stdev(row.rate for row in rows)),
                "sd_corrected_tok_per_s": float(statistics.stdev(corrected)),
                "median_corrected_tok_per_s": float(statistics.median(corrected)),
            }
    return found


def agrees(rows: Sequence[SavedRow], printed: Mapping[str, Decimal]) -> bool:
    """Whether a log's own summary follows from its rows, to half a unit in its last digit and the rounding of rows."""
    values = {"rate": [row.rate for row in rows], "ttft": [row.ttft_ms for row in rows]}
    found = {f"{unit} {name}": how(values[unit]) for unit in values for name, how in SUMMARIES.items()}
    for name, said in printed.items():
        # half a unit for the printed number, half for the rows; a standard deviation moves by sqrt(n/(n-1)) of it
        unit = Decimal(1).scaleb(int(said.as_tuple().exponent))
        spread = Decimal(str(math.sqrt(len(rows) / (len(rows) - 1)))) if len(rows) > 1 else Decimal(1)
        if name in found and abs(found[name] - said) > unit / 2 * (1 + spread):
            return False
    return True


def cannot_show(config: Config, n_cut: int | None) -> list[str]:
    """What this configuration's rows leave open, beyond what no configuration can show."""
    gauge = sum(row.accept_rate_percent is not None for row in config.rows)
    found = [
        "how its launches differ: it was launched once",
        "output equality, JSON validity, code correctness: its answers were not kept",
        "answers as their prompts meant them: how many were cut by max_tokens is not known"
        if n_cut is None
        else f"answers as their prompts meant them: {n_cut} of {len(config.rows)} were cut by max_tokens",
    ]
    if gauge:
        found.append(f"acceptance: {gauge} lines print the server's gauge of its last window, which is of no request")
    elif config.name in audit_case.DRAFT_LIMIT:
        found.append("acceptance: never recorded; only bounds of a step's time follow from the rates")
    if any(row.category is None for row in config.rows):
        found.append("domains: the file names neither prompts nor categories")
    return found


def _cycle_bounds(config: Config) -> list[float] | None:
    limit = audit_case.DRAFT_LIMIT.get(config.name)
    bounds = None if limit is None else cycle_bounds([float(row.rate) for row in config.rows], limit)
    return None if bounds is None else list(bounds)
