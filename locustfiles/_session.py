"""One run in this process: the recorder a Locust user talks to, from the first probe to the seal.

The order of a cell: warm-up, drain, idle check, scrape, measure, drain, scrape. Every failure of the recorder itself is
kept in ``failure`` and decides the exit code: 3 where evidence could not be written, 1 for a fault of ours.
"""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
from greenlet import GreenletExit
from tqdm import tqdm

from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.layout import new_id
from evidence.records import Request, Started
from evidence.redact import collect_secrets
from infra.engines.identify import request_extras
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.probe import probe
from infra.target import Target
from infra.wire.stream import StreamFacts
from locustfiles._cache_state import CacheState
from locustfiles._conformance import conformance
from locustfiles._exchange import Exchange, facts_of, make_record
from locustfiles._health import HealthMonitor
from locustfiles._manifest import chosen_model, cite, make_manifest
from locustfiles._options import Options, UsageError
from locustfiles._telemetry import Telemetry
from locustfiles._transports import OpenAITransport, Transport, WireTransport
from scenarios.plan import Plan, PlannedRequest

EVIDENCE_SAYS_NO = 1


class Session:
    """Made once a run, before its first request. Raises UsageError or EvidenceError when the run cannot begin."""

    def __init__(self, options: Options, plan: Plan) -> None:
        self.options = options
        self.plan = plan
        self.failure: str | None = None
        self.exit_code: int | None = None  # set by the recorder's own failures only
        self.in_flight = 0
        key = os.environ.get("OPENAI_API_KEY")
        if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
            raise UsageError(
                "OPENAI_API_KEY holds white space, a line break or other signs no header can carry: set it anew"
            )
        self._api_key = key
        self._headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **options.headers}
        probed = probe(options.host, headers=self._headers, metrics_url=options.metrics_urls[0])
        if not probed.reachable:
            reason = next((got.error for got in probed.fetched.values() if got.error), "no answer")
            raise UsageError(f"nothing answers at {options.host} ({reason}): start the server, or check --host")
        cited = cite(options)
        limits = plan.scenario.limits
        self._openai = OpenAIClient(
            options.host, api_key=key, timeout_s=limits.timeout_s, stall_s=limits.stall_s, headers=options.headers
        )
        model = chosen_model(options, self._openai)
        self._cache = CacheState(plan.scenario.cache, probed.facts, options.host, self._headers)
        engine_extra = request_extras(
            probed.facts.engine, cold_per_request=self._cache.by_request_field, version=probed.facts.version
        )
        self._extra = {**engine_extra, **options.extra_body}
        self._model = model
        self.run_id = new_id("run")
        manifest = make_manifest(
            run_id=self.run_id,
            options=options,
            plan=plan,
            probed=probed,
            cited=cited,
            model=model,
            request_extra=self._extra,
        )
        secrets = collect_secrets(dict(os.environ), self._headers)
        self._writer = RunWriter.create(options.run_dir, self.run_id, manifest, plan.requests, secrets=secrets)
        self._worker = self._writer.worker(0)
        for name, body in probed.bodies().items():
            self._writer.server_body(name, body)
        self._telemetry = Telemetry(
            self._writer,
            options,
            engine=probed.facts.adapter,
            version=probed.facts.version,
            interval_s=plan.scenario.telemetry.scrape_interval_s,
            headers=self._headers,
            on_failure=self._beside_failed,
        )
        self._health = HealthMonitor(self._worker.health, lambda: self.in_flight)
        self._n_started = 0
        self._window_open = False
        self._sealed = False
        self._bar: Any = None

    @property
    def path(self) -> Path:
        return self._writer.path

    def transport(self) -> Transport:
        """A transport for one user; the openai client is shared and primed by one unmeasured request."""
        limits = self.plan.scenario.limits
        if self.options.transport == "openai":
            return OpenAITransport(self._openai)
        return WireTransport(
            Target.parse(self.options.host), self._headers, timeout_s=limits.timeout_s, stall_s=limits.stall_s
        )

    def begin(self, give_up: Callable[[], None]) -> None:
        """Starts what runs beside the requests, and primes the openai client.

        ``give_up`` ends the run early: it is called when something beside the requests cannot write any more.
        """
        self._give_up = give_up
        self._health.start(self._beside_failed)
        self._telemetry.begin()
        total = len(self.plan.requests)
        self._bar = tqdm(total=total, desc=self.options.arm or self.options.label, unit="req", file=sys.stderr)
        if self.options.transport == "openai" and self.plan.requests:
            first = self.plan.requests[0]
            try:
                self._openai.prime(self.body_of(first), first.endpoint)
            except OpenAITransportError as error:
                self._writer.notice(f"the priming request failed: {error}")
            else:
                self._writer.notice("one priming request of one token was sent before the warm-up, unmeasured")

    def _beside_failed(self, error: BaseException) -> None:
        self.failed(error)
        gevent.spawn(self._give_up)  # this is called from the hub, which must not wait

    def body_of(self, planned: PlannedRequest) -> dict[str, Any]:
        """The request's body: what the plan says, then the engine's and the user's own fields."""
        body: dict[str, Any] = {"model": self._model}
        if planned.messages is not None:
            body["messages"] = [message.model_dump() for message in planned.messages]
        else:
            body["prompt"] = planned.prompt
        body.update(stream=True, max_tokens=planned.max_tokens, temperature=planned.temperature, seed=planned.seed)
        if planned.ignore_eos:
            body["ignore_eos"] = True
        return {**body, **self._extra}

    @contextmanager
    def window(self) -> Iterator[None]:
        """The measured part: the cache as asked, at rest and scraped on both sides, scraped each second in between."""
        self._cache.before_window()
        gc.collect()
        gc.freeze()
        self._health.cut()
        self._window_open = True
        self._telemetry.open_window()
        yield
        self.close_window()

    def close_window(self) -> None:
        """Ends the window opened before; does nothing where none is open."""
        if not self._window_open:
            return
        gc.unfreeze()
        self._telemetry.close_window()
        self._window_open = False

    def send(self, planned: PlannedRequest, transport: Transport) -> Request:
        """One planned request from its started line to its ended line; the record that was written.

        Raises GreenletExit, once the line is written, where the user was killed meanwhile.
        """
        if planned.phase == "measured":
            self._cache.before_request()
        since_reset = self._cache.n_since_reset
        started = Started(
            run_id=self.run_id,
            worker=0,
            sequence=self._n_started,
            plan_id=planned.plan_id,
            started_at_unix_s=time.time(),
            started_at_monotonic_s=time.monotonic(),
        )
        self._worker.started(started)
        self._n_started += 1
        self.in_flight += 1
        gc.disable()
        try:
            exchange = transport.send(planned, self.body_of(planned))
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                gc.enable()
        # From here on nothing switches greenlets, so that a kill cannot fall between the end and its line.
        facts = facts_of(exchange, lambda: None)
        record = self._record(planned, started, exchange, facts, since_reset)
        self._cache.sent()
        transport.keep(facts.reusable)
        self._health.ended(record)
        if self._bar is not None:
            self._bar.update()
        if exchange.killed:
            raise GreenletExit
        return record

    def _record(
        self, planned: PlannedRequest, started: Started, exchange: Exchange, facts: StreamFacts, since_reset: int | None
    ) -> Request:
        wire, missing = None, "nothing was received"
        if exchange.segments:
            wire = self._worker.wire(started.sequence, exchange.segments)
            missing = f"beyond the manifest's {self._writer.manifest.wire_limit_bytes} bytes of raw segments"
        record = make_record(
            planned=planned,
            started=started,
            exchange=exchange,
            facts=facts,
            wire=wire,
            wire_missing=missing if wire is None else None,
            since_reset=since_reset,
        )
        self._worker.ended(record)
        return record

    def failed(self, error: BaseException) -> None:
        """The recorder's own failure: remembered once, and said."""
        if self.failure is not None:
            return
        self.exit_code = error.exit_code if isinstance(error, EvidenceError) else EVIDENCE_SAYS_NO
        self.failure = f"{type(error).__name__}: {error}"
        print(f"the run stops: {self.failure}", file=sys.stderr)

    def seal(self) -> None:
        """Closes the window where one is open, and the folder. Doing so twice is harmless."""
        if self._sealed:
            return
        self._sealed = True
        try:
            if self.failure is not None:
                self._writer.notice(f"the recorder failed: {self.failure}")
            self.close_window()
            self._health.stop()
            self._telemetry.stop()
            resets = self._cache.record()
            if resets is not None:
                self._writer.server_body("resets.json", resets)
            self._writer.server_body("conformance.json", conformance(self.path, self.plan))
            self._writer.seal()
        except EvidenceError as error:
            self.failed(error)
        finally:
            self._writer.close()
            self._openai.close()
            if self._bar is not None:
                self._bar.close()

    def verdict(self) -> int:
        """Prints what ``analysis check`` says of the folder; the exit code of the run."""
        done = subprocess.run(
            [sys.executable, "-m", "analysis", "check", "--brief", str(self.path)], stdout=sys.stderr, check=False
        )
        return self.exit_code if self.exit_code is not None else done.returncode
