"""The order of a study's cells, and the seeds of its prompts' orders. Pure: a file gives the same order anywhere."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from evidence.study_records import Cell, CellRole
from scenarios.study_file import StudyFile, arm_name


class _Slot(NamedTuple):
    arm: str
    role: CellRole


def cells_of(study: StudyFile, seed: int) -> tuple[Cell, ...]:
    """Every cell in the order it will run.

    Within a pair the baseline, each arm and, in the first ``control_launches`` pairs, one more baseline run one after
    the other in a seeded order; under "abba" each odd pair runs the mirror image of the pair before it. Profiled
    launches come last.
    """
    cells: list[Cell] = []
    for pair in range(study.launches):
        mirrored = study.order == "abba" and pair % 2 == 1
        block = pair - 1 if mirrored else pair
        slots = _drawn(_slots(study, pair), seed, block)
        for slot in reversed(slots) if mirrored else slots:
            cells.append(_cell(len(cells), pair, slot, seed))
    for number in range(study.profile_launches):
        for arm in study.arms:
            cells.append(_cell(len(cells), number, _Slot(arm_name(arm), "profile"), seed))
    return tuple(cells)


def _cell(index: int, pair: int, slot: _Slot, seed: int) -> Cell:
    return Cell(
        index=index,
        pair=pair,
        arm=slot.arm,
        role=slot.role,
        order_seed=order_seed(seed, pair),
        state="planned",
        attempt=0,
        launch_dir=None,
        run_dir=None,
        stage=None,
        symptom=None,
        started_at_unix_s=None,
        ended_at_unix_s=None,
        took_s=None,
    )


def order_seed(seed: int, pair: int) -> int:
    """Seed of the prompts' order in one pair: the same in all its cells, another in each pair."""
    return int.from_bytes(hashlib.sha256(f"{seed}:prompts:{pair}".encode()).digest()[:4], "big")


def _slots(study: StudyFile, pair: int) -> list[_Slot]:
    slots = [_Slot(arm_name(study.baseline), "baseline")]
    slots += [_Slot(arm_name(arm), "arm") for arm in study.arms if arm != study.baseline]
    if pair < study.control_launches:
        slots.append(_Slot(arm_name(study.baseline), "control"))
    return slots


def _drawn(slots: Iterable[_Slot], seed: int, block: int) -> list[_Slot]:
    def key(slot: _Slot) -> str:
        return hashlib.sha256(f"{seed}:launches:{block}:{slot.role}:{slot.arm}".encode()).hexdigest()

    return sorted(slots, key=key)


def drop_for(cells: tuple[Cell, ...], what: str, order: str = "randomised") -> tuple[int, ...] | None:
    """Indices of the cells to drop next, the last pair's first; None where nothing of this kind may be dropped.

    "launches": the last pair that has not begun, while two pairs stand; under "abba" a pair goes with its mirror image
    as long as neither has begun. "control" and "profile": the last one not begun.
    """
    planned = [cell for cell in cells if cell.state == "planned"]
    if what != "launches":
        alone = [cell.index for cell in planned if cell.role == what]
        return (alone[-1],) if alone else None
    timed = [cell for cell in cells if cell.role != "profile"]
    begun = {cell.pair for cell in timed if cell.state in ("running", "done", "failed") and cell.attempt > 0}
    standing = sorted({cell.pair for cell in timed if cell.state != "dropped"})
    block = standing[-2:] if order == "abba" and len(standing) % 2 == 0 else standing[-1:]
    if len(standing) - len(block) < 2 or begun & set(block):
        block = standing[-1:]
    if len(standing) - len(block) < 2 or begun & set(block):
        return None
    return tuple(cell.index for cell in planned if cell.role != "profile" and cell.pair in block)
