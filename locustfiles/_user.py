"""The abstract user of every locustfile, and the listeners that start and join the recorder."""

import logging
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gevent
from locust import User, events
from locust.env import Environment
from locust.exception import StopUser

from evidence.errors import EvidenceError
from evidence.records import Request
from locustfiles._crew import RunOver
from locustfiles._distributed import AnySession, MasterSession, WorkerSession
from locustfiles._forked import end_forked
from locustfiles._lengths import plan_of_options
from locustfiles._options import Options, UsageError, add_options, own_headers, read_options
from locustfiles._ports import choose_defaults
from locustfiles._post import keep_quiet
from locustfiles._recording import Recording
from locustfiles._sender import keys_of
from locustfiles._session import Session
from locustfiles._stopping import end_well, ignore
from locustfiles._transports import Transport
from locustfiles._web import attach
from scenarios.notices import plan_notices
from scenarios.plan import Plan, PlannedRequest
from scenarios.strict_toml import ScenarioError

USAGE = 2
LOCUSTFILES = {"sequential": "sequential", "concurrency": "sweep", "context": "sweep", "arrivals": "arrivals"}

# One run a process in headless mode: the session lives as long as the process.
_sessions: dict[int, AnySession] = {}


def session_of(environment: Environment) -> AnySession:
    return _sessions[id(environment)]


class RequestFailed(Exception):
    """Shown by Locust for a request whose outcome is not "completed"; the record says the rest."""


class EvidenceUser(User):
    """Sends planned requests through the session and tells Locust's live view how they ended."""

    abstract = True
    kinds: ClassVar[tuple[str, ...]] = ()  # the scenarios it is for

    def on_start(self) -> None:
        session = session_of(self.environment)
        assert not isinstance(session, MasterSession), "a master sends nothing"
        self.session = session
        self.transport = self.session.transport()

    def on_stop(self) -> None:
        self.transport.close()

    def send(self, planned: PlannedRequest, transport: Transport | None = None, due_ns: int | None = None) -> None:
        """One planned request, over this user's own transport where none is given."""
        self.session.send(planned, transport or self.transport, due_ns=due_ns, told=partial(self._told, planned))

    def _told(self, planned: PlannedRequest, record: Request) -> None:
        """Locust's live view hears of a request once its line is written."""
        failure = None if record.outcome == "completed" else RequestFailed(record.outcome)
        self.environment.events.request.fire(
            request_type="warmup" if planned.phase == "warmup" else planned.endpoint,
            name=planned.domain,
            response_time=None if record.end_after_s is None else record.end_after_s * 1000,
            response_length=len(record.output_text.encode("utf-8", "replace")),
            exception=failure,
            context={},
        )

    def finish(self) -> None:
        """Ends the run from within a user: Locust is told to quit once this user has stopped."""
        gevent.spawn(self.environment.runner.quit)
        raise StopUser

    def fault(self, error: BaseException) -> None:
        """What a greenlet of this user's raised ends the run."""
        self.session.beside_failed(error)

    def guarded(self, replay: Any) -> None:
        """Runs ``replay``; this process's one boundary for exceptions that nobody expected."""
        try:
            replay()
        except RunOver:
            raise StopUser from None  # the run ends already
        except Exception as error:  # noqa: BLE001  the boundary of the house rules: recorded, and the run ends
            self.session.failed(error)
        self.finish()


def _is_news(record: logging.LogRecord) -> bool:
    """Locust warns twice that a shape ignores --users and the like; here they are refused, and that is said once."""
    return not str(record.msg).startswith(("--run-time, --users or --spawn-rate", "The following option(s) will be"))


def _on_parser(parser: Any, **_kwargs: Any) -> None:
    logging.getLogger("locust.main").addFilter(_is_news)
    add_options(parser)
    choose_defaults(parser, sys.argv[1:])
    end_forked(lambda: bool(_sessions))
    parser.set_defaults(web_host="127.0.0.1")  # Locust's own default is every interface


def _on_init(environment: Environment, **_kwargs: Any) -> None:
    """Everything that was typed is checked, and the folder made, before the first user exists."""
    assert environment.parsed_options is not None
    environment.events.quitting.add_listener(_on_quitting)  # here: the last one added is the first one called
    if environment.parsed_options.master:
        keep_quiet(environment.runner)
    try:
        _refuse_what_does_not_run(environment.parsed_options, sequential=environment.shape_class is None)
        _quieten(environment.parsed_options)
        end_well(environment, lambda name: _signalled(environment, name))
        if environment.parsed_options.worker:
            _sessions[id(environment)] = _worker_session(environment)
        elif environment.web_ui is not None:  # a session for each run that is started there
            attach(
                environment,
                lambda parsed: open_session(environment, parsed),
                lambda: close_session(environment),
                _kinds(environment),
            )
        else:
            open_session(environment, environment.parsed_options)
            environment.parsed_options.header = None  # Locust would send it to every worker; each has its own
    except (UsageError, ScenarioError) as error:
        print(error, file=sys.stderr)
        sys.exit(USAGE)
    except EvidenceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _worker_session(environment: Environment) -> WorkerSession:
    """Of a worker's own command line only its keys and its folder count; all else comes from its master."""
    parsed = environment.parsed_options
    assert parsed is not None
    return WorkerSession(keys_of(own_headers(parsed)), Path(parsed.run_dir or "runs"), environment.runner)


