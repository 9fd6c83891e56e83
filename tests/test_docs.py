"""The documents say what the code says."""

import re
from pathlib import Path
from typing import get_args

import pytest

from analysis.verdict import REMEDIES
from evidence import (
    calibration_records,
    gpu_records,
    level_records,
    profile_records,
    records,
    study_records,
    window_records,
    worker_records,
)

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
MODULES = (
    records,
    window_records,
    gpu_records,
    level_records,
    profile_records,
    study_records,
    worker_records,
    calibration_records,
)
FOUND = {r for m in MODULES for r in vars(m).values() if isinstance(r, type) and issubclass(r, records.Record)}
RECORDS = sorted(FOUND, key=lambda r: r.__name__)


@pytest.mark.parametrize("record", [r for r in RECORDS if r is not records.Record], ids=lambda r: r.__name__)
def test_every_field_of_every_record_is_described(record):
    missing = [name for name in record.model_fields if f"`{name}`" not in EVIDENCE]
    assert missing == [], f"docs/evidence.md does not describe {missing} of {record.__name__}"


def test_every_outcome_is_named():
    assert [o for o in get_args(records.Outcome) if f"`{o}`" not in EVIDENCE] == []


def test_every_file_and_command_the_readme_names_exists():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"\b((?:scenarios|locustfiles|docs|benchmarks|tests|prompts)/[\w./-]+\.\w+)", readme):
        assert (ROOT / path).exists(), path
    for package in set(re.findall(r"python -m (\w+)", readme)):
        assert (ROOT / package / "__main__.py").exists(), package


def test_every_remedy_says_something_and_no_two_say_the_same():
    assert all(len(text) > 20 for text in REMEDIES.values())
    assert len(set(REMEDIES.values())) == len(REMEDIES)


def test_the_readme_has_its_tables_and_no_placeholder():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"<!--(?! results:(begin|end) -->)", readme)
    assert re.search(r"cpu-f32-draft +2 x 6 +\d", readme)
    assert "not measured" in readme
