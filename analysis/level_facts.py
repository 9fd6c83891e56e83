"""From levels to the facts their verdict is derived from. Pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from analysis.cached_share import TOLERANCE, cached_share
from analysis.facts import LevelFacts
from analysis.levels import LevelView
from evidence.quantiles import distribution
from evidence.records import Json


def level_facts(levels: Sequence[LevelView]) -> tuple[LevelFacts, ...]:
    """One for each level that was to be run; a level that was left by design has none."""
    return tuple(_facts(view) for view in levels if view.n_planned or view.rows or view.record is not None)


def _facts(view: LevelView) -> LevelFacts:
    record, loop = view.record, view.open_loop
    whole = [row.measures.e2e_s.value for row in view.rows if row.request.outcome == "completed"]
    return LevelFacts(
        label=view.label,
        no_record=record is None
        and bool(view.rows or view.unended),  # one never begun has sent nothing, and that is said
        stopped=record is not None and record.ended_by == "stopped",
        undrained=record is not None and record.drained_after_s is None,
        n_left=max(0, view.n_planned - len(view.rows) - view.n_unfinished),
        steady_missing=view.steady.why,
        steady_s=view.steady.window_s,
        steady_asked_s=None if record is None else record.steady_s,
        e2e_median_s=distribution(value for value in whole if value is not None).median,
        achieved_ratio=None if loop is None else loop.achieved_ratio,
        open_loop=loop is not None,
        lag_p99_s=None if loop is None else loop.lag_p99_s,
        lag_max_s=None if loop is None else loop.lag_max_s,
        n_lags=0 if loop is None else loop.n_lags,
        ttft_median_s=None if loop is None else loop.ttft_median_s,
        n_cap_hits=None if loop is None else loop.n_cap_hits,
        schedule_differs=None if loop is None else loop.differs,
    )


def shares_prefix(scenario: Json) -> bool:
    """Whether a cached share that differs from level to level was asked for: by a shared prefix in a context sweep."""
    part = scenario.get("context") if isinstance(scenario, Mapping) else None
    return isinstance(part, Mapping) and bool(part.get("shared_prefix_tokens"))


def shares_between(levels: Sequence[LevelView], *, silent_zero: bool = False) -> str | None:
    """Levels that took unlike parts of their prompts from a cache: later ones then met what earlier ones had sent."""
    shares = [
        (view.label, cached_share((row.request for row in view.rows), silent_zero=silent_zero)) for view in levels
    ]
    known = [(label, share) for label, share in shares if share is not None]
    apart = [
        (label, share, before, earlier)
        for (before, earlier), (label, share) in pairwise(known)
        if abs(share - earlier) > TOLERANCE
    ]
    if not apart:
        return None
    label, share, before, earlier = apart[0]
    more = f" (and {len(apart) - 1} more steps)" if apart[1:] else ""
    return f"{share:.0%} of the prompt tokens of {label} came from a cache, {earlier:.0%} of {before}{more}"
