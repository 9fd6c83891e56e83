"""The ranks of one profiler window side by side, and what of their collectives is waiting.

A collective ends on all ranks together and lasts on each from that rank's arrival. The ranks run the same ones in the
same order, so the shortest of the durations of one collective is the last arrival's: an upper bound of the transfer
itself. What a rank spent beyond it, it waited for the others.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.tables import ms
from analysis.trace_intervals import Ns
from analysis.trace_lanes import Lane


def across(ranks: Sequence[dict[str, Any]], lanes: Sequence[Lane]) -> dict[str, Any]:
    """The least and the most time over the ranks, in seconds; None, and why, where they are not of one window.

    ``ranks`` are the reports of ``lanes``, in their order.
    """
    who = [(rank["rank"], rank["device"]) for rank in ranks]
    worlds = {rank["world_size"] for rank in ranks if rank["world_size"] is not None}
    why = None
    if len(ranks) < 2:
        why = "there is one rank or none"
    elif None in [rank["rank"] for rank in ranks] or len(set(who)) < len(who) or len(worlds) > 1:
        why = "these are not the ranks of one window: give the traces of one launch together, each rank once"
    elif not all(rank["complete"] for rank in ranks):
        why = "a trace was not read whole"
    found: dict[str, Any] = {"n_ranks": len(ranks), "world_size": worlds.pop() if len(worlds) == 1 else None}
    busy = [rank["busy_s"] for rank in ranks]
    collective = [rank["collective"]["time_s"] for rank in ranks if rank["collective"]["time_s"] is not None]
    return found | {
        "busy_min_s": min(busy) if why is None else None,
        "busy_max_s": max(busy) if why is None else None,
        "collective_min_s": min(collective, default=None) if why is None else None,
        "collective_max_s": max(collective, default=None) if why is None else None,
        "waiting": _waiting(ranks, lanes, why),
        "why": why,
    }


def _waiting(ranks: Sequence[dict[str, Any]], lanes: Sequence[Lane], why: str | None) -> dict[str, Any]:
    """Of the collectives matched one by one: what the last to arrive spent, and what each rank waited."""
    found: dict[str, Any] = {"n": None, "transfer_at_most_s": None, "s_per_pass": None, "waited_s": None, "why": why}
    if why is not None:
        return found
    world = next((rank["world_size"] for rank in ranks if rank["world_size"] is not None), None)
    if world is not None and world != len(ranks):
        return found | {"why": f"traces of {len(ranks)} of {world} ranks were given: the last to arrive may be another"}
    durations = [_durations(lane) for lane in lanes]
    counts = {len(one) for one in durations}
    if counts == {0}:
        return found | {"why": "there is no collective"}
    if len(counts) > 1:
        return found | {"why": f"the ranks ran {min(counts)} to {max(counts)} collectives: they can't be matched"}
    together = np.stack(durations)
    shortest = together.min(axis=0)
    passes = {rank["passes"]["n"] for rank in ranks}
    n_passes = passes.pop() if len(passes) == 1 else 0
    return found | {
        "n": len(shortest),
        "transfer_at_most_s": int(shortest.sum()) / 1e9,
        "s_per_pass": int(shortest.sum()) / n_passes / 1e9 if n_passes else None,
        "waited_s": [int(ns) / 1e9 for ns in (together - shortest).sum(axis=1)],
    }


def _durations(lane: Lane) -> Ns:
    """Nanoseconds of each collective, in the order in which they began."""
    starts, ends = lane.bounds()
    own = lane.is_class("collective")
    order = np.argsort(starts[own], kind="stable")
    return (ends[own] - starts[own])[order]


def waiting_note(together: dict[str, Any]) -> str:
    """The collectives' own time and the waiting in it as a sentence, or why they can't be told apart."""
    found = together["waiting"]
    if found["n"] is None:
        return f"Transfer and waiting within collectives are not told apart: {found['why']}."
    each = f", {ms(found['s_per_pass'])} ms a target pass" if found["s_per_pass"] is not None else ""
    waited = " and ".join(ms(one) for one in found["waited_s"])
    transfer = ms(found["transfer_at_most_s"])
    return (
        f"{found['n']} collectives matched rank by rank: at most {transfer} ms of transfer{each}; "
        f"beyond it the ranks waited for each other, {waited} ms."
    )
