"""Signals that end a run well: Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed.

Locust alone would lose evidence: Ctrl-C raises KeyboardInterrupt in whichever greenlet just runs, a user's perhaps
between the end of its answer and its line; and as long as a headless shape runs, or a master waits for its workers,
SIGTERM has no handler and kills the process.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import gevent
from locust.env import Environment

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_well(environment: Environment, told: Callable[[str], None]) -> None:
    """From now on each of these signals ends the run as its end would: users are stopped and the folder is sealed.

    ``told`` hears the name of the signal first, and of another one that it is passed on as.
    """
    options = environment.parsed_options
    assert options is not None
    ours = options.headless and not options.worker and (environment.shape_class is not None or options.master)
    for number in (signal.SIGHUP, signal.SIGINT):
        gevent.signal_handler(number, _pass_on, number, told)
    if ours:  # else Locust's own handler of SIGTERM stands before the first user starts
        gevent.signal_handler(signal.SIGTERM, _stop, environment, told)


def ignore() -> None:
    """A second signal must not break into the sealing."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def _pass_on(number: signal.Signals, told: Callable[[str], None]) -> None:
    told(number.name)
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(environment: Environment, told: Callable[[str], None]) -> None:
    told("SIGTERM")
    runner: Any = environment.runner
    if environment.shape_class is None or runner.shape_greenlet is not None:
        runner.quit()
        return
    environment.events.quitting.fire(environment=environment, reverse=True)  # type: ignore[no-untyped-call]  # Locust's hooks have no types
    environment.events.quit.fire(exit_code=environment.process_exit_code)  # type: ignore[no-untyped-call]  # as above
    gevent.get_hub().parent.throw(SystemExit(environment.process_exit_code))
