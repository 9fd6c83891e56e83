"""The per-token acceptance probability of the speculative-decoding model, and whether the model fits.

Leviathan et al. (2023, arXiv 2211.17192) take each draft token to be accepted with one probability a, independently,
until the first rejection. A step of g draft tokens then yields (1 - a^(g+1)) / (1 - a) tokens, g + 1 at a = 1. From a
histogram h_j (steps in which j of g drafts were accepted), by maximum likelihood of the censored geometric law:

    a = sum j h_j / (sum j h_j + sum over j < g of h_j)

so accepted / (accepted + rejections): a draft behind a rejected one is drafted and never judged, and accepted / drafted
is another number. The fit: expected shares (1 - a) a^j, the last one a^g; Pearson's chi-square on g - 1 degrees of
freedom. Where an expected count is below 5 the chi-square table does not hold (Cochran, Biometrics 10, 1954):
neighbouring cells are merged from the deep end until none is, which is said, and the p-value that decides is simulated
from the fitted model, each draw fitted again.

A step cut by the end of an answer looks like a rejection. Where the number of such steps is known, ``alpha_bounds``
encloses a between all and none of them counted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import special

from analysis.errors import AnalysisError

SMALL_CELL = 5.0
N_SIMULATED = 4000
SEED = 20261129
REJECTED_BELOW = 0.05
Fit = Literal["rejected", "not rejected", "not testable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AlphaFit:
    """``alpha`` is None where nothing was judged. ``chi2``, ``df`` and ``p_table`` are of all cells, unmerged."""

    n_steps: int
    n_drafts: int  # g, the drafts of a step
    n_accepted: int
    n_rejections: int
    accepted_per_drafted: float | None
    alpha: float | None
    alpha_bounds: tuple[float, float] | None  # None unless the cut steps are known
    length_observed: float | None  # tokens a step, the step's own token counted
    length_model: float | None
    expected: tuple[float, ...]
    chi2: float | None
    df: int
    p_table: float | None
    merged_cells: tuple[tuple[int, ...], ...]  # accepted counts that share a cell; each by itself where none is small
    merged_chi2: float | None
    merged_df: int
    merged_p: float | None
    p_simulated: float | None
    seed: int
    fit: Fit
    why: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def fit_alpha(histogram: Sequence[int], *, n_cut: int | None = None, seed: int = SEED) -> AlphaFit:
    """Fit from the histogram of accepted drafts a step, index 0 to g. ``n_cut`` steps were cut by an answer's end.

    Raises AnalysisError on a histogram with fewer than two cells or a negative count.
    """
    if len(histogram) < 2 or any(count < 0 for count in histogram):
        raise AnalysisError(
            f"{list(histogram)} is no histogram of accepted drafts",
            "give one count of at least 0 for each of 0 to g accepted drafts, g at least 1",
            value=list(histogram),
        )
    deepest = len(histogram) - 1
    n_steps = sum(histogram)
    accepted = sum(j * count for j, count in enumerate(histogram))
    rejections = sum(histogram[:-1])
    judged = accepted + rejections
    alpha = None if judged == 0 else accepted / judged
    expected = () if alpha is None else tuple(float(one) * n_steps for one in shares(alpha, deepest))
    cells = _merged(expected)
    chi2, df = _chi2(histogram, expected), deepest - 1
    merged_chi2, merged_df = _chi2(*_summed(histogram, expected, cells)), len(cells) - 2
    simulated = (
        None if alpha is None or not 0 < alpha < 1 or df < 1 else _simulated(chi2, alpha, deepest, n_steps, seed)
    )
    fit, why = _verdict(alpha, df, cells, len(histogram), simulated, _p(chi2, df))
    return AlphaFit(
        n_steps=n_steps,
        n_drafts=deepest,
        n_accepted=accepted,
        n_rejections=rejections,
        accepted_per_drafted=accepted / (n_steps * deepest) if n_steps else None,
        alpha=alpha,
        alpha_bounds=None if alpha is None or n_cut is None else (alpha, _without_cut(accepted, rejections, n_cut)),
        length_observed=1 + accepted / n_steps if n_steps else None,
        length_model=None if alpha is None else expected_length(alpha, deepest),
        expected=expected,
        chi2=chi2,
        df=df,
        p_table=_p(chi2, df),
        merged_cells=cells,
        merged_chi2=merged_chi2,
        merged_df=max(0, merged_df),
        merged_p=_p(merged_chi2, merged_df),
        p_simulated=simulated,
        seed=seed,
        fit=fit,
        why=why,
    )


def expected_length(alpha: float, n_drafts: int) -> float:
    """Tokens a step in the model: (1 - a^(g+1)) / (1 - a), g + 1 at a = 1."""
    return float(sum(alpha**j for j in range(n_drafts + 1)))


def model_speedup(alpha: float, n_drafts: int, draft_cost: float) -> float:
    """Leviathan's wall-clock factor; ``draft_cost`` is t_draft / t_target, verifying taken to cost one target step."""
    return expected_length(alpha, n_drafts) / (n_drafts * draft_cost + 1)


