"""``study demo``: a whole small study on the embedded engine, ending in its comparison and its report.

``scenarios/demo-study.toml`` with a budget: as many paired launches as fit, two at least. One of its arms is made to
fail, and appears as "not measured"; that is what is expected of it, and no failure of the demo.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from evidence.study_folder import open_study
from evidence.study_records import Study
from study.run import Asked, run_command

ROOT = Path(__file__).resolve().parent.parent
STUDY = Path("scenarios") / "demo-study.toml"
MADE_TO_FAIL = ("cpu-f32-badpair",)
BUDGET_MINUTES = 3.2
GOOD, EVIDENCE_SAYS_NO = 0, 1


def demo(run_dir: Path) -> int:
    """Runs it all; 0 when every arm but those made to fail was measured in two launches at least, and compared."""
    _say(
        "A study of the embedded engine: no speculation against a draft model and n-grams, and a pair that cannot work."
    )
    code, folder = run_command(Asked(file=ROOT / STUDY, run_dir=run_dir, budget_minutes=BUDGET_MINUTES))
    if folder is None:
        return code
    study = open_study(folder).study
    compared = _analysis("compare", str(folder))
    report = folder.with_name(f"{folder.name}.report.html")
    reported = _analysis("report", str(folder), "--out", str(report), quiet=True)
    print(f"\nstudy   {folder}")
    if reported == GOOD:
        print(f"report  {report.resolve()}   (open it in a browser)")
    bad = unexpected(study)
    for text in bad:
        _say(text)
    return EVIDENCE_SAYS_NO if bad or compared != GOOD or reported != GOOD else GOOD


def unexpected(study: Study) -> list[str]:
    """What in a finished demo is not as it should be; empty when it is."""
    found = []
    for arm in study.arms:
        states = Counter(cell.state for cell in study.cells if cell.arm == arm)
        if arm in MADE_TO_FAIL:
            found += [f"{arm} was to fail and did not"] if set(states) - {"failed"} else []
        elif states["failed"] or states["done"] < 2:
            found.append(f"{arm}: {', '.join(f'{n} {state}' for state, n in states.items())}")
    return found


def _analysis(*words: str, quiet: bool = False) -> int:
    where = subprocess.DEVNULL if quiet else None
    done = subprocess.run([sys.executable, "-m", "analysis", *words], cwd=ROOT, stdout=where, check=False)
    return done.returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
