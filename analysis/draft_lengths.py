"""The cost of a draft token over the arms of a study, where several differ in their draft length alone.

A family is all arms with the same kind of drafting and the same draft model; each launch of an arm is one point. The
family that looks up n-grams drafts nearly for free, and parts the others' cost where it has two lengths itself.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from analysis import identity
from analysis.arm_speculation import ArmSpeculation
from analysis.draft_cost import CostFit, CostPoint, best_length, fit_cost, not_separable, separate
from analysis.study_loading import CellRun

FREE = "ngram"
KINDS = ("speculative.types", "speculative-algorithm", "speculative_algorithm", "speculative_config.method")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How an arm drafts: the kind of speculation, and the draft model's hash where there is one."""

    kind: str
    draft: str | None

    @property
    def name(self) -> str:
        return self.kind if self.draft is None else f"{self.kind}, draft {self.draft[:12]}"


def draft_costs(arms: Mapping[str, tuple[CellRun, ArmSpeculation]]) -> dict[str, Any]:
    """By family: the line t_cycle(g) = A + B g, B in its parts, and the best length; else why not."""
    points: dict[Family, list[CostPoint]] = defaultdict(list)
    bases: dict[Family, list[float]] = defaultdict(list)
    why: dict[str, str] = {}
    for arm, (cell, found) in arms.items():
        if found.draft_limit == 0:
            continue
        family = _family(cell)
        if found.draft_limit is None or family is None:
            why[arm] = "its draft length, or how it drafts, is not on record"
        elif not found.decoded[1]:
            why[arm] = found.cost_why or "its target steps are not known"
        else:
            points[family] += _points(found, found.draft_limit)
            tokens = sum(one.n_tokens for one in found.decoded[0])
            bases[family].append(sum(one.decode_s for one in found.decoded[0]) / tokens)
    free = next((family for family in points if family.kind.lower().startswith(FREE)), None)
    free_fit = None if free is None else fit_cost(points[free])
    shown: dict[str, Any] = {}
    for family, found_points in points.items():
        t_base_s = sum(bases[family]) / len(bases[family])
        fit = fit_cost(found_points, t_base_s=t_base_s)
        shown[family.name] = {
            "draft_lengths": sorted({one.n_drafts for one in found_points}),
            "fit": fit.as_json() if isinstance(fit, CostFit) else None,
            "parts": separate(fit, free_fit if isinstance(free_fit, CostFit) and family != free else None).as_json(),
            "best_length": asdict(best_length(found_points, t_base_s=t_base_s)) if isinstance(fit, CostFit) else None,
        }
    if not shown:
        return {
            "families": {},
            "why": not_separable("no arm's cycle time is known by its draft length").why,
            "arms": why,
        }
    return {"families": shown, "why": None, "arms": why}


def _points(found: ArmSpeculation, n_drafts: int) -> list[CostPoint]:
    points = []
    for launch in sorted({one.launch for one in found.decoded[1]}):
        own = [one for one in found.decoded[1] if one.launch == launch]
        steps = sum(one.n_steps or 0 for one in own)
        if steps:
            points.append(
                CostPoint(
                    n_drafts=n_drafts,
                    launch=launch,
                    t_cycle_s=sum(one.decode_s for one in own) / steps,
                    tokens_per_step=sum(one.n_tokens for one in own) / steps,
                )
            )
    return points


def _family(cell: CellRun) -> Family | None:
    launch = cell.run.launch
    settings = identity.arguments(cell.run.manifest, launch)
    said = next((value for key, value in settings.items() if key.rsplit("--", maxsplit=1)[-1].endswith(KINDS)), None)
    kinds = [said] if isinstance(said, str) else list(said) if isinstance(said, list | tuple) else []
    kinds = [str(kind) for kind in kinds if kind != "none"]
    if not kinds:
        return None
    draft = launch.draft if launch is not None else None
    digest = None if draft is None else draft.get("sha256") or draft.get("file_sha256")
    return Family(kind=" and ".join(kinds), draft=None if digest is None else str(digest))
