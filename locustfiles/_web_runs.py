"""The runs started from one web UI, one at a time: opened before Locust is told, sealed and judged afterwards."""

import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

import gevent
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from werkzeug.datastructures import MultiDict

from evidence.errors import EvidenceError
from infra.telemetry.child_server import Child, ChildError
from infra.telemetry.live_view import start as start_view
from locustfiles._options import UsageError, add_options
from scenarios.strict_toml import ScenarioError

VIEW_TIMEOUT_S = 5.0
STALE_S = 10.0

State = Literal["idle", "running", "sealing", "sealed", "failed"]
Json = dict[str, Any]


class WebRuns:
    """The runs started from one web UI, one at a time. Functions that open and close a session are handed in."""

    def __init__(
        self,
        environment: Environment,
        open_session: Callable[[Namespace], Any],
        close_session: Callable[[], int | None],
    ) -> None:
        assert environment.parsed_options is not None
        self._header, environment.parsed_options.header = environment.parsed_options.header, None
        self._environment = environment
        self._open = open_session
        self._close = close_session
        self._session: Any = None
        self._state: State = "idle"
        self._message = "no run yet"
        self._path: Path | None = None
        self._verdict: str | None = None
        self._outcome: str | None = None  # VALID, DEGRADED or INVALID; None: no run has ended, or it has no verdict
        self._report: Path | None = None
        self._view: Child | None = None
        self._last: Json | None = None
        self._seen_at_s = time.monotonic()
        self._sealing_since_s = 0.0

    @property
    def path(self) -> Path | None:
        return self._path if self._state == "sealed" else None

    @property
    def report(self) -> Path | None:
        return self._report

    def begin(self, form: "MultiDict[str, str]") -> str | None:
        """Opens a run with what was typed, and has Locust begin it; what to say where it cannot run.

        Of the form our own options count. They are read here and go nowhere else: what stands in Locust's own options
        is sent to every worker, headers too.
        """
        if self._state in ("running", "sealing"):
            return "a run is under way: stop it, or wait until it is sealed"
        runner: Any = self._environment.runner
        typed = Namespace(**vars(self._environment.parsed_options))
        if self._path is not None and typed.master:
            return "this master has led its run: start master and workers anew for the next"
        if typed.master and not runner.worker_count:
            return "no worker is connected: start one with --worker and this master's --master-port"
        typed.expect_workers = runner.worker_count if typed.master else None  # a run takes those that are there
        typed.header = self._header
        vars(typed).update(_fields(form, vars(typed)))
        typed.host = form.get("host") or None
        try:
            session = self._open(typed)
        except (UsageError, ScenarioError, EvidenceError) as error:
            self._message = f"not started: {error}"
            return str(error)
        self._environment.host = typed.host
        self._session = session
        self._state, self._message = "running", "running"
        self._path, self._verdict, self._report, self._last = session.path, None, None, None
        self._outcome = None
        self._look_on(session.path)
        runner.start_shape()
        return None

    def end(self) -> None:
        """Seals and judges the run in a greenlet of its own; Locust's page is not kept waiting."""
        if self._state == "running":
            self._state, self._sealing_since_s = "sealing", time.monotonic()
            gevent.spawn(self._end).link_exception(self._ended_badly)

    def as_json(self) -> Json:
        """What the page shows."""
        seen, now = self._seen(), time.monotonic()
        if seen is not None:
            self._last, self._seen_at_s = seen, now
        silent_s = now - self._seen_at_s if self._view is not None else 0.0
        message = self._waiting() if self._state == "sealing" else self._message
        stale = f"; the live view has not answered for {silent_s:.0f} s" if silent_s > STALE_S else ""
        return {
            "state": self._state,
            "message": message + stale,
            "verdict": self._verdict,
            "outcome": self._outcome,
            "report": self._report is not None,
            "live": self._last,
        }

    def stop(self) -> None:
        """Ends what runs beside the page."""
        if self._view is not None:
            self._view.stop()
            self._view = None

    def _waiting(self) -> str:
        """That the run is being closed, for how long, and what is waited for."""
        since_s = time.monotonic() - self._sealing_since_s
        return f"sealing for {since_s:.0f} s; waits for {self._session.recorder.waits_for or 'the last requests'}"

    def _look_on(self, path: Path) -> None:
        self.stop()
        self._seen_at_s = time.monotonic()
        try:
            self._view = start_view(path)
        except ChildError as error:
            self._message = f"running; the live view did not start: {error}"

    def _seen(self) -> Json | None:
        if self._view is None:
            return None
        try:
            with urlopen(self._view.url, timeout=VIEW_TIMEOUT_S) as answer:
                found: Json = json.load(answer)
                return found
        except (OSError, ValueError):
            return None

    def _end(self) -> None:
        code = self._close()
        assert self._path is not None
        self._last = self._seen() or self._last
        self.stop()
        judged = self._session.recorder.judged
        self._verdict = (
            judged.stdout.strip() if judged is not None and judged.stdout else "see what this Locust printed"
        )
        self._session.recorder.waits_for = "the report to be made"
        report = self._path.parent / f"{self._path.name}.report.html"
        said = _said("report", str(self._path), "--out", str(report))
        self._report = report if report.is_file() else None
        word = re.search(r"  (VALID|DEGRADED|INVALID)$", self._verdict, re.MULTILINE)
        self._outcome = word[1] if word and code in (None, 0, 1) else None
        outcome = word[1] if word else "there is no verdict"
        if code not in (None, 0, 1):
            outcome = "evidence could not be written"
        no_report = "" if self._report is not None else f"; there is no report: {said}"
        self._state, self._message = "sealed", f"sealed: {outcome}{no_report}"

    def _ended_badly(self, dead: gevent.Greenlet) -> None:
        self._state, self._message = "failed", f"the run could not be closed: {dead.exception}"


def _option_names() -> frozenset[str]:
    """The names of our options as Locust's form gives them."""
    parser = LocustArgumentParser(add_help=False)
    before = {action.dest for action in parser._actions}
    add_options(parser)
    return frozenset(action.dest for action in parser._actions) - before


def _said(command: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "analysis", command, *arguments], capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip()


def _fields(form: "MultiDict[str, str]", typed: Mapping[str, Any]) -> Json:
    """Our options among the fields; an empty secret one leaves what the command line gave."""
    found: Json = {}
    for name in _option_names() & set(form):
        if isinstance(typed[name], bool):
            found[name] = form[name] == "true"
        elif name != "header" or form[name]:
            found[name] = form[name]
    return found
