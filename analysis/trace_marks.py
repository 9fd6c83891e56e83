"""The ranges a serving engine marks in a trace: target passes, verify passes, drafting.

    SGLang   step[DECODE bs=1], step[EXTEND bs=2 toks=9], step[TARGET_VERIFY bs=1], draft, draft_extend
    vLLM     execute_context_0(0)_generation_1(1) or execute_new_0_cached_1: one whole engine step;
             with its custom scopes on, "gpu_model_runner: forward" and "gpu_model_runner: draft" inside

A step inside a ``draft`` range is the draft model's own, not a pass of the target. Where an engine marks only whole
engine steps, those are counted as passes, drafting included, and the report says so.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["target", "verify", "draft", "draft_extend", "engine_step"]
PASSES = ("target", "verify")
DRAFTING = ("draft", "draft_extend")

_STEP = re.compile(r"step\[(?P<mode>[A-Za-z_0-9]+)(?:\s+bs=(?P<size>\d+))?[^\]]*\]")
_ENGINE_STEP = re.compile(r"execute_(context_\d+\(\d+\)_generation_\d+\(\d+\)|new_\d+_cached_\d+)")
_NAMED: dict[str, Role] = {
    "draft": "draft",
    "draft_extend": "draft_extend",
    "gpu_model_runner: draft": "draft",
    "gpu_model_runner: forward": "target",
}


@dataclass(slots=True)
class Mark:
    """One marked range: on the CPU from ``start_ns`` to ``end_ns``, and what it covered on each GPU (lane, from, to).

    A range that is only known from a GPU has no CPU side: ``start_ns`` is None.
    """

    name: str
    role: Role
    batch_size: int | None
    thread: tuple[str, str]
    start_ns: int | None
    end_ns: int | None
    on_gpu: list[tuple[str, int, int]] = field(default_factory=list)
    inside_draft: bool = False

    @property
    def kind(self) -> str:
        """The name without what differs from step to step: token counts, and vLLM's counts of requests."""
        step = _STEP.fullmatch(self.name)
        if step is not None:
            return f"step[{step['mode']}]" if self.batch_size is None else f"step[{step['mode']} bs={self.batch_size}]"
        return re.sub(r"\d+", "N", self.name) if self.role == "engine_step" else self.name

    def gpu_ranges(self, lane: str) -> list[tuple[int, int]]:
        return [(start, end) for where, start, end in self.on_gpu if where == lane]


def role_of(name: str) -> tuple[Role, int | None] | None:
    """The role a marked range plays and its batch size where the name tells it; None for every other range."""
    if name in _NAMED:
        return _NAMED[name], None
    step = _STEP.fullmatch(name)
    if step is not None:
        mode = step["mode"].upper()
        size = None if step["size"] is None else int(step["size"][:9])
        if mode.startswith("IDLE"):
            return None
        if mode.startswith("DRAFT"):
            return ("draft_extend" if "EXTEND" in mode else "draft"), size
        return ("verify" if "VERIFY" in mode else "target"), size
    return ("engine_step", None) if _ENGINE_STEP.match(name) else None


def find_inner(marks: list[Mark]) -> None:
    """Flag the passes that lie inside a ``draft`` range of the same thread."""
    outer = [mark for mark in marks if mark.role in DRAFTING and mark.start_ns is not None]
    for thread in {mark.thread for mark in outer}:
        ranges = sorted((m.start_ns or 0, m.end_ns or 0) for m in outer if m.thread == thread)
        inner = sorted(
            (m for m in marks if m.role in PASSES and m.thread == thread and m.start_ns is not None),
            key=lambda m: m.start_ns or 0,
        )
        place, reach = 0, -1
        for mark in inner:
            start, end = mark.start_ns or 0, mark.end_ns or 0
            while place < len(ranges) and ranges[place][0] <= start:
                reach = max(reach, ranges[place][1])
                place += 1
            mark.inside_draft = end <= reach
