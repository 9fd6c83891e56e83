"""The profiler window of a run whose scenario asks for one: opened while a request is under way, its traces taken in.

Such a run is not timed: ``telemetry.profile`` stands in its manifest, and the verdict says so. The window is opened
once the scenario's ``after_requests`` measured requests have ended, beside the first one after them that lasts a
moment; one that ends too early is passed over. Whatever comes of it is recorded (``evidence.profile_records``): that no
trace was ever written is a failure with a name, never an empty trace.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gevent

from evidence.durable import sha256_file
from evidence.folder import RunWriter
from evidence.profile_records import ProfileFault, ProfileWindow, Trace
from evidence.records import Request
from infra.profiling import (
    PROFILED_ENGINES,
    Asked,
    Written,
    n_ranks,
    refusal_of,
    start_profile,
    stop_profile,
    traces_in,
    wait_for_traces,
    writes_to,
)
from infra.provenance.clock_offset import on_this_host
from locustfiles._options import UsageError
from scenarios.load_sections import Profile

LASTS_S = 0.05  # a request that has been under way for so long is taken to outlast the call
STOP_AFTER_S = 2.0  # a vLLM that does not know max_iterations is stopped by then
WAIT_AT_MOST_S = 120.0  # for a trace to be written, or less where a request may take less
_POLL_S = 0.01


class Profiling:
    """One run's window. Raises UsageError where the server has no profiler that could be started."""

    def __init__(
        self,
        profile: Profile,
        *,
        engine: str,
        url: str,
        headers: Mapping[str, str],
        settings: Mapping[str, Any],
        timeout_s: float,
    ) -> None:
        if engine not in PROFILED_ENGINES:
            raise UsageError(
                f"telemetry.profile: {engine} has no profiler that can be started over HTTP (SGLang and vLLM have): "
                "take it out of the scenario, or add --no-profile to time this run"
            )
        self._profile = profile
        self._engine, self._url, self._headers = engine, url, tuple(headers.items())
        self._settings = settings
        self._timeout_s = timeout_s
        self._n_ended = 0
        self._under_way: Callable[[], int] = lambda: 0
        self._watch: gevent.Greenlet | None = None
        self._asked: Asked | None = None
        self._stopped: Asked | None = None
        self._n_ended_before = self._n_at_ask = self._n_at_reply = 0
        self._scratch: Path | None = None
        self._folder: Path | None = None
        self._before: dict[Path, int] = {}

    def begin(self, run: Path, under_way: Callable[[], int]) -> None:
        """The measured requests begin; ``under_way`` tells how many are."""
        self._under_way = under_way
        self._scratch = run.resolve().parent / f".traces-{run.name}"
        self._folder = writes_to(self._engine, self._settings, self._scratch)
        self._before = {} if self._folder is None else traces_in(self._folder)
        if self._watch is None:
            self._watch = gevent.spawn(self._open_beside_a_request)

    def ended(self, record: Request) -> None:
        """A request has ended."""
        self._n_ended += record.phase == "measured"

    def _open_beside_a_request(self) -> None:
        seen, since = self._n_ended, time.monotonic()
        while True:
            gevent.sleep(_POLL_S)
            if not self._under_way() or seen != self._n_ended or seen < self._profile.after_requests:
                seen, since = self._n_ended, time.monotonic()
            elif time.monotonic() - since >= LASTS_S:
                break
        self._n_ended_before, self._n_at_ask = self._n_ended, self._under_way()
        self._asked = start_profile(
            self._engine,
            self._url,
            steps=self._profile.steps,
            folder=self._folder,
            headers=self._headers,
            timeout_s=self._timeout_s,
        )
        self._n_at_reply = self._under_way()
        if self._engine == "vllm" and self._asked.done:
            deadline, seen = time.monotonic() + STOP_AFTER_S, self._n_ended
            while seen == self._n_ended and time.monotonic() < deadline:
                gevent.sleep(_POLL_S)
            self._stopped = stop_profile(self._url, headers=self._headers, timeout_s=WAIT_AT_MOST_S)

    def finish(self, writer: RunWriter) -> None:
        """Waits for the traces, takes them into the run's folder and writes the record. Raises EvidenceError."""
        if self._watch is not None:
            self._watch.join(timeout=WAIT_AT_MOST_S if self._asked is not None else 0)
            self._watch.kill()
        written: tuple[Written, ...] = ()
        here = on_this_host(self._url)
        if self._asked is not None and self._asked.done and here and self._folder is not None:
            within_s = min(WAIT_AT_MOST_S, self._timeout_s)
            written = wait_for_traces(
                self._folder,
                self._before,
                n_expected=n_ranks(self._settings),
                within_s=within_s,
                sleep=gevent.sleep,
            )
        fault, why = self._fault(written, here=here)
        traces = tuple(self._taken(one, writer) for one in written if one.whole is not False)
        if self._scratch is not None and (fault is None or not written):
            shutil.rmtree(self._scratch, ignore_errors=True)
        writer.profile(self._record(writer, traces, fault, why))
        if fault is not None:
            writer.notice(f"{fault}: {why}")

    def _taken(self, one: Written, writer: RunWriter) -> Trace:
        name = writer.trace(one.path, move=self._folder == self._scratch)
        file = writer.path / name
        return Trace(name=name, sha256=sha256_file(file), n_bytes=file.stat().st_size, whole=one.whole)

    def _fault(self, written: tuple[Written, ...], *, here: bool) -> tuple[ProfileFault | None, str | None]:
        asked, profile = self._asked, self._profile
        if asked is None:
            seen = f"{self._n_ended} measured requests ended, and none after the first {profile.after_requests}"
            why = f"{seen} was under way for {LASTS_S:g} s: lower after_requests, or give the requests more tokens"
            return "profiler_never_opened", why
        if not asked.done:
            return "profiler_refused", refusal_of(self._engine, asked)
        if not here:
            where = self._folder or "its traces"
            return "trace_elsewhere", f"the server runs on another host: fetch {where} from there"
        if self._folder is None:
            return "trace_elsewhere", "the server does not say where it writes: look at its torch_profiler_dir"
        if not written:
            late = "the request beside it had ended by then" if not self._n_at_reply else "requests were under way"
            why = (
                f"HTTP 200 after {asked.answered_at_unix_s - asked.asked_at_unix_s:.3f} s ({late}), and no trace came: "
                "give the requests more tokens, ask for fewer steps, and see that the server may write to that folder"
            )
            return "profiler_window_empty", why
        cut = [one.path.name for one in written if one.whole is False]
        expected = n_ranks(self._settings)
        if cut or (expected is not None and len(written) < expected):
            there = f"{len(written) - len(cut)} of {expected or len(written)} traces are whole"
            return "trace_incomplete", f"{there}; what is not lies in {self._folder}: ask for fewer steps"
        return None, None

    def _record(
        self, writer: RunWriter, traces: tuple[Trace, ...], fault: ProfileFault | None, why: str | None
    ) -> ProfileWindow:
        asked = self._asked
        return ProfileWindow(
            run_id=writer.manifest.run_id,
            engine=self._engine,
            steps=self._profile.steps,
            after_requests=self._profile.after_requests,
            n_ended_before=None if asked is None else self._n_ended_before,
            asked=None if asked is None else f"POST {asked.path}",
            body=None if asked is None or asked.body is None else dict(asked.body),
            http_status=None if asked is None else asked.status,
            reply=None if asked is None else asked.reply,
            asked_at_unix_s=None if asked is None else asked.asked_at_unix_s,
            answered_at_unix_s=None if asked is None else asked.answered_at_unix_s,
            n_under_way=None if asked is None else self._n_at_ask,
            n_under_way_at_reply=None if asked is None else self._n_at_reply,
            stopped=None if self._stopped is None else self._stopped.record(),
            output_dir=None if self._folder is None else str(self._folder),
            traces=traces,
            fault=fault,
            why=why,
        )
