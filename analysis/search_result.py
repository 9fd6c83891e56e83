"""What a search found, in one line: the highest level visited that met the objectives, as ``analysis sweep`` has it."""

from analysis.loading import LoadedRun
from analysis.sweep_report import sweep_of, sweep_run
from analysis.unsent import searches


def result(run: LoadedRun) -> str | None:
    """The line, without its lead; None where the run is no search."""
    if not searches(run.manifest.scenario):
        return None
    levels = [view for view in run.levels if view.rows or view.record is not None]
    found = next(iter(sweep_of([sweep_run(run, arm="run")], None).highest.values()), None)
    if not levels or found is None:
        return "no level was visited"
    counted = f"{len(levels)} of {len(run.levels)} levels visited"
    if found.level is None:
        lead = "the highest level is not known" if found.said.startswith("not known") else "no level met the objectives"
        return f"{lead} ({counted}): {found.said}"
    return f"{found.level} is the highest level visited that met the objectives ({counted}): {found.said}"
