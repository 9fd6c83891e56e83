"""What a report is made from: a run as judged, each request with the place of its raw record, its answer judged.

Requests are numbered over the whole report; ``r12`` is request 12's anchor in the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from analysis import identity
from analysis.loading import LoadedRun
from analysis.measures import Row
from analysis.outputs import Answer, judge_answers
from analysis.summary import summarise
from evidence.contents import Contents, read_contents
from evidence.records import Json, Request

Role = Literal["baseline", "arm", "control", "profile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One ended request. ``line`` counts from 1 in ``file``, which is relative to the run's folder."""

    number: int
    run: int
    row: Row
    file: str
    line: int
    plan: Mapping[str, Json]
    plan_line: int | None
    answer: Answer | None  # None for warm-up
    acceptance: Mapping[str, Any] | None  # of this request by its own answer; None where no reader knows

    @property
    def request(self) -> Request:
        return self.row.request

    @property
    def anchor(self) -> str:
        return f"r{self.number}"

    @property
    def measured(self) -> bool:
        return self.request.phase == "measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """A run of a report. ``role`` and ``pair`` are its place in a study, None for a run by itself."""

    index: int
    path: Path
    arm: str
    loaded: LoadedRun
    contents: Contents  # but for its plan and requests, which ``loaded`` has
    summary: Mapping[str, Any]
    entries: tuple[Entry, ...]
    measured: tuple[Entry, ...]  # those that are not warm-up
    t0_unix_s: float  # the first measured request's t0: where the time axis begins
    role: Role | None = None
    pair: int | None = None

    @property
    def id(self) -> str:
        return self.loaded.manifest.run_id

    @property
    def name(self) -> str:
        """Arm, and its launch within a study."""
        if self.pair is None:
            return self.arm
        return f"{self.arm}{' (control)' if self.role == 'control' else ''}, launch {self.pair}"

    @property
    def series(self) -> str:
        """What its requests are shown as beside those of other runs: the arm, the control apart from its baseline."""
        return f"{self.arm} (control)" if self.role == "control" else self.arm

    @property
    def engine_speculates(self) -> bool | None:
        return self.loaded.server.speculative


def view_run(
    loaded: LoadedRun,
    *,
    index: int = 0,
    first_number: int = 0,
    role: Role | None = None,
    pair: int | None = None,
    arm_named: str | None = None,
) -> RunView:
    """A run for a report. ``arm_named`` is what a study calls its arm. Raises EvidenceError where it cannot be read."""
    contents = read_contents(loaded.path, requests=False)
    plan_lines = {line.plan_id: line.line for line in contents.plan}
    answers = iter(judge_answers([row.request for row in loaded.rows], loaded.plan))
    entries = []
    for number, (row, (file, line)) in enumerate(zip(loaded.rows, loaded.places, strict=True), start=first_number):
        request = row.request
        entries.append(
            Entry(
                number=number,
                run=index,
                row=row,
                file=file,
                line=line,
                plan=loaded.plan.get(request.plan_id, {}),
                plan_line=plan_lines.get(request.plan_id),
                answer=next(answers) if request.phase == "measured" else None,
                acceptance=_acceptance(loaded, request),
            )
        )
    return RunView(
        index=index,
        path=loaded.path,
        arm=arm_named or identity.arm_name(loaded.manifest) or "no label",
        loaded=loaded,
        contents=replace(contents, plan=()),
        summary=summarise(loaded),
        entries=tuple(entries),
        measured=tuple(entry for entry in entries if entry.measured),
        t0_unix_s=_begin(loaded),
        role=role,
        pair=pair,
    )


def domains_of(runs: Sequence[RunView]) -> list[str]:
    """The measured domains, in an order that does not depend on the shuffling: by name."""
    return sorted({entry.request.domain for run in runs for entry in run.measured})


def series_of(runs: Sequence[RunView]) -> list[str]:
    """The arms in order of appearance, the baseline first and the control last."""
    ordered = sorted(runs, key=lambda run: (run.role == "control", run.role != "baseline"))
    return list(dict.fromkeys(run.series for run in ordered))


def _acceptance(loaded: LoadedRun, request: Request) -> Mapping[str, Any] | None:
    adapter, speculative = loaded.server.adapter, loaded.server.speculative
    if adapter is None or speculative is False or request.outcome != "completed":
        return None
    return adapter.request_acceptance(request.server_fields, request.usage, speculative=speculative).as_json()


def _begin(loaded: LoadedRun) -> float:
    for rows in (loaded.measured, loaded.rows):
        sent = [row.request.sent_at_unix_s for row in rows if row.request.sent_at_unix_s is not None]
        if sent:
            return min(sent)
    return loaded.manifest.created_at_unix_s
