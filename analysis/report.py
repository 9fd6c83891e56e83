"""``report RUN|STUDY``: one self-contained page that a person can read, with the way back to every raw record.

It is derived from sealed folders like everything of this room and is never written into one. A page that is there is
replaced; a file that is no page of ours is not.
"""

import argparse
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.loading import load_run
from analysis.report_gather import view_run
from analysis.report_page import GENERATOR
from analysis.report_sections import run_page, study_page
from analysis.report_study import view_study
from evidence.errors import EvidenceError
from evidence.layout import folder_kind

Answered = tuple[int, dict[str, Any], list[str]]
HEAD_BYTES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``report`` takes; ``--json`` is added by whoever makes the parser."""
    parser.add_argument("run", type=Path, metavar="RUN|STUDY", help="the folder of a run or of a study")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")


def command(options: argparse.Namespace) -> Answered:
    """Exit code, the JSON object and the lines. Raises EvidenceError and AnalysisError, each with its exit code."""
    path, out = Path(options.run), Path(options.out)
    _may_write(out)
    if folder_kind(path) == "study":
        view = view_study(path)
        page = study_page(view, out.parent)
        said: dict[str, Any] = {
            "kind": "study",
            "id": view.folder.study.study_id,
            "verdict": view.verdict.verdict,
            "n_runs": len(view.runs),
            "n_requests": sum(len(run.entries) for run in view.runs),
        }
    else:
        run = view_run(load_run(path))
        page = run_page(run, out.parent)
        said = {
            "kind": "run",
            "id": run.id,
            "verdict": run.summary["verdict"],
            "n_runs": 1,
            "n_requests": len(run.entries),
        }
    data = page.encode()
    _write(out, data)
    report = {"path": str(out), **said, "n_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    lines = [
        f"{said['kind']} {said['id']}  {said['verdict']}  {said['n_requests']} requests, {len(data)} bytes",
        str(out),
    ]
    return 0, report, lines


def _may_write(out: Path) -> None:
    """Refuse a place inside a folder of evidence, and a file that this command did not make."""
    for folder in out.resolve().parents:
        if folder_kind(folder) != "unknown":
            raise AnalysisError(
                f"it lies inside the {folder_kind(folder)} folder {folder}, and reports are never written there",
                "name a file outside it with --out",
                path=out,
            )
    try:
        with out.open("rb") as there:
            head = there.read(HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise EvidenceError(
            out, f"cannot be read ({error.strerror})", "name another file with --out", writing=True
        ) from error
    if head and f'content="{GENERATOR}"'.encode() not in head:
        raise AnalysisError("it is there and is no report of ours", "name another file with --out", path=out)


def _write(out: Path, data: bytes) -> None:
    """Put the page in place at once and whole."""
    try:
        handle, partial = tempfile.mkstemp(prefix=".report-", suffix=".html", dir=out.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(partial).chmod(0o644)
            Path(partial).replace(out)
        except OSError:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        remedy = "name a file in a folder you may write to with --out"
        raise EvidenceError(
            out, f"cannot be written ({error.strerror})", remedy, value=error.errno, writing=True
        ) from error
