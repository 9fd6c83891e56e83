"""The records of ``windows.jsonl``: what a Prometheus server held of a run's windows (history: records.py)."""

from evidence.records import SCHEMA_VERSION, Record, Version


class WindowSeries(Record):
    """One series of a Prometheus server's answer: its labels, and [unix_s, value] as sent, NaN and +Inf included."""

    labels: dict[str, str]
    samples: tuple[tuple[float, str], ...]


class Window(Record):
    """One line of ``windows.jsonl``: the raw samples a Prometheus server held of one series over one window.

    The range asked (``from_unix_s`` to ``to_unix_s``) is wider than the window that was measured: what the counters
    were at its ends follows from the samples on both sides, and from how long the server was at rest there.
    """

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    level: str | None
    prometheus_url: str  # without user and password
    adapter: str | None  # whose series it is, e.g. "llama.cpp"; None: of the server's host
    name: str  # the series asked for
    query: str  # as sent
    asked_at_unix_s: float
    from_unix_s: float
    to_unix_s: float
    rest_since_unix_s: float | None  # at rest from here to start; None: not shown
    start_unix_s: float
    end_unix_s: float
    rest_until_unix_s: float | None  # at rest from end to here; None: not shown
    series: tuple[WindowSeries, ...] | None  # () is an answer: there is no such series. None: no answer
    error: str | None  # why there is no answer
