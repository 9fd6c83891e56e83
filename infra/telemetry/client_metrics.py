"""The run's own live metrics for dashboards, served by a process of their own.

    python -m infra.telemetry.client_metrics RUN [--port 9646] [--host 127.0.0.1]
    python -m infra.telemetry.client_metrics --newest runs

The exporter reads the run's folder as the recorder writes it (``evidence.follow``), so that the measuring process does
nothing for it: a request counts once its record is on file, and the workers of a distributed run are seen through the
folder that holds them all. It looks when it is scraped and does nothing in between. With ``--newest`` it shows the
newest run of a folder of runs, and turns to the next one when that begins.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric

from evidence.errors import EvidenceError
from evidence.follow import Follower
from evidence.layout import folder_kind
from evidence.records import Health, Manifest
from infra.telemetry.child_server import Child, ChildError, serve_until_closed, start_child
from infra.wire.client_records import ended, health_samples, info_labels, run_labels
from infra.wire.client_series import FAMILIES, IN_FLIGHT, INFO, READ_DELAY, ClientSample, Tally

PORT = 9646


class ClientMetricsError(Exception):
    """The exporter could not be started; ``what`` says why. No run depends on it."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"client metrics: {what}; give another port, or run without live metrics")


class RunMetrics:
    """A collector of prometheus_client: every scrape reads what the run has written since the last one."""

    def __init__(self, run: Path | None, newest_in: Path | None = None) -> None:
        """Raises EvidenceError where ``run`` has no readable manifest; ``newest_in`` may be empty yet."""
        self._newest_in = newest_in
        self._lock = threading.Lock()
        self._follower: Follower | None = None
        if run is not None:
            self._turn_to(run)

    def describe(self) -> Iterable[Metric]:
        """Nothing is promised: without a run there is no series."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The families as they stand, each with the run's labels."""
        with self._lock:
            if self._newest_in is not None:
                self._turn_to_newest(self._newest_in)
            if self._follower is None:
                return
            self._read(self._follower)
            labels = run_labels(self._follower.manifest)
            samples = list(self._samples(self._follower.manifest))
        for family, (kind, words) in FAMILIES.items():
            found = [sample for sample in samples if sample.family == family]
            metric = Metric(family, words, kind)
            for sample in found:
                metric.add_sample(sample.name, {**labels, **sample.labels}, sample.value)
            if found:
                yield metric

    def _samples(self, manifest: Manifest) -> Iterator[ClientSample]:
        yield from self._tally.samples()
        yield ClientSample(IN_FLIGHT, IN_FLIGHT, {}, max(0, self._n_started - self._n_ended))
        for worker, health in self._health.items():
            yield from health_samples(worker, health)
        for worker, delay_s in self._delays.items():
            yield ClientSample(READ_DELAY, READ_DELAY, {"worker": str(worker)}, delay_s)
        yield ClientSample(INFO, INFO + "_info", info_labels(manifest), 1)

    def _turn_to(self, run: Path) -> None:
        self._follower = Follower(run)
        self._tally = Tally()
        for domain, level in self._follower.planned:
            self._tally.expect(domain, level)
        self._n_started = self._n_ended = 0
        self._health: dict[int, Health] = {}
        self._delays: dict[int, float] = {}

    def _turn_to_newest(self, folder: Path) -> None:
        """Ids sort by the second they were made in. A folder whose manifest is not whole yet waits for the next."""
        try:
            newest_first = sorted((child for child in folder.iterdir() if child.is_dir()), reverse=True)
        except OSError:
            return
        for path in newest_first:
            if self._follower is not None and path == self._follower.path:
                return
            if folder_kind(path) == "run" and self._turned(path):
                return

    def _turned(self, run: Path) -> bool:
        try:
            self._turn_to(run)
        except EvidenceError:
            return False
        return True

    def _read(self, follower: Follower) -> None:
        more = True
        while more:
            news = follower.look()
            more = news.more
            self._n_started += len(news.started)
            self._n_ended += len(news.requests)
            self._health |= dict(news.health)
            for request in news.requests:
                self._tally.add(ended(request))
                if request.kernel_to_user_max_s is not None:
                    self._delays[request.worker] = request.kernel_to_user_max_s


def start(run: Path, *, host: str = "127.0.0.1", port: int = PORT) -> Child:
    """Start the exporter for a run that has its manifest, as a child at low priority. Raises ClientMetricsError."""
    arguments = [str(run.resolve()), "--host", host, "--port", str(port), "--json"]
    try:
        return start_child("infra.telemetry.client_metrics", arguments)
    except ChildError as error:
        raise ClientMetricsError(error.what) from error


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C, or (``--with-parent``) until standard input is closed."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.telemetry.client_metrics", description="Live metrics of a run."
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a run folder that has been begun")
    parser.add_argument("--newest", type=Path, metavar="DIR", help="follow the newest run in DIR instead")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object when it listens")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    options = parser.parse_args(argv)
    if (options.run is None) == (options.newest is None):
        parser.error("give a run folder or --newest DIR, one of the two")
    try:
        registry = CollectorRegistry()
        registry.register(RunMetrics(options.run, options.newest))
        server, _ = start_http_server(options.port, options.host, registry)
    except (EvidenceError, OSError, OverflowError) as error:
        what = str(error) if isinstance(error, EvidenceError) else f"{options.host}:{options.port}: {error}"
        sys.stdout.write(json.dumps({"error": what}) + "\n" if options.json else "")
        sys.stderr.write(f"client metrics: {what}\n")
        return 2
    url = f"http://{options.host}:{server.server_port}/metrics"
    serve_until_closed(url, with_parent=options.with_parent, as_json=options.json)
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
