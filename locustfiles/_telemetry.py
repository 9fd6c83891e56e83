"""What is recorded beside the requests: scrapes of the server, its GPUs, answers of a Prometheus, live metrics.

Everything that fails here is noticed and costs no run, but for evidence that cannot be written.
"""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import gevent
from gevent.event import Event

from evidence.folder import RunWriter
from evidence.records import Scrape
from infra.provenance.clock_offset import on_this_host
from infra.telemetry import dcgm
from infra.telemetry.child_server import Child
from infra.telemetry.client_metrics import ClientMetricsError, start
from infra.telemetry.gpu_sampler import SamplerProcess
from infra.telemetry.prometheus_queries import fetch_windows, run_window
from infra.telemetry.scrape import Scraper
from locustfiles._options import Options

IDLE_INTERVAL_S = 0.2
IDLE_LIMIT_S = 10.0
PROMETHEUS_WAIT_S = 3.0


class Telemetry:
    """``on_failure`` is told when evidence cannot be written any more."""

    def __init__(
        self,
        writer: RunWriter,
        options: Options,
        *,
        engine: str | None,
        version: str | None,
        interval_s: float,
        headers: dict[str, str],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._writer = writer
        self._options = options
        self._engine = engine
        self._version = version
        self._interval_s = interval_s
        self._on_failure = on_failure
        self._scrapes: list[Scrape] = []  # without bodies: their instants frame the windows
        self._scraper = Scraper(
            options.metrics_urls, self._on_scrape, run_id=writer.manifest.run_id, headers=headers, home=options.host
        )
        self._stop: Event | None = None
        self._loop: gevent.Greenlet | None = None
        self._rest_before = False
        self._level: str | None = None
        self._live: Child | None = None
        self._gpus: SamplerProcess | None = None

    def begin(self) -> None:
        """Starts what runs for the whole of the run."""
        if self._options.client_metrics_port is not None:
            try:
                self._live = start(self._writer.path, port=self._options.client_metrics_port)
            except ClientMetricsError as error:
                self._writer.notice(str(error))
        if on_this_host(self._options.host):
            self._gpus = SamplerProcess(
                self._writer.gpu, run_id=self._writer.manifest.run_id, interval_s=self._interval_s
            )
            self._gpus.start()

    def open_window(self, level: str | None = None) -> None:
        """At rest, one scrape, then one each interval until the window is closed; all with the level's label."""
        self._level = level
        self._rest_before = self._at_rest("before the measured requests")
        self._scraper.scrape("before", level)
        self._stop = Event()
        self._loop = gevent.spawn(self._scraper.loop, self._interval_s, self._stop, level=level)
        self._loop.link_exception(lambda dead: self._on_failure(dead.exception))

    def close_window(self) -> None:
        """The loop ends, at rest again, one scrape; then a Prometheus is asked for the window, where there is one."""
        if self._loop is not None and self._stop is not None:
            self._stop.set()
            self._loop.join()
            self._loop = None
        rest_after = self._at_rest("after the measured requests")
        self._scraper.scrape("after", self._level)
        if self._options.prometheus_url is not None:
            self._ask_prometheus(self._options.prometheus_url, rest_after)

    def stop(self) -> None:
        """Ends what runs for the whole of the run. Raises EvidenceError where a sample could not be written."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._gpus is not None:
            sampler, self._gpus = self._gpus, None
            sampler.stop()

    def _on_scrape(self, record: Scrape) -> None:
        self._writer.scrape(record)
        self._scrapes.append(record.model_copy(update={"body": None}))

    def _at_rest(self, when: str) -> bool:
        idle = self._scraper.idle_check(
            self._engine,
            version=self._version,
            interval_s=IDLE_INTERVAL_S,
            limit_s=IDLE_LIMIT_S,
            level=self._level,
            sleep=gevent.sleep,
        )
        if not idle.proven:
            self._writer.notice(f"not shown to be at rest {when}{_of(self._level)}: {idle.seen}")
        return idle.proven

    def _ask_prometheus(self, url: str, rest_after: bool) -> None:
        run_id = self._writer.manifest.run_id
        window = run_window(
            self._scrapes, run_id=run_id, level=self._level, at_rest_before=self._rest_before, at_rest_after=rest_after
        )
        if window is None:
            self._writer.notice(f"{url} was not asked: no scrapes frame a window")
            return
        urls = self._options.metrics_urls
        labels = {"instance": urlsplit(urls[0]).netloc} if len(urls) == 1 else {}
        for record in fetch_windows(
            url, window, self._engine, labels, wait_s=PROMETHEUS_WAIT_S, still_at_rest=True, sleep=gevent.sleep
        ):
            self._writer.window(record)
        if not on_this_host(self._options.host):
            why = "the server runs on another host; its GPU readings are those of windows.jsonl"
            self._writer.gpu(dcgm.nothing(why, run_id=run_id, at_unix_s=time.time()))


def _of(level: str | None) -> str:
    return "" if level is None else f" of level {level}"
