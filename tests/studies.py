"""A small study folder written through the real writers: a run, a launch that served it, and one that failed."""

from pathlib import Path
from typing import Any

import evidence_samples as samples
import run_factory as factory

from evidence.launch_folder import LaunchWriter
from evidence.study_folder import StudyWriter
from evidence.study_records import Cell, Study

STUDY_ID = "study-20261129T161200Z-a1b2c3"
FAILED = "launch-20261129T161300Z-ffffff"
SERVED = "launch-20261129T161200Z-a1b2c3"


def cell(index: int, arm: str, **changes: Any) -> Cell:
    fields: dict[str, Any] = {
        "index": index, "pair": 0, "arm": arm, "role": "baseline" if index == 0 else "arm", "order_seed": 7,
        "state": "done", "attempt": 1, "launch_dir": None, "run_dir": None, "stage": None, "symptom": None,
        "started_at_unix_s": 1_700_000_000.0, "ended_at_unix_s": 1_700_000_060.0, "took_s": 60.0,
    }  # fmt: skip
    return Cell(**(fields | changes))


def study(cells: tuple[Cell, ...]) -> Study:
    return Study(
        study_id=STUDY_ID, name="tiny", created_at_unix_s=1_700_000_000.0, file="tiny.toml", file_sha256="0" * 64,
        scenario={"name": "tiny"}, scenario_file="tiny.toml", scenario_sha256="0" * 64, prompts_sha256={},
        baseline="cpu-tiny", arms=("cpu-tiny", "cpu-bad"), launches=1, passes=1, control_launches=0, order="abba",
        seed=1, status="to-run", budget_minutes=None, drop_order=(), smokes=(), cells=cells, noticed=(),
    )  # fmt: skip


def launch(folder: Path, launch_id: str, log: bytes, **changes: Any) -> Path:
    writer = LaunchWriter.create(folder, samples.launch(launch_id=launch_id))
    writer.log_path.write_bytes(log)
    fields = {"outcome": "stopped", "ended_at_unix_s": 1_700_000_050.0, "exit_code": 0}
    writer.update(samples.launch(launch_id=launch_id, **(fields | changes)))
    writer.seal(now_unix_s=1_700_000_051.0)
    return writer.path


def small_study(root: Path, *, seal: bool = True, writing: bool = False) -> tuple[Path, StudyWriter]:
    symptom = "main: draft vocabulary differs\n\x00weird"
    cells = (
        cell(0, "cpu-tiny", launch_dir=f"launches/{SERVED}", run_dir="runs/run-test"),
        cell(1, "cpu-bad", state="failed", launch_dir=f"launches/{FAILED}", stage="draft", symptom=symptom),
    )
    writer = StudyWriter.create(root, study(cells))
    launch(writer.launches, SERVED, b"ready\n" * 1000)
    failed = {"outcome": "failed", "stage": "draft", "symptom": symptom, "evidence_grade": "trace held", "exit_code": 1}
    launch(writer.launches, FAILED, b"bad pair\n", **failed)
    requests = [factory.request(), factory.request(prompt_id="code_02", outcome="truncated", finish_reason=None)]
    factory.make_run(writer.runs, requests, launch_dir=f"launches/{SERVED}", launch_id=SERVED)
    if seal:
        writer.seal(study(cells), 1_700_000_100.0)
    elif not writing:
        writer.close()
    return writer.path, writer
