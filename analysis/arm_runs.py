"""The two sides of one comparison: which runs may enter it, scope by scope, and whether they may be compared at all.

A run that is INVALID in a scope gives no number of that scope; it is named with the codes of its reasons. Runs that are
not comparable are refused with the keys that differ: within each pair all listed keys, and over the launches of one
side all but the workload (each pair has an order of its own). A study that went on on another machine has launches on
different hardware, each pair on one: that is named and does not refuse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.cached_share import shares_apart
from analysis.comparable import Comparable, compare_identities, compare_runs, identity_of, refusals
from analysis.facts import Scope
from analysis.loading import LoadedRun
from analysis.observing import observe
from analysis.pairing import Observation, Request
from analysis.study_loading import CellRun, Place, places
from analysis.verdict import by_scope

MAY_CHANGE_OVER_LAUNCHES = ("gpu", "topology", "hardware")


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """A run that gives no number of a scope, and why."""

    run_id: str
    arm: str
    role: str
    pair: int
    scope: Scope
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """The baseline's and the arm's cells by pair, with each pair's place among independent launches."""

    base: Mapping[int, CellRun]
    arm: Mapping[int, CellRun]
    places: Mapping[int, Place]
    n_repeats: int  # how often a plan of theirs names one prompt at most

    @property
    def pairs(self) -> tuple[int, ...]:
        """The pairs that were measured on both sides."""
        return tuple(sorted(self.base.keys() & self.arm.keys()))

    def both(self, scope: Scope) -> tuple[tuple[int, CellRun, CellRun], ...]:
        """The pairs whose two runs may both be used in a scope."""
        return tuple(
            (pair, self.base[pair], self.arm[pair])
            for pair in self.pairs
            if why_not(self.base[pair], scope) is None and why_not(self.arm[pair], scope) is None
        )

    def request(self, pair: int, request: Request) -> tuple[int, Request]:
        """Launch and request as the observations name them: runs of one launch are repeats of its prompts."""
        place = self.places[pair]
        return place.launch, request._replace(repeat=request.repeat + place.nth * self.n_repeats)

    def observations(self, side: Mapping[int, CellRun], name: str) -> tuple[Observation, ...]:
        """What one side measured, with None and the reason where its run may not be used."""
        found = []
        for pair, one in side.items():
            seen = observe(one.run, arm=name, launch=self.places[pair].launch)
            why_rate, why_latency = why_not(one, "rate"), why_not(one, "latency")
            for each in seen:
                _, request = self.request(pair, each.request)
                shifted = replace(each, repeat=request.repeat, order=each.order + self.places[pair].nth * len(seen))
                if why_rate is not None:
                    shifted = replace(shifted, value=None, why=why_rate, decode_tokens=None, decode_s=None)
                if why_latency is not None:
                    shifted = replace(shifted, ttft_s=None, e2e_s=None)
                found.append(shifted)
        return tuple(found)


def sides(base: Mapping[int, CellRun], arm: Mapping[int, CellRun]) -> Sides:
    """Bring two sides together. A baseline cell of a pair the arm never had stands aside."""
    wanted = {pair: one for pair, one in base.items() if pair in arm}
    plans = [one.run.plan for one in (*wanted.values(), *arm.values())]
    n_repeats = 1 + max((int(line.get("repeat") or 0) for plan in plans for line in plan.values()), default=0)
    return Sides(base=wanted, arm=arm, places=places(wanted, arm), n_repeats=n_repeats)


def why_not(one: CellRun, scope: Scope) -> str | None:
    """Why a run gives no number of a scope, None where it does."""
    run_id = one.run.manifest.run_id
    if one.barred:
        return f"{run_id} may not be used: {'; '.join(one.barred)}"
    if by_scope(one.run.reasons)[scope] != "INVALID":
        return None
    heavy = [r for r in one.run.reasons if r.severity == "INVALID" and r.scope in ("run", scope)]
    codes = ", ".join(dict.fromkeys(reason.code for reason in heavy))
    return f"{run_id} is INVALID for {heavy[0].scope if len(heavy) == 1 else scope}: {codes} ({heavy[0].seen})"


