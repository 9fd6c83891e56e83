"""What a Prometheus server holds of a run's windows, as records: raw samples, asked for window by window.

A query is a range of raw samples of one series name (``name{labels}[75s]``): no function of PromQL touches them, since
``increase()`` and ``rate()`` extrapolate and mix what lies in two engine processes. Whatever the server, the network or
an answer's form does is a reason on file; nothing is raised, and no run is lost for it.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from evidence.records import Scrape
from evidence.redact import redact_text
from evidence.window_records import Window, WindowSeries
from infra.engines.prometheus_series import GPU_SERIES, UP, series_to_ask
from infra.fetch import bare_url
from infra.telemetry.scrape import EQUAL_SCRAPES

LOOK_BACK_S = 60.0  # before the window: a Prometheus that scrapes less often holds no sample of the rest there anyway
LOOK_ON_S = 15.0  # after it, for the first sample that is no longer of the window
MOST_SAMPLES = 500_000  # of one answer; an hour of one series scraped each second has 3,600
_SHOWN_CHARACTERS = 200
_NOT_REACHED = "no answer: "


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWindow:
    """One window of a run, on this machine's wall clock. Rest is None where it was not shown."""

    run_id: str
    level: str | None
    rest_since_unix_s: float | None
    start_unix_s: float
    end_unix_s: float
    rest_until_unix_s: float | None


def run_window(
    scrapes: Sequence[Scrape], *, run_id: str, level: str | None, at_rest_before: bool, at_rest_after: bool
) -> RunWindow | None:
    """The window between a level's direct scrapes, with the rest its idle checks have shown; None where one is missing.

    ``at_rest_*`` is what each idle check said. Rest begins with the first of its equal scrapes. How long it lasts after
    the window is left open: whoever asks knows (``still_at_rest``).
    """
    own = [scrape for scrape in scrapes if scrape.level == level]
    befores = [place for place, scrape in enumerate(own) if scrape.role == "before"]
    afters = [place for place, scrape in enumerate(own) if scrape.role == "after"]
    if not befores or not afters or afters[0] < befores[-1]:
        return None
    n_equal = EQUAL_SCRAPES * len({scrape.url for scrape in own})
    checks = [scrape for scrape in own[: befores[0]] if scrape.role == "idle-check"][-n_equal:]
    end_checks = [scrape for scrape in own[befores[-1] : afters[0]] if scrape.role == "idle-check"][-n_equal:]
    closing = end_checks if at_rest_after and len(end_checks) == n_equal else own[afters[0] : afters[0] + 1]
    return RunWindow(
        run_id=run_id,
        level=level,
        rest_since_unix_s=checks[0].send_unix_s if at_rest_before and len(checks) == n_equal else None,
        start_unix_s=own[befores[-1]].receive_unix_s,
        end_unix_s=closing[0].send_unix_s,
        rest_until_unix_s=own[afters[-1]].receive_unix_s if at_rest_after else None,
    )


def fetch_windows(
    url: str,
    window: RunWindow,
    adapter: str | None,
    labels: Mapping[str, str] | None = None,
    *,
    gpu_labels: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
    wait_s: float = 0.0,
    still_at_rest: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Window, ...]:
    """One record a series: the engine's own and the GPUs'. An engine that is not known is asked for GPUs alone.

    ``labels`` select the engine's series (``{"instance": "host:port"}``), ``gpu_labels`` those of its host. Up to
    ``wait_s`` are waited for the first sample after the window's end, without which no counter can be read.
    ``still_at_rest``: nothing has been sent since the window's end, nor will be until this returns.
    """
    try:
        prometheus = _connect(url, headers, timeout_s)
    except ValueError as error:
        return _unasked(url, window, adapter, f"not a URL of a Prometheus server: {error}")
    asked = [(name, adapter, labels or {}) for name, _ in series_to_ask(adapter)]
    asked += [(name, None, gpu_labels or {}) for name in GPU_SERIES]
    with prometheus:
        if wait_s > 0 and adapter is not None:
            _wait_for_end(prometheus, window, labels or {}, wait_s, sleep)
        records: list[Window] = []
        unreached: str | None = None
        for name, whose, chosen in asked:
            if still_at_rest:
                window = replace(window, rest_until_unix_s=time.time())
            record = _ask(prometheus, url, window, whose, name, chosen, unreached)
            if record.error is not None and record.error.startswith(_NOT_REACHED):
                unreached = record.error  # every further question would wait as long for the same
            records.append(record)
        return tuple(records)


def _connect(url: str, headers: Mapping[str, str] | None, timeout_s: float) -> PrometheusConnect:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give http://HOST:PORT or https://HOST:PORT, with its path prefix if it has one")
    once = Retry(total=1, backoff_factor=0.2, status_forcelist=[502, 503, 504], raise_on_status=False)
    return PrometheusConnect(url.rstrip("/"), headers=dict(headers or {}), retry=once, timeout=timeout_s)


