"""A sealed run as OpenMetrics text, so that a Prometheus can show it after its machine is gone.

    promtool tsdb create-blocks-from openmetrics RUN.om DATA_FOLDER

Three kinds of samples, each with ``run_id`` and ``arm``:

- every sample of every whole scrape that was saved, at the instant it was asked for, with ``job="engine"`` and the
  ``instance`` a Prometheus scraping the same URL would have given it; a label of the server's own by one of these four
  names becomes ``exported_...``, as Prometheus does it; ``up`` says which scrapes answered;
- the load generator's own series (``llm_client_*``) once a scrape interval, as if scraped, with ``job="client"``;
- each request once, at its end: ``llm_request_ttft_seconds`` and the like, with its prompt and plan id.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from analysis.openmetrics_client import add_client, add_requests
from analysis.openmetrics_text import NOTHING, SUFFIXES, SampleBook, Written
from evidence.errors import EvidenceError
from evidence.inventory import find_runs
from evidence.layout import folder_kind
from evidence.reading import Run, open_run
from evidence.records import Scrape
from infra.wire.client_records import run_labels
from infra.wire.exposition import Exposition, ExpositionError, Sample, parse

_OURS = frozenset({"run_id", "arm", "job", "instance"})
_EXPOSED = {"untyped": "unknown", None: "unknown", "gaugehistogram": "unknown", "stateset": "unknown"}


@dataclass(slots=True)
class Exported:
    """What an export holds and what it had to leave out."""

    out: Path
    run_ids: list[str] = field(default_factory=list)
    n_scrapes: int = 0
    n_requests: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # why scrapes cannot be read -> how many
    written: Written = NOTHING


def runs_of(path: Path) -> tuple[Path, ...]:
    """A run itself, or the runs of a study."""
    return find_runs(path / "runs") if folder_kind(path) == "study" else (path,)


def export(paths: Sequence[Path], out: Path) -> Exported:
    """Write sealed runs into one file.

    Raises EvidenceError where a run cannot be read or has no seal, or where ``out`` cannot be written. Runs that lie
    weeks apart are better exported one by one: promtool reads the whole file once for every two hours it spans.
    """
    if any(folder_kind(parent) != "unknown" for parent in out.absolute().parents):
        raise EvidenceError(out, "lies in a folder of evidence", "write it anywhere else with --out")
    found = Exported(out)
    book = SampleBook()
    for path in paths:
        run = open_run(path)
        if run.seal is None:
            what = "has no seal: it is no result"
            raise EvidenceError(path, what, "close it with `python -m analysis recover`, then export it")
        found.run_ids.append(run.manifest.run_id)
        found.n_requests += len(run.requests)
        _add_scrapes(book, run, found)
        add_client(book, run)
        add_requests(book, run)
    try:
        with out.open("w", encoding="utf-8") as opened:
            found.written = book.write(opened)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise EvidenceError(out, what, "give another file with --out", writing=True) from error
    return found


def _add_scrapes(book: SampleBook, run: Run, found: Exported) -> None:
    for scrape in run.scrapes:
        exposition = read_scrape(scrape)
        added = {**run_labels(run.manifest), "job": "engine", "instance": urlsplit(scrape.url).netloc}
        up = 0.0 if isinstance(exposition, str) else 1.0
        words = "Whether the scrape gave a whole body that can be read."
        at_s = scrape.send_unix_s
        book.add(family="up", kind="gauge", name="up", labels=added, at_unix_s=at_s, value=up, words=words)
        if isinstance(exposition, str):
            found.left_out[exposition] += 1
            continue
        found.n_scrapes += 1
        for sample in (*exposition.samples, *exposition.created):
            family, kind = family_of(sample.name, exposition)
            book.add(
                family=family,
                kind=kind,
                name=sample.name,
                labels=_labelled(sample, added),
                at_unix_s=at_s,
                value=sample.value,
                words="",
            )


def read_scrape(scrape: Scrape) -> Exposition | str:
    """The samples of a scrape, or why there are none."""
    if scrape.error is not None or scrape.body is None:
        return scrape.error or "no body"
    if not scrape.complete:
        return "nothing shows that the body is whole"
    content_type = next((text for name, text in scrape.headers.items() if name.lower() == "content-type"), None)
    try:
        return parse(scrape.body, content_type)
    except ExpositionError as error:
        return error.reason


def family_of(name: str, exposition: Exposition) -> tuple[str, str]:
    """The family a sample belongs to and its type in OpenMetrics' words."""
    for kind in ("histogram", "summary", "counter"):
        for suffix in SUFFIXES[kind]:
            family = name.removesuffix(suffix)
            if name.endswith(suffix) and kind in (
                exposition.types.get(family),
                exposition.types.get(family + "_total"),
            ):
                return family, kind
    told = exposition.type_of(name)
    if told == "counter":  # by its TYPE line, and its name says otherwise
        return name.removesuffix("_total"), "counter" if name.endswith("_total") else "unknown"
    kind = _EXPOSED.get(told, told or "unknown")
    return (name.removesuffix("_info"), kind) if kind == "info" else (name, kind)


def _labelled(sample: Sample, added: Mapping[str, str]) -> dict[str, str]:
    own = {f"exported_{name}" if name in _OURS else name: text for name, text in sample.labels.items()}
    return {**own, **added}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``analysis export --to openmetrics``, besides RUN and --to."""
    parser.add_argument("--out", type=Path, help="file to write (default: the run's or study's name and .om)")


def command(options: argparse.Namespace) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, the JSON object and the lines. ``options`` has ``run`` (of a run or a study) and ``out``."""
    out = options.out or Path(options.run.resolve().name + ".om")
    found = export(runs_of(options.run), out)
    report = {
        "out": str(found.out),
        "run_ids": found.run_ids,
        "n_scrapes": found.n_scrapes,
        "n_requests": found.n_requests,
        "n_left_out": found.left_out.total(),
        "left_out": dict(found.left_out),
        **found.written._asdict(),
    }
    return 0, report, lines(found)


def lines(found: Exported) -> list[str]:
    """For people."""
    w = found.written
    told = [
        f"{found.out}: {w.n_samples} samples of {w.n_series} series, from {found.n_scrapes} scrapes and "
        f"{found.n_requests} requests of {', '.join(found.run_ids) or 'no run'}",
    ]
    if w.n_same_instant:
        told.append(f"{w.n_same_instant} samples shared series and millisecond with a later one, which stands")
    told += [f"left out: {n} scrapes: {why}" for why, n in found.left_out.items()]
    told.append(f"backfill it: promtool tsdb create-blocks-from openmetrics {found.out} DATA_FOLDER")
    return told
