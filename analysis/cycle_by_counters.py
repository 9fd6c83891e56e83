"""The cost of a cycle where no answer tells its own target steps, from the counters around a whole launch.

SGLang before 0.5.19 streams no count of verify steps, and its counter of them covers the window. One after the other,
the requests' decode times add up to the time in which those steps were made, so that time / steps is the mean cycle.
It needs all of the launch, or of one level whose counters were read at rest before and after it: every measured request
completed, paired, sent alone, with nothing but its first token in its first segment. Domains cannot be told apart.
"""

from collections.abc import Sequence

from analysis.arm_runs import Sides, why_not
from analysis.pairing import Observation, Pair
from analysis.speculation import Decoded
from analysis.study_loading import CellRun
from infra.engines.readings import Measured

ALL = "all"
ALONE = ("sequential", "context")  # kinds of scenario that send one request at a time


def decoded_by_counters(
    found: Sides, pairs: Sequence[Pair], *, level: str | None = None
) -> tuple[list[Decoded], list[Decoded], str | None]:
    """One entry a launch for the baseline and the arm, and why a launch has none (None where each has).

    With ``level`` the pairs are those of that level, and so are the counters.
    """
    ours: list[Decoded] = []
    theirs: list[Decoded] = []
    why: str | None = None
    for launch in sorted({one.arm.launch for one in pairs}):
        cells = [one for pair, one in found.arm.items() if found.places[pair].launch == launch]
        mine = [one for one in pairs if one.arm.launch == launch]
        n_steps, missing = _steps(cells, len(mine), level)
        base, arm = _summed(launch, [one.base for one in mine], None), None
        if missing is None:
            arm = _summed(launch, [one.arm for one in mine], n_steps)
        if base is None or arm is None:
            why = why or missing or "not every request has a decode time"
            continue
        ours.append(base)
        theirs.append(arm)
    return ours, theirs, why


def _steps(cells: Sequence[CellRun], n_paired: int, level: str | None) -> tuple[int, str | None]:
    """Target steps of all runs of one launch, or why the counters do not tell those of its paired requests."""
    n_steps = 0
    n_measured = 0
    for one in cells:
        side, run_id = one.run.server, one.run.manifest.run_id
        if (out := why_not(one, "acceptance")) is not None:
            return 0, out
        if not _alone(one, level):
            where = "" if level is None else f" at {level}"
            return 0, f"{run_id} sent requests at the same time{where}: the counters do not tell one stream's steps"
        if side.adapter is None or side.no_window is not None or side.n_lost:
            return 0, f"{run_id}: {side.no_window or 'not every request completed'}"
        rows = [row for row in one.run.measured if level is None or row.request.level == level]
        windows = side.windows if level is None else side.opened.at(level)
        if (broken := next((window.why for window in windows if window.why is not None), None)) or not windows:
            return 0, f"{run_id}: {broken or f'no counters were read around {level}'}"
        if any(row.measures.n_first_tokens.value != 1 for row in rows):
            return 0, f"{run_id}: a first segment held more than the first token, or it is not known what it held"
        n_completed = len(side.completed if level is None else rows)
        told = side.adapter.acceptance(windows, speculative=side.speculative, n_requests=n_completed).n_target_steps
        if not isinstance(told, Measured) or told.value <= 0:
            return 0, f"{run_id}: the counters tell no target steps"
        n_steps += int(told.value)
        n_measured += len(rows)
    if n_measured != n_paired:
        return 0, f"{n_paired} of {n_measured} requests are paired, and the counters cover them all"
    return n_steps, None


def _alone(one: CellRun, level: str | None) -> bool:
    """Whether requests were sent one at a time: all of the run, or all of one level."""
    scenario = one.run.manifest.scenario
    if isinstance(scenario, dict) and scenario.get("kind") in ALONE:
        return True
    views = [view for view in one.run.levels if level is None or view.label == level]
    return bool(views) and all(view.users == 1 for view in views)


def _summed(launch: int, side: Sequence[Observation], n_steps: int | None) -> Decoded | None:
    tokens = [one.decode_tokens for one in side if one.decode_tokens is not None]
    times_s = [one.decode_s for one in side if one.decode_s is not None]
    if not side or len(tokens) < len(side) or len(times_s) < len(side):
        return None
    return Decoded(launch=launch, domain=ALL, n_tokens=sum(tokens), decode_s=sum(times_s), n_steps=n_steps)
