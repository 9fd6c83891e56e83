"""The documents say what the code says."""

import re
from pathlib import Path
from typing import get_args

import pytest

from analysis import __main__ as analysis_main
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
from infra import __main__ as infra_main
from study import __main__ as study_main

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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
PARSERS = {"analysis": analysis_main.parse, "infra": infra_main.parse, "study": study_main.parse}
OPTIONS = (ROOT / "locustfiles" / "_options.py").read_text(encoding="utf-8")
NUMBERS = {"N", "R", "S", "X", "MINUTES", "PORT"}


def documented() -> list[tuple[str, str]]:
    """(page, command) of every ``python -m analysis|infra|study`` that stands in a block of a page."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        lines = re.findall(r"^ {4}(?:\S*/)?python -m ((?:analysis|infra|study) .*)$", text, re.MULTILINE)
        found += [(page.relative_to(ROOT).as_posix(), re.sub(r"\s+(#|> ).*", "", line).strip()) for line in lines]
    return found


def test_every_command_of_a_page_is_taken_as_it_is_written(capsys):
    """Brackets and dots of a synopsis away, the first of several choices, a 2 for a number: parsers take the rest."""
    assert len(documented()) > 25
    refused = []
    for page, command in documented():
        plain = re.sub(r"[\[\]]|\.\.\.", "", command).split()
        words = [re.sub(r"^([a-z]+)(\|[a-z]+)+$", r"\1", word) for word in plain]
        room, *argv = ["2" if word in NUMBERS else word for word in words]
        try:
            PARSERS[room](argv)
        except SystemExit:
            refused.append(f"{page}: python -m {command}: {capsys.readouterr().err.splitlines()[-1]}")
    assert refused == []


def test_every_option_of_the_locustfiles_is_in_the_readme_and_the_other_way_round():
    ours = set(re.findall(r'^        "(--[a-z-]+)",|add\("(--[a-z-]+)"', OPTIONS, re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| option of a locustfile |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(--[a-z-]+)", row.split(" | ")[0])}
    assert {one or other for one, other in ours} | {"--host"} == named
