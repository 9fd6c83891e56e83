"""Observations of two arms brought together by launch and prompt: the table of log ratios that the intervals stand on.

A pair is one planned request (level, prompt, repeat) answered in the same paired launch by both arms. The table
has one cell for each launch and prompt: the mean of log(arm / baseline) over the prompt's pairs in that launch, so
that each prompt and each launch counts once, however often the plan repeats a prompt.

Missing cells, by one rule: a launch counts where both arms measured something in it; a prompt counts where every one of
its requests was completed in both arms in every such launch. What is left out is named, and the coverage is
printed: if requests fail in one arm more than in the other, the ratio is about the prompts that both could answer.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.errors import AnalysisError


class Request(NamedTuple):
    """What was asked, apart from arm and launch."""

    level: str | None
    prompt_id: str
    repeat: int  # how often the prompt stood earlier in the launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One measured request. ``value`` is its decode rate in tokens a second, None where it has none, and ``why``."""

    arm: str
    launch: int  # index of the paired launch, from 0
    prompt_id: str
    domain: str
    value: float | None
    order: int  # place among the measured requests of its launch, from 0
    level: str | None = None
    repeat: int = 0
    why: str | None = None
    n_tokens: int | None = None  # all completion tokens
    decode_tokens: int | None = None  # N - n_first, those that ``value`` counts
    decode_s: float | None = None  # the time in which they came
    ttft_s: float | None = None
    e2e_s: float | None = None

    @property
    def request(self) -> Request:
        return Request(self.level, self.prompt_id, self.repeat)


Read = Callable[[Observation], float | None]


def rate(one: Observation) -> float | None:
    """The decode rate: what is compared unless something else is named."""
    return one.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The same request in the same paired launch, in both arms, both with a value."""

    base: Observation
    arm: Observation


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """What the table leaves out, each with its reason; nothing is dropped silently."""

    n_prompts: int
    n_prompts_seen: int
    n_launches: int
    n_launches_seen: int
    left_out_prompts: Mapping[str, str]
    left_out_launches: Mapping[int, str]

    def as_json(self) -> dict[str, Any]:
        return {
            "n_prompts": self.n_prompts,
            "n_prompts_seen": self.n_prompts_seen,
            "n_launches": self.n_launches,
            "n_launches_seen": self.n_launches_seen,
            "left_out_prompts": dict(self.left_out_prompts),
            "left_out_launches": {str(launch): why for launch, why in self.left_out_launches.items()},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The complete table: ``log_ratios[r][p]`` for launch r and prompt p, and the pairs behind it."""

    launches: tuple[int, ...]
    prompts: tuple[str, ...]
    log_ratios: tuple[tuple[float, ...], ...]
    pairs: tuple[Pair, ...]
    coverage: Coverage

    @property
    def empty(self) -> bool:
        return not self.launches or not self.prompts


def pair(
    base: Iterable[Observation],
    arm: Iterable[Observation],
    *,
    read: Read = rate,
    only: Collection[tuple[int, Request]] | None = None,
) -> Table:
    """Pair two arms. ``only`` keeps the named (launch, request) pairs, all others count as not completed.

    Raises AnalysisError on a request that occurs twice in a launch, and on a value that is not a positive number.
    """
    ours, theirs = _by_launch(base, read), _by_launch(arm, read)
    left_launches: dict[int, str] = {}
    for launch in sorted({*ours, *theirs}):
        lacking = [
            name
            for name, side in (("the baseline", ours), ("the arm", theirs))
            if all(read(one) is None for one in side.get(launch, {}).values())
        ]
        if lacking:
            left_launches[launch] = f"{' and '.join(lacking)} measured nothing in it"
    launches = tuple(launch for launch in sorted({*ours, *theirs}) if launch not in left_launches)
    asked: dict[str, dict[Request, None]] = {}
    for side in (ours, theirs):
        for launch in sorted(side):
            for request in side[launch]:
                asked.setdefault(request.prompt_id, {})[request] = None
    left_prompts = {}
    for prompt_id, requests in asked.items():
        why = _why_left_out(requests, launches, ours, theirs, read, only)
        if why is not None:
            left_prompts[prompt_id] = why
    prompts = tuple(prompt_id for prompt_id in asked if prompt_id not in left_prompts) if launches else ()
    pairs = tuple(
        Pair(base=ours[launch][request], arm=theirs[launch][request])
        for launch in launches
        for prompt_id in prompts
        for request in asked[prompt_id]
    )
    return Table(
        launches=launches,
        prompts=prompts,
        log_ratios=_cells(pairs, launches, prompts, read),
        pairs=pairs,
        coverage=Coverage(
            n_prompts=len(prompts),
            n_prompts_seen=len(asked),
            n_launches=len(launches),
            n_launches_seen=len({*ours, *theirs}),
            left_out_prompts=left_prompts,
            left_out_launches=left_launches,
        ),
    )


Launches = Mapping[int, Mapping[Request, Observation]]


def _by_launch(observations: Iterable[Observation], read: Read) -> dict[int, dict[Request, Observation]]:
    found: dict[int, dict[Request, Observation]] = {}
    for one in observations:
        value = read(one)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise AnalysisError(
                f"{one.arm}, launch {one.launch}, {one.prompt_id} has the value {value!r}, which has no ratio",
                "give None and a reason where nothing was measured",
                value=value,
            )
        requests = found.setdefault(one.launch, {})
        if one.request in requests:
            raise AnalysisError(
                f"{one.arm}, launch {one.launch} answers {one.prompt_id} twice (level {one.level}, "
                f"repeat {one.repeat})",
                "give each planned request of a launch once",
                value=one.request,
            )
        requests[one.request] = one
    return found


def _why_left_out(
    requests: Collection[Request],
    launches: Sequence[int],
    ours: Launches,
    theirs: Launches,
    read: Read,
    only: Collection[tuple[int, Request]] | None,
) -> str | None:
    for launch in launches:
        for request in requests:
            for name, side in (("baseline", ours), ("arm", theirs)):
                one = side[launch].get(request)
                if one is None:
                    return f"not asked in launch {launch} of the {name}"
                if read(one) is None:
                    return f"no value in launch {launch} of the {name}: {one.why or 'no reason on record'}"
            if only is not None and (launch, request) not in only:
                return f"outside the pairs asked for in launch {launch}"
    return None


def _cells(
    pairs: Sequence[Pair], launches: Sequence[int], prompts: Sequence[str], read: Read
) -> tuple[tuple[float, ...], ...]:
    logs: dict[tuple[int, str], list[float]] = {}
    for one in pairs:
        ours, theirs = read(one.base), read(one.arm)
        if ours is not None and theirs is not None:
            logs.setdefault((one.base.launch, one.base.prompt_id), []).append(math.log(theirs / ours))
    return tuple(
        tuple(math.fsum(cell) / len(cell) for cell in (logs[launch, prompt_id] for prompt_id in prompts))
        for launch in launches
    )
