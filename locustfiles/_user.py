"""The abstract user of every locustfile, and the listeners that start and join the recorder."""

import logging
import os
import signal
import sys
from typing import Any

import gevent
from locust import User, events
from locust.env import Environment
from locust.exception import StopUser

from evidence.errors import EvidenceError
from evidence.records import Request
from locustfiles._options import Options, UsageError, add_options, read_options
from locustfiles._session import Session
from scenarios.plan import PlannedRequest
from scenarios.stock import plan_from_file
from scenarios.strict_toml import ScenarioError

USAGE = 2

# One run a process in headless mode: the session lives as long as the process.
_sessions: dict[int, Session] = {}


def session_of(environment: Environment) -> Session:
    return _sessions[id(environment)]


class RequestFailed(Exception):
    """Shown by Locust for a request whose outcome is not "completed"; the record says the rest."""


class EvidenceUser(User):
    """Sends planned requests through the session and tells Locust's live view how they ended."""

    abstract = True

    def on_start(self) -> None:
        self.session = session_of(self.environment)
        self.transport = self.session.transport()

    def on_stop(self) -> None:
        self.transport.close()

    def send(self, planned: PlannedRequest) -> Request:
        record = self.session.send(planned, self.transport)
        failure = None if record.outcome == "completed" else RequestFailed(record.outcome)
        self.environment.events.request.fire(
            request_type="warmup" if planned.phase == "warmup" else planned.endpoint,
            name=planned.domain,
            response_time=None if record.end_after_s is None else record.end_after_s * 1000,
            response_length=len(record.output_text.encode("utf-8", "replace")),
            exception=failure,
            context={},
        )
        return record

    def finish(self) -> None:
        """Ends the run from within a user: Locust is told to quit once this user has stopped."""
        gevent.spawn(self.environment.runner.quit)
        raise StopUser

    def guarded(self, replay: Any) -> None:
        """Runs ``replay``; this process's one boundary for exceptions that nobody expected."""
        try:
            replay()
        except Exception as error:  # noqa: BLE001  the boundary of the house rules: recorded, and the run ends
            self.session.failed(error)
        self.finish()


def _on_parser(parser: Any, **_kwargs: Any) -> None:
    add_options(parser)


def _on_init(environment: Environment, **_kwargs: Any) -> None:
    """Everything that was typed is checked, and the folder made, before the first user exists."""
    assert environment.parsed_options is not None
    try:
        _refuse_what_does_not_run(environment.parsed_options)
        _quieten(environment.parsed_options)
        gevent.signal_handler(
            signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM
        )  # a closed terminal ends the run well
        options: Options = read_options(environment.parsed_options, environment.host)
        plan = plan_from_file(options.scenario, passes=options.passes, seed=options.seed)
        _sessions[id(environment)] = Session(options, plan)
    except (UsageError, ScenarioError) as error:
        print(error, file=sys.stderr)
        sys.exit(USAGE)
    except EvidenceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _quieten(parsed: Any) -> None:
    """Locust's tables of rounded percentiles are a live view at best: one progress bar and the verdict are printed."""
    parsed.only_summary = True
    logging.getLogger("locust.stats_logger").setLevel(logging.WARNING)


def _refuse_what_does_not_run(parsed: Any) -> None:
    """Ways of running that this version would get wrong, refused before a folder is made."""
    if parsed.master or parsed.worker or parsed.processes:
        raise UsageError("one process records a run in this version: leave --master, --worker and --processes out")
    if not parsed.headless:
        raise UsageError("the web UI does not record a run in this version: add --headless")
    if parsed.json or parsed.json_file:
        raise UsageError("Locust's own JSON is rounded and no evidence: use `python -m analysis summary RUN --json`")
    if parsed.tags or parsed.exclude_tags:
        raise UsageError("--tags and --exclude-tags choose tasks, and there is one: leave them out")
    if parsed.num_users not in (None, 1):
        raise UsageError(f"--users {parsed.num_users}: a sequential replay has one user; leave the option out")


def _on_quitting(environment: Environment, **_kwargs: Any) -> None:
    """Users still under way are stopped, so that each writes its line; then the folder is sealed and judged."""
    session = _sessions.get(id(environment))
    if session is None:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a second signal must not break into the sealing
    environment.process_exit_code = 1  # until the folder is sealed and judged: Locust swallows what a listener raises
    if environment.runner is not None and environment.runner.user_count:
        environment.runner.stop()
    session.seal()
    environment.process_exit_code = session.verdict()


def _on_quit(**_kwargs: Any) -> None:
    for session in _sessions.values():
        print(session.path, flush=True)


events.init_command_line_parser.add_listener(_on_parser)
events.init.add_listener(_on_init)
events.quitting.add_listener(_on_quitting)
events.quit.add_listener(_on_quit)
