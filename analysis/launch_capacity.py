"""Where a run's capacity is read: the launch it cites, that launch's start log, the run's scrapes and GPU samples."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.capacity import Capacity, capacity
from analysis.loading import LoadedRun
from analysis.start_log import KvLines, kv_lines
from evidence.gpu_records import GpuSample
from evidence.layout import ENGINE_LOG

LONGEST_LINE = 4096


def capacity_of(run: LoadedRun, gpu: Sequence[GpuSample]) -> Capacity:
    """Of the launch behind a run; what is not on record is None with its reason."""
    launch = run.launch
    arm = run.manifest.arm if isinstance(run.manifest.arm, Mapping) else {}
    resolved = launch.resolved if launch is not None else arm.get("resolved")
    return capacity(
        config=_config(launch.model if launch is not None else None) or _config(run.manifest.model),
        resolved=resolved if isinstance(resolved, Mapping) else {},
        windows=tuple({one.url: one.window for one in run.server.opened.opened}.values()),  # one of each server
        log=KvLines() if run.launch_path is None else kv_lines(_lines(run.launch_path / ENGINE_LOG)),
        gpu=gpu,
    )


def _config(model: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    found = model.get("config") if model else None
    return found if isinstance(found, Mapping) and found else None


def _lines(path: Path) -> Iterator[str]:
    """The lines of a log that may hold anything, each cut where it is too long; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                yield line.decode("utf-8", "replace")
    except OSError:
        return
