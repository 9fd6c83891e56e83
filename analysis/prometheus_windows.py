"""The answers of a Prometheus server as readings, and whether they agree with the scrapes the run took itself.

The run's own scrapes are the evidence; a Prometheus tells the same story from samples of its own. Where the two do not
agree (another server behind the same name, a restart, a wrong label), nothing that Prometheus said of that window is
used, and the check says so; the run itself is not judged by it.
"""

from collections.abc import Mapping, Sequence

from analysis.openmetrics import read_scrape
from analysis.request_checks import Check, not_observable
from evidence.records import Scrape
from evidence.window_records import Window
from infra.engines.prometheus_growth import Answer, Bounds, Growth, Series
from infra.engines.prometheus_readings import grown, readings
from infra.engines.prometheus_series import UP, EngineSeries, engine_series
from infra.engines.readings import Absent, Reading, Unmeasured, why_none
from infra.wire.exposition import Exposition

CLOCK_S = 0.05  # how far apart the two machines' clocks may be without more being known
NAME = "Prometheus: "
SCRAPES = "its own scrapes"


def by_level(windows: Sequence[Window]) -> dict[str | None, tuple[Window, ...]]:
    """The records of each level, in the order written."""
    levels = dict.fromkeys(window.level for window in windows)
    return {level: tuple(window for window in windows if window.level == level) for level in levels}


def agree(windows: Sequence[Window], scrapes: Sequence[Scrape], *, clock_s: float = CLOCK_S) -> tuple[Check, ...]:
    """A check for each counter of each window, and one for its scrapes. () where no Prometheus was asked."""
    checks: list[Check] = []
    for level, asked in by_level(windows).items():
        adapter = next((window.adapter for window in asked if window.adapter is not None), None)
        known = engine_series(adapter)
        prefix = NAME if level is None else f"{NAME}level {level}, "
        if known is None:
            why = f"no reader of the series of {adapter or 'this server'}"
            checks.append(not_observable(prefix + "counters", why))
            continue
        answers, bounds = answers_of(asked), bounds_of(asked[0], clock_s)
        checks.append(_scraped(prefix + SCRAPES, answers.get(UP), bounds))
        direct = _ends([scrape for scrape in scrapes if scrape.level == level])
        for name in known.counters():
            if isinstance(direct, str):
                checks.append(not_observable(prefix + name, direct))
            else:
                checks.append(_compared(prefix + name, answers, name, bounds, known, direct))
    return tuple(checks)


def window_readings(
    windows: Sequence[Window],
    scrapes: Sequence[Scrape],
    *,
    n_requests: int | None = None,
    clock_s: float = CLOCK_S,
) -> dict[str, Reading]:
    """Every reading of the windows of one level; each unmeasured where a counter disagrees with the direct scrapes."""
    if not windows:
        return {}
    adapter = next((window.adapter for window in windows if window.adapter is not None), None)
    found = readings(answers_of(windows), bounds_of(windows[0], clock_s), adapter, n_requests=n_requests)
    checks = [check for check in agree(windows, scrapes, clock_s=clock_s) if not check.name.endswith(SCRAPES)]
    wrong = next((check for check in checks if check.state == "fail"), None)
    if wrong is None:
        return found
    refused = Unmeasured(why=f"Prometheus disagrees with the direct scrapes: {wrong.name}: {wrong.seen}")
    return {name: reading if name.startswith("gpu_") else refused for name, reading in found.items()}


def answers_of(windows: Sequence[Window]) -> dict[str, Answer]:
    """By series name."""
    return {
        window.name: Answer(
            name=window.name,
            series=tuple(
                Series(labels=one.labels, points=tuple((at, float(text)) for at, text in one.samples))
                for one in window.series or ()
            ),
            why=None if window.series is not None else window.error or "no answer",
        )
        for window in windows
    }


def bounds_of(window: Window, clock_s: float) -> Bounds:
    """The window's instants."""
    return Bounds(
        rest_since_s=window.rest_since_unix_s,
        start_s=window.start_unix_s,
        end_s=window.end_unix_s,
        rest_until_s=window.rest_until_unix_s,
        clock_s=clock_s,
    )


_Ends = Mapping[str, tuple[Exposition, Exposition]]


def _ends(scrapes: Sequence[Scrape]) -> _Ends | str:
    """Both direct scrapes of each URL, or why there is no pair."""
    pairs: dict[str, tuple[Exposition, Exposition]] = {}
    for url in dict.fromkeys(scrape.url for scrape in scrapes):
        found = []
        for role in ("before", "after"):
            scrape = next((one for one in scrapes if one.url == url and one.role == role), None)
            if scrape is None:
                return f"{url} was not scraped directly {role} the window"
            exposition = read_scrape(scrape)
            if isinstance(exposition, str):
                return f"the direct scrape of {url} {role} the window: {exposition}"
            found.append(exposition)
        pairs[url] = (found[0], found[1])
    return pairs or "the server was not scraped directly"


def _direct(ends: _Ends, name: str, once: Mapping[str, str]) -> float | None:
    total: float | None = None
    for before, after in ends.values():
        values = [
            [s.value for s in side.find(name) if all(s.labels.get(label, v) == v for label, v in once.items())]
            for side in (before, after)
        ]
        if values[0] or values[1]:
            total = (total or 0.0) + sum(values[1]) - sum(values[0])
    return total


def _compared(
    check: str, answers: Mapping[str, Answer], name: str, bounds: Bounds, known: EngineSeries, ends: _Ends
) -> Check:
    direct = _direct(ends, name, known.once)
    growth = grown(answers, name, bounds, known)
    if direct is None and isinstance(growth.reading, Absent):
        return not_observable(check, f"neither the server nor Prometheus has {name}")
    if direct is None:
        return not_observable(check, f"the direct scrapes have no {name}")
    instances = {one.labels.get("instance") for one in answers[name].series} if name in answers else set()
    if len(instances) > len(ends):
        shown = ", ".join(sorted(str(one) for one in instances))
        why = f"{len(instances)} instances answer ({shown}) and {len(ends)} were scraped: choose them by a label"
        return not_observable(check, why)
    if growth.low is None or growth.high is None:
        return not_observable(check, why_none(growth.reading) or "no growth")
    seen = f"direct {direct:g}, {_told(growth)}"
    slack = 1e-9 * max(1.0, abs(direct))
    agrees = growth.low - slack <= direct <= growth.high + slack
    return Check(name=check, state="pass" if agrees else "fail", seen=seen)


def _told(growth: Growth) -> str:
    same = growth.low == growth.high
    return f"Prometheus {growth.high:g}" if same else f"Prometheus between {growth.low:g} and {growth.high:g}"


def _scraped(check: str, up: Answer | None, bounds: Bounds) -> Check:
    if up is None or up.why is not None:
        return not_observable(check, "not asked" if up is None else up.why or "no answer")
    inside = [value for one in up.series for at, value in one.points if bounds.start_s <= at <= bounds.end_s]
    if not inside:
        return not_observable(check, "Prometheus did not scrape the server within the window")
    n_failed = sum(value != 1 for value in inside)
    seen = f"{len(inside)} scrapes by Prometheus in the window, {n_failed} of them failed"
    return Check(name=check, state="fail" if n_failed else "pass", seen=seen)
