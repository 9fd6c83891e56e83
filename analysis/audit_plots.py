"""The audit's three plots: rate by prompt order, rate by domain for each configuration, TTFT by prompt order."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from analysis.audit_config import domains_of
from analysis.audit_gather import Config
from analysis.audit_rows import SavedRow
from analysis.errors import AnalysisError
from analysis.svg import Plot, Series, draw

ONE_LAUNCH = "One launch of each configuration: the points show these requests and claim nothing of the systems."


def plots(configs: Mapping[str, Config]) -> dict[str, str]:
    """The plots as SVG by file name."""
    order = [
        Series(name=name, points=[(row.order, float(row.rate), _said(row)) for row in config.rows])
        for name, config in configs.items()
    ]
    ttft = [
        Series(name=name, points=[(row.order, float(row.ttft_ms), _said(row)) for row in config.rows])
        for name, config in configs.items()
    ]
    rate = "tokens a second (the study's rate)"
    found = {
        "rate-by-order.svg": Plot(
            title="Decode rate by prompt order",
            x_title="place in the launch",
            y_title=rate,
            series=order,
            note=ONE_LAUNCH,
            dividers=_boundaries(configs),
            log_y=True,
        ),
        "ttft-by-order.svg": Plot(
            title="Time to first visible content by prompt order",
            x_title="place in the launch",
            y_title="milliseconds",
            series=ttft,
            note=ONE_LAUNCH,
            dividers=_boundaries(configs),
        ),
    }
    by_domain = _by_domain(configs, rate)
    if by_domain is not None:
        found["rate-by-domain.svg"] = by_domain
    return {name: draw(plot) for name, plot in found.items()}


def write(found: Mapping[str, str], folder: Path) -> list[str]:
    """Write the plots into a folder, made if need be, and return their paths. Raises AnalysisError, exit code 3."""
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            path = folder / name
            path.write_text(text, encoding="utf-8")
            paths.append(str(path))
    except OSError as error:
        said = f"the plots cannot be written ({error.strerror})"
        raise AnalysisError(said, "name another folder with --plots", path=folder, exit_code=3) from error
    return paths


def _by_domain(configs: Mapping[str, Config], rate: str) -> Plot | None:
    domains = list(dict.fromkeys(name for config in configs.values() for name in domains_of(config.rows)))
    if not domains:
        return None
    width = 0.8 / len(configs)
    series = []
    for place, (name, config) in enumerate(configs.items()):
        points, marks = [], []
        for at, domain in enumerate(domains):
            rows = domains_of(config.rows).get(domain, [])
            left = at - 0.4 + place * width
            points += _strip(rows, left + 0.15 * width, 0.7 * width)
            if rows:
                middle = float(statistics.median(row.rate for row in rows))
                marks.append((left + 0.05 * width, left + 0.95 * width, middle, f"{name}, {domain}: median {middle:g}"))
        series.append(Series(name=name, points=points, marks=marks))
    return Plot(
        title="Decode rate by domain",
        x_title="domain; the line is the median",
        y_title=rate,
        series=[one for one in series if one.points],
        note=ONE_LAUNCH,
        x_labels=list(enumerate(domains)),
        log_y=True,
    )


def _strip(rows: Sequence[SavedRow], left: float, width: float) -> list[tuple[float, float, str]]:
    """Side by side in the order sent, so that equal rates stay visible and nothing is random."""
    step = width / max(1, len(rows) - 1)
    return [(left + step * place, float(row.rate), _said(row)) for place, row in enumerate(rows)]


def _boundaries(configs: Mapping[str, Config]) -> list[float]:
    """Where the domain changes in the fixed order."""
    rows = max((config.rows for config in configs.values()), key=len)
    return [later.order - 0.5 for earlier, later in pairwise(rows) if earlier.category != later.category]


def _said(row: SavedRow) -> str:
    return f"{row.config} {row.prompt_id}: {row.rate} tok/s, TTFT {row.ttft_ms} ms, {row.completion_tokens} tokens"