def conditional_by_position(accepted_at: Sequence[float], n_steps: float) -> tuple[float | None, ...]:
    """The chance that position j is accepted given that all before it were; None where none got so far.

    ``accepted_at`` counts steps in which at least j + 1 drafts were accepted, or holds their shares with ``n_steps`` 1.
    Raises AnalysisError where a count rises with depth or exceeds the steps.
    """
    if any(later > earlier for earlier, later in pairwise((n_steps, *accepted_at))) or min(accepted_at, default=0) < 0:
        raise AnalysisError(
            f"accepted by position {list(accepted_at)} of {n_steps:g} steps rises with depth",
            "give the counts of one window, each position's own",
            value=list(accepted_at),
        )
    return tuple(None if earlier == 0 else later / earlier for earlier, later in pairwise((n_steps, *accepted_at)))


def shares(alpha: float, deepest: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The model's shares of steps with 0 to g accepted drafts."""
    powers = alpha ** np.arange(deepest + 1, dtype=np.float64)
    return np.append((1 - alpha) * powers[:-1], powers[-1])


def _merged(expected: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Cells joined from the deep end until each expects at least ``SMALL_CELL``; the rest joins its neighbour."""
    cells: list[list[int]] = []
    open_cell: list[int] = []
    for place in range(len(expected) - 1, -1, -1):
        open_cell.insert(0, place)
        if sum(expected[one] for one in open_cell) >= SMALL_CELL:
            cells.insert(0, open_cell)
            open_cell = []
    if open_cell:
        if cells:
            cells[0] = open_cell + cells[0]
        else:
            cells = [open_cell]
    return tuple(tuple(cell) for cell in cells)


def _summed(
    histogram: Sequence[int], expected: Sequence[float], cells: Sequence[Sequence[int]]
) -> tuple[list[int], list[float]]:
    return (
        [sum(histogram[place] for place in cell) for cell in cells],
        [sum(expected[place] for place in cell) for cell in cells],
    )


def _chi2(observed: Sequence[int], expected: Sequence[float]) -> float | None:
    """Pearson's statistic, None where a cell expects nothing (a is 0 or 1, and the model says so exactly)."""
    if not expected or min(expected) == 0:
        return None
    return float(sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True)))


def _p(chi2: float | None, df: int) -> float | None:
    return None if chi2 is None or df < 1 else float(special.chdtrc(df, chi2))


def _simulated(chi2: float | None, alpha: float, deepest: int, n_steps: int, seed: int) -> float | None:
    """The share of histograms drawn from the fitted model whose own fit is as bad; never 0 (the data count as one)."""
    if chi2 is None:
        return None
    drawn = (
        np.random.default_rng(seed).multinomial(n_steps, shares(alpha, deepest), size=N_SIMULATED).astype(np.float64)
    )
    accepted = drawn @ np.arange(deepest + 1)
    judged = accepted + drawn[:, :-1].sum(axis=1)
    fitted = accepted / np.maximum(judged, 1)
    powers = fitted[:, None] ** np.arange(deepest + 1)
    expected = np.hstack([(1 - fitted)[:, None] * powers[:, :-1], powers[:, -1:]]) * n_steps
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(expected > 0, (drawn - expected) ** 2 / expected, 0.0)
    return float((1 + (parts.sum(axis=1) >= chi2 - 1e-9).sum()) / (1 + N_SIMULATED))


def _verdict(
    alpha: float | None,
    df: int,
    cells: Sequence[Sequence[int]],
    n_cells: int,
    simulated: float | None,
    p_table: float | None,
) -> tuple[Fit, str]:
    if alpha is None:
        return "not testable", "no draft was judged"
    if alpha in (0.0, 1.0):
        return "not testable", "no draft was accepted" if alpha == 0 else "no draft was rejected"
    if df < 1:
        return "not testable", "one draft a step: any histogram fits"
    small = len(cells) < n_cells
    p = simulated if small else p_table
    if p is None:
        return "not testable", "a cell expects nothing"
    by = "simulated, since cells expect fewer than 5 steps" if small else "by the chi-square table"
    said = f"p = {p:.3g} {by}"
    if small:
        said += f"; merged to {len(cells)} of {n_cells} cells"
    return ("rejected" if p < REJECTED_BELOW else "not rejected"), said


def _without_cut(accepted: int, rejections: int, n_cut: int) -> float:
    left = accepted + max(0, rejections - n_cut)
    return accepted / left if left else 0.0