def excluded(cells: Sequence[CellRun]) -> tuple[Excluded, ...]:
    """Every run left out of a scope; one that is out as a whole is named once."""
    found = []
    for one in cells:
        scopes: tuple[Scope, ...] = ("latency", "rate", "acceptance", "outputs")
        if why_not(one, "run") is not None:
            scopes = ("run",)
        for scope in scopes:
            why = why_not(one, scope)
            if why is not None:
                manifest = one.run.manifest
                found.append(
                    Excluded(run_id=manifest.run_id, arm=one.arm, role=one.role, pair=one.pair, scope=scope, why=why)
                )
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparability:
    """Whether two sides may be compared: ``said`` names what differs, pair by pair; the rest limits what is said."""

    ok: bool
    said: tuple[str, ...]
    keys: tuple[str, ...]
    on_purpose: tuple[str, ...]
    unknown: tuple[str, ...]
    over_launches: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "differences": list(self.said),
            "keys": list(self.keys),
            "on_purpose": list(self.on_purpose),
            "unknown": list(self.unknown),
            "over_launches": list(self.over_launches),
        }


def comparability(found: Sides) -> Comparability:
    """Compare the identities of each usable pair, then those of each side over its launches."""
    usable = found.both("run")
    said: list[str] = []
    keys: list[str] = []
    purpose: list[str] = []
    unknown: list[str] = []
    over: list[str] = []
    for pair, base, arm in usable:
        one = compare_runs(base.run, arm.run)
        purpose += [f"{_said(d.key, d.base, d.arm)} (varied: {d.on_purpose})" for d in one.on_purpose]
        unknown += one.unknown
        if not one.ok:
            names = f"{base.run.manifest.run_id} and {arm.run.manifest.run_id}"
            differs = [*one.said.split("; ")] if one.refused else [_said(d.key, d.base, d.arm) for d in one.differences]
            workload = _workload(base.run, arm.run) if any(d.key == "workload" for d in one.differences) else None
            said.append(f"pair {pair} ({names}): " + "; ".join([*differs, *([workload] if workload else [])]))
            keys += [d.key for d in one.differences] or ["refused"]
        apart = shares_apart(
            *([row.request for row in cell.run.measured] for cell in (base, arm)),
            silent_zero=(base.run.server.silent_zero, arm.run.server.silent_zero),
        )
        if apart:
            said.append(f"pair {pair}: " + "; ".join(apart))
            keys.append("cached_share")
    for side in ([base for _, base, _ in usable], [arm for _, _, arm in usable]):
        for later in side[1:]:
            one = _over_launches(side[0].run, later.run)
            hard = [d for d in one.differences if d.key.partition(".")[0] not in MAY_CHANGE_OVER_LAUNCHES]
            soft = [d for d in one.differences if d not in hard]
            where = f"{side[0].arm}, pairs {side[0].pair} and {later.pair}"
            over += [f"{where}: {_said(d.key, d.base, d.arm)}" for d in soft]
            if hard:
                said.append(f"{where}: " + "; ".join(_said(d.key, d.base, d.arm) for d in hard))
                keys += [d.key for d in hard]
    return Comparability(
        ok=not said,
        said=tuple(said),
        keys=tuple(dict.fromkeys(keys)),
        on_purpose=tuple(dict.fromkeys(purpose)),
        unknown=tuple(dict.fromkeys(unknown)),
        over_launches=tuple(dict.fromkeys(over)),
    )


def _over_launches(first: LoadedRun, later: LoadedRun) -> Comparable:
    ours, theirs = (identity_of(run) | {"workload": None} for run in (first, later))
    return compare_identities(ours, theirs, refused=[*refusals(first), *refusals(later)])


def _said(key: str, base: Any, arm: Any) -> str:
    shown = [f"{str(value)[:12]}..." if key in ("workload", "checkpoint") else repr(value) for value in (base, arm)]
    return f"{key}: {shown[0]} against {shown[1]}"


def _workload(base: LoadedRun, arm: LoadedRun) -> str:
    """In what two plans differ, in words: their prompts, the texts of these, or the order and settings alone."""
    ours, theirs = (
        {str(line.get("prompt_id")): line.get("prompt_sha256") for line in run.plan.values()} for run in (base, arm)
    )
    only = sorted(ours.keys() ^ theirs.keys())
    other = sorted(prompt for prompt in ours.keys() & theirs.keys() if ours[prompt] != theirs[prompt])
    parts = []
    if only:
        parts.append(f"prompts of one run only: {_listed(only)}")
    if other:
        parts.append(f"prompts with another text: {_listed(other)}")
    if parts:
        return "; ".join(parts)
    counts = len(base.plan), len(arm.plan)
    if counts[0] != counts[1]:
        return f"the same prompts, {counts[0]} requests against {counts[1]}"
    return "the same prompts in another order, or with other request settings"


def _listed(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