def _ask(
    prometheus: PrometheusConnect,
    url: str,
    window: RunWindow,
    adapter: str | None,
    name: str,
    labels: Mapping[str, str],
    unreached: str | None,
) -> Window:
    from_s = math.floor((window.rest_since_unix_s or window.start_unix_s) - LOOK_BACK_S)
    asked_s = time.time()
    to_s = math.ceil(min(max(window.end_unix_s, window.rest_until_unix_s or 0.0) + LOOK_ON_S, asked_s))
    query = f"{selector(name, labels)}[{max(1, to_s - from_s)}s]"
    series, error = None, unreached
    if unreached is None:
        series, error = _answer(prometheus, query, to_s)
    return Window(
        run_id=window.run_id,
        level=window.level,
        prometheus_url=bare_url(url),
        adapter=adapter,
        name=name,
        query=query,
        asked_at_unix_s=asked_s,
        from_unix_s=float(from_s),
        to_unix_s=float(to_s),
        rest_since_unix_s=window.rest_since_unix_s,
        start_unix_s=window.start_unix_s,
        end_unix_s=window.end_unix_s,
        rest_until_unix_s=window.rest_until_unix_s,
        series=series,
        error=error,
    )


def selector(name: str, labels: Mapping[str, str]) -> str:
    """An instant vector selector with its label values quoted as PromQL wants them."""
    pairs = []
    for label, text in labels.items():
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pairs.append(f'{label}="{quoted}"')
    return f"{name}{{{','.join(pairs)}}}" if pairs else name


def _answer(
    prometheus: PrometheusConnect, query: str, at_s: float
) -> tuple[tuple[WindowSeries, ...] | None, str | None]:
    try:
        found = prometheus.custom_query(query, params={"time": at_s})
    except requests.ConnectionError as error:
        return None, f"{_NOT_REACHED}{_cause(error)}"
    except requests.Timeout:
        return None, f"{_NOT_REACHED}timed out"
    except PrometheusApiClientException as error:
        return None, _short(f"refused: {error}")
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        return None, _short(f"no answer of a Prometheus server ({type(error).__name__}: {error})")
    return _series(found)


def _series(found: Any) -> tuple[tuple[WindowSeries, ...] | None, str | None]:
    if not isinstance(found, list):
        return None, "no answer of a Prometheus server (its result is no list)"
    if sum(len(one.get("values", ())) for one in found if isinstance(one, dict)) > MOST_SAMPLES:
        return None, f"more than {MOST_SAMPLES} samples: choose the engine's series by their labels"
    try:
        return tuple(_one_series(one) for one in found), None
    except (KeyError, TypeError, ValueError) as error:
        return None, _short(f"no answer of a Prometheus server ({type(error).__name__}: {error} in a series)")


def _one_series(one: Mapping[str, Any]) -> WindowSeries:
    labels = {str(name): str(text) for name, text in one["metric"].items() if name != "__name__"}
    return WindowSeries(labels=labels, samples=tuple((float(at), _numeral(text)) for at, text in one["values"]))


def _numeral(text: Any) -> str:
    float(text)
    return str(text)


def _cause(error: requests.ConnectionError) -> str:
    """The system's own words out of the client library's nesting."""
    text = str(error)
    for known, words in (("refused", "connection refused: nobody listens there"), ("Name or service", "unknown host")):
        if known in text:
            return words
    return "timed out" if "timed out" in text else _short(text)


def _short(text: str) -> str:
    clean = redact_text(text)
    return clean if len(clean) <= _SHOWN_CHARACTERS else clean[:_SHOWN_CHARACTERS] + "..."


def _wait_for_end(
    prometheus: PrometheusConnect,
    window: RunWindow,
    labels: Mapping[str, str],
    wait_s: float,
    sleep: Callable[[float], None],
) -> None:
    """Until the engine's series have been scraped after the end, or the wait is over."""
    give_up_s = time.monotonic() + wait_s
    while True:
        series, _ = _answer(prometheus, f"{selector(UP, labels)}[1h]", time.time())
        if series is None or (series and all(at_s >= window.end_unix_s for at_s in _last_instants(series))):
            return
        left_s = give_up_s - time.monotonic()
        if left_s <= 0:
            return
        sleep(min(0.25, left_s))


def _last_instants(series: Iterable[WindowSeries]) -> list[float]:
    return [one.samples[-1][0] for one in series if one.samples]


def _unasked(url: str, window: RunWindow, adapter: str | None, why: str) -> tuple[Window, ...]:
    now_s = time.time()
    return (
        Window(
            run_id=window.run_id,
            level=window.level,
            prometheus_url=bare_url(url),
            adapter=adapter,
            name=UP,
            query=UP,
            asked_at_unix_s=now_s,
            from_unix_s=window.start_unix_s,
            to_unix_s=now_s,
            rest_since_unix_s=window.rest_since_unix_s,
            start_unix_s=window.start_unix_s,
            end_unix_s=window.end_unix_s,
            rest_until_unix_s=window.rest_until_unix_s,
            series=None,
            error=why,
        ),
    )
