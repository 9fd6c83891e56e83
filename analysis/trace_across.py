"""The ranks of one profiler window side by side, and what of their collectives is waiting.

A collective ends on all ranks together and lasts on each from that rank's arrival. The ranks run the same ones in the
same order, so the shortest of the durations of one collective is the last arrival's: an upper bound of the transfer
itself. What a rank spent beyond it, it waited for the others. They are matched in their order, and only where there are
as many on each rank and each has an instant that all ranks spent in it: windows that begin with another one do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.tables import ms
from analysis.trace_intervals import Ns
from analysis.trace_lanes import Lane


def across(ranks: Sequence[dict[str, Any]], lanes: Sequence[Lane], bases_ns: Sequence[int | None]) -> dict[str, Any]:
    """The least and the most time over the ranks, in seconds; None, and why, where they are not of one window.

    ``ranks`` are the reports of ``lanes``, in their order; ``bases_ns`` the Unix instants their times count from.
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
        "waiting": _waiting(ranks, lanes, bases_ns, why),
        "why": why,
    }


def _waiting(
    ranks: Sequence[dict[str, Any]], lanes: Sequence[Lane], bases_ns: Sequence[int | None], why: str | None
) -> dict[str, Any]:
    """Of the collectives matched one by one: what the last to arrive spent, and what each rank waited."""
    found: dict[str, Any] = {"n": None, "transfer_at_most_s": None, "s_per_pass": None, "waited_s": None, "why": why}
    if why is not None:
        return found
    world = next((rank["world_size"] for rank in ranks if rank["world_size"] is not None), None)
    if world is not None and world != len(ranks):
        return found | {"why": f"traces of {len(ranks)} of {world} ranks were given: the last to arrive may be another"}
    if len({rank["rank"] for rank in ranks}) < len(ranks):
        return found | {"why": "two of the lanes are of one rank"}
    if len({base is None for base in bases_ns}) > 1:
        return found | {"why": "not every trace says from which instant its times count"}
    spans = [_collectives(lane, base or 0) for lane, base in zip(lanes, bases_ns, strict=True)]
    counts = {len(starts) for starts, _ in spans}
    if counts == {0}:
        return found | {"why": "there is no collective"}
    if len(counts) > 1:
        return found | {"why": f"the ranks ran {min(counts)} to {max(counts)} collectives: they can't be matched"}
    starts, ends = (np.stack(one) for one in zip(*spans, strict=True))
    n_apart = int((starts.max(axis=0) >= ends.min(axis=0)).sum())
    if n_apart:
        why = f"{n_apart} of {starts.shape[1]} collectives have no instant that all ranks spent in them"
        return found | {"why": f"{why}: these are others, or their clocks differ"}
    together = ends - starts
    shortest = together.min(axis=0)
    passes = {rank["passes"]["n"] for rank in ranks}
    n_passes = passes.pop() if len(passes) == 1 else 0
    return found | {
        "n": len(shortest),
        "transfer_at_most_s": int(shortest.sum()) / 1e9,
        "s_per_pass": int(shortest.sum()) / n_passes / 1e9 if n_passes else None,
        "waited_s": [int(ns) / 1e9 for ns in (together - shortest).sum(axis=1)],
    }


def _collectives(lane: Lane, base_ns: int) -> tuple[Ns, Ns]:
    """Starts and ends of the collectives in nanoseconds of Unix time, in the order in which they began."""
    starts, ends = lane.bounds()
    own = lane.is_class("collective")
    order = np.argsort(starts[own], kind="stable")
    return starts[own][order] + base_ns, ends[own][order] + base_ns


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