def open_session(environment: Environment, parsed: Namespace) -> AnySession:
    """The session of a run with these options: its folder is made.

    Raises UsageError, ScenarioError or EvidenceError where the run cannot begin.
    """
    options: Options = read_options(parsed, parsed.host)
    plan, notes = plan_of_options(options)
    _refuse_other_kinds(environment, plan)
    for said in plan_notices(plan.scenario):
        print(said, file=sys.stderr)
    session: MasterSession | Session
    if parsed.master:
        session = MasterSession(options, plan, environment.runner, n_workers=parsed.expect_workers)
    else:
        session = Session(options, plan)
    _sessions[id(environment)] = session
    for note in notes:
        session.recorder.notice(note)
    return session


def close_session(environment: Environment) -> int | None:
    """Seals and judges the run once its users have stopped; its exit code, None where there is no run."""
    session = _sessions.get(id(environment))
    if session is None:
        return None
    session.seal()
    return session.verdict()


def _refuse_other_kinds(environment: Environment, plan: Plan) -> None:
    kind = plan.scenario.kind
    if kind not in _kinds(environment):
        raise UsageError(f'the scenario is of kind = "{kind}": run it with -f locustfiles/{LOCUSTFILES[kind]}.py')


def _kinds(environment: Environment) -> set[str]:
    """Of the scenarios that every one of the locustfile's users runs."""
    each = [set(user.kinds) for user in environment.user_classes if issubclass(user, EvidenceUser)]
    return set.intersection(*each) if each else set()


def _quieten(parsed: Any) -> None:
    """Locust's tables of rounded percentiles are a live view at best: one progress bar and the verdict are printed."""
    parsed.only_summary = True
    for name in ("locust.stats_logger", "httpx2"):  # the latter has a line for each request
        logging.getLogger(name).setLevel(logging.WARNING)


def _refuse_what_does_not_run(parsed: Any, *, sequential: bool) -> None:
    """Ways of running that this version would get wrong, refused before a folder is made."""
    if parsed.worker:
        return
    if sequential and (parsed.master or parsed.processes):
        raise UsageError("a sequential replay is one user's: leave --master, --worker and --processes out")
    if not parsed.headless and (parsed.autostart or parsed.web_base_path):
        raise UsageError("--autostart and --web-base-path: a run is started on the page, at the root; leave them out")
    if sequential and not parsed.headless:
        raise UsageError("a sequential replay has nothing to start or stop in the web UI: add --headless")
    if parsed.json or parsed.json_file:
        raise UsageError("Locust's own JSON is rounded and no evidence: use `python -m analysis summary RUN --json`")
    if parsed.tags or parsed.exclude_tags:
        raise UsageError("--tags and --exclude-tags choose tasks, and there is one: leave them out")
    if sequential:
        if parsed.num_users not in (None, 1):
            raise UsageError(f"--users {parsed.num_users}: a sequential replay has one user; leave the option out")
        return
    refused = []
    if parsed.num_users is not None:
        refused.append(f"--users {parsed.num_users}: the scenario's levels say how many; leave the option out")
    if parsed.spawn_rate is not None:
        refused.append("--spawn-rate: each level's is chosen and recorded with it; leave the option out")
    if parsed.run_time is not None:
        refused.append("--run-time: a level ends by its requests or by levels.steady_s; leave the option out")
    if parsed.stop_timeout:
        refused.append("--stop-timeout: levels are drained, and a stop records what it cuts short; leave it out")
    if refused:
        raise UsageError("\n".join(refused))


def _on_quitting(environment: Environment, **_kwargs: Any) -> None:
    """Users still under way are stopped, so that each writes its line; then the folder is sealed and judged."""
    session = _sessions.get(id(environment))
    if session is None:
        return
    ignore()
    environment.process_exit_code = 1  # until the folder is sealed and judged: Locust swallows what a listener raises
    if environment.runner is not None and environment.runner.user_count:
        environment.runner.stop()
    environment.process_exit_code = close_session(environment)


def _signalled(environment: Environment, name: str) -> None:
    """A signal ends the run, which its evidence says."""
    session = _sessions.get(id(environment))
    if isinstance(session, Recording):
        session.signalled(name)


def _on_test_stopping(environment: Environment, **_kwargs: Any) -> None:
    """Whoever waits for a next request stops by itself."""
    session = _sessions.get(id(environment))
    if session is not None:
        session.stop_taking()


def _on_quit(**_kwargs: Any) -> None:
    for session in _sessions.values():
        if session.path is not None:
            print(session.path, flush=True)


events.init_command_line_parser.add_listener(_on_parser)
events.init.add_listener(_on_init)
events.test_stopping.add_listener(_on_test_stopping)
events.quit.add_listener(_on_quit)
