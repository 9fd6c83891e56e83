"""Resampling launches, for the one question that has no other interval: which of several settings is best.

For means and ratios the crossed interval stands (``analysis.paired``): a bootstrap of fewer than about ten launches
covers less than it says, since few top-level units are drawn again. The share of resamples in which a setting comes out
best is therefore an indication, not a probability. The seed is part of the result.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

N_DRAWS = 10_000
SEED = 20261129


def best_shares(
    launches: Mapping[int, Sequence[int]],
    best: Callable[[Mapping[int, Sequence[int]]], int | None],
    *,
    n_draws: int = N_DRAWS,
    seed: int = SEED,
) -> dict[int, float]:
    """The share of resamples in which each setting is best; launches are drawn with replacement within a setting.

    ``launches`` holds the launch numbers of each setting, ``best`` names the best setting for a resample of them (None
    where it cannot tell, which counts for none of them).
    """
    draws = np.random.default_rng(seed)
    wins = dict.fromkeys(launches, 0)
    places = {setting: np.array(numbers) for setting, numbers in launches.items()}
    for _ in range(n_draws):
        resample = {
            setting: numbers[draws.integers(0, len(numbers), len(numbers))].tolist()
            for setting, numbers in places.items()
        }
        winner = best(resample)
        if winner is not None:
            wins[winner] += 1
    return {setting: count / n_draws for setting, count in wins.items()}
