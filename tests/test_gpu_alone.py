"""Memory on a GPU that is not the server's own: before its start, after it, and where nothing tells."""

from pathlib import Path

import pytest

from analysis.gpu_alone import shared_gpu
from evidence.gpu_records import GpuSample
from tests.evidence_samples import launch

GIB = 1 << 30
CAPTURED = Path(__file__).parent / "fixtures" / "gpu-h200.jsonl"


def sample(used_gib: float, *, total_gib: float | None = 140.4, n_gpus: int = 1) -> GpuSample:
    one = GpuSample.model_validate_json(CAPTURED.read_text().splitlines()[0])
    total = None if total_gib is None else int(total_gib * GIB)
    changed = [
        one.gpus[0].model_copy(
            update={
                "index": i,
                "uuid": f"GPU-{i}",
                "memory_used_bytes": int(used_gib * GIB),
                "memory_total_bytes": total,
            }
        )
        for i in range(n_gpus)
    ]
    return one.model_copy(update={"gpus": tuple(changed)})


def started(folder: Path, *, free_before: float, free_after: float):
    (folder / "engine.log").write_text(f"x\n[2026-11-29 19:48:13] Load weight begin. avail mem={free_before:.2f} GB\n")
    outcomes = {"internal_states.memory_usage": {"startup_available": free_after}}
    return launch(resolved={"resolved.outcomes": outcomes})


@pytest.mark.parametrize(
    ("free_before", "free_after", "used", "seen"),
    [
        (139.1, 125.0, 17.0, None),  # alone: a context before, an activation's worth more afterwards
        (124.4, 111.2, 30.0, "16.0 GiB of the GPU's 140.4 GiB were in use before the server loaded its weights"),
        (139.1, 125.0, 62.7, "62.7 GiB of the GPU's 140.4 GiB were in use during the run, 15.4 GiB when the server was "
         "ready"),
    ],
)  # fmt: skip
def test_what_was_in_use_before_or_came_after_is_somebody_elses(tmp_path, free_before, free_after, used, seen):
    one = started(tmp_path, free_before=free_before, free_after=free_after)
    assert shared_gpu(one, tmp_path, [sample(used), sample(used + 1)]) == seen


def test_where_nothing_tells_nothing_is_said(tmp_path):
    one = started(tmp_path, free_before=139.1, free_after=125.0)
    assert shared_gpu(None, tmp_path, [sample(99)]) is None
    assert shared_gpu(one, tmp_path, []) is None
    assert shared_gpu(one, tmp_path, [sample(99, n_gpus=2)]) is None
    assert shared_gpu(one, tmp_path, [sample(99, total_gib=None)]) is None
    assert shared_gpu(launch(resolved={}), tmp_path / "none", [sample(99)]) is None
