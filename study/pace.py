"""How long is left: from the cells that are done, and before there are any from a stated assumption.

A budget drops what the study file says may be dropped, in its order. It is held against what cells really took, so
nothing is dropped before the first pair has been measured: what is dropped comes last in any case.
"""

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from evidence.study_records import Cell, Smoke
from study.workload import ASSUMED_CELL_S, Workload

LINE_INTERVAL_S = 30.0


class Pace:
    """One invocation's. ``budget_s`` None: as long as it takes."""

    def __init__(self, workload: Workload, budget_s: float | None) -> None:
        self._workload = workload
        self.budget_s = budget_s
        self._began_s = time.monotonic()

    def left_s(self, cells: Sequence[Cell], smokes: Sequence[Smoke]) -> float:
        """Seconds that the cells not begun will take."""
        return sum(self.expected_s(cell.arm, cells, smokes) for cell in cells if cell.state == "planned")

    def expected_s(self, arm: str, cells: Sequence[Cell], smokes: Sequence[Smoke]) -> float:
        """Mean of the arm's finished cells, else of all, else its smoke start and what the workload assumes."""
        took = [(cell.arm, cell.took_s) for cell in cells if cell.took_s is not None and cell.state == "done"]
        own = [s for name, s in took if name == arm] or [s for _, s in took]
        if own:
            return sum(own) / len(own)
        start_s = next((smoke.took_s for smoke in smokes if smoke.arm == arm), 0.0)
        return start_s + ASSUMED_CELL_S + self._workload.assumed_s

    def over_budget(self, cells: Sequence[Cell], smokes: Sequence[Smoke]) -> bool:
        """Whether what is planned would pass the budget, as far as that can be told by now."""
        if self.budget_s is None:
            return False
        first = [cell for cell in cells if cell.pair == 0 and cell.role != "profile"]
        if any(cell.state in ("planned", "running") for cell in first):
            return False
        return time.monotonic() - self._began_s + self.left_s(cells, smokes) > self.budget_s


class Bar:
    """How far a study is, on standard error: which cell runs, how many are left, about how many minutes that takes.

    A bar in a terminal; elsewhere a line when a cell's first word is heard, and one every half minute.
    """

    def __init__(self, name: str, n_cells: int, n_requests: int, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._n_requests = n_requests
        self._n_before = 0
        self._said_s: float | None = None  # None: of this cell nothing yet
        self._bar = tqdm(
            total=n_cells * n_requests,
            file=self._out,
            desc=name,
            bar_format="{desc} {percentage:3.0f}%|{bar:16}| {n_fmt}/{total_fmt} requests",
            mininterval=0.5,
            leave=False,
            disable=not self._out.isatty(),
        )

    def begin(self, cell: Cell, n_left: int, n_pairs: int) -> None:
        """A cell begins; ``n_left`` with this one."""
        what = f"{cell.arm} ({cell.role})" if cell.role in ("control", "profile") else cell.arm
        of = "" if cell.role == "profile" else f", pair {cell.pair + 1} of {n_pairs}"
        self._what = f"{what}{of}; {n_left} to go"
        self._bar.total = self._n_before + n_left * self._n_requests  # fewer, once some are dropped
        self._began_s = time.monotonic()
        self._said_s = None

    def tick(self, n_ended: int, cell_s: float, after_s: float) -> None:
        """So many requests of the cell have ended; it is to take ``cell_s``, and those after it ``after_s``."""
        left_s = max(cell_s - (time.monotonic() - self._began_s), 0.0) + after_s
        said = f"{self._what}, about {left_s / 60:.1f} min left"
        if self._bar.disable:
            self._line(f"{said}, {n_ended} of {self._n_requests} requests ended")
            return
        self._bar.set_description(said, refresh=False)
        self._bar.update(self._n_before + min(n_ended, self._n_requests) - self._bar.n)

    def _line(self, said: str) -> None:
        now_s = time.monotonic()
        if self._said_s is None or now_s - self._said_s >= LINE_INTERVAL_S:
            self._said_s = now_s
            self._out.write(f"{said}\n")
            self._out.flush()

    def end(self) -> None:
        """The cell is over, however it ended."""
        self._n_before += self._n_requests
        self._bar.update(self._n_before - self._bar.n)

    def close(self) -> None:
        self._bar.close()
